"""The sum of the products of two rows of numbers, as MoeTokenUnpermuteGrad adds them up: folded to a power of two, then as a tree.

A fold adds the products behind a half to those before it. Where every half is a number of whole
cache lines, a line of products is folded in registers, and only sums of neighbours, the first step
of the tree, are written; else products wait in scratch.

Source: specification page ``moe_token_unpermute_grad``, "Kernels and order" (``reduce``).
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_sim.kernels.engine.compile import device_function, kernel
from npu_sim.kernels.engine.scratch import thread_scratch
from npu_sim.kernels.engine.threads import thread_count
from npu_sim.kernels.vectors.lane_blocks import store_numbers, stream_numbers
from npu_sim.kernels.vectors.lane_type import LINE_BYTES
from npu_sim.kernels.vectors.lanes import (
    end_streams,
    is_streamed,
    load,
    prefetch,
    prefetch_to_write,
    splat,
    store,
    to_next_line,
)
from npu_sim.kernels.vectors.lanes_edges import load_some, store_some
from npu_sim.kernels.vectors.lanes_kept import (
    ORDERED_LANES,
    add_neighbours,
    keep,
    load_ordered,
    recall,
)
from npu_sim.kernels.vectors.reduce_sum import LANE_COUNT, add_lanes
from npu_sim.kernels.vectors.row_sums import add_to, clear
from npu_sim.numbers.scalars import narrow, widen

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


# --- Gradients of tokens and weights ---
Integers = NDArray[np.int32]
_ZERO = np.float32(0)


@device_function
def _sum_of_zeros(wide: Floats, scratch: Floats) -> np.float32:
    """Return the sum for a row of zeros: +0, or nan where g holds inf or nan."""
    total, lanes = _ZERO, splat(_ZERO, wide)
    whole = wide.size // ORDERED_LANES * ORDERED_LANES
    for column in range(0, whole, ORDERED_LANES):
        lanes = lanes + load_ordered(wide, column) * _ZERO
    keep(scratch, 0, lanes)
    for lane in range(ORDERED_LANES):
        total = total + scratch[lane]
    for column in range(whole, wide.size):
        total = total + wide[column] * _ZERO
    return total


@device_function
def _write_lines(
    g: Stored,
    g_start: int,
    wide: Floats,
    in_lines: bool,
    factor: np.float32,
    are_numbers: bool,
    out: Stored,
    out_start: int,
    streams: bool,
    first: int,
    stop: int,
) -> None:
    """Write whole lines of a row of g times its factor; ``are_numbers`` says that no product is nan."""
    for column in range(first, stop, LINE_BYTES // out.itemsize):
        lanes = recall(wide, column, out) if in_lines else load(g, g_start + column)
        weighted = lanes * factor
        if not are_numbers:
            store(out, out_start + column, weighted)
        elif streams:
            stream_numbers(out, out_start + column, weighted)
        else:
            store_numbers(out, out_start + column, weighted)


@device_function
def _write_ends(
    g: Stored,
    g_start: int,
    factor: np.float32,
    out: Stored,
    out_start: int,
    hidden: int,
    first: int,
    end: int,
) -> None:
    """Write what remains of the lines at both ends of a row, which belong to the neighbouring rows as well."""
    line = LINE_BYTES // out.itemsize
    for side in range(2):
        column, begin, stop = (
            (first - line, line - first, line) if side == 0 else (end, 0, hidden - end)
        )
        if begin < stop:
            store_some(
                out,
                out_start + column,
                load_some(g, g_start + column, begin, stop, g) * factor,
                begin,
                stop,
            )


@device_function
def _sum_and_write(
    row: Stored,
    start: int,
    following: int,
    wide: Floats,
    piece_columns: int,
    by_line: bool,
    products: Floats,
    g: Stored,
    g_start: int,
    factor: np.float32,
    are_numbers: bool,
    is_owner: bool,
    out: Stored,
    streams: bool,
) -> np.float32:
    """Return the sum of the products of a row and g, over pieces from the left; meanwhile write the weighted row of g."""
    line, hidden, total = LINE_BYTES // out.itemsize, wide.size, _ZERO
    if hidden < line:
        for column in range(hidden if is_owner else 0):
            out[start + column] = narrow(wide[column] * factor, out)
        return total + sum_of_products(row, start, wide, products)
    first = to_next_line(out, start)
    end = first + (hidden - first) // line * line if is_owner else first
    if is_owner:
        _write_ends(g, g_start, factor, out, start, hidden, first, end)
    written = first
    for begin in range(0, hidden, piece_columns):
        piece = wide[begin : min(begin + piece_columns, hidden)]
        width = folded_width(piece.size) if by_line else 0
        written_at_once = -(-piece.size // width) * line if by_line else 0
        for column in range(0, width + 1, line):
            if column < width:
                fold_line(row, start + begin, piece, column, following + begin, products)
                stop = min(written + written_at_once, end)
            else:
                stop = end if begin + piece.size == hidden else written
            _write_lines(
                g,
                g_start,
                wide,
                by_line and first == 0,
                factor,
                are_numbers,
                out,
                start,
                streams,
                written,
                stop,
            )
            written = stop
        total = total + (
            sum_of_lines(piece.size, products)
            if by_line
            else sum_of_products(row, start + begin, piece, products)
        )
    return total


@kernel
def _share_of_tokens(
    share: int,
    tokens: Stored,
    g: Stored,
    indices: Integers,
    factors: Floats,
    owners: Integers,
    piece_columns: int,
    hidden: int,
    streams: bool,
    tokens_grad: Stored,
    sums: Floats,
    scratch: Floats,
) -> None:
    """Compute the entries of a share of the tokens; ``scratch`` (shares, 2, hidden or more, 64 at least)."""
    shares, rows = len(scratch), owners.size
    count = g.size // hidden
    top_k = indices.size // count
    wide, products = scratch[share, 0, :hidden], scratch[share, 1]
    line = LINE_BYTES // g.itemsize
    last_piece = (hidden - 1) % piece_columns + 1
    by_line = folds_lines(last_piece, line) and (
        last_piece == hidden or folds_lines(piece_columns, line)
    )
    for token in range(count * share // shares, count * (share + 1) // shares):
        widen_row(g, token * hidden, by_line, wide)
        of_zeros = _sum_of_zeros(wide, products)
        for place in range(token * top_k, (token + 1) * top_k):
            row = np.int64(indices[place])
            if row >= rows:
                sums[place] = of_zeros
                continue
            following = np.int64(indices[place + 1]) if place + 1 < indices.size else row
            if (
                to_next_line(tokens_grad, following * hidden) > 0
            ):  # else a store to part of a line would hold up those behind it
                prefetch_to_write(tokens_grad, following * hidden)
                prefetch_to_write(tokens_grad, (following + 1) * hidden - 1)
            are_numbers = of_zeros + factors[place] * _ZERO == _ZERO
            sums[place] = _sum_and_write(
                tokens,
                row * hidden,
                following * hidden,
                wide,
                piece_columns,
                by_line,
                products,
                g,
                token * hidden,
                factors[place],
                are_numbers,
                owners[row] == place,
                tokens_grad,
                streams,
            )
    end_streams()


def weigh_and_multiply(
    tokens: Stored,
    g: Stored,
    indices: Integers,
    factors: Floats,
    owners: Integers,
    piece_columns: int,
    tokens_grad: Stored,
    sums: Floats,
) -> None:
    """Compute both gradients.

    Parameters
    ----------
    tokens : stored (rows, hidden)
        Rows of the experts.
    g : stored (count, hidden)
        Gradient of the tokens; at least one.
    indices : int32 (count * top_k,)
        Row of every entry, none negative; at or beyond ``rows`` for one that was dropped.
    factors : float32 (count * top_k,)
        The weights, widened.
    owners : int32 (rows,)
        The entry whose product every row of the gradient holds; rows of a negative one are not written.
    piece_columns
        Columns that are summed at a time.
    tokens_grad : stored (rows, hidden)
        Gradient of the rows of the experts.
    sums : float32 (count * top_k,)
        Gradient of the weights, not yet rounded to their dtype.
    """
    shares, hidden = thread_count(), g.shape[1]
    scratch = thread_scratch(shares, 2, max(hidden, LANE_COUNT))
    _share_of_tokens.over(
        shares,
        tokens.reshape(-1),
        g.reshape(-1),
        indices,
        factors,
        owners,
        piece_columns,
        hidden,
        is_streamed(tokens_grad),
        tokens_grad.reshape(-1),
        sums,
        scratch,
    )
