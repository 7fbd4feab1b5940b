"""EmbeddingDenseBackward: for every index, the sum of its rows of grad in the device's order.

Steps: group the rows of grad by index and mark the chunks in which the device's cores add them
(`grouping`), put the chunks of different cores into their order of arrival, and sum (`sums`). The
result does not depend on the number of threads.

Atomic paths: every core's own chunks stay in order, and between cores any order is possible.
`merge_rows` draws one and rearranges the slots accordingly.

Native 16-bit path: each core writes the sums of its first and its last index to two fp32 *stage
slots*; a core whose slice holds a single index writes zeros to the second. Adjacent stage slots of
one index are summed in chunks of 11 slots (zeros included), and each chunk is added to a second
accumulator. `sum_staged_rows` computes these rows.

Slow reference with the order of additions: ``tests/reference/embedding_dense_backward.py``.

Sources: specification pages ``embedding_dense_backward`` and ``numerics``, "Atomic addition to
global memory".
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from npu_sim.kernels.embedding_dense_backward.grouping import (
    INDEX_ORDER,
    STAGED,
    Cut,
    Integers,
    depends_on_arrival,
    group_rows,
    mark_chunks,
    shared_rows,
)
from npu_sim.kernels.embedding_dense_backward.sums import (
    NO_ROWS,
    SCALE_ROWS,
    SCALE_SUM,
    MarkedRows,
    Run,
    Runs,
    narrow_sum,
    rows_in_order,
    sum_block,
    sum_line,
    sum_runs,
)
from npu_sim.kernels.engine.compile import device_function, kernel, thread_count
from npu_sim.kernels.shared.arrival_orders import (
    IN_CORE_ORDER,
    SEQUENTIAL,
    ArrivalOrder,
    next_core,
    seed_words,
)
from npu_sim.kernels.vectors.lane_blocks import BLOCK_BYTES, block_length, store_block, zero_block
from npu_sim.kernels.vectors.lanes import LINE_BYTES, ONE, ZERO, Lanes, Stored, splat, store
from npu_sim.numbers.scalars import narrow

# --- Atomic paths ---

Cursors = NDArray[np.int64]
"""(3, cores): the state of each core that contributes to a run, cores ascending."""
CORE, NEXT, LEFT = 0, 1, 2
"""Rows of `Cursors`: the core, its next slot, and the number of chunks it has left."""


class Arrivals(NamedTuple):
    """How the slots are divided among cores, and the order in which the cores' chunks arrive."""

    core_starts: NDArray[np.int64]
    """First slot (or row of grad) of each core."""
    by_slot: bool
    """Whether ``core_starts`` are slots rather than rows of grad."""
    order: int
    """Code of the order; see `npu_sim.kernels.shared.arrival_orders`."""
    seed: tuple[int, int]


@device_function
def _place_cursors(
    arrival: Arrivals, marked: Integers, begin: int, stop: int, cursors: Cursors
) -> int:
    """Write a cursor for each core that contributes to the run begin..stop; return the number."""
    count, core = 0, 0
    for slot in range(begin, stop):
        place = slot if arrival.by_slot else max(np.int64(marked[slot]), ~np.int64(marked[slot]))
        while arrival.core_starts[core + 1] <= place:
            core += 1
        if count == 0 or cursors[CORE, count - 1] != core:
            cursors[CORE, count], cursors[NEXT, count], cursors[LEFT, count] = core, slot, 0
            count += 1
        cursors[LEFT, count - 1] += marked[slot] < 0
    return count


@device_function
def _merge_run(
    arrival: Arrivals,
    row: int,
    begin: int,
    stop: int,
    marked: Integers,
    merged: Integers,
    cursors: Cursors,
) -> None:
    """Copy the slots begin..stop from ``marked`` to ``merged``, chunk by chunk as they arrive."""
    count = _place_cursors(arrival, marked, begin, stop, cursors)
    left, chunks = cursors[LEFT, :count], np.int64(0)
    for chunks_of_core in left:
        chunks += chunks_of_core
    cursor, target = -1, begin
    for step in range(chunks):
        cursor = next_core(arrival.order, arrival.seed, row, step, chunks - step, left, cursor)
        slot = cursors[NEXT, cursor]
        while marked[slot] >= 0:
            merged[target] = marked[slot]
            slot, target = slot + 1, target + 1
        merged[target] = marked[slot]
        cursors[NEXT, cursor], target = slot + 1, target + 1
        left[cursor] -= 1


@kernel
def _merge_all(
    thread: int,
    arrival: Arrivals,
    rows: NDArray[np.int64],
    starts: Integers,
    marked: Integers,
    merged: Integers,
    cursors: NDArray[np.int64],
) -> None:
    threads = len(cursors)
    for position in range(thread, rows.size, threads):
        row = rows[position]
        begin, stop = np.int64(starts[row]), np.int64(starts[row + 1])
        _merge_run(arrival, row, begin, stop, marked, merged, cursors[thread])


