"""EmbeddingDenseBackward: in which order the chunks of several cores reach one output row.

Every core's own chunks keep their order; between cores the order is open, and this module draws it.

Source: specification page ``numerics``, "Atomic addition to global memory".
"""

import numpy as np
from numpy.typing import NDArray

from npu_sim.kernels.embedding_dense_backward.chunks import Cut, Integers
from npu_sim.kernels.embedding_dense_backward.sums import (
    BLOCK_LINES,
    ONE,
    ZERO,
    PassBuffers,
    clear_lines,
    pass_buffers,
    sum_kept_lines,
)
from npu_sim.kernels.engine.compile import device_function, kernel
from npu_sim.kernels.engine.threads import thread_count
from npu_sim.kernels.random_order import RANDOM, REVERSE, ROUND_ROBIN, draw_below, seed_words
from npu_sim.kernels.vectors.lane_type import LINE_BYTES
from npu_sim.kernels.vectors.lanes import Stored, splat, store
from npu_sim.kernels.vectors.lanes_kept import Kept, keep, recall
from npu_sim.numbers.scalars import narrow, widen

Lines = NDArray[np.int64]
"""(cores, 3): a line for each core that contributes to a run, cores ascending; see the columns."""
CORE, NEXT, LEFT = 0, 1, 2
"""The core, its next slot, and how many chunks it has left."""
LINE_COLUMNS = 3


@device_function
def open_lines(
    core_starts: NDArray[np.int64],
    by_slot: bool,
    marked: Integers,
    begin: int,
    stop: int,
    lines: Lines,
) -> int:
    """Write a line for each core that contributes to the run begin..stop; return how many."""
    count, core = 0, 0
    for slot in range(begin, stop):
        place = slot if by_slot else max(np.int64(marked[slot]), ~np.int64(marked[slot]))
        while core_starts[core + 1] <= place:
            core += 1
        if count == 0 or lines[count - 1, CORE] != core:
            lines[count, CORE], lines[count, NEXT], lines[count, LEFT] = core, slot, 0
            count += 1
        lines[count - 1, LEFT] += marked[slot] < 0
    return count


@device_function
def pick_line(
    order: int,
    seed: tuple[int, int],
    row: int,
    step: int,
    left: int,
    last: int,
    count: int,
    lines: Lines,
) -> int:
    """Return the line whose next chunk arrives.

    ``left`` chunks of ``count`` lines remain; ``last`` is the line before this one, -1 at first.
    """
    if order == RANDOM:
        # Choosing a core with probability proportional to its chunks left makes every merge equally
        # likely.
        drawn, line = draw_below(left, seed, row, step), 0
        while drawn >= lines[line, LEFT]:
            drawn -= lines[line, LEFT]
            line += 1
        return line
    direction = -1 if order == REVERSE else 1
    line = last
    if last < 0:
        line = count - 1 if order == REVERSE else 0
    elif order == ROUND_ROBIN:
        line = (last + 1) % count
    while lines[line, LEFT] == 0:
        line = (line + direction) % count
    return line


@device_function
def _merge_run(
    core_starts: NDArray[np.int64],
    by_slot: bool,
    order: int,
    seed: tuple[int, int],
    row: int,
    marked: Integers,
    begin: int,
    stop: int,
    merged: Integers,
    lines: Lines,
) -> None:
    """Write the slots begin..stop of ``marked`` to those of ``merged``, chunk by chunk in the order of arrival."""
    count = open_lines(core_starts, by_slot, marked, begin, stop, lines)
    left = np.int64(0)
    for line in range(count):
        left += lines[line, LEFT]
    line, step, target = -1, 0, begin
    while left > 0:
        line = pick_line(order, seed, row, step, left, line, count, lines)
        slot = lines[line, NEXT]
        while marked[slot] >= 0:
            merged[target] = marked[slot]
            slot, target = slot + 1, target + 1
        merged[target] = marked[slot]
        lines[line, NEXT], target = slot + 1, target + 1
        lines[line, LEFT] -= 1
        left, step = left - 1, step + 1


@kernel
def _merge_all(
    thread: int,
    core_starts: NDArray[np.int64],
    by_slot: bool,
    order: int,
    seed: tuple[int, int],
    rows: NDArray[np.int64],
    starts: Integers,
    marked: Integers,
    merged: Integers,
    lines: NDArray[np.int64],
) -> None:
    threads = len(lines)
    for place in range(thread, rows.size, threads):
        row = rows[place]
        begin, stop = np.int64(starts[row]), np.int64(starts[row + 1])
        _merge_run(
            core_starts, by_slot, order, seed, row, marked, begin, stop, merged, lines[thread]
        )


def merge_rows(
    cut: Cut, starts: Integers, marked: Integers, rows: NDArray[np.int64], order: int, seed: int
) -> Integers:
    """Return a copy of ``marked`` in which the runs of some weight rows are in their order of arrival.

    Parameters
    ----------
    cut : Cut
        How the call is cut over cores: an atomic path.
    starts, marked : int32 or int64
        The grouped and marked call.
    rows : int64
        Weight rows that several cores reach.
    order, seed : int
        Code of the order (`npu_sim.kernels.random_order`); the seed matters for RANDOM.
    """
    merged = marked.copy()
    lines = np.empty((thread_count(), cut.cores, LINE_COLUMNS), np.int64)
    _merge_all.over(
        len(lines),
        cut.core_starts(),
        cut.splits_slots,
        order,
        seed_words(seed),
        rows,
        starts,
        marked,
        merged,
        lines,
    )
    return merged


# --- Staged rows (native 16-bit) ---
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
