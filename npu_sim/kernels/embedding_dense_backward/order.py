"""EmbeddingDenseBackward: how the chunks of several cores reach one output row.

Atomic paths: every core's own chunks stay in order, and between cores any order is possible.
`merge_rows` draws one and rearranges the slots accordingly.

Native 16-bit path: each core writes the sums of its first and its last index to two fp32 *stage
slots*; a core whose slice holds a single index writes zeros to the second. Adjacent stage slots of
one index are summed in chunks of 11 slots (zeros included), and each chunk is added to a second
accumulator. `sum_staged_rows` computes these rows.

Sources: specification pages ``numerics``, "Atomic addition to global memory", and
``embedding_dense_backward``, "key 0, native 16-bit".
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from npu_sim.kernels.embedding_dense_backward.chunks import Cut, Integers
from npu_sim.kernels.embedding_dense_backward.sums import (
    BLOCK_LINES,
    ONE,
    ZERO,
    MarkedRows,
    PassBuffers,
    Run,
    ThreadBuffers,
    clear_lines,
    pass_buffers,
    sum_lines,
)
from npu_sim.kernels.engine.compile import device_function, kernel
from npu_sim.kernels.engine.threads import thread_count
from npu_sim.kernels.random_order import RANDOM, REVERSE, ROUND_ROBIN, draw_below, seed_words
from npu_sim.kernels.vectors.lane_type import LINE_BYTES
from npu_sim.kernels.vectors.lanes import Stored, splat, store
from npu_sim.kernels.vectors.lanes_kept import Kept, keep, recall
from npu_sim.numbers.scalars import narrow, widen

# --- Atomic paths ---

Cursors = NDArray[np.int64]
"""(cores, 3): the state of each core that contributes to a run, cores ascending."""
CORE, NEXT, LEFT = 0, 1, 2
"""Columns of `Cursors`: the core, its next slot, and the number of chunks it has left."""
CURSOR_COLUMNS = 3


class ArrivalOrder(NamedTuple):
    """How the slots are divided among cores, and the order in which the cores' chunks arrive."""

    core_starts: NDArray[np.int64]
    """First slot (or row of grad) of each core."""
    by_slot: bool
    """Whether ``core_starts`` are slots rather than rows of grad."""
    order: int
    """Code of the order; see `npu_sim.kernels.random_order`."""
    seed: tuple[int, int]


@device_function
def _place_cursors(
    arrival: ArrivalOrder, marked: Integers, begin: int, stop: int, cursors: Cursors
) -> int:
    """Write a cursor for each core that contributes to the run begin..stop; return the number."""
    count, core = 0, 0
    for slot in range(begin, stop):
        place = slot if arrival.by_slot else max(np.int64(marked[slot]), ~np.int64(marked[slot]))
        while arrival.core_starts[core + 1] <= place:
            core += 1
        if count == 0 or cursors[count - 1, CORE] != core:
            cursors[count, CORE], cursors[count, NEXT], cursors[count, LEFT] = core, slot, 0
            count += 1
        cursors[count - 1, LEFT] += marked[slot] < 0
    return count


@device_function
def _pick_cursor(
    arrival: ArrivalOrder, row: int, step: int, left: int, last: int, count: int, cursors: Cursors
) -> int:
    """Return the cursor whose next chunk arrives.

    ``left`` chunks remain at ``count`` cursors; ``last`` is the previous cursor, -1 at first.
    """
    if arrival.order == RANDOM:
        # Choosing a core with probability proportional to its remaining chunks makes all merges
        # equally likely.
        drawn, cursor = draw_below(left, arrival.seed, row, step), 0
        while drawn >= cursors[cursor, LEFT]:
            drawn -= cursors[cursor, LEFT]
            cursor += 1
        return cursor
    direction = -1 if arrival.order == REVERSE else 1
    cursor = last
    if last < 0:
        cursor = count - 1 if arrival.order == REVERSE else 0
    elif arrival.order == ROUND_ROBIN:
        cursor = (last + 1) % count
    while cursors[cursor, LEFT] == 0:
        cursor = (cursor + direction) % count
    return cursor


