"""MoeTokenPermuteGrad: for every token the sum of the rows of grad that its experts return.

The sum starts with the row of k = 0, or with +0 when that token was dropped, and takes the later live rows in k order; it is rounded
once. Adding to -0 gives any value back unchanged, so both starts are a value to add the live rows to: -0 and +0.

Every token belongs to one thread. A cache line of columns is summed at a time, in registers, over all rows of the token.

Source: specification page ``moe_token_permute_grad``, "Kernel and order".
"""

from typing import Any

import numpy as np
from numba import get_num_threads
from numpy.typing import NDArray

from npu_sim.kernels.engine.compile import device_function, kernel
from npu_sim.kernels.engine.scratch import thread_scratch
from npu_sim.kernels.vectors.lane_type import LINE_BYTES
from npu_sim.kernels.vectors.lanes import end_streams, is_streamed, load, prefetch, splat, store, stream, to_next_line
from npu_sim.kernels.vectors.lanes_edges import load_some, store_some
from npu_sim.numbers.scalars import narrow, widen

Stored = NDArray[Any]
"""fp32 as float32, fp16 as int16, bf16 as uint16; all arrays of a call have the same type."""
Starts = NDArray[np.int64]
"""Where the live rows of a token start, in elements of the flat grad, in k order."""
Lanes = Any

NOTHING_YET = np.float32(-0.0)
DROPPED = np.float32(0.0)

LOOKAHEAD_BYTES = 2048
"""How far ahead the rows of a token are asked for, and beyond their ends those of the next token: rows lie anywhere, and the
processor cannot foresee where the next ones start. A tenth faster for eight rows of 4 KiB, a quarter for two."""


@device_function
def _find_live_rows(indices: NDArray[np.int32], first: int, top_k: int, grad_rows: int, hidden: int, starts: Starts) -> int:
    """Write where the live rows of a token start; return their number."""
    live = 0
    for place in range(first, first + top_k):
        row = np.int64(indices[place])
        if row < grad_rows:
            starts[live] = row * hidden
            live += 1
    return live


@device_function
def _add_rows(lanes: Lanes, grad: Stored, starts: Starts, live: int, column: int) -> Lanes:
    """Add a cache line of columns of every live row, one row after the other."""
    for row in range(live):
        lanes = lanes + load(grad, starts[row] + column)
    return lanes


@device_function
def _add_parts(lanes: Lanes, grad: Stored, starts: Starts, live: int, column: int, first: int, stop: int) -> Lanes:
    """The same for the columns ``column + first`` to ``column + stop`` only."""
    for row in range(live):
        lanes = lanes + load_some(grad, starts[row] + column, first, stop, grad)
    return lanes


@device_function
def _sum_token(
    grad: Stored,
    starts: Starts,
    live: int,
    following: Starts,
    following_live: int,
    begin: Lanes,
    out: Stored,
    out_start: int,
    hidden: int,
    streams: bool,
) -> None:
    """Sum the rows of one token into its row of out, which is at least a cache line long.

    Of the lines that the row shares with its neighbours only its own elements are stored.
    """
    step = LINE_BYTES // out.itemsize
    first = to_next_line(out, out_start)
    end = first + (hidden - first) // step * step
    if first > 0:
        beginning = _add_parts(begin, grad, starts, live, first - step, step - first, step)
        store_some(out, out_start + first - step, beginning, step - first, step)
    if end < hidden:
        store_some(out, out_start + end, _add_parts(begin, grad, starts, live, end, 0, hidden - end), 0, hidden - end)
    lookahead = LOOKAHEAD_BYTES // out.itemsize
    for column in range(first, end, step):
        ahead = column + lookahead
        if ahead < hidden:
            for row in range(live):
                prefetch(grad, starts[row] + ahead)
        elif ahead - hidden < hidden:
            for row in range(following_live):
                prefetch(grad, following[row] + ahead - hidden)
        lanes = _add_rows(begin, grad, starts, live, column)
        if streams:
            stream(out, out_start + column, lanes)
        else:
            store(out, out_start + column, lanes)


@kernel
def _sum_share(
    share: int,
    grad: Stored,
    indices: NDArray[np.int32],
    out: Stored,
    top_k: int,
    hidden: int,
    streams: bool,
    all_starts: NDArray[np.int64],
) -> None:
    """Sum a share of the tokens, whose rows have a cache line at least; ``all_starts`` (shares, 2, top_k or more) is scratch."""
    shares = len(all_starts)
    tokens = indices.size // top_k
    grad_rows = grad.size // hidden
    first, stop = tokens * share // shares, tokens * (share + 1) // shares
    following_live = _find_live_rows(indices, first * top_k, top_k if first < stop else 0, grad_rows, hidden, all_starts[share, first % 2])
    for token in range(first, stop):
        live, starts, following = following_live, all_starts[share, token % 2], all_starts[share, (token + 1) % 2]
        following_live = _find_live_rows(indices, (token + 1) * top_k, top_k if token + 1 < stop else 0, grad_rows, hidden, following)
        begin = splat(NOTHING_YET if indices[token * top_k] < grad_rows else DROPPED, out)
        _sum_token(grad, starts, live, following, following_live, begin, out, token * hidden, hidden, streams)
    end_streams()


@kernel
def _sum_short(token: int, grad: Stored, indices: NDArray[np.int32], out: Stored, top_k: int, hidden: int) -> None:
    """Sum a token whose rows are shorter than a cache line."""
    grad_rows, first = grad.size // hidden, token * top_k
    for column in range(hidden):
        total = NOTHING_YET if indices[first] < grad_rows else DROPPED
        for place in range(first, first + top_k):
            row = np.int64(indices[place])
            if row < grad_rows:
                total = total + widen(grad[row * hidden + column])
        out[token * hidden + column] = narrow(total, out)


def sum_tokens(grad: Stored, indices: NDArray[np.int32], out: Stored, top_k: int, hidden: int) -> None:
    """Sum the rows of every token, on all threads.

    Parameters
    ----------
    grad : stored (grad_rows * hidden,)
        Rows of permutedOutputGrad, flat.
    indices : int32 (tokens * top_k,)
        Row of every token and expert, none negative; rows at or beyond ``grad_rows`` were dropped.
    out : stored (tokens * hidden,)
        The sums, flat; shares no memory with grad.
    top_k, hidden
        Experts of a token and columns of a row, both above 0.
    """
    if hidden * out.itemsize < LINE_BYTES:
        _sum_short.over(indices.size // top_k, grad, indices, out, top_k, hidden)
        return
    shares = get_num_threads()
    starts = thread_scratch(shares, 2, top_k, dtype=np.int64)
    _sum_share.over(shares, grad, indices, out, top_k, hidden, is_streamed(out.reshape(-1, hidden)), starts)
