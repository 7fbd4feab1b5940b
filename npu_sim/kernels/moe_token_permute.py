"""MoeTokenPermute: a stable sort of ids, and copies of rows to the places it gives.

The product sorts fp32 scores of the ids and always gets the stable order, so this is a stable sort
of the scores as whole numbers: by digits, from the lowest on, each pass a counting sort. Experts
are few, and one pass is enough for up to 2048 of them.

A row is read once and stored to all its places while the cache holds it, past the cache when the
result is larger than that.

Source: specification page ``moe_token_permute``, "Kernel".
"""

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
"""Bits of a digit: its counters are 8 KiB, which stay in the first-level cache."""
LEAST_STREAMED_BYTES = 256
"""Shorter rows are not stored past the cache: too much of them are lines that they share with their
neighbours."""


def fp32_scores(ids: Ids) -> NDArray[np.int64]:
    """Return ids as they are sorted: rounded to fp32, ties away from zero (page, "Ids as fp32").

    Parameters
    ----------
    ids : int32 or int64 (entries,)

    Returns
    -------
    int64 (entries,)
        The fp32 values; 2^63, which is above the range, as the largest whole number, which is no
        fp32 value and keeps its order.
    """
    scores = ids.astype(np.int64)
    large = np.flatnonzero((scores > 1 << MANTISSA_BITS) | (scores < -(1 << MANTISSA_BITS)))
    if not large.size:
        return scores
    values = scores[large]
    sizes = np.abs(values).view(
        np.uint64
    )  # the smallest int64 has no positive twin, but its bits are those of 2^63
    _, exponents = np.frexp(
        (sizes >> np.uint64(MANTISSA_BITS)).astype(np.float64)
    )  # exact: what is dropped are whole bits
    dropped = exponents.astype(np.uint64)
    half = np.uint64(1) << (dropped - np.uint64(1))
    rounded = (sizes + half) >> dropped << dropped
    scores[large] = np.where(
        values < 0,
        -rounded.view(np.int64),
        np.minimum(rounded, np.uint64(INT64_MAX)).view(np.int64),
    )
    return scores


def are_rounded(ids: Ids) -> NDArray[np.bool_]:
    """Return which ids fp32 does not hold."""
    scores = fp32_scores(ids)
    return (scores != ids) | (scores == INT64_MAX)


def sort_ids(ids: Ids, places: Places) -> None:
    """Write where each copy goes: its rank in the stable ascending order of the scores.

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
    above = (scores - scores.min()).view(
        np.uint64
    )  # wraps around, and is right as an unsigned number
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
    """Return one digit of a score, of as many bits as there are starts for."""
    return (scores[entry] >> np.uint64(shift)) & np.uint64(starts.size - 1)


@device_function
def _find_starts(scores: NDArray[np.uint64], shift: int, starts: Places) -> None:
    """Count how often every digit occurs, and sum up where each begins."""
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
    """Return where an entry goes, and move on: the next entry with the same digit goes behind it."""
    digit = _digit(scores, entry, shift, starts)
    slot = starts[digit]
    starts[digit] = slot + 1
    return slot


@kernel
def _sort_by_digit(
    share: int,
    scores: NDArray[np.uint64],
    order: Places,
    shift: int,
    starts: Places,
    result: Places,
) -> None:
    """Sort entries by one digit; those that have the same one keep their order."""
    _find_starts(scores, shift, starts)
    for entry in order:
        result[_take_slot(scores, entry, shift, starts)] = entry


@kernel
def _place_by_digit(
    share: int,
    scores: NDArray[np.uint64],
    order: Places,
    shift: int,
    starts: Places,
    places: Places,
) -> None:
    """The same for the last digit, but write the rank of every entry instead of the entry of every rank."""
    _find_starts(scores, shift, starts)
    for entry in order:
        places[entry] = _take_slot(scores, entry, shift, starts)


@kernel
def _copy_share(
    share: int,
    shares: int,
    tokens: Words,
    places: Places,
    permuted: Words,
    top_k: int,
    row_words: int,
    streams: bool,
) -> None:
    """Copy the rows of a share of the tokens; places at or beyond the end of ``permuted`` are dropped."""
    count, rows = places.size // top_k, permuted.size // row_words
    for token in range(count * share // shares, count * (share + 1) // shares):
        for entry in range(token * top_k, (token + 1) * top_k):
            place = np.int64(places[entry])
            if (
                place < 0 or place >= rows
            ):  # none is below 0, whatever another thread writes to the caller's array meanwhile
                continue
            if streams:
                _stream_row(tokens, token * row_words, permuted, place * row_words, row_words)
            else:
                copy_words(tokens, token * row_words, permuted, place * row_words, row_words)
    if streams:
        end_streams()


@device_function
def _stream_row(source: Words, at: int, target: Words, to: int, count: int) -> None:
    """Copy a row: whole lines past the cache, and what it shares with its neighbours through it."""
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
        A permutation; those at or beyond the rows of ``permuted`` are dropped.
    permuted : stored (rows, columns)
        Shares no memory with tokens; C-contiguous.
    top_k
        Places of a token.
    """
    source, target = (array.reshape(-1).view(np.uint16) for array in (tokens, permuted))
    row_words, shares = (
        tokens.shape[1] * tokens.itemsize // WORD_BYTES,
        threads_for(tokens.nbytes + permuted.nbytes),
    )
    _copy_share.over(
        shares,
        shares,
        source,
        places,
        target,
        top_k,
        row_words,
        is_streamed(permuted, LEAST_STREAMED_BYTES),
    )
