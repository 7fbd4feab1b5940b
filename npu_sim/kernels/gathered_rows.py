"""Rows copied by index, bit for bit.

Sources: specification pages ``moe_token_unpermute`` and ``moe_token_unpermute_grad``, the kernels
without probs.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_sim.kernels.engine.compile import device_function, kernel
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
from npu_sim.numbers.arrays import address_of

Stored = NDArray[Any]
Words = NDArray[np.float32]
"""Rows as fp32 words, whatever they hold: loading and storing one changes no bit."""

WORD_BYTES = 4
ZERO = np.float32(0)
LOOKAHEAD_WORDS = 512
"""How far ahead rows are asked for: they lie anywhere, and the processor cannot foresee where the
next one starts."""


@device_function
def _copy_words(words: Words, start: int, out: Words, out_start: int, count: int) -> None:
    """Copy a few words; zeros where ``start`` is negative."""
    for word in range(count):
        out[out_start + word] = words[start + word] if start >= 0 else ZERO


@device_function
def _copy_row(
    words: Words, start: int, following: int, out: Words, out_start: int, count: int, streams: bool
) -> None:
    """Copy a row, or zeros where ``start`` is negative; the row at ``following`` comes next."""
    step = LINE_BYTES // WORD_BYTES
    first = min(to_next_line(out, out_start), count)
    end = first + (count - first) // step * step
    _copy_words(words, start, out, out_start, first)
    zeros = splat(ZERO, out)
    for word in range(first, end, step):
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
    _copy_words(words, start + end if start >= 0 else start, out, out_start + end, count - end)


@kernel
def _copy_share(
    share: int,
    shares: int,
    words: Words,
    indices: NDArray[np.int32],
    out: Words,
    count: int,
    streams: bool,
) -> None:
    """Copy a share of the rows; ``count`` is the words of a row."""
    rows = words.size // count
    first, stop = indices.size * share // shares, indices.size * (share + 1) // shares
    start = np.int64(-1)
    for place in range(first - 1, stop):
        after = np.int64(indices[place + 1]) if place + 1 < stop else np.int64(-1)
        following = after * count if 0 <= after < rows else np.int64(-1)
        if place >= first:
            _copy_row(words, start, following, out, place * count, count, streams)
        start = following
    end_streams()


def gather_rows(rows: Stored, indices: NDArray[np.int32], out: Stored) -> None:
    """Copy the row of every index.

    Parameters
    ----------
    rows : stored (row_count, hidden)
        The rows; at least one column.
    indices : int32 (copies,)
        The row to copy; +0 is written for one that is negative, or at or beyond ``row_count``.
    out : stored (copies, hidden)
        The copies; shares no memory with the rows.
    """
    row_bytes = out.shape[1] * out.itemsize
    if row_bytes % WORD_BYTES == 0 and not (address_of(rows) | address_of(out)) % WORD_BYTES:
        words, copies, shares = (
            rows.reshape(-1).view(np.float32),
            out.reshape(-1).view(np.float32),
            threads_for(2 * out.nbytes),
        )
        _copy_share.over(
            shares, shares, words, indices, copies, row_bytes // WORD_BYTES, is_streamed(out)
        )
        return
    if len(rows):  # a word would hold the end of one row and the start of the next
        np.take(rows, indices, axis=0, out=out, mode="clip")
    out[(indices < 0) | (indices >= len(rows))] = 0
