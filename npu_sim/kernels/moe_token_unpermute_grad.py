"""MoeTokenUnpermuteGrad with probs: the gradients of the rows of the experts, and of the weights.

Every token belongs to one thread. Its row of g is widened once; for every entry the row of the experts is multiplied with it and summed.
Between the lines of a row that are read, lines of the weighted row of g are written and the next row of the experts is asked for, so that
memory neither waits for sums nor for the other direction.

Source: specification page ``moe_token_unpermute_grad``, "Kernels and order".
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_sim.kernels.engine.compile import device_function, kernel
from npu_sim.kernels.engine.scratch import thread_scratch
from npu_sim.kernels.engine.threads import thread_count
from npu_sim.kernels.folded_products import (
    fold_line,
    folded_width,
    folds_lines,
    sum_of_lines,
    sum_of_products,
    widen_row,
)
from npu_sim.kernels.vectors.lane_blocks import store_numbers, stream_numbers
from npu_sim.kernels.vectors.lane_type import LINE_BYTES
from npu_sim.kernels.vectors.lanes import (
    end_streams,
    is_streamed,
    load,
    prefetch_to_write,
    splat,
    store,
    to_next_line,
)
from npu_sim.kernels.vectors.lanes_edges import load_some, store_some
from npu_sim.kernels.vectors.lanes_kept import ORDERED_LANES, keep, load_ordered, recall
from npu_sim.kernels.vectors.reduce_sum import LANE_COUNT
from npu_sim.numbers.scalars import narrow

Stored = NDArray[Any]
Floats = NDArray[np.float32]
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
