"""Sum of the values of a row in one vector core, in fp32, in the orders of the products.

Atlas A2 and A3: `reduce_sum`, by halving (`front_of`, `halve`), or in 64 lane accumulators.
Ascend 950: from `largest_power` on; a *register* is 64 consecutive values, and its sum is a binary
tree of neighbours as on A2. Arrays are float32, 1-D and C-contiguous; ``lanes`` (64,) is scratch.

Sources: specification pages ``numerics``, "Sums inside one vector core"; ``rms_norm_grad``,
"Kernels and accumulation order"; ``ascend_950``, "Sums used by several kernels". The same sums as
trees: `npu_sim.orders.trees`.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from npu_sim.kernels.engine.compile import device_function
from npu_sim.kernels.vectors.lanes import (
    FLOAT,
    I32,
    I64,
    NOTHING_YET,
    ORDERED_LANES,
    ZERO,
    Floats,
    always,
    element_address,
    instruction,
    load_ordered,
    load_vector,
    store_lanes,
    undefined_vector,
)

LANE_COUNT = 64
"""fp32 lanes of one vector instruction."""


def _add_lanes(context: Any, builder: ir.IRBuilder, kinds: Any, lanes: Any) -> ir.Value:
    address = element_address(context, builder, kinds[0], LANE_COUNT, lanes, I64(0))
    numbers, count = load_vector(builder, address, FLOAT, LANE_COUNT, 4), LANE_COUNT
    while count > 1:
        count //= 2
        unused, kind = undefined_vector(FLOAT, 2 * count), ir.VectorType(I32, count)
        even, odd = (ir.Constant(kind, list(range(first, 2 * count, 2))) for first in (0, 1))
        numbers = builder.fadd(
            builder.shuffle_vector(numbers, unused, even),
            builder.shuffle_vector(numbers, unused, odd),
        )
    return builder.extract_element(numbers, I32(0))


@instruction(always(types.float32), _add_lanes)
def add_lanes(lanes: Floats) -> np.float32:
    """Return the sum of 64 lanes as a binary tree of neighbours."""
    while lanes.size > 1:
        lanes = lanes[0::2] + lanes[1::2]
    return lanes[0]


@device_function
def tree64(values: Floats, lanes: Floats) -> np.float32:
    """Return the sum of at most 64 values as a binary tree of neighbours; missing lanes are +0.

    Parameters
    ----------
    values : float32 (n,), n <= 64
    lanes : float32 (64,)
        Scratch.
    """
    copy_to(lanes[: values.size], values)
    clear(lanes[values.size : LANE_COUNT])
    return add_lanes(lanes)


@device_function
def reduce_sum(values: Floats, lanes: Floats) -> np.float32:
    """Return the sum of at least one value: `tree64` of every 64, added from first to last."""
    total = NOTHING_YET
    for begin in range(0, values.size, LANE_COUNT):
        total = total + tree64(values[begin : begin + LANE_COUNT], lanes)
    return total


@device_function
def clear(values: Floats) -> None:
    """Set values to +0."""
    for position in range(values.size):
        values[position] = ZERO


@device_function
def add_to(target: Floats, values: Floats) -> None:
    """Add values to a slice of the same size."""
    for position in range(target.size):
        target[position] = target[position] + values[position]


@device_function
def copy_to(target: Floats, values: Floats) -> None:
    """Copy values to a slice of the same size."""
    for position in range(target.size):
        target[position] = values[position]


@device_function
def keep_lanes(lanes: Floats, first: Floats, second: Floats, third: Floats, fourth: Floats) -> None:
    """Write 64 lane accumulators, a quarter in each vector, to an array (64,)."""
    store_lanes(lanes, 0, first)
    store_lanes(lanes, ORDERED_LANES, second)
    store_lanes(lanes, 2 * ORDERED_LANES, third)
    store_lanes(lanes, 3 * ORDERED_LANES, fourth)


@device_function
def front_of(columns: int) -> int:
    """Return the number of values of a row after its first halving, which adds the others to them.

    For a power of two, the first halving would add nothing, so the next one comes first. At most 64
    values are not halved.
    """
    front = LANE_COUNT
    while 2 * front < columns:
        front *= 2
    return min(front, columns)


@device_function
def halve(numbers: Floats, front: int) -> np.float32:
    """Return the sum by ``halving`` of the first ``front`` numbers; overwrites them.

    ``front`` is a power of two and at least 64.
    """
    halve_registers(numbers, front // LANE_COUNT)
    return add_lanes(numbers[:LANE_COUNT])


SLOTS = 256
"""Slots of one list of `level`."""
FEW = 16


@device_function
def largest_power(number: int) -> int:
    """Return the largest power of two that is at most ``number``; 1 for numbers below 2."""
    power = 1
    while 2 * power <= number:
        power *= 2
    return power


@device_function
def pair_sum(values: Floats, first: int, second: int, lanes: Floats) -> np.float32:
    """Return tree64 of the sum of two registers, which is written to ``lanes``."""
    for lane in range(0, LANE_COUNT, ORDERED_LANES):
        sums = load_ordered(values, first + lane)
        store_lanes(lanes, lane, sums + load_ordered(values, second + lane))
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
    return values[0] + ZERO


@device_function
def paired(values: Floats, count: int, power: int, sums: Floats, lanes: Floats) -> np.float32:
    """Return the sum ``paired(v, c, P)`` of the page; overwrites the values.

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
    fold(values, power, count - power)
    for begin in range(0, power, 2 * LANE_COUNT):
        sums[begin // (2 * LANE_COUNT)] = pair_sum(values, begin, begin + LANE_COUNT, lanes)
    return power_tree(sums, power // (2 * LANE_COUNT), lanes)


@device_function
def fold(values: Floats, front: int, count: int) -> None:
    """Add ``count`` values behind the first ``front`` to the first; a multiple of 16."""
    for position in range(0, count, ORDERED_LANES):
        sums = load_ordered(values, position)
        store_lanes(values, position, sums + load_ordered(values, front + position))


@device_function
def halve_registers(values: Floats, count: int) -> None:
    """Add the second half of ``count`` registers to the first, down to one, in place."""
    while count > 1:
        count //= 2
        fold(values, count * LANE_COUNT, count * LANE_COUNT)


@device_function
def groups16(values: Floats, count: int, size: int = 16) -> None:
    """Halve every ``size`` registers to one while there are as many, then halve the others.

    ``count`` is a power of two; the result is the first register.
    """
    while count >= size:
        for group in range(count // size):
            begin = size * group * LANE_COUNT
            halve_registers(values[begin : begin + size * LANE_COUNT], size)
            for position in range(0, LANE_COUNT, ORDERED_LANES):
                sums = load_ordered(values, begin + position)
                store_lanes(values, group * LANE_COUNT + position, sums)
        count //= size
    halve_registers(values, count)


@device_function
def cols_sum(values: Floats, count: int) -> np.float32:
    """Return the sum ``cols_sum`` of ``count`` values, a multiple of 128; overwrites them."""
    power = largest_power(count)
    fold(values, power, count - power)
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
    add_to(values[: count - power], values[power:count])
    registers = power // LANE_COUNT
    groups16(values, registers, 16 if count % 8 == 0 else registers + 1)
    return add_lanes(values[:LANE_COUNT])


@device_function
def one_list(slots: Floats, lanes: Floats, partner: int) -> np.float32:
    """Return the sum of the 256 slots of one list; ``partner`` is added to register 0: 1 or 2."""
    for lane in range(LANE_COUNT):
        first = slots[lane] + slots[lane + partner * LANE_COUNT]
        second = slots[lane + (3 - partner) * LANE_COUNT] + slots[lane + 3 * LANE_COUNT]
        lanes[lane] = first + second
    return add_lanes(lanes)


@device_function
def add_slot(levels: Floats, number: int, slot: np.float32, lanes: Floats, partner: int) -> None:
    """Put slot ``number`` of a row into the first list; a full list is one slot of the next.

    ``levels`` holds two lists or more, +0 before the first slot of a row.
    """
    levels[number % SLOTS] = slot
    begin, place = 0, number
    while place % SLOTS == SLOTS - 1 and begin + SLOTS < levels.size:
        place //= SLOTS
        slots = levels[begin : begin + SLOTS]
        levels[begin + SLOTS + place % SLOTS] = one_list(slots, lanes, partner)
        clear(slots)
        begin += SLOTS


@device_function
def level(levels: Floats, slots: int, lanes: Floats) -> np.float32:
    """Return the sum of a row of ``slots`` slots, a power of two."""
    begin = 0
    while slots >= SLOTS and begin + SLOTS < levels.size:
        slots //= SLOTS
        begin += SLOTS
        if slots == 1:
            return levels[begin]
    return one_list(levels[begin : begin + SLOTS], lanes, 1)
