"""MoeTokenPermuteGrad and MoeTokenUnpermute: for every token, the sum of its experts' rows.

Order of accumulation: fp32, starting with the row of k = 0, or with +0 if that one is not live,
then the later live rows in k order; rounded once. Each row is multiplied by its factor, if there
are factors. A row is *live* if its index is in range and its factor is not 0. Adding to -0 leaves
any value unchanged, so both starts are implemented as a value to add live rows to: -0 or +0.

Ascend 950: sums start with +0. In MoeTokenUnpermute, rows whose factor is 0 are live.
MoeTokenPermuteGrad adds (v0 + v1) + (v2 + v3) of every four consecutive rows, and those left one by
one; groups restart at every chunk of rows (key 400003; one chunk else). A dropped row is a row of
+0 and keeps its place in a group.

One thread computes all of a token. A cache line of columns is summed at a time, in registers, over
all rows of the token.

Slow references with the orders of additions: ``tests/reference/moe_token_permute_grad.py`` and
``tests/reference/moe_token_unpermute.py``.

Sources: specification pages ``moe_token_permute_grad`` and ``moe_token_unpermute``, "Kernel and
order", and ``moe_token_permute_grad_950`` and ``moe_token_unpermute_950``, "Order".
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from npu_sim.kernels.engine.compile import device_function, kernel, thread_scratch, threads_for
from npu_sim.kernels.vectors.lanes import (
    LINE_BYTES,
    NOTHING_YET,
    ONE,
    ZERO,
    Floats,
    Integers,
    Lanes,
    Stored,
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

DROPPED = np.int64(-1)
GROUP = 4
"""Rows of a group on Ascend 950."""
LOOKAHEAD_BYTES = 2048
"""Prefetch distance for the rows of a token, and beyond their ends for those of the next token.
Rows are scattered, so the hardware cannot predict them. With eight rows of 4 KiB this is 10 %
faster, with two rows 25 %."""


class Entries(NamedTuple):
    """The (token, expert) pairs of a call, ``top_k`` for each token, and the rows they name."""

    rows: Stored
    """stored (row_count * hidden,): the rows, flat."""
    hidden: int
    """Columns of a row, above 0."""
    indices: NDArray[np.int32]
    """int32 (tokens * top_k,): row of each entry; negative, or at or beyond ``row_count``, for a
    dropped one."""
    top_k: int
    """Experts of a token, above 0."""
    factors: Floats = np.empty(0, np.float32)
    """float32 (tokens * top_k,): factor of each entry; empty for plain sums."""
    from_zero: bool = False
    """Ascend 950: sums start with +0, and rows whose factor is 0 are added; else these rows are not
    read."""
    chunk_rows: int = 0
    """MoeTokenPermuteGrad on Ascend 950, from zero and without factors: rows after which groups of
    four restart; 0 adds rows one by one."""


class TokenRows(NamedTuple):
    """The rows of one token, in k order."""

    starts: Integers
    """First element of each row in the flat rows; `DROPPED` for one that keeps its place."""
    factors: Floats


@device_function
def _is_live(entries: Entries, place: int) -> bool:
    """Return whether an entry adds a row."""
    if not 0 <= entries.indices[place] < entries.rows.size // entries.hidden:
        return False
    return entries.factors.size == 0 or entries.from_zero or entries.factors[place] != ZERO


@device_function
def _find_rows(entries: Entries, first: int, stop: int, starts: Integers, factors: Floats) -> int:
    """Write starts and factors of the rows of the entries first..stop; return the number.

    Dropped rows are left out, unless rows are grouped.
    """
    count = 0
    for place in range(first, stop):
        is_live = _is_live(entries, place)
        if is_live or entries.chunk_rows > 0:
            start = np.int64(entries.indices[place]) * entries.hidden
            starts[count] = start if is_live else DROPPED
            factors[count] = entries.factors[place] if entries.factors.size else ONE
            count += 1
    return count


@device_function
def _load(entries: Entries, start: int, column: int) -> Lanes:
    """Return a cache line of columns of one row; 0 beyond the end of a shorter row."""
    rows = entries.rows
    if start < 0:
        return splat(ZERO, rows)
    if entries.hidden * rows.itemsize < LINE_BYTES:
        return load_some(rows, start, 0, entries.hidden, rows)
    return load(rows, start + column)


@device_function
def _add_rows(total: Lanes, entries: Entries, rows: TokenRows, column: int) -> Lanes:
    """Add a cache line of columns of the rows of a token, one row after the other."""
    for row in range(rows.starts.size):
        total = total + load(entries.rows, rows.starts[row] + column) * rows.factors[row]
    return total


@device_function
def _add_groups(total: Lanes, entries: Entries, rows: TokenRows, column: int) -> Lanes:
    """Add a cache line of columns of the rows of a token, in groups."""
    starts = rows.starts
    for begin in range(0, starts.size, entries.chunk_rows):
        end = min(begin + entries.chunk_rows, starts.size)
        whole = end - (end - begin) % GROUP
        for row in range(begin, whole, GROUP):
            pair = _load(entries, starts[row], column) + _load(entries, starts[row + 1], column)
            other = _load(entries, starts[row + 2], column) + _load(
                entries, starts[row + 3], column
            )
            total = total + (pair + other)
        for row in range(whole, end):
            total = total + _load(entries, starts[row], column)
    return total


@device_function
def _add_short(total: Lanes, entries: Entries, rows: TokenRows, column: int) -> Lanes:
    """Add the rows of a token, which are shorter than a cache line, in groups or not."""
    if entries.chunk_rows > 0:
        return _add_groups(total, entries, rows, column)
    for row in range(rows.starts.size):
        total = total + _load(entries, rows.starts[row], column) * rows.factors[row]
    return total


@device_function
def _sum_token(
    entries: Entries,
    rows: TokenRows,
    following: TokenRows,
    begin: Lanes,
    out: Stored,
    streams: bool,
    add: Any,
) -> None:
    """Sum the rows of one token into its row of out.

    Rows of the ``following`` token are prefetched. At the ends of the row, a vector may overlap its
    neighbour; both write the same values. With ``streams``, only the elements in cache lines that
    the row shares with others are stored there, and the other lines with non-temporal stores.
    """
    values, hidden, step = entries.rows, entries.hidden, LINE_BYTES // out.itemsize
    last, lookahead = max(hidden - step, 0), LOOKAHEAD_BYTES // out.itemsize
    first = to_next_line(out, 0) if streams else 0
    for position in range(first - step if first > 0 else 0, hidden, step):
        column = min(max(position, 0), last)
        ahead = column + lookahead
        if ahead < hidden:
            for start in rows.starts:
                prefetch(values, start + ahead)
        elif ahead - hidden < hidden:
            for start in following.starts:
                prefetch(values, start + ahead - hidden)
        lanes = add(begin, entries, rows, column)
        if streams and column == position:
            stream(out, column, lanes)
        elif streams or hidden < step:
            shift = position - column
            store_some(out, column, lanes, max(shift, 0), min(min(shift, 0) + step, hidden))
        else:
            store(out, column, lanes)


@device_function
def _sum_tokens(
    chunk: int,
    entries: Entries,
    out: Stored,
    streams: bool,
    add: Any,
    all_starts: Integers,
    all_factors: Floats,
) -> None:
    """Sum a chunk of the tokens; ``all_starts`` and ``all_factors`` are scratch, (chunks, 2, k).

    ``add``, a constant of every kernel, adds a cache line of columns of a token's rows.
    """
    chunks, top_k, hidden = len(all_starts), entries.top_k, entries.hidden
    tokens = entries.indices.size // top_k
    first, stop = tokens * chunk // chunks, tokens * (chunk + 1) // chunks
    count = 0
    for token in range(first - 1, stop):
        rows = TokenRows(all_starts[chunk, token % 2, :count], all_factors[chunk, token % 2])
        starts, factors = all_starts[chunk, (token + 1) % 2], all_factors[chunk, (token + 1) % 2]
        next_entry = (token + 1) * top_k
        next_stop = next_entry + (top_k if token + 1 < stop else 0)
        count = _find_rows(entries, next_entry, next_stop, starts, factors)
        if token >= first:
            has_start = entries.from_zero or not _is_live(entries, token * top_k)
            begin = splat(ZERO if has_start else NOTHING_YET, out)
            row = out[token * hidden : (token + 1) * hidden]
            following = TokenRows(starts[:count], factors)
            _sum_token(entries, rows, following, begin, row, streams, add)
    end_streams()


@kernel
def _sum_long(
    chunk: int, entries: Entries, out: Stored, streams: bool, starts: Integers, factors: Floats
) -> None:
    """Sum a chunk of the tokens, whose rows are at least a cache line long."""
    _sum_tokens(chunk, entries, out, streams, _add_rows, starts, factors)


@kernel
def _sum_groups(
    chunk: int, entries: Entries, out: Stored, streams: bool, starts: Integers, factors: Floats
) -> None:
    """Like `_sum_long`, in groups."""
    _sum_tokens(chunk, entries, out, streams, _add_groups, starts, factors)


@kernel
def _sum_short(
    chunk: int, entries: Entries, out: Stored, streams: bool, starts: Integers, factors: Floats
) -> None:
    """Sum a chunk of the tokens, whose rows are shorter than a cache line, in groups or not."""
    _sum_tokens(chunk, entries, out, streams, _add_short, starts, factors)


def sum_tokens(entries: Entries, out: Stored) -> None:
    """Sum the rows of every token, on all threads.

    ``out``, stored (tokens * hidden,), has the sums, flat; it shares no memory with the rows.
    """
    chunks, hidden = threads_for(entries.rows.nbytes + out.nbytes), entries.hidden
    starts = thread_scratch(chunks, 2, entries.top_k, dtype=np.int64)
    factors = thread_scratch(chunks, 2, entries.top_k)
    if hidden * out.itemsize < LINE_BYTES:
        _sum_short.over(chunks, entries, out, False, starts, factors)
        return
    sum_rows = _sum_groups if entries.chunk_rows else _sum_long
    sum_rows.over(chunks, entries, out, is_streamed(out.reshape(-1, hidden)), starts, factors)
