"""MoeTokenPermuteGrad on Ascend 950: for every token, the sum of its experts' rows.

Order of accumulation, in fp32: r = +0; for every four consecutive rows
r = r + ((v0 + v1) + (v2 + v3)), the rows left one by one. Groups restart at every chunk of rows
(key 400003; one chunk else). A dropped row, whose index is negative or out of range, is a row of +0
and keeps its place in a group. Rounded once.

One thread computes all of a token. A cache line of columns is summed at a time, in registers, over
all rows of the token.

Source: specification page ``moe_token_permute_grad_950``, "Order".
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_sim.kernels.engine.compile import device_function, kernel
from npu_sim.kernels.engine.scratch import thread_scratch
from npu_sim.kernels.engine.threads import threads_for
from npu_sim.kernels.token_sums import LOOKAHEAD_BYTES, Entries, Rows
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
"""fp32 as float32, fp16 as int16, bf16 as uint16. Rows and sums of a call have the same type."""
Starts = NDArray[np.int64]
"""First element of every row of a token in the flat rows; -1 for a dropped one."""
Lanes = Any

DROPPED = np.int64(-1)
GROUP = 4
ZERO = np.float32(0.0)


@device_function
def _find_rows(rows: Rows, entries: Entries, first: int, starts: Starts) -> None:
    """Write the starts of the rows of one token, whose first entry is ``first``."""
    for position in range(entries.top_k):
        index = entries.indices[first + position]
        is_live = 0 <= index < rows.count
        starts[position] = np.int64(index) * rows.hidden if is_live else DROPPED


@device_function
def _line(values: Stored, start: int, column: int) -> Lanes:
    """Return a cache line of columns of one row."""
    return load(values, start + column) if start >= 0 else splat(ZERO, values)


@device_function
def _add_rows(values: Stored, starts: Starts, column: int, chunk_rows: int) -> Lanes:
    """Return the sum of a cache line of columns over the rows of a token."""
    total = splat(ZERO, values)
    for begin in range(0, starts.size, chunk_rows):
        end = min(begin + chunk_rows, starts.size)
        whole = end - (end - begin) % GROUP
        for position in range(begin, whole, GROUP):
            first = _line(values, starts[position], column) + _line(
                values, starts[position + 1], column
            )
            second = _line(values, starts[position + 2], column) + _line(
                values, starts[position + 3], column
            )
            total = total + (first + second)
        for position in range(whole, end):
            total = total + _line(values, starts[position], column)
    return total


@device_function
def _part(values: Stored, start: int, column: int, first: int, stop: int) -> Lanes:
    """Return the columns ``column + first`` to ``column + stop`` of one row."""
    if start < 0:
        return splat(ZERO, values)
    return load_some(values, start + column, first, stop, values)


@device_function
def _add_parts(
    values: Stored, starts: Starts, column: int, first: int, stop: int, chunk_rows: int
) -> Lanes:
    """Like `_add_rows`, for the columns ``column + first`` to ``column + stop`` only."""
    total = splat(ZERO, values)
    for begin in range(0, starts.size, chunk_rows):
        end = min(begin + chunk_rows, starts.size)
        whole = end - (end - begin) % GROUP
        for position in range(begin, whole, GROUP):
            pair = _part(values, starts[position], column, first, stop)
            pair = pair + _part(values, starts[position + 1], column, first, stop)
            other = _part(values, starts[position + 2], column, first, stop)
            other = other + _part(values, starts[position + 3], column, first, stop)
            total = total + (pair + other)
        for position in range(whole, end):
            total = total + _part(values, starts[position], column, first, stop)
    return total


@device_function
def _sum_token(
    rows: Rows,
    starts: Starts,
    following: Starts,
    chunk_rows: int,
    out: Stored,
    out_start: int,
    streams: bool,
) -> None:
    """Sum the rows of one token into its row of out, which is at least a cache line long.

    Rows of the ``following`` token are prefetched. Of the cache lines shared with the neighbouring
    rows, only the elements of this row are stored.
    """
    values, hidden, step = rows.values, rows.hidden, LINE_BYTES // out.itemsize
    first = to_next_line(out, out_start)
    end = first + (hidden - first) // step * step
    if first > 0:
        part = _add_parts(values, starts, first - step, step - first, step, chunk_rows)
        store_some(out, out_start + first - step, part, step - first, step)
    if end < hidden:
        part = _add_parts(values, starts, end, 0, hidden - end, chunk_rows)
        store_some(out, out_start + end, part, 0, hidden - end)
    lookahead = LOOKAHEAD_BYTES // out.itemsize
    for column in range(first, end, step):
        ahead, ahead_starts = column + lookahead, starts
        if ahead >= hidden:
            ahead, ahead_starts = ahead - hidden, following
        if ahead < hidden:
            for start in ahead_starts:
                if start >= 0:
                    prefetch(values, start + ahead)
        lanes = _add_rows(values, starts, column, chunk_rows)
        if streams:
            stream(out, out_start + column, lanes)
        else:
            store(out, out_start + column, lanes)


@kernel
def _sum_long(
    chunk: int,
    rows: Rows,
    entries: Entries,
    chunk_rows: int,
    out: Stored,
    streams: bool,
    all_starts: NDArray[np.int64],
) -> None:
    """Sum a chunk of the tokens, whose rows are at least a cache line long.

    ``all_starts`` (chunks, 2, top_k) is scratch.
    """
    chunks, top_k = len(all_starts), entries.top_k
    tokens = entries.indices.size // top_k
    first, stop = tokens * chunk // chunks, tokens * (chunk + 1) // chunks
    if first < stop:
        _find_rows(rows, entries, first * top_k, all_starts[chunk, first % 2, :top_k])
    for token in range(first, stop):
        starts = all_starts[chunk, token % 2, :top_k]
        following = all_starts[chunk, (token + 1) % 2, :top_k]
        if token + 1 < stop:
            _find_rows(rows, entries, (token + 1) * top_k, following)
        else:
            following = following[:0]
        _sum_token(rows, starts, following, chunk_rows, out, token * rows.hidden, streams)
    end_streams()


@device_function
def _element(rows: Rows, entries: Entries, place: int, column: int) -> np.float32:
    """Return one element of the row of an entry."""
    index = entries.indices[place]
    if not 0 <= index < rows.count:
        return ZERO
    return widen(rows.values[np.int64(index) * rows.hidden + column])


@kernel
def _sum_short(token: int, rows: Rows, entries: Entries, chunk_rows: int, out: Stored) -> None:
    """Sum a token whose rows are shorter than a cache line."""
    hidden, first = rows.hidden, token * entries.top_k
    stop = first + entries.top_k
    for column in range(hidden):
        total = ZERO
        for begin in range(first, stop, chunk_rows):
            end = min(begin + chunk_rows, stop)
            whole = end - (end - begin) % GROUP
            for position in range(begin, whole, GROUP):
                first_pair = _element(rows, entries, position, column)
                first_pair = first_pair + _element(rows, entries, position + 1, column)
                second_pair = _element(rows, entries, position + 2, column)
                second_pair = second_pair + _element(rows, entries, position + 3, column)
                total = total + (first_pair + second_pair)
            for position in range(whole, end):
                total = total + _element(rows, entries, position, column)
        out[token * hidden + column] = narrow(total, out)


def sum_tokens(
    rows: Stored, indices: NDArray[np.int32], out: Stored, top_k: int, hidden: int, chunk_rows: int
) -> None:
    """Sum the rows of every token, on all threads.

    Parameters
    ----------
    rows : stored (row_count * hidden,)
        The rows, flat.
    indices : int32 (tokens * top_k,)
        Row of every entry; negative, or at or beyond ``row_count``, for a dropped one.
    out : stored (tokens * hidden,)
        The sums, flat; shares no memory with the rows.
    top_k, hidden
        Rows per token and columns per row, both above 0.
    chunk_rows
        Rows after which the groups of four restart; ``top_k`` when they do not.
    """
    entries = Entries(indices, np.empty(0, np.float32), top_k)
    table = Rows(rows, rows.size // hidden, hidden)
    if hidden * out.itemsize < LINE_BYTES:
        _sum_short.over(indices.size // top_k, table, entries, chunk_rows, out)
        return
    chunks = threads_for(rows.nbytes + out.nbytes)
    starts = thread_scratch(chunks, 2, top_k, dtype=np.int64)
    streams = is_streamed(out.reshape(-1, hidden))
    _sum_long.over(chunks, table, entries, chunk_rows, out, streams, starts)
