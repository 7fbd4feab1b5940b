"""MoeTokenPermuteGrad and MoeTokenUnpermute: for every token, the sum of its experts' rows.

Order of accumulation: fp32, starting with the row of k = 0, or with +0 if that one is not live,
then the later live rows in k order; rounded once. Each row is multiplied by its factor, if there
are factors. A row is *live* if its index is in range and its factor is not 0. Adding to -0 leaves
any value unchanged, so both starts are implemented as a value to add live rows to: -0 or +0.

One thread computes all of a token. A cache line of columns is summed at a time, in registers, over
all rows of the token.

Sources: specification pages ``moe_token_permute_grad`` and ``moe_token_unpermute``, "Kernel and
order", and ``moe_token_unpermute_950``, "Order".
"""

from typing import Any, NamedTuple

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
"""fp32 as float32, fp16 as int16, bf16 as uint16. Rows and sums of a call have the same type."""
Lanes = Any
Floats = NDArray[np.float32]

NOTHING_YET = np.float32(-0.0)
DROPPED = np.float32(0.0)
ONE = np.float32(1.0)
"""Factor of rows without factors: multiplying by it changes no value."""

LOOKAHEAD_BYTES = 2048
"""Prefetch distance for the rows of a token, and beyond their ends for those of the next token.
Rows are scattered, so the hardware cannot predict them. With eight rows of 4 KiB this is 10 %
faster, with two rows 25 %."""


class Rows(NamedTuple):
    """The rows that experts return."""

    values: Stored
    """The rows, flat."""
    count: int
    hidden: int
    """Columns of a row."""


class Entries(NamedTuple):
    """The (token, expert) pairs of a call, ``top_k`` for each token."""

    indices: NDArray[np.int32]
    """Row of each entry; negative, or at or beyond ``Rows.count``, for a dropped one."""
    factors: Floats
    """Factor of each entry; empty if there are none."""
    top_k: int
    from_zero: bool = False
    """Ascend 950: sums start with +0, and rows whose factor is 0 are live."""


class LiveRows(NamedTuple):
    """The live rows of one token, in k order."""

    starts: NDArray[np.int64]
    """First element of each row in the flat rows."""
    factors: Floats
    count: int


@device_function
def _is_live(entries: Entries, place: int, row_count: int) -> bool:
    """Return whether an entry adds a row."""
    if not 0 <= entries.indices[place] < row_count:
        return False
    return entries.factors.size == 0 or entries.from_zero or entries.factors[place] != DROPPED


@device_function
def _start(entries: Entries, place: int, row_count: int) -> np.float32:
    """Return the value that the live rows of a token are added to, given its first entry."""
    if entries.from_zero or not _is_live(entries, place, row_count):
        return DROPPED
    return NOTHING_YET


@device_function
def _find_live_rows(
    rows: Rows, entries: Entries, first: int, stop: int, starts: NDArray[np.int64], factors: Floats
) -> int:
    """Write starts and factors of the live rows of the entries first..stop; return the number."""
    live = 0
    for position in range(first, stop):
        if _is_live(entries, position, rows.count):
            starts[live] = np.int64(entries.indices[position]) * rows.hidden
            factors[live] = entries.factors[position] if entries.factors.size else ONE
            live += 1
    return live


@device_function
def _add_rows(lanes: Lanes, rows: Stored, live: LiveRows, column: int) -> Lanes:
    """Add a cache line of columns of every live row, one row after the other."""
    for row in range(live.count):
        lanes = lanes + load(rows, live.starts[row] + column) * live.factors[row]
    return lanes


@device_function
def _add_parts(
    lanes: Lanes, rows: Stored, live: LiveRows, column: int, first: int, stop: int
) -> Lanes:
    """Like `_add_rows`, for the columns ``column + first`` to ``column + stop`` only."""
    for row in range(live.count):
        part = load_some(rows, live.starts[row] + column, first, stop, rows)
        lanes = lanes + part * live.factors[row]
    return lanes


