"""MoeTokenUnpermuteGrad on Ascend 950: the sum of a row of products.

Order of accumulation, in fp32: n products are folded once, to the largest power of two q <= n: the
products from q on are added to the first ones. Then each register of 64 is summed as a tree, and
these sums as a tree; more than 64 of them are first halved register by register.

Longer rows are cut into blocks, each summed in this way: a main block, or half a main block and as
many columns of the part of the row behind the main blocks. The sums of the blocks go to lists of
256.

Source: specification page ``moe_token_unpermute_grad_950``, "Order" (``qsum``, ``cross``).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from npu_sim.kernels.ascend_950.sums import SLOTS, add_registers, fill_zeros, halve, largest_power
from npu_sim.kernels.engine.compile import device_function
from npu_sim.kernels.vectors.reduce_sum import LANE_COUNT, add_lanes
from npu_sim.kernels.vectors.row_sums import add_to

Floats = NDArray[np.float32]

WIDEST_TREE = LANE_COUNT * LANE_COUNT
"""Up to so many folded products, register sums need no halving: the sum is a tree of neighbours."""
CUT_SCRATCH = 2 * SLOTS + LANE_COUNT
"""Scratch of `cut_sum` besides one main block: two lists of sums, and a register."""
_ZERO = np.float32(0)


class Cut(NamedTuple):
    """Blocks of a row: columns of a main block, and how many; 0 for rows that are not cut."""

    columns: int
    blocks: int


@device_function
def power_sum(values: Floats, count: int) -> np.float32:
    """Return the sum of ``count`` folded products, a power of two and at least 64.

    Overwrites them.
    """
    registers = count // LANE_COUNT
    for number in range(registers):
        begin = number * LANE_COUNT
        values[number] = add_lanes(values[begin : begin + LANE_COUNT])
    if registers > LANE_COUNT:
        halve(values, registers // LANE_COUNT)
    else:
        fill_zeros(values, registers, LANE_COUNT)
    return add_lanes(values[:LANE_COUNT])


@device_function
def _block_sum(values: Floats, count: int) -> np.float32:
    """Return the sum ``qsum`` of products; overwrites them. ``values`` has at least 64 elements."""
    if count < LANE_COUNT:
        fill_zeros(values, count, LANE_COUNT)
        return add_lanes(values[:LANE_COUNT])
    folded = largest_power(count)
    add_to(values[: count - folded], values[folded:count])
    return power_sum(values, folded)


@device_function
def _cross(slots: Floats, lanes: Floats) -> np.float32:
    """Return the sum ``cross`` of 256 slots; overwrites them."""
    add_registers(slots, 0, 2 * LANE_COUNT, lanes)
    for lane in range(LANE_COUNT):
        slots[lane] = lanes[lane]
    add_registers(slots, LANE_COUNT, 3 * LANE_COUNT, lanes)
    add_to(lanes, slots[:LANE_COUNT])
    return add_lanes(lanes)


@device_function
def _add_slot(lists: Floats, number: int, slot: np.float32) -> None:
    """Put slot ``number`` of a row into the first list; a full list is one slot of the second."""
    lists[number % SLOTS] = slot
    if number % SLOTS == SLOTS - 1:
        lanes = lists[2 * SLOTS :]
        lists[SLOTS + number // SLOTS] = _cross(lists[:SLOTS], lanes)
        fill_zeros(lists, 0, SLOTS)


@device_function
def _copy(values: Floats, begin: int, count: int, target: Floats, place: int) -> None:
    """Copy ``count`` values from ``begin`` on to ``target`` from ``place`` on."""
    for number in range(count):
        target[place + number] = values[begin + number]


@device_function
def cut_sum(products: Floats, cut: Cut, scratch: Floats) -> np.float32:
    """Return the sum of a row of products that is cut into blocks.

    ``scratch`` has as many elements as a main block and `CUT_SCRATCH`.
    """
    main, half, hidden = cut.columns, cut.columns // 2, products.size
    behind = main * cut.blocks
    block, lists = scratch[:main], scratch[main : main + CUT_SCRATCH]
    fill_zeros(lists, 0, 2 * SLOTS)
    number = 0
    begin, other = 0, behind
    while other < hidden:
        count = min(half, hidden - other)
        _copy(products, begin, half, block, 0)
        _copy(products, other, count, block, half)
        _add_slot(lists, number, _block_sum(block, half + count))
        number, begin, other = number + 1, begin + half, other + half
    if begin % main:
        _copy(products, begin, half, block, 0)
        _add_slot(lists, number, _block_sum(block, half))
        number, begin = number + 1, begin + half
    while begin < behind:
        _copy(products, begin, main, block, 0)
        _add_slot(lists, number, _block_sum(block, main))
        number, begin = number + 1, begin + main
    lanes = lists[2 * SLOTS :]
    rest = _cross(lists[:SLOTS], lanes)
    return rest + _cross(lists[SLOTS : 2 * SLOTS], lanes) if number >= SLOTS else rest
