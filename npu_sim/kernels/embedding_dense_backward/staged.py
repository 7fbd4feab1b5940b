"""EmbeddingDenseBackward, native 16-bit: the rows whose runs reach several cores.

Every core stages the sums of its first and its last index in two slots of fp32; a core whose slice holds one index stages zeros after
its sum. Neighbouring slots of one index are summed in chunks of 11 slots, zeros included, each chunk added to a second accumulator.

Source: specification page ``embedding_dense_backward``, "key 0, native 16-bit".
"""

import numpy as np
from numpy.typing import NDArray

from npu_sim.kernels.embedding_dense_backward.chunks import Cut, Integers
from npu_sim.kernels.embedding_dense_backward.lines import (
    BLOCK_LINES,
    ZERO,
    PassBuffers,
    clear_lines,
    pass_buffers,
    sum_kept_lines,
)
from npu_sim.kernels.embedding_dense_backward.sums import ONE
from npu_sim.kernels.engine.compile import device_function, kernel
from npu_sim.kernels.engine.threads import thread_count
from npu_sim.kernels.vectors.lane_type import LINE_BYTES
from npu_sim.kernels.vectors.lanes import Stored, splat, store
from npu_sim.kernels.vectors.lanes_kept import Kept, keep, recall
from npu_sim.numbers.scalars import narrow, widen

STAGE_CHUNK_SLOTS = 11
"""Stage slots summed before they are added to the second accumulator."""


def staged_rows(cut: Cut, starts: Integers, padding_idx: int) -> NDArray[np.int64]:
    """Return the weight rows whose runs reach several cores, ascending; without the padding row, which gets zeros."""
    inner = cut.core_starts()[1:-1]
    rows = np.searchsorted(starts, inner, side="right") - 1
    reached = np.unique(rows[starts[rows] < inner]).astype(np.int64)
    return reached[reached != padding_idx]


@device_function
def _add_lines(sums: Kept, more: Kept, lines: int, step: int, like: Stored) -> None:
    for line in range(lines):
        keep(sums, line * step, recall(sums, line * step, like) + recall(more, line * step, like))


@kernel
def _sum_staged(
    share: int,
    buffers: PassBuffers,
    grad: Stored,
    dim: int,
    core_starts: NDArray[np.int64],
    starts: Integers,
    marked: Integers,
    rows: NDArray[np.int64],
    out: Stored,
) -> None:
    step = LINE_BYTES // out.itemsize
    all_lines = (dim + step - 1) // step
    blocks = (all_lines + BLOCK_LINES - 1) // BLOCK_LINES
    zero, ones = splat(ZERO, out), splat(ONE, out)
    offsets, closes, kept = buffers.offsets[share], buffers.closes[share], buffers.sums[share]
    totals, slots, caches, chunks = kept[0], kept[1], kept[2], kept[3]
    for part in range(share, rows.size * blocks, buffers.offsets.shape[0]):
        row, block = rows[part // blocks], part % blocks * BLOCK_LINES
        lines = min(BLOCK_LINES, all_lines - block)
        clear_lines(totals, lines, step, zero)
        clear_lines(slots, lines, step, zero)
        clear_lines(chunks, lines, step, zero)
        begin, stop = np.int64(starts[row]), np.int64(starts[row + 1])
        core, taken = 0, 0
        while begin < stop:
            while core_starts[core + 1] <= begin:
                core += 1
            end = min(stop, core_starts[core + 1])
            clear_lines(caches, lines, step, zero)
            sum_kept_lines(
                grad, marked, begin, end, ones, dim, block, lines, offsets, closes, caches, chunks
            )
            _add_lines(slots, caches, lines, step, out)
            whole_slice = begin == core_starts[core] and end == core_starts[core + 1]
            for _ in range(
                2 if whole_slice else 1
            ):  # the second slot holds zeros: no sum changes, but it counts
                taken += 1
                if taken == STAGE_CHUNK_SLOTS:
                    _add_lines(totals, slots, lines, step, out)
                    clear_lines(slots, lines, step, zero)
                    taken = 0
            begin = end
        _add_lines(totals, slots, lines, step, out)
        for line in range(lines):
            column = min((block + line) * step, dim - step)
            store(out, np.int64(row) * dim + column, recall(totals, line * step, out))


@kernel
def _sum_narrow_staged(
    part: int,
    grad: Stored,
    dim: int,
    core_starts: NDArray[np.int64],
    starts: Integers,
    marked: Integers,
    rows: NDArray[np.int64],
    out: Stored,
) -> None:
    """The same for rows shorter than a cache line, an element at a time."""
    row, column = rows[part // dim], part % dim
    total, slots, cache, chunk, core, taken = ZERO, ZERO, ZERO, ZERO, 0, 0
    core_begin, stop = np.int64(starts[row]), np.int64(starts[row + 1])
    for slot in range(core_begin, stop):
        position = np.int64(marked[slot])
        chunk = chunk + widen(grad[max(position, ~position) * dim + column])
        if position < 0:
            cache, chunk = cache + chunk, ZERO
        while core_starts[core + 1] <= slot:
            core += 1
        if slot + 1 == stop or slot + 1 == core_starts[core + 1]:
            slots, cache = slots + cache, ZERO
            whole_slice = core_begin == core_starts[core] and slot + 1 == core_starts[core + 1]
            for _ in range(2 if whole_slice else 1):
                taken += 1
                if taken == STAGE_CHUNK_SLOTS:
                    total, slots, taken = total + slots, ZERO, 0
            core_begin = slot + 1
    out[np.int64(row) * dim + column] = narrow(total + slots, out)


def sum_staged_rows(
    grad: Stored, cut: Cut, starts: Integers, marked: Integers, rows: NDArray[np.int64], out: Stored
) -> None:
    """Write the rows of `staged_rows`; arrays as in `sum_runs`."""
    if rows.size:
        dim = grad.shape[1]
        arguments = grad.reshape(-1), dim, cut.core_starts(), starts, marked, rows, out.reshape(-1)
        if dim * out.itemsize < LINE_BYTES:
            _sum_narrow_staged.over(rows.size * dim, *arguments)
        else:
            threads = thread_count()
            _sum_staged.over(threads, pass_buffers(threads, 4, out.itemsize), *arguments)
