"""MoeTokenPermute: a stable sort of ids, and copies of rows to the sorted places.

The product sorts fp32 scores of the ids and always obtains the stable order. This is a stable radix
sort of the scores as integers: one counting sort per digit, from the lowest on. Experts are few,
and one pass is enough for up to 2048 of them.

Each row is read once and written to all its places while it is in the cache, with non-temporal
stores if the result exceeds the cache.

Source: specification page ``moe_token_permute``, "Kernel".
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from npu_sim.kernels.engine.compile import device_function, kernel
from npu_sim.kernels.engine.threads import threads_for
from npu_sim.kernels.vectors.lanes import end_streams, is_streamed, to_next_line
from npu_sim.kernels.vectors.words import LINE_WORDS, WORD_BYTES, Words, copy_words, stream_line

Ids = NDArray[np.int32] | NDArray[np.int64]
Places = NDArray[np.int32]

MANTISSA_BITS = 24
"""Significant bits of fp32."""
INT64_MAX = 2**63 - 1
DIGIT_BITS = 11
"""Bits of a digit; its counters take 8 KiB, which stay in the L1 cache."""
LEAST_STREAMED_BYTES = 256
"""Shorter rows are not written with non-temporal stores: too many of their cache lines are shared
with neighbouring rows."""


def fp32_scores(ids: Ids) -> NDArray[np.int64]:
    """Return the sort keys of ids: rounded to fp32, ties away from zero (page, "Ids as fp32").

    Parameters
    ----------
    ids : int32 or int64 (entries,)

    Returns
    -------
    int64 (entries,)
        The fp32 values. 2^63 exceeds the range and becomes the largest int64, which is not an fp32
        value and sorts in the same place.
    """
    scores = ids.astype(np.int64)
    large = np.flatnonzero((scores > 1 << MANTISSA_BITS) | (scores < -(1 << MANTISSA_BITS)))
    if not large.size:
        return scores
    values = scores[large]
    # abs of the smallest int64 overflows to itself, whose bits are those of 2^63.
    sizes = np.abs(values).view(np.uint64)
    # Exact, because the shift drops only bits below the mantissa.
    _, exponents = np.frexp((sizes >> np.uint64(MANTISSA_BITS)).astype(np.float64))
    dropped = exponents.astype(np.uint64)
    half = np.uint64(1) << (dropped - np.uint64(1))
    rounded = (sizes + half) >> dropped << dropped
    positive = np.minimum(rounded, np.uint64(INT64_MAX)).view(np.int64)
    scores[large] = np.where(values < 0, -rounded.view(np.int64), positive)
    return scores


def are_rounded(ids: Ids) -> NDArray[np.bool_]:
    """Return the mask of ids that are not exact in fp32."""
    scores = fp32_scores(ids)
    return (scores != ids) | (scores == INT64_MAX)


def sort_ids(ids: Ids, places: Places) -> None:
    """Write the place of each copy: its rank in the stable ascending order of the scores.

    Parameters
    ----------
    ids : int32 or int64 (entries,)
        Fewer than 2^31.
    places : int32 (entries,)
        To be written.
    """
    if not ids.size:
        return
    scores = fp32_scores(ids)
    # The difference may overflow int64; as uint64 it is correct.
    above = (scores - scores.min()).view(np.uint64)
    bits = int(above.max()).bit_length()
    order = np.arange(ids.size, dtype=np.int32)
    other = np.empty_like(order)
    starts = np.empty(1 << min(bits, DIGIT_BITS), np.int32)
    shift = 0
    while bits - shift > DIGIT_BITS:
        _sort_by_digit.over(1, above, order, shift, starts, other)
        order, other = other, order
        shift += DIGIT_BITS
    _place_by_digit.over(1, above, order, shift, starts, places)


@device_function
def _digit(scores: NDArray[np.uint64], entry: int, shift: int, starts: Places) -> np.uint64:
    """Return the digit of a score at bit ``shift``; ``starts.size`` is the radix."""
    return (scores[entry] >> np.uint64(shift)) & np.uint64(starts.size - 1)


@device_function
def _find_starts(scores: NDArray[np.uint64], shift: int, starts: Places) -> None:
    """Write the first place of each digit: the exclusive prefix sum of the digit counts."""
    starts[:] = 0
    for entry in range(scores.size):
        starts[_digit(scores, entry, shift, starts)] += 1
    begin = np.int32(0)
    for digit in range(starts.size):
        count = starts[digit]
        starts[digit] = begin
        begin += count


@device_function
def _take_slot(scores: NDArray[np.uint64], entry: int, shift: int, starts: Places) -> np.int32:
    """Return the place of an entry and advance the start of its digit."""
    digit = _digit(scores, entry, shift, starts)
    slot = starts[digit]
    starts[digit] = slot + 1
    return slot


@kernel
def _sort_by_digit(
    chunk: int,
    scores: NDArray[np.uint64],
    order: Places,
    shift: int,
    starts: Places,
    result: Places,
) -> None:
    """Sort entries by one digit; entries with the same digit keep their order."""
    _find_starts(scores, shift, starts)
    for entry in order:
        result[_take_slot(scores, entry, shift, starts)] = entry


@kernel
def _place_by_digit(
    chunk: int,
    scores: NDArray[np.uint64],
    order: Places,
    shift: int,
    starts: Places,
    places: Places,
) -> None:
    """Like `_sort_by_digit`, for the last digit: write ranks by entry, not entries by rank."""
    _find_starts(scores, shift, starts)
    for entry in order:
        places[entry] = _take_slot(scores, entry, shift, starts)


class Rows(NamedTuple):
    """Rows of 16-bit words, flat."""

    words: Words
    row_words: int


@kernel
def _copy_chunk(
    chunk: int, chunks: int, tokens: Rows, places: Places, permuted: Rows, top_k: int, streams: bool
) -> None:
    """Copy the rows of a chunk of the tokens; places beyond the end of ``permuted`` are dropped."""
    count, row_words = places.size // top_k, tokens.row_words
    rows = permuted.words.size // row_words
    for token in range(count * chunk // chunks, count * (chunk + 1) // chunks):
        for entry in range(token * top_k, (token + 1) * top_k):
            place = np.int64(places[entry])
            # Places are not negative, but another thread may write to the caller's array meanwhile.
            if place < 0 or place >= rows:
                continue
            source, target = token * row_words, place * row_words
            if streams:
                _stream_row(tokens.words, source, permuted.words, target, row_words)
            else:
                copy_words(tokens.words, source, permuted.words, target, row_words)
    if streams:
        end_streams()


@device_function
def _stream_row(source: Words, at: int, target: Words, to: int, count: int) -> None:
    """Copy a row: whole cache lines with non-temporal stores, partial lines with ordinary ones."""
    first = min(to_next_line(target, to), count)
    end = first + (count - first) // LINE_WORDS * LINE_WORDS
    copy_words(source, at, target, to, first)
    for word in range(first, end, LINE_WORDS):
        stream_line(source, at + word, target, to + word)
    copy_words(source, at + end, target, to + end, count - end)


def copy_rows(
    tokens: NDArray[np.generic], places: Places, permuted: NDArray[np.generic], top_k: int
) -> None:
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
    row_words = tokens.shape[1] * tokens.itemsize // WORD_BYTES
    source, target = (Rows(a.reshape(-1).view(np.uint16), row_words) for a in (tokens, permuted))
    chunks = threads_for(tokens.nbytes + permuted.nbytes)
    streams = is_streamed(permuted, LEAST_STREAMED_BYTES)
    _copy_chunk.over(chunks, chunks, source, places, target, top_k, streams)