@device_function
def _sum_token(
    rows: Rows,
    live: LiveRows,
    following: LiveRows,
    begin: Lanes,
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
        part = _add_parts(begin, values, live, first - step, step - first, step)
        store_some(out, out_start + first - step, part, step - first, step)
    if end < hidden:
        part = _add_parts(begin, values, live, end, 0, hidden - end)
        store_some(out, out_start + end, part, 0, hidden - end)
    lookahead = LOOKAHEAD_BYTES // out.itemsize
    for column in range(first, end, step):
        ahead = column + lookahead
        if ahead < hidden:
            for row in range(live.count):
                prefetch(values, live.starts[row] + ahead)
        elif ahead - hidden < hidden:
            for row in range(following.count):
                prefetch(values, following.starts[row] + ahead - hidden)
        lanes = _add_rows(begin, values, live, column)
        if streams:
            stream(out, out_start + column, lanes)
        else:
            store(out, out_start + column, lanes)


@kernel
def _sum_long(
    chunk: int,
    rows: Rows,
    entries: Entries,
    out: Stored,
    streams: bool,
    all_starts: NDArray[np.int64],
    all_factors: Floats,
) -> None:
    """Sum a chunk of the tokens, whose rows are at least a cache line long.

    ``all_starts`` and ``all_factors`` (chunks, 2, top_k or more) are scratch.
    """
    chunks, top_k = len(all_starts), entries.top_k
    tokens = entries.indices.size // top_k
    first, stop = tokens * chunk // chunks, tokens * (chunk + 1) // chunks
    next_count = 0
    for token in range(first - 1, stop):
        current, other = token % 2, (token + 1) % 2
        live = LiveRows(all_starts[chunk, current], all_factors[chunk, current], next_count)
        starts, factors = all_starts[chunk, other], all_factors[chunk, other]
        next_entry = (token + 1) * top_k
        next_stop = next_entry + (top_k if token + 1 < stop else 0)
        next_count = _find_live_rows(rows, entries, next_entry, next_stop, starts, factors)
        if token >= first:
            begin = splat(_start(entries, token * top_k, rows.count), out)
            following = LiveRows(starts, factors, next_count)
            _sum_token(rows, live, following, begin, out, token * rows.hidden, streams)
    end_streams()


@kernel
def _sum_short(token: int, rows: Rows, entries: Entries, out: Stored) -> None:
    """Sum a token whose rows are shorter than a cache line."""
    hidden, first = rows.hidden, token * entries.top_k
    for column in range(hidden):
        total = _start(entries, first, rows.count)
        for position in range(first, first + entries.top_k):
            if _is_live(entries, position, rows.count):
                value = widen(rows.values[np.int64(entries.indices[position]) * hidden + column])
                total = total + (
                    value * entries.factors[position] if entries.factors.size else value
                )
        out[token * hidden + column] = narrow(total, out)


def sum_tokens(
    rows: Stored,
    indices: NDArray[np.int32],
    out: Stored,
    top_k: int,
    hidden: int,
    factors: Floats | None = None,
    from_zero: bool = False,
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
        Experts per token and columns per row, both above 0.
    factors : float32 (tokens * top_k,)
        Factor of every entry; None for plain sums.
    from_zero
        Start every sum with +0 and add rows whose factor is 0, as Ascend 950 does; else these rows
        are not read.
    """
    all_factors = np.empty(0, np.float32) if factors is None else factors
    entries = Entries(indices, all_factors, top_k, from_zero)
    table = Rows(rows, rows.size // hidden, hidden)
    if hidden * out.itemsize < LINE_BYTES:
        _sum_short.over(indices.size // top_k, table, entries, out)
        return
    chunks = threads_for(rows.nbytes + out.nbytes)
    starts = thread_scratch(chunks, 2, top_k, dtype=np.int64)
    row_factors = thread_scratch(chunks, 2, top_k)
    streams = is_streamed(out.reshape(-1, hidden))
    _sum_long.over(chunks, table, entries, out, streams, starts, row_factors)
