"""MoeTokenUnpermuteGrad with probs: the gradients of the rows of the experts, and of the weights.

Every token belongs to one thread. Its row of g is widened once; for every entry the row of the experts is multiplied with it, summed, and
the weighted row of g written while the next row of the experts is asked for.

Source: specification page ``moe_token_unpermute_grad``, "Kernels and order".
"""

from typing import Any

import numpy as np
from numba import get_num_threads
from numpy.typing import NDArray

from npu_sim.kernels.engine.compile import device_function, kernel
from npu_sim.kernels.engine.scratch import thread_scratch
from npu_sim.kernels.vectors.lane_type import LINE_BYTES
from npu_sim.kernels.vectors.lanes import end_streams, is_streamed, load, prefetch, store, stream, to_next_line
from npu_sim.kernels.vectors.lanes_edges import load_some, store_some
from npu_sim.kernels.vectors.lanes_kept import ORDERED_LANES, keep, load_ordered
from npu_sim.kernels.vectors.reduce_sum import LANE_COUNT, add_lanes
from npu_sim.kernels.vectors.row_sums import add_to, clear
from npu_sim.numbers.scalars import narrow, widen

Stored = NDArray[Any]
Floats = NDArray[np.float32]
Integers = NDArray[np.int32]
_ZERO = np.float32(0)
FOLD_STEP = 8
"""Half of the products, rounded up to a multiple of this, stays in place when the others are added to them."""


@device_function
def _width_of(count: int) -> int:
    """Return how many folded products are left for the tree; 0 for fewer than 64, which are not folded."""
    return 4096 if count >= 4096 else 512 if count >= 512 else 64 if count >= 64 else 0


@device_function
def _half_of(count: int) -> int:
    """Return how many of so many products stay in place."""
    return ((count + 1) // 2 + FOLD_STEP - 1) // FOLD_STEP * FOLD_STEP


@device_function
def _widen_row(stored: Stored, start: int, wide: Floats) -> None:
    """Widen the elements of a row, in their order."""
    whole = wide.size // ORDERED_LANES * ORDERED_LANES
    for column in range(0, whole, ORDERED_LANES):
        keep(wide, column, load_ordered(stored, start + column))
    for column in range(whole, wide.size):
        wide[column] = widen(stored[start + column])


@device_function
def _multiply_and_fold(row: Stored, start: int, given: Floats, front: int, products: Floats) -> None:
    """Write the products of a row and g, those from ``front`` on added to the first ones."""
    back = given.size - front
    both, whole = back // ORDERED_LANES * ORDERED_LANES, front // ORDERED_LANES * ORDERED_LANES
    for column in range(0, both, ORDERED_LANES):
        first = load_ordered(row, start + column) * load_ordered(given, column)
        keep(products, column, first + load_ordered(row, start + front + column) * load_ordered(given, front + column))
    for column in range(both, whole, ORDERED_LANES):
        keep(products, column, load_ordered(row, start + column) * load_ordered(given, column))
    for column in range(whole, front):
        products[column] = widen(row[start + column]) * given[column]
    for column in range(both, back):
        products[column] = products[column] + widen(row[start + front + column]) * given[front + column]


@device_function
def _tree(values: Floats, width: int) -> np.float32:
    """Sum a power of two of values, 64 at least, as a binary tree of neighbours; overwrites them.

    Zeros fill the last 64 up: all they could change is the sign of a zero, which the caller adds to +0.
    """
    while width > LANE_COUNT:
        for block in range(0, width, LANE_COUNT):
            values[block // LANE_COUNT] = add_lanes(values[block : block + LANE_COUNT])
        width //= LANE_COUNT
        if width < LANE_COUNT:
            clear(values[width:LANE_COUNT])
    return add_lanes(values[:LANE_COUNT])


@device_function
def _sum_piece(row: Stored, start: int, given: Floats, products: Floats) -> np.float32:
    """Return the sum of the products of a piece of a row and g; ``products`` is scratch."""
    count = given.size
    width = _width_of(count)
    if width == 0:
        clear(products[count:LANE_COUNT])
        _multiply_and_fold(row, start, given, count, products)
        return add_lanes(products[:LANE_COUNT])
    front = _half_of(count) if count > 2 * width else width
    _multiply_and_fold(row, start, given, front, products)
    while front > 2 * width:
        half = _half_of(front)
        add_to(products[: front - half], products[half:front])
        front = half
    if front > width:
        add_to(products[: front - width], products[width:front])
    return _tree(products, width)


@device_function
def _sum_row(row: Stored, start: int, given: Floats, piece_columns: int, products: Floats) -> np.float32:
    """Return the sum of the products of a row and g, over pieces from the left."""
    total = _ZERO
    for begin in range(0, given.size, piece_columns):
        total = total + _sum_piece(row, start + begin, given[begin : min(begin + piece_columns, given.size)], products)
    return total


@device_function
def _sum_of_zeros(given: Floats) -> np.float32:
    """Return the sum for a row of zeros: +0, or nan where g holds inf or nan."""
    total = _ZERO
    for column in range(given.size):
        total = total + _ZERO * given[column]
    return total


@device_function
def _write_row(
    g: Stored, g_start: int, factor: np.float32, out: Stored, out_start: int, hidden: int, tokens: Stored, following: int, streams: bool
) -> None:
    """Write a row of g times its factor; meanwhile the row of the experts at ``following`` is asked for."""
    line = LINE_BYTES // out.itemsize
    if hidden < line:
        for column in range(hidden):
            out[out_start + column] = narrow(widen(g[g_start + column]) * factor, out)
        return
    first = to_next_line(out, out_start)
    end = first + (hidden - first) // line * line
    for column in range(first, end, line):
        prefetch(tokens, following + column)
        lanes = load(g, g_start + column) * factor
        if streams:
            stream(out, out_start + column, lanes)
        else:
            store(out, out_start + column, lanes)
    # What remains of the lines at both ends, which belong to the neighbouring rows as well.
    for side in range(2):
        column, begin, stop = (first - line, line - first, line) if side == 0 else (end, 0, hidden - end)
        if begin < stop:
            store_some(out, out_start + column, load_some(g, g_start + column, begin, stop, g) * factor, begin, stop)


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
    given, products = scratch[share, 0, :hidden], scratch[share, 1]
    for token in range(count * share // shares, count * (share + 1) // shares):
        _widen_row(g, token * hidden, given)
        for place in range(token * top_k, (token + 1) * top_k):
            row = np.int64(indices[place])
            if row >= rows:
                sums[place] = _sum_of_zeros(given)
                continue
            sums[place] = _sum_row(tokens, row * hidden, given, piece_columns, products)
            if owners[row] == place:
                following = np.int64(indices[place + 1]) if place + 1 < indices.size else row
                _write_row(g, token * hidden, factors[place], tokens_grad, row * hidden, hidden, tokens, following * hidden, streams)
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
    shares, hidden = get_num_threads(), g.shape[1]
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