def merge_rows(
    cut: Cut, starts: Integers, marked: Integers, rows: NDArray[np.int64], order: ArrivalOrder
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
    order : ArrivalOrder
        Order in which the chunks of several cores arrive.
    """
    merged = marked.copy()
    words = seed_words(order.seed)
    arrival = Arrivals(cut.core_starts(), cut.splits_slots, order.code, words)
    cursors = np.empty((thread_count(), 3, cut.cores), np.int64)
    _merge_all.over(len(cursors), arrival, rows, starts, marked, merged, cursors)
    return merged


# --- Rows that are summed part by part ---

STAGE_CHUNK_SLOTS = 11
"""Stage slots that are summed before they are added to the second accumulator."""


def staged_rows(cut: Cut, starts: Integers, padding_idx: int) -> NDArray[np.int64]:
    """Return the weight rows that several cores reach, ascending, without the padding row."""
    reached = np.unique(shared_rows(cut.core_starts(), starts))
    return reached[(reached >= 0) & (reached != padding_idx)]


class Staged(NamedTuple):
    """Weight rows that are summed part by part: one stage slot for every part of their runs."""

    indices: NDArray[np.int64]
    """The weight rows."""
    begins: NDArray[np.int64]
    """First slot of the sorted list of every row, and with ``stops`` its end."""
    stops: NDArray[np.int64]
    borders: NDArray[np.int64]
    """First slot of the sorted list of every part, followed by the end of the last."""
    slots: NDArray[np.int64]
    """Number of the stage slot of every part. Numbers that are left out are slots of zeros, which
    change no sum but count."""
    first_slots: NDArray[np.int64]
    """Number of the first stage slot of every row, one of zeros included."""
    chunk_slots: int
    """Stage slots that are summed before they are added to the total."""
    factors: NDArray[np.float32]
    """Factor of the total of every row."""


def staged_in(
    borders: NDArray[np.int64],
    rows: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]],
    zeros: tuple[NDArray[np.bool_], NDArray[np.bool_]],
    chunk_slots: int,
    factors: NDArray[np.float32],
) -> Staged:
    """Return rows that are summed part by part.

    Parameters
    ----------
    borders, chunk_slots, factors
        As in `Staged`.
    rows
        ``indices``, ``begins`` and ``stops`` of `Staged`.
    zeros
        Whether a stage slot of zeros comes before that of a part, and after it.
    """
    before, after = zeros
    ends = np.cumsum(1 + before.astype(np.int64) + after)
    first_parts = np.searchsorted(borders, rows[1], side="right") - 1
    first_slots = ends[first_parts] - 1 - before[first_parts] - after[first_parts]
    return Staged(*rows, borders, ends - 1 - after, first_slots, chunk_slots, factors)


@device_function
def _part_at(staged: Staged, slot: int) -> int:
    """Return the part of a slot of the sorted list."""
    return np.searchsorted(staged.borders, slot, side="right") - 1


@device_function
def _chunk_of(staged: Staged, place: int, part: int) -> int:
    """Return the number of the chunk, of the stage slots of a row, to which a part belongs."""
    return (staged.slots[part] - staged.first_slots[place]) // staged.chunk_slots


@device_function
def _staged_sum(
    rows: MarkedRows, staged: Staged, place: int, column: int, zero: Lanes, sum_at: Any
) -> Lanes:
    """Return columns of a staged row; ``sum_at(rows, run, column)`` sums one part of its run."""
    begin, stop = staged.begins[place], staged.stops[place]
    part, slot_chunk, total, slots = _part_at(staged, begin), 0, zero, zero
    while begin < stop:
        end = min(stop, staged.borders[part + 1])
        if _chunk_of(staged, place, part) != slot_chunk:
            slot_chunk, total, slots = _chunk_of(staged, place, part), total + slots, zero
        slots = slots + sum_at(rows, Run(begin, end, ONE, ONE), column)
        begin, part = end, part + 1
    return (total + slots) * staged.factors[place]


@kernel
def _sum_staged(piece: int, rows: MarkedRows, staged: Staged, pieces: int, out: Stored) -> None:
    """Sum a block of columns of a staged row, the last ones by cache lines, which may overlap."""
    dim, step, line = rows.dim, block_length(out), LINE_BYTES // out.itemsize
    place, first = piece // pieces, piece % pieces * step
    out_start = staged.indices[place] * dim
    if first + step <= dim:
        block = _staged_sum(rows, staged, place, first, zero_block(out), sum_block)
        store_block(out, out_start + first, block)
    else:
        for begin in range(first, dim, line):
            column = min(begin, dim - line)
            lanes = _staged_sum(rows, staged, place, column, splat(ZERO, out), sum_line)
            store(out, out_start + column, lanes)


@kernel
def _sum_narrow_staged(piece: int, rows: MarkedRows, staged: Staged, out: Stored) -> None:
    """Like `_sum_staged`, for one element of a row shorter than a cache line."""
    place, column = piece // rows.dim, piece % rows.dim
    total = _staged_sum(rows, staged, place, column, ZERO, narrow_sum)
    out[staged.indices[place] * rows.dim + column] = narrow(total, out)


def sum_parts(grad: Stored, marked: Integers, staged: Staged, out: Stored) -> None:
    """Write the staged rows of ``out``; other rows stay as they are."""
    if not staged.indices.size:
        return
    rows = rows_in_order(grad, marked)
    if rows.dim * out.itemsize < LINE_BYTES:
        _sum_narrow_staged.over(staged.indices.size * rows.dim, rows, staged, out.reshape(-1))
    else:
        pieces = -(-rows.dim * out.itemsize // BLOCK_BYTES)
        _sum_staged.over(staged.indices.size * pieces, rows, staged, pieces, out.reshape(-1))


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
    core_starts = cut.core_starts()
    first = np.searchsorted(starts, core_starts[:-1], side="right")
    last = np.searchsorted(starts, core_starts[1:] - 1, side="right")
    staged = staged_in(
        core_starts,
        (indices, starts[indices].astype(np.int64), starts[indices + 1].astype(np.int64)),
        # A core with a single index has zeros in its second slot.
        (np.zeros(cut.cores, np.bool_), first == last),
        STAGE_CHUNK_SLOTS,
        np.ones(indices.size, np.float32),
    )
    sum_parts(grad, marked, staged, out)


EXACT_COUNT = 1 << 24
"""fp32 counts exactly up to here; beyond, a counter depends on its order of additions."""


class Grouped(NamedTuple):
    """Grouping of one call; the run of weight row w is slots starts[w]..starts[w + 1]."""

    cut: Cut
    starts: Integers
    marked: Integers
    """Positions of the rows of grad, sorted by index; the last of each chunk is stored as its
    complement (negative)."""
    padding_idx: int


def embedding_dense_backward(
    grad: Stored,
    indices: Integers,
    out: Stored,
    cut: Cut,
    padding_idx: int,
    scale: bool,
    order: ArrivalOrder = IN_CORE_ORDER,
) -> Grouped:
    """Compute the gradient of the weight.

    Parameters
    ----------
    grad : float32, int16 (fp16) or uint16 (bf16) (rows, dim)
        C-contiguous.
    indices : int32 or int64 (rows,)
        From ``convert_indices``, all in range.
    out : dtype of grad (num_weights, dim)
        C-contiguous; every element is written.
    cut : Cut
        Division of the rows among cores, from the plan.
    padding_idx : int
        Weight row that stays zero; a value outside 0..num_weights-1 matches none.
    scale : bool
        Attribute scaleGradByFreq.
    order : ArrivalOrder
        Order in which chunks of several cores arrive; deterministic paths ignore it.

    Returns
    -------
    Grouped
        For :func:`order_dependent_rows` and studies.
    """
    starts, marked = group_rows(indices, out.shape[0])
    mark_chunks(cut, starts, marked)
    grouped = Grouped(cut, starts, marked, padding_idx if 0 <= padding_idx < out.shape[0] else -1)
    arrived = marked
    if cut.is_atomic and order.code != SEQUENTIAL:
        rows = np.flatnonzero(order_dependent_rows(grouped))
        arrived = merge_rows(cut, starts, marked, rows, order)
    runs = Runs(starts, grouped.padding_idx)
    if scale:
        mode = SCALE_ROWS if cut.path == INDEX_ORDER else SCALE_SUM
        runs = runs._replace(scale=mode, factors=_factors(grouped, arrived, mode))
    staged = staged_rows(cut, starts, grouped.padding_idx) if cut.path == STAGED else NO_ROWS
    sum_runs(grad, arrived, runs, out, staged)
    sum_staged_rows(grad, cut, starts, marked, staged, out)
    return grouped


def order_dependent_rows(grouped: Grouped) -> NDArray[np.bool_]:
    """Return the mask (num_weights,) of output rows whose bits depend on the order of arrival."""
    mask = depends_on_arrival(grouped.cut, grouped.starts, grouped.marked)
    if grouped.padding_idx >= 0:
        mask[grouped.padding_idx] = False
    return mask


def _factors(grouped: Grouped, arrived: Integers, mode: int) -> NDArray[np.float32]:
    """Return the fp32 reciprocal of every row's counter, 1 where it is 0.

    EmbeddingDenseGrad counts in the dtype of the index. EmbeddingDenseGradV2 adds the rows of every
    flush in fp32, which is exact up to 2^24. The padding row is not counted.
    """
    starts = grouped.starts
    counts = np.diff(starts)
    counters = counts.astype(np.float32)
    if mode == SCALE_SUM:
        for row in np.flatnonzero(counts > EXACT_COUNT):
            ends = np.flatnonzero(arrived[starts[row] : starts[row + 1]] < 0)
            counters[row] = np.add.accumulate(np.diff(ends, prepend=-1), dtype=np.float32)[-1]
    if grouped.padding_idx >= 0:
        counters[grouped.padding_idx] = 0
    reciprocals = np.float32(1) / np.where(counters == 0, np.float32(1), counters)
    return reciprocals.astype(np.float32, copy=False)