@device_function
def _merge_run(
    arrival: ArrivalOrder,
    row: int,
    begin: int,
    stop: int,
    marked: Integers,
    merged: Integers,
    cursors: Cursors,
) -> None:
    """Copy the slots begin..stop from ``marked`` to ``merged``, chunk by chunk as they arrive."""
    count = _place_cursors(arrival, marked, begin, stop, cursors)
    left = np.int64(0)
    for cursor in range(count):
        left += cursors[cursor, LEFT]
    cursor, step, target = -1, 0, begin
    while left > 0:
        cursor = _pick_cursor(arrival, row, step, left, cursor, count, cursors)
        slot = cursors[cursor, NEXT]
        while marked[slot] >= 0:
            merged[target] = marked[slot]
            slot, target = slot + 1, target + 1
        merged[target] = marked[slot]
        cursors[cursor, NEXT], target = slot + 1, target + 1
        cursors[cursor, LEFT] -= 1
        left, step = left - 1, step + 1


@kernel
def _merge_all(
    thread: int,
    arrival: ArrivalOrder,
    rows: NDArray[np.int64],
    starts: Integers,
    marked: Integers,
    merged: Integers,
    cursors: NDArray[np.int64],
) -> None:
    threads = len(cursors)
    for place in range(thread, rows.size, threads):
        row = rows[place]
        begin, stop = np.int64(starts[row]), np.int64(starts[row + 1])
        _merge_run(arrival, row, begin, stop, marked, merged, cursors[thread])


def merge_rows(
    cut: Cut, starts: Integers, marked: Integers, rows: NDArray[np.int64], order: int, seed: int
) -> Integers:
    """Return a copy of ``marked`` in which the runs of ``rows`` are in their order of arrival.

    Parameters
    ----------
    cut : Cut
        Division of the call among cores, on an atomic path.
    starts, marked : int32 or int64
        The grouped and marked call.
    rows : int64
        Weight rows that depend on the order of arrival.
    order, seed : int
        Code of the order (`npu_sim.kernels.random_order`) and its seed, which only RANDOM uses.
    """
    merged = marked.copy()
    arrival = ArrivalOrder(cut.core_starts(), cut.splits_slots, order, seed_words(seed))
    cursors = np.empty((thread_count(), cut.cores, CURSOR_COLUMNS), np.int64)
    _merge_all.over(len(cursors), arrival, rows, starts, marked, merged, cursors)
    return merged


# --- Staged rows of the native 16-bit path ---

STAGE_CHUNK_SLOTS = 11
"""Stage slots that are summed before they are added to the second accumulator."""


def staged_rows(cut: Cut, starts: Integers, padding_idx: int) -> NDArray[np.int64]:
    """Return the weight rows that several cores reach, ascending, without the padding row."""
    inner = cut.core_starts()[1:-1]
    rows = np.searchsorted(starts, inner, side="right") - 1
    reached = np.unique(rows[starts[rows] < inner]).astype(np.int64)
    return reached[reached != padding_idx]


class Staged(NamedTuple):
    """The staged weight rows and the slices of the cores."""

    indices: NDArray[np.int64]
    starts: Integers
    core_starts: NDArray[np.int64]


@device_function
def _add_lines(sums: Kept, more: Kept, lines: int, step: int, like: Stored) -> None:
    for line in range(lines):
        keep(sums, line * step, recall(sums, line * step, like) + recall(more, line * step, like))


