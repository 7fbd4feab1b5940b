"""Rows copied to several places each, or gathered by index. Nothing is computed.

MoeTokenPermute reads each row once and writes it to all its places while it is in the cache, with
non-temporal stores if the result exceeds the cache. `gather_rows` is the opposite copy, of
MoeTokenUnpermute and MoeTokenUnpermuteGrad without probs.

Slow reference: ``tests/reference/moe_token_permute.py``.

Sources: specification pages ``moe_token_permute``, "Kernel"; ``moe_token_unpermute`` and
``moe_token_unpermute_grad``, the kernels without probs.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from npu_sim.kernels.engine.compile import device_function, kernel, threads_for
from npu_sim.kernels.vectors.lanes import (
    LINE_BYTES,
    ZERO,
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
from npu_sim.numbers.arrays import address_of

Places = NDArray[np.int32]
LEAST_STREAMED_BYTES = 256
"""Shorter rows are not written with non-temporal stores: too many of their cache lines are shared
with neighbouring rows."""
RowWords = NDArray[np.float32]
"""Rows as 32-bit words of any content: loading and storing fp32 changes no bit."""
WORD_BYTES = 4
STEP = LINE_BYTES // WORD_BYTES
"""32-bit words of a cache line."""
LOOKAHEAD_WORDS = 512
"""Prefetch distance. Rows are scattered, so the hardware cannot predict where the next starts."""


class Rows(NamedTuple):
    """Rows of ``count`` 32-bit words, flat."""

    words: RowWords
    count: int


@device_function
def _copy_few(words: RowWords, start: int, out: RowWords, out_start: int, count: int) -> None:
    """Copy a few 32-bit words, or write zeros if ``start`` is negative."""
    for word in range(count):
        out[out_start + word] = words[start + word] if start >= 0 else ZERO


@device_function
def _copy_row(
    rows: Rows, start: int, following: int, out: RowWords, out_start: int, streams: bool
) -> None:
    """Copy a row, or write zeros if ``start`` is negative; prefetch the row at ``following``.

    With ``streams``, whole cache lines are written with non-temporal stores.
    """
    words, count = rows.words, rows.count
    first = min(to_next_line(out, out_start), count)
    end = first + (count - first) // STEP * STEP
    _copy_few(words, start, out, out_start, first)
    zeros = splat(ZERO, out)
    for word in range(first, end, STEP):
        ahead = word + LOOKAHEAD_WORDS
        if start >= 0 and ahead < count:
            prefetch(words, start + ahead)
        elif following >= 0 and count <= ahead < 2 * count:
            prefetch(words, following + ahead - count)
        lanes = load(words, start + word) if start >= 0 else zeros
        if streams:
            stream(out, out_start + word, lanes)
        else:
            store(out, out_start + word, lanes)
    _copy_few(words, start + end if start >= 0 else start, out, out_start + end, count - end)


@device_function
def _copy_token(rows: Rows, start: int, out: RowWords, out_start: int, streams: bool) -> None:
    """Copy the row of a token; with ``streams``, whole cache lines with non-temporal stores.

    Rows of tokens follow each other and each is read several times, so a prefetch as in `_copy_row`
    costs up to a third of the time.
    """
    first = min(to_next_line(out, out_start), rows.count)
    end = first + (rows.count - first) // STEP * STEP
    _copy_few(rows.words, start, out, out_start, first)
    for word in range(first, end, STEP):
        lanes = load(rows.words, start + word)
        if streams:
            stream(out, out_start + word, lanes)
        else:
            store(out, out_start + word, lanes)
    _copy_few(rows.words, start + end, out, out_start + end, rows.count - end)


@kernel
def _copy_chunk(
    chunk: int, chunks: int, tokens: Rows, places: Places, permuted: Rows, top_k: int, streams: bool
) -> None:
    """Copy the rows of a chunk of the tokens; places beyond the end of ``permuted`` are dropped."""
    count, rows = places.size // top_k, permuted.words.size // permuted.count
    for token in range(count * chunk // chunks, count * (chunk + 1) // chunks):
        start = token * tokens.count
        for entry in range(token * top_k, (token + 1) * top_k):
            place = np.int64(places[entry])
            # Places are not negative, but another thread may write to the caller's array meanwhile.
            if not 0 <= place < rows:
                continue
            _copy_token(tokens, start, permuted.words, place * tokens.count, streams)
    end_streams()


@kernel
def _gather_chunk(
    chunk: int, chunks: int, rows: Rows, indices: NDArray[np.int32], out: RowWords, streams: bool
) -> None:
    """Copy a chunk of the rows."""
    count, row_count = rows.count, rows.words.size // rows.count
    first, stop = indices.size * chunk // chunks, indices.size * (chunk + 1) // chunks
    start = np.int64(-1)
    for position in range(first - 1, stop):
        row = np.int64(indices[position + 1]) if position + 1 < stop else np.int64(-1)
        following = row * count if 0 <= row < row_count else np.int64(-1)
        if position >= first:
            _copy_row(rows, start, following, out, position * count, streams)
        start = following
    end_streams()


def _as_words(source: Stored, target: Stored) -> tuple[Rows, Rows] | None:
    """Return two arrays of rows as 32-bit words; None where rows end within one."""
    row_bytes = source.shape[1] * source.itemsize
    if row_bytes % WORD_BYTES or (address_of(source) | address_of(target)) % WORD_BYTES:
        return None
    count = row_bytes // WORD_BYTES
    words, copies = (rows.reshape(-1).view(np.float32) for rows in (source, target))
    return Rows(words, count), Rows(copies, count)


def copy_rows(tokens: Stored, places: Places, permuted: Stored, top_k: int) -> None:
    """Copy the row of every token to its places, on all threads.

    Parameters
    ----------
    tokens : stored (tokens, columns)
        At least one column; C-contiguous.
    places : int32 (tokens * top_k,)
        A permutation; places at or beyond the rows of ``permuted`` are dropped.
    permuted : stored (rows, columns)
        Shares no memory with tokens; C-contiguous.
    top_k
        Places per token.
    """
    words = _as_words(tokens, permuted)
    if words is None:
        for expert in range(top_k):
            column = places[expert::top_k]
            is_kept = column < len(permuted)
            permuted[column[is_kept]] = tokens[is_kept]
        return
    chunks = threads_for(tokens.nbytes + permuted.nbytes)
    streams = is_streamed(permuted, LEAST_STREAMED_BYTES)
    _copy_chunk.over(chunks, chunks, words[0], places, words[1], top_k, streams)


def gather_rows(rows: Stored, indices: NDArray[np.int32], out: Stored) -> None:
    """Copy the row of every index.

    Parameters
    ----------
    rows : stored (row_count, hidden)
        The rows; at least one column.
    indices : int32 (copies,)
        Rows to copy; an index outside 0..row_count-1 gives a row of +0.
    out : stored (copies, hidden)
        The copies; shares no memory with the rows.
    """
    words = _as_words(rows, out)
    if words is None:
        if len(rows):
            np.take(rows, indices, axis=0, out=out, mode="clip")
        out[(indices < 0) | (indices >= len(rows))] = 0
        return
    chunks = threads_for(2 * out.nbytes)
    _gather_chunk.over(chunks, chunks, words[0], indices, words[1].words, is_streamed(out))
