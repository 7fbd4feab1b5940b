"""The sum of the products of two rows of numbers, as MoeTokenUnpermuteGrad adds them up: folded to a power of two, then as a tree.

A fold adds the products behind a half to those before it. Where every half is a number of whole
cache lines, a line of products is folded in registers, and only sums of neighbours, the first step
of the tree, are written; else products wait in scratch.

Source: specification page ``moe_token_unpermute_grad``, "Kernels and order" (``reduce``).
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_sim.kernels.engine.compile import device_function
from npu_sim.kernels.vectors.lane_type import LINE_BYTES
from npu_sim.kernels.vectors.lanes import load, prefetch
from npu_sim.kernels.vectors.lanes_kept import (
    ORDERED_LANES,
    add_neighbours,
    keep,
    load_ordered,
    recall,
)
from npu_sim.kernels.vectors.reduce_sum import LANE_COUNT, add_lanes
from npu_sim.kernels.vectors.row_sums import add_to, clear
from npu_sim.numbers.scalars import widen

Stored = NDArray[Any]
Floats = NDArray[np.float32]
Lanes = Any
FOLD_STEP = 8
"""Half of the products, rounded up to a multiple of this, stays in place when the others are added
to them."""


@device_function
def folded_width(count: int) -> int:
    """Return how many folded products are left for the tree; 0 for fewer than 64, which are not folded."""
    return 4096 if count >= 4096 else 512 if count >= 512 else 64 if count >= 64 else 0


@device_function
def _fold_of(count: int, width: int) -> int:
    """Return how many of so many products a fold leaves; all of them when they are no more than ``width``."""
    half = ((count + 1) // 2 + FOLD_STEP - 1) // FOLD_STEP * FOLD_STEP
    return half if count > 2 * width else min(count, width)


@device_function
def folds_lines(count: int, line: int) -> bool:
    """Whether so many products are folded by three folds at most, each of whole lines."""
    width = folded_width(count)
    first = _fold_of(count, width)
    second = _fold_of(first, width)
    third = _fold_of(second, width)
    return width > 0 and third == width and (count | first | second | third) % line == 0


@device_function
def widen_row(stored: Stored, start: int, by_line: bool, wide: Floats) -> None:
    """Widen the elements of a row in the order of the lanes of a line, or in their own."""
    line = LINE_BYTES // stored.itemsize
    whole = wide.size // ORDERED_LANES * ORDERED_LANES
    if by_line:
        for column in range(0, wide.size, line):
            keep(wide, column, load(stored, start + column))
        return
    for column in range(0, whole, ORDERED_LANES):
        keep(wide, column, load_ordered(stored, start + column))
    for column in range(whole, wide.size):
        wide[column] = widen(stored[start + column])


@device_function
def fold_line(
    row: Stored, start: int, wide: Floats, column: int, following: int, scratch: Floats
) -> None:
    """Fold the products of a piece of a row and a widened one that end up in a line; write the sums of their neighbours.

    Parameters
    ----------
    row, start
        The elements from ``start`` on, as many as ``wide`` has; all folds are of whole lines
        (`folds_lines`).
    wide
        From `widen_row`, by line.
    column
        First of the line, less than `folded_width`.
    following
        Element of ``row`` whose piece comes next; it is asked for meanwhile.
    scratch
        As many elements as ``wide``, 64 at least; `sum_of_lines` adds them up.
    """
    width = folded_width(wide.size)
    first = _fold_of(wide.size, width)
    second = _fold_of(first, width)
    lanes = _fold_twice(row, start, wide, first, second, column, following)
    if column + width < second:
        lanes = lanes + _fold_twice(row, start, wide, first, second, column + width, following)
    keep(scratch, column // 2, add_neighbours(lanes, row))


@device_function
def sum_of_lines(count: int, scratch: Floats) -> np.float32:
    """Return the sum of a piece of so many products after `fold_line` of all its lines."""
    return _tree(scratch, folded_width(count) // 2)


@device_function
def _multiply(row: Stored, start: int, wide: Floats, column: int, following: int) -> Lanes:
    """Return a line of products."""
    prefetch(row, following + column)
    return load(row, start + column) * recall(wide, column, row)


@device_function
def _fold_once(
    row: Stored, start: int, wide: Floats, first: int, column: int, following: int
) -> Lanes:
    """Return a line of what the first fold leaves."""
    lanes = _multiply(row, start, wide, column, following)
    if column + first < wide.size:
        lanes = lanes + _multiply(row, start, wide, column + first, following)
    return lanes


@device_function
def _fold_twice(
    row: Stored, start: int, wide: Floats, first: int, second: int, column: int, following: int
) -> Lanes:
    """Return a line of what the second fold leaves."""
    lanes = _fold_once(row, start, wide, first, column, following)
    if column + second < first:
        lanes = lanes + _fold_once(row, start, wide, first, column + second, following)
    return lanes


@device_function
def sum_of_products(row: Stored, start: int, wide: Floats, products: Floats) -> np.float32:
    """Return the sum of the products of a piece of a row and a widened one, in their own order; ``products`` is scratch."""
    width = folded_width(wide.size)
    if width == 0:
        clear(products[wide.size : LANE_COUNT])
        _multiply_and_fold(row, start, wide, wide.size, products)
        return add_lanes(products[:LANE_COUNT])
    count = _fold_of(wide.size, width)
    _multiply_and_fold(row, start, wide, count, products)
    while count > width:
        left = _fold_of(count, width)
        add_to(products[: count - left], products[left:count])
        count = left
    return _tree(products, width)


@device_function
def _multiply_and_fold(row: Stored, start: int, wide: Floats, front: int, products: Floats) -> None:
    """Write the products of a row and a widened one, those from ``front`` on added to the first ones."""
    back = wide.size - front
    both, whole = back // ORDERED_LANES * ORDERED_LANES, front // ORDERED_LANES * ORDERED_LANES
    for column in range(0, both, ORDERED_LANES):
        first = load_ordered(row, start + column) * load_ordered(wide, column)
        keep(
            products,
            column,
            first + load_ordered(row, start + front + column) * load_ordered(wide, front + column),
        )
    for column in range(both, whole, ORDERED_LANES):
        keep(products, column, load_ordered(row, start + column) * load_ordered(wide, column))
    for column in range(whole, front):
        products[column] = widen(row[start + column]) * wide[column]
    for column in range(both, back):
        products[column] = (
            products[column] + widen(row[start + front + column]) * wide[front + column]
        )


@device_function
def _tree(values: Floats, width: int) -> np.float32:
    """Sum a power of two of values as a binary tree of neighbours; overwrites them, 64 at least.

    Zeros fill the last 64 up: all they could change is the sign of a zero, which the caller adds to
    +0.
    """
    while width > LANE_COUNT:
        for block in range(0, width, LANE_COUNT):
            values[block // LANE_COUNT] = add_lanes(values[block : block + LANE_COUNT])
        width //= LANE_COUNT
    if width < LANE_COUNT:
        clear(values[width:LANE_COUNT])
    return add_lanes(values[:LANE_COUNT])
