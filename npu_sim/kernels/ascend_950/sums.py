"""Common sums of the kernels of Ascend 950: of the values of one row, in fp32.

Registers are 64 consecutive values. A register sum is a binary tree of neighbours, as on A2.
Functions take float32 arrays, 1-D and C-contiguous; ``lanes`` (64,) is scratch.

Source: specification page ``ascend_950``, "Sums used by several kernels".
"""

import numpy as np
from numpy.typing import NDArray

from npu_sim.kernels.engine.compile import device_function
from npu_sim.kernels.vectors.lanes_kept import ORDERED_LANES, load_ordered, store_lanes
from npu_sim.kernels.vectors.reduce_sum import LANE_COUNT, add_lanes, tree64

SLOTS = 256
"""Slots of one list of `level`."""
FEW = 16
_ZERO = np.float32(0)
Floats = NDArray[np.float32]


@device_function
def largest_power(number: int) -> int:
    """Return the largest power of two that is at most ``number``; 1 for numbers below 2."""
    power = 1
    while 2 * power <= number:
        power *= 2
    return power


@device_function
def fill_zeros(values: Floats, begin: int, end: int) -> None:
    """Set the values begin..end to +0."""
    for position in range(begin, end):
        values[position] = _ZERO


@device_function
def add_registers(values: Floats, first: int, second: int, lanes: Floats) -> None:
    """Write the sum of two registers, lane by lane, to ``lanes``."""
    for lane in range(0, LANE_COUNT, ORDERED_LANES):
        sums = load_ordered(values, first + lane)
        store_lanes(lanes, lane, sums + load_ordered(values, second + lane))


@device_function
def pair_sum(values: Floats, first: int, second: int, lanes: Floats) -> np.float32:
    """Return tree64 of the sum of two registers."""
    add_registers(values, first, second, lanes)
    return add_lanes(lanes)


@device_function
def folded_pair_sum(values: Floats, begin: int, distance: int, lanes: Floats) -> np.float32:
    """Return tree64(a + b) of neighbouring registers that first receive their partners.

    A partner lies ``distance`` values further on.
    """
    for lane in range(0, LANE_COUNT, ORDERED_LANES):
        left = begin + lane
        other = left + LANE_COUNT
        first = load_ordered(values, left) + load_ordered(values, left + distance)
        second = load_ordered(values, other) + load_ordered(values, other + distance)
        store_lanes(lanes, lane, first + second)
    return add_lanes(lanes)


@device_function
def power_tree(values: Floats, count: int, lanes: Floats) -> np.float32:
    """Return tree64 of at most 64 values, a power of two of them; overwrites them.

    Few are added one by one, which is faster: the missing lanes add +0 at the end.
    """
    if count > FEW:
        return tree64(values[:count], lanes)
    while count > 1:
        count //= 2
        for position in range(count):
            values[position] = values[2 * position] + values[2 * position + 1]
    return values[0] + _ZERO


