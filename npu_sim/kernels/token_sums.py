"""For every token the sum of the rows that its experts return, each times its factor where there are some.

The sum starts with the row of k = 0, or with +0 when that one is not live, and takes the later live rows in k order; it is rounded
once. Adding to -0 gives any value back unchanged, so both starts are a value to add the live rows to: -0 and +0. A row is live when there
is one of its index, and its factor, where there are some, is not 0.

Every token belongs to one thread. A cache line of columns is summed at a time, in registers, over all rows of the token.

Sources: specification pages ``moe_token_permute_grad`` and ``moe_token_unpermute``, "Kernel and order".
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_sim.kernels.engine.compile import device_function, kernel
from npu_sim.kernels.engine.scratch import thread_scratch
from npu_sim.kernels.engine.threads import threads_for
from npu_sim.kernels.vectors.lane_type import LINE_BYTES
from npu_sim.kernels.vectors.lanes import (
    end_streams,
    is_streamed,
    load,
    prefetch,
    splat,
    store,
    stream,
    to_next_line,
)
from npu_sim.kernels.vectors.lanes_edges import load_some, store_some
from npu_sim.numbers.scalars import narrow, widen

Stored = NDArray[Any]
"""fp32 as float32, fp16 as int16, bf16 as uint16; rows and sums of a call have the same type."""
Starts = NDArray[np.int64]
"""Where the live rows of a token start, in elements of the flat rows, in k order."""
Lanes = Any
Floats = NDArray[np.float32]

NOTHING_YET = np.float32(-0.0)
DROPPED = np.float32(0.0)
ONE = np.float32(1.0)
"""The factor of rows that have none: multiplying with it changes no value."""

LOOKAHEAD_BYTES = 2048
"""How far ahead the rows of a token are asked for, and beyond their ends those of the next token: rows lie anywhere, and the
processor cannot foresee where the next ones start. A tenth faster for eight rows of 4 KiB, a quarter for two."""


@device_function
def _is_live(place: int, indices: NDArray[np.int32], factors: Floats, row_count: int) -> bool:
    """Whether an entry adds a row."""
    return indices[place] < row_count and (factors.size == 0 or factors[place] != DROPPED)


@device_function
def _find_live_rows(
    indices: NDArray[np.int32],
    factors: Floats,
    first: int,
    top_k: int,
    row_count: int,
    hidden: int,
    starts: Starts,
    weights: Floats,
) -> int:
    """Write where the live rows of a token start, and their factors; return their number."""
    live = 0
    for place in range(first, first + top_k):
        if _is_live(place, indices, factors, row_count):
            starts[live] = np.int64(indices[place]) * hidden
            weights[live] = factors[place] if factors.size else ONE
            live += 1
    return live


@device_function
def _add_rows(
    lanes: Lanes, rows: Stored, starts: Starts, weights: Floats, live: int, column: int
) -> Lanes:
    """Add a cache line of columns of every live row, one row after the other."""
    for row in range(live):
        lanes = lanes + load(rows, starts[row] + column) * weights[row]
    return lanes


@device_function
def _add_parts(
    lanes: Lanes,
    rows: Stored,
    starts: Starts,
    weights: Floats,
    live: int,
    column: int,
    first: int,
    stop: int,
) -> Lanes:
    """The same for the columns ``column + first`` to ``column + stop`` only."""
    for row in range(live):
        lanes = lanes + load_some(rows, starts[row] + column, first, stop, rows) * weights[row]
    return lanes


@device_function
def _sum_token(
    rows: Stored,
    starts: Starts,
    weights: Floats,
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
        beginning = _add_parts(begin, rows, starts, weights, live, first - step, step - first, step)
        store_some(out, out_start + first - step, beginning, step - first, step)
    if end < hidden:
        store_some(
            out,
            out_start + end,
            _add_parts(begin, rows, starts, weights, live, end, 0, hidden - end),
            0,
            hidden - end,
        )
    lookahead = LOOKAHEAD_BYTES // out.itemsize
    for column in range(first, end, step):
        ahead = column + lookahead
        if ahead < hidden:
            for row in range(live):
                prefetch(rows, starts[row] + ahead)
        elif ahead - hidden < hidden:
            for row in range(following_live):
                prefetch(rows, following[row] + ahead - hidden)
        lanes = _add_rows(begin, rows, starts, weights, live, column)
        if streams:
            stream(out, out_start + column, lanes)
        else:
            store(out, out_start + column, lanes)


@kernel
def _sum_share(
    share: int,
    rows: Stored,
    indices: NDArray[np.int32],
    factors: Floats,
    out: Stored,
    top_k: int,
    hidden: int,
    streams: bool,
    all_starts: NDArray[np.int64],
    all_weights: Floats,
) -> None:
    """Sum a share of the tokens, whose rows have a cache line at least.

    ``all_starts`` and ``all_weights`` (shares, 2, top_k or more) are scratch.
    """
    shares = len(all_starts)
    tokens, count = indices.size // top_k, rows.size // hidden
    first, stop = tokens * share // shares, tokens * (share + 1) // shares
    following_live = 0
    for token in range(first - 1, stop):
        live, place, ahead = following_live, token % 2, (token + 1) % 2
        starts, weights, following = (
            all_starts[share, place],
            all_weights[share, place],
            all_starts[share, ahead],
        )
        entries = top_k if token + 1 < stop else 0
        following_live = _find_live_rows(
            indices,
            factors,
            (token + 1) * top_k,
            entries,
            count,
            hidden,
            following,
            all_weights[share, ahead],
        )
        if token >= first:
            begin = splat(
                NOTHING_YET if _is_live(token * top_k, indices, factors, count) else DROPPED, out
            )
            _sum_token(
                rows,
                starts,
                weights,
                live,
                following,
                following_live,
                begin,
                out,
                token * hidden,
                hidden,
                streams,
            )
    end_streams()


@kernel
def _sum_short(
    token: int,
    rows: Stored,
    indices: NDArray[np.int32],
    factors: Floats,
    out: Stored,
    top_k: int,
    hidden: int,
) -> None:
    """Sum a token whose rows are shorter than a cache line."""
    count, first = rows.size // hidden, token * top_k
    for column in range(hidden):
        total = NOTHING_YET if _is_live(first, indices, factors, count) else DROPPED
        for place in range(first, first + top_k):
            if _is_live(place, indices, factors, count):
                value = widen(rows[np.int64(indices[place]) * hidden + column])
                total = total + (value * factors[place] if factors.size else value)
        out[token * hidden + column] = narrow(total, out)


def sum_tokens(
    rows: Stored,
    indices: NDArray[np.int32],
    out: Stored,
    top_k: int,
    hidden: int,
    factors: Floats | None = None,
) -> None:
    """Sum the rows of every token, on all threads.

    Parameters
    ----------
    rows : stored (row_count * hidden,)
        The rows, flat.
    indices : int32 (tokens * top_k,)
        Row of every token and expert, none negative; at or beyond ``row_count`` for one that was dropped.
    out : stored (tokens * hidden,)
        The sums, flat; shares no memory with the rows.
    top_k, hidden
        Experts of a token and columns of a row, both above 0.
    factors : float32 (tokens * top_k,)
        What the rows are multiplied with; a row whose factor is 0 is not read. None for sums of the rows themselves.
    """
    weights = np.empty(0, np.float32) if factors is None else factors
    if hidden * out.itemsize < LINE_BYTES:
        _sum_short.over(indices.size // top_k, rows, indices, weights, out, top_k, hidden)
        return
    shares = threads_for(rows.nbytes + out.nbytes)
    scratch = _scratch(shares, top_k)
    _sum_share.over(
        shares,
        rows,
        indices,
        weights,
        out,
        top_k,
        hidden,
        is_streamed(out.reshape(-1, hidden)),
        *scratch,
    )


def _scratch(shares: int, top_k: int) -> tuple[NDArray[np.int64], Floats]:
    """Return what threads work in: two lists of the rows of a token, and of their factors."""
    return thread_scratch(shares, 2, top_k, dtype=np.int64), thread_scratch(shares, 2, top_k)
