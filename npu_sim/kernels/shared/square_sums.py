"""Sum of the squares of a row, in the orders of the products, and the inverse root of their mean.

Atlas A2, A3 and the Atlas inference series: 64 lane accumulators, or halving, of whole rows or in
pieces. Ascend 950, key 5000: the squares are folded to a power of two, the lanes of every register
are added as a tree, then these sums as a tree; the root is refined by fused steps. Key 2001 takes
pieces of a row in pairs, whose sums go to lists of 256.

The same orders as trees: ``npu_sim/operators/rms_norm``.

Sources: specification pages ``rms_norm``, section "Kernels and accumulation order", and
``rms_norm_950``, "Kernels and order".
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from npu_sim.kernels.engine.compile import device_function
from npu_sim.kernels.vectors.lanes import (
    ONE,
    ORDERED_LANES,
    ZERO,
    Floats,
    load_ordered,
    multiply_add,
    splat,
    store_lanes,
)
from npu_sim.kernels.vectors.row_sums import (
    LANE_COUNT,
    SLOTS,
    add_lanes,
    add_slot,
    clear,
    front_of,
    halve,
    keep_lanes,
    level,
    pair_sum,
    paired,
    power_tree,
)
from npu_sim.numbers.scalars import widen

LANES = 0
"""Whole rows, summed in 64 lane accumulators: key 2."""
HALVING = 1
"""Whole rows, summed by halving: keys 0 and 3."""
PIECES = 2
"""Rows in pieces, each summed by halving: key 1."""
FOLDED = 3
"""Ascend 950, key 5000: whole rows, folded once."""
LISTS = 4
"""Ascend 950, key 2001: rows in pieces, whose sums go to lists."""

REGISTERS = 4 * LANE_COUNT
"""Scratch of Ascend 950: four registers, then the lists, then the squares of a piece."""
LIST_SLOTS = 3 * SLOTS
_HALF, _MINUS_HALF, _THREE_HALVES = np.float32(0.5), np.float32(-0.5), np.float32(1.5)
_INFINITY = np.float32(np.inf)
SMALLEST_NORMAL = np.float32(2.0**-126)
LARGEST_INVERTED = np.float32(2.0**126)
"""The reciprocal of a larger number is subnormal, which division replaces by 0."""


class Split(NamedTuple):
    """Summation of a row."""

    path: int
    piece_columns: int
    """Columns of a piece, with `PIECES` and `LISTS`."""
    fold: int = 0
    """With `FOLDED`, the elements that the first fold of a row leaves."""
    pieces: int = 0
    """With `LISTS`, the pieces of the power of two below a row."""
    granule: int = 0
    """With `LISTS`, the squares of a piece are padded to a multiple of this."""


@device_function
def square(x, column: int) -> Any:
    """Return the squares of some columns."""
    lanes = load_ordered(x, column)
    return lanes * lanes


@device_function
def square_one(x, column: int) -> np.float32:
    """Return the square of one column."""
    value = widen(x[column])
    return value * value


@device_function
def lane_sum(x, split: Split, scratch: Floats) -> np.float32:
    """Return the sum of squares: 64 lane accumulators, then a tree over the lanes."""
    accumulators = scratch[:LANE_COUNT]
    first = splat(ZERO, accumulators)
    second, third, fourth = first, first, first
    whole = x.size // LANE_COUNT * LANE_COUNT
    for column in range(0, whole, LANE_COUNT):
        first = first + square(x, column)
        second = second + square(x, column + ORDERED_LANES)
        third = third + square(x, column + 2 * ORDERED_LANES)
        fourth = fourth + square(x, column + 3 * ORDERED_LANES)
    keep_lanes(accumulators, first, second, third, fourth)
    for column in range(whole, x.size):
        accumulators[column - whole] = accumulators[column - whole] + square_one(x, column)
    return add_lanes(accumulators)


@device_function
def _halved_sum(x, squares: Floats) -> np.float32:
    """Return the sum of squares by ``halving``, fusing the first step. ``squares`` is scratch."""
    front = front_of(x.size)
    back = x.size - front
    both, whole = back // ORDERED_LANES * ORDERED_LANES, front // ORDERED_LANES * ORDERED_LANES
    for column in range(0, both, ORDERED_LANES):
        store_lanes(squares, column, square(x, column) + square(x, front + column))
    for column in range(both, whole, ORDERED_LANES):
        store_lanes(squares, column, square(x, column))
    for column in range(whole, front):
        squares[column] = square_one(x, column)
    for column in range(both, back):
        squares[column] = squares[column] + square_one(x, front + column)
    if front < LANE_COUNT:
        clear(squares[front:LANE_COUNT])
    return halve(squares, max(front, LANE_COUNT))


@device_function
def halved_sums(x, split: Split, scratch: Floats) -> np.float32:
    """Return the sum of squares: piece by piece, each piece by halving."""
    total, piece_columns = ZERO, split.piece_columns if split.path == PIECES else x.size
    for begin in range(0, x.size, piece_columns):
        piece = x[begin : min(x.size, begin + piece_columns)]
        total = total + _halved_sum(piece, scratch)
    return total


@device_function
def _put_squares(x: NDArray[Any], begin: int, end: int, padded: int, squares: Floats) -> None:
    """Write the squares of the columns begin..end, and zeros up to ``padded`` values."""
    count = end - begin
    whole = count // ORDERED_LANES * ORDERED_LANES
    for position in range(0, whole, ORDERED_LANES):
        store_lanes(squares, position, square(x, begin + position))
    for position in range(whole, count):
        squares[position] = square_one(x, begin + position)
    clear(squares[count:padded])


@device_function
def _folded_register_sum(
    x: NDArray[Any], begin: int, partner: int, tail: Floats, lanes: Floats
) -> np.float32:
    """Return tree64 of the squares of a register and of its partner, as far as that exists.

    ``tail`` (64,) is scratch for a partner that the end of the row cuts.
    """
    if partner + LANE_COUNT <= x.size:
        for lane in range(0, LANE_COUNT, ORDERED_LANES):
            store_lanes(lanes, lane, square(x, begin + lane) + square(x, partner + lane))
        return add_lanes(lanes)
    _put_squares(x, min(partner, x.size), x.size, LANE_COUNT, tail)
    for lane in range(0, LANE_COUNT, ORDERED_LANES):
        store_lanes(lanes, lane, square(x, begin + lane) + load_ordered(tail, lane))
    return add_lanes(lanes)


@device_function
def folded_sum(x, split: Split, scratch: Floats) -> np.float32:
    """Return the sum of squares of key 5000."""
    fold, sums = split.fold, scratch[: 2 * LANE_COUNT]
    lanes, tail = scratch[2 * LANE_COUNT : 3 * LANE_COUNT], scratch[3 * LANE_COUNT : REGISTERS]
    if x.size < LANE_COUNT:
        _put_squares(x, 0, x.size, LANE_COUNT, lanes)
        return add_lanes(lanes)
    # A row of 64 columns, whose fold is 32, is one register without a partner.
    registers = max(fold // LANE_COUNT, 1)
    for number in range(registers):
        begin = number * LANE_COUNT
        partner = max(fold, LANE_COUNT) + begin
        sums[number] = _folded_register_sum(x, begin, partner, tail, lanes)
    if registers <= LANE_COUNT:
        return power_tree(sums, registers, lanes)
    return pair_sum(sums, 0, LANE_COUNT, lanes)


@device_function
def _piece_sum(
    x: NDArray[Any], begin: int, count: int, power: int, granule: int, scratch: Floats
) -> np.float32:
    """Return ``S(count, power)`` of the squares from ``begin`` on."""
    padded = (count + granule - 1) // granule * granule
    squares = scratch[REGISTERS + LIST_SLOTS :]
    _put_squares(x, begin, begin + count, padded, squares)
    sums, lanes = scratch[:LANE_COUNT], scratch[LANE_COUNT : 2 * LANE_COUNT]
    return paired(squares, padded, power, sums, lanes)


@device_function
def listed_sum(x, split: Split, scratch: Floats) -> np.float32:
    """Return the sum of squares of key 2001."""
    piece, half = split.piece_columns, split.piece_columns // 2
    rest = x.size - split.pieces * piece
    pairs, tail = rest // piece, rest % piece
    lanes, levels = scratch[:LANE_COUNT], scratch[REGISTERS : REGISTERS + LIST_SLOTS]
    clear(levels)
    begin = 0
    for number in range(split.pieces):
        first, first_power, second, second_power = piece, piece, 0, 0
        if number < pairs:
            second, second_power = piece, piece
        elif number == pairs and tail > half:
            second, second_power = tail, half
        elif number == pairs and tail > 0:
            first, first_power, second, second_power = half + tail, half, half, half
        slot = _piece_sum(x, begin, first, first_power, split.granule, scratch)
        begin += first
        if second > 0:
            slot = slot + _piece_sum(x, begin, second, second_power, split.granule, scratch)
            begin += second
        add_slot(levels, number, slot, lanes, 1)
    return level(levels, split.pieces, lanes)


@device_function
def inverse_root(total: np.float32, average: np.float32, epsilon: np.float32) -> np.float32:
    """Return 1 / sqrt(total * average + epsilon) in four roundings."""
    return ONE / np.sqrt(total * average + epsilon)


@device_function
def refined_root(total: np.float32, average: np.float32, epsilon: np.float32) -> np.float32:
    """Return 1 / sqrt(total * average + epsilon) by the fused steps of key 5000.

    Division and root give 0 for subnormal inputs and results (page ``ascend_950``, "Numerics").
    """
    v = total * average + epsilon
    if v == _INFINITY:
        return ZERO
    if v == ZERO:
        return _INFINITY
    if v < SMALLEST_NORMAL and v > -SMALLEST_NORMAL:
        r = _INFINITY
    else:
        r = ZERO if v > LARGEST_INVERTED else ONE / v
    y0 = np.sqrt(r)
    t = (v * _MINUS_HALF) * y0
    y1 = y0 * multiply_add(t, y0, _THREE_HALVES)
    d1 = multiply_add(-v, r, ONE)
    r2 = multiply_add(-y1, y1, r)
    d2 = multiply_add(v, r2, d1)
    return multiply_add(d2 * y1, _HALF, y1)


@device_function
def normal_root(total: np.float32, average: np.float32, epsilon: np.float32) -> np.float32:
    """Return 1 / sqrt(total * average + epsilon) in four roundings; a subnormal sum counts as 0."""
    v = total * average + epsilon
    return _INFINITY if v < SMALLEST_NORMAL else ONE / np.sqrt(v)
