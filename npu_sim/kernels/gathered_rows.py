"""Rows copied by index, bit for bit: MoeTokenUnpermute and MoeTokenUnpermuteGrad without probs.

Nothing is computed; rows move as 32-bit words.

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
"""Rows as 32-bit words of any content: loading and storing fp32 changes no bit."""

WORD_BYTES = 4
ZERO = np.float32(0)
LOOKAHEAD_WORDS = 512
"""Prefetch distance. Rows are scattered, so the hardware cannot predict where the next starts."""


@device_function
def _copy_words(words: Words, start: int, out: Words, out_start: int, count: int) -> None:
    """Copy a few words, or write zeros if ``start`` is negative."""
    for word in range(count):
        out[out_start + word] = words[start + word] if start >= 0 else ZERO


@device_function
def _copy_row(
    words: Words, start: int, following: int, out: Words, out_start: int, count: int, streams: bool
) -> None:
    """Copy a row, or write zeros if ``start`` is negative; prefetch the row at ``following``."""
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
def _copy_chunk(
    chunk: int,
    chunks: int,
    words: Words,
    indices: NDArray[np.int32],
    out: Words,
    count: int,
    streams: bool,
) -> None:
    """Copy a chunk of the rows; ``count`` is the number of words in a row."""
    rows = words.size // count
    first, stop = indices.size * chunk // chunks, indices.size * (chunk + 1) // chunks
    start = np.int64(-1)
    for position in range(first - 1, stop):
        row = np.int64(indices[position + 1]) if position + 1 < stop else np.int64(-1)
        following = row * count if 0 <= row < rows else np.int64(-1)
        if position >= first:
            _copy_row(words, start, following, out, position * count, count, streams)
        start = following
    end_streams()


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
    row_bytes = out.shape[1] * out.itemsize
    if row_bytes % WORD_BYTES == 0 and not (address_of(rows) | address_of(out)) % WORD_BYTES:
        words, copies = rows.reshape(-1).view(np.float32), out.reshape(-1).view(np.float32)
        chunks, count = threads_for(2 * out.nbytes), row_bytes // WORD_BYTES
        _copy_chunk.over(chunks, chunks, words, indices, copies, count, is_streamed(out))
        return
    # Rows are not whole words.
    if len(rows):
        np.take(rows, indices, axis=0, out=out, mode="clip")
    out[(indices < 0) | (indices >= len(rows))] = 0