@kernel
def _sum_staged(
    thread: int, rows: MarkedRows, staged: Staged, buffers: PassBuffers, out: Stored
) -> None:
    """Sum the staged rows; threads take turns at blocks of BLOCK_LINES cache lines of a row."""
    dim, step, core_starts = rows.dim, LINE_BYTES // out.itemsize, staged.core_starts
    all_lines = (dim + step - 1) // step
    blocks = (all_lines + BLOCK_LINES - 1) // BLOCK_LINES
    zero, sums = splat(ZERO, out), buffers.sums[thread]
    totals, slots, core_sums, chunks = sums[0], sums[1], sums[2], sums[3]
    core_buffers = ThreadBuffers(
        buffers.offsets[thread], buffers.closes[thread], core_sums, chunks, buffers.carry[thread]
    )
    for part in range(thread, staged.indices.size * blocks, buffers.offsets.shape[0]):
        row, block = staged.indices[part // blocks], part % blocks * BLOCK_LINES
        lines = min(BLOCK_LINES, all_lines - block)
        clear_lines(totals, lines, step, zero)
        clear_lines(slots, lines, step, zero)
        clear_lines(chunks, lines, step, zero)
        begin, stop = np.int64(staged.starts[row]), np.int64(staged.starts[row + 1])
        core, slots_in_chunk = 0, 0
        while begin < stop:
            while core_starts[core + 1] <= begin:
                core += 1
            end = min(stop, core_starts[core + 1])
            clear_lines(core_sums, lines, step, zero)
            sum_lines(rows, Run(begin, end, ONE, ONE), block, lines, core_buffers)
            _add_lines(slots, core_sums, lines, step, out)
            whole_slice = begin == core_starts[core] and end == core_starts[core + 1]
            # The zeros in the second slot change no sum but count as a slot.
            for _ in range(2 if whole_slice else 1):
                slots_in_chunk += 1
                if slots_in_chunk == STAGE_CHUNK_SLOTS:
                    _add_lines(totals, slots, lines, step, out)
                    clear_lines(slots, lines, step, zero)
                    slots_in_chunk = 0
            begin = end
        _add_lines(totals, slots, lines, step, out)
        for line in range(lines):
            column = min((block + line) * step, dim - step)
            store(out, np.int64(row) * dim + column, recall(totals, line * step, out))


@kernel
def _sum_narrow_staged(part: int, rows: MarkedRows, staged: Staged, out: Stored) -> None:
    """Like `_sum_staged`, for one element of a row shorter than a cache line."""
    core_starts, dim = staged.core_starts, rows.dim
    row, column = staged.indices[part // dim], part % dim
    total, slots, core_sum, chunk, core, slots_in_chunk = ZERO, ZERO, ZERO, ZERO, 0, 0
    core_begin, stop = np.int64(staged.starts[row]), np.int64(staged.starts[row + 1])
    for slot in range(core_begin, stop):
        position = np.int64(rows.marked[slot])
        chunk = chunk + widen(rows.grad[max(position, ~position) * dim + column])
        if position < 0:
            core_sum, chunk = core_sum + chunk, ZERO
        while core_starts[core + 1] <= slot:
            core += 1
        if slot + 1 == stop or slot + 1 == core_starts[core + 1]:
            slots, core_sum = slots + core_sum, ZERO
            whole_slice = core_begin == core_starts[core] and slot + 1 == core_starts[core + 1]
            for _ in range(2 if whole_slice else 1):
                slots_in_chunk += 1
                if slots_in_chunk == STAGE_CHUNK_SLOTS:
                    total, slots, slots_in_chunk = total + slots, ZERO, 0
            core_begin = slot + 1
    out[np.int64(row) * dim + column] = narrow(total + slots, out)


def sum_staged_rows(
    grad: Stored,
    cut: Cut,
    starts: Integers,
    marked: Integers,
    indices: NDArray[np.int64],
    out: Stored,
) -> None:
    """Write the rows of ``out`` that `staged_rows` returned as ``indices``."""
    if not indices.size:
        return
    rows = MarkedRows(grad.reshape(-1), grad.shape[1], marked)
    staged = Staged(indices, starts, cut.core_starts())
    if rows.dim * out.itemsize < LINE_BYTES:
        _sum_narrow_staged.over(indices.size * rows.dim, rows, staged, out.reshape(-1))
    else:
        threads = thread_count()
        buffers = pass_buffers(threads, 4, out.itemsize)
        _sum_staged.over(threads, rows, staged, buffers, out.reshape(-1))