@device_function
def paired(values: Floats, count: int, power: int, sums: Floats, lanes: Floats) -> np.float32:
    """Return the sum ``paired(v, c, P)`` of the page.

    Parameters
    ----------
    values : float32 (count,)
    count
        A multiple of 128; ``power <= count <= 2 * power``.
    power
        A power of two, at most 8192.
    sums : float32 (64,)
        Scratch.
    """
    paired_values = count - power
    for begin in range(0, paired_values, 2 * LANE_COUNT):
        sums[begin // (2 * LANE_COUNT)] = folded_pair_sum(values, begin, power, lanes)
    for begin in range(paired_values, power, 2 * LANE_COUNT):
        sums[begin // (2 * LANE_COUNT)] = pair_sum(values, begin, begin + LANE_COUNT, lanes)
    return power_tree(sums, power // (2 * LANE_COUNT), lanes)


@device_function
def halve(values: Floats, count: int) -> None:
    """Add the second half of ``count`` registers to the first, down to one, in place."""
    while count > 1:
        count //= 2
        half = count * LANE_COUNT
        for position in range(0, half, ORDERED_LANES):
            sums = load_ordered(values, position)
            store_lanes(values, position, sums + load_ordered(values, half + position))


@device_function
def groups16(values: Floats, count: int) -> None:
    """Replace every 16 registers by their `halve` while there are as many; `halve` the others.

    ``count`` is a power of two; the result is the first register.
    """
    while count >= 16:
        for group in range(count // 16):
            begin = 16 * group * LANE_COUNT
            halve(values[begin : begin + 16 * LANE_COUNT], 16)
            for position in range(0, LANE_COUNT, ORDERED_LANES):
                sums = load_ordered(values, begin + position)
                store_lanes(values, group * LANE_COUNT + position, sums)
        count //= 16
    halve(values, count)


@device_function
def cols_sum(values: Floats, count: int) -> np.float32:
    """Return the sum ``cols_sum`` of ``count`` values, a multiple of 128; overwrites them."""
    power = largest_power(count)
    for position in range(0, count - power, ORDERED_LANES):
        sums = load_ordered(values, position)
        store_lanes(values, position, sums + load_ordered(values, power + position))
    groups16(values, power // LANE_COUNT)
    return add_lanes(values[:LANE_COUNT])


@device_function
def _tree8(values: Floats) -> np.float32:
    """Return the sum of 8 values as a binary tree of neighbours."""
    first = (values[0] + values[1]) + (values[2] + values[3])
    return first + ((values[4] + values[5]) + (values[6] + values[7]))


@device_function
def row_sum(values: Floats, lanes: Floats) -> np.float32:
    """Return the library's sum of at least one value; overwrites them (page, "rs")."""
    count = values.size
    if count == 1:
        return values[0]
    if count in (8, 16, 24):
        for position in range(8, count):
            values[position % 8] = values[position] + values[position % 8]
        return _tree8(values)
    if count <= LANE_COUNT:
        return tree64(values, lanes)
    power = largest_power(count)
    for position in range(count - power):
        values[position] = values[position] + values[power + position]
    if count % 8 == 0:
        groups16(values, power // LANE_COUNT)
    else:
        halve(values, power // LANE_COUNT)
    return add_lanes(values[:LANE_COUNT])


@device_function
def one_list(slots: Floats, lanes: Floats) -> np.float32:
    """Return the sum of the 256 slots of one list of `level`."""
    for lane in range(LANE_COUNT):
        first = slots[lane] + slots[lane + LANE_COUNT]
        second = slots[lane + 2 * LANE_COUNT] + slots[lane + 3 * LANE_COUNT]
        lanes[lane] = first + second
    return add_lanes(lanes)


@device_function
def start_levels(levels: Floats) -> None:
    """Clear the lists (3, 256) of `add_slot` before the first slot of a row."""
    for number in range(levels.shape[0]):
        fill_zeros(levels[number], 0, SLOTS)


@device_function
def add_slot(levels: Floats, number: int, slot: np.float32, lanes: Floats) -> None:
    """Put slot ``number`` of a row into the lists; a full list is one slot of the next."""
    levels[0, number % SLOTS] = slot
    depth, place = 0, number
    while place % SLOTS == SLOTS - 1 and depth + 1 < levels.shape[0]:
        place //= SLOTS
        levels[depth + 1, place % SLOTS] = one_list(levels[depth], lanes)
        fill_zeros(levels[depth], 0, SLOTS)
        depth += 1


@device_function
def level(levels: Floats, slots: int, lanes: Floats) -> np.float32:
    """Return the sum of a row of ``slots`` slots, a power of two."""
    depth = 0
    while slots >= SLOTS and depth + 1 < levels.shape[0]:
        slots //= SLOTS
        depth += 1
        if slots == 1:
            return levels[depth, 0]
    return one_list(levels[depth], lanes)
