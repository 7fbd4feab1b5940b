"""EmbeddingDenseBackward: rows of grad grouped by index, in the chunks that the device adds.

All rows of grad with the same index form a *run*: a range of slots of the sorted list, where each
slot names a row of grad. Grouping is a counting sort. It is stable, like the device's sort, and
needs two passes over the indices and one over the weight rows instead of comparisons.

Every path of the device adds a run in *chunks*: the rows of a chunk are summed from zero, and that
sum is added once to the output row. `mark_chunks` puts every run into the device's program order
and marks the last slot of each chunk. The sums, the merges, the mask of order-dependent rows and
the declared summation trees only read these marks; how a path forms its chunks is defined here and
nowhere else. The work of the host is divided by *thread* (`divide`), never by chunk.

A slot holds its row of grad, or the bitwise complement of it (negative) when it is the last slot of
a chunk. Either way the row is ``max(slot, ~slot)``.

Slow reference with the order of additions: ``tests/reference/embedding_dense_backward.py``.

Source: specification page ``embedding_dense_backward``, "Tiling" and "Kernels and accumulation
order".
"""

from bisect import bisect_left
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from npu_sim.kernels.engine.compile import device_function, kernel
from npu_sim.kernels.vectors.lanes import prefetch_to_write
from npu_sim.numbers.formats import ORDERED_ADDITIONS, UNSIGNED

Integers = NDArray[Any]
"""int32 or int64, one dimension: int32 wherever the values fit, to halve the memory."""
INT32_MAX = 2147483647
_INT32, _INT64 = np.dtype(np.int32), np.dtype(np.int64)
NO_INDEX = -1
"""Result of `convert_indices` for a value that is not the index of any row."""
LOOKAHEAD_ROWS = 16
"""Prefetch distance for slots, in rows. Slots are scattered; without prefetching, a third of the
time of the sort went to waiting for them."""
_PIECE = 1 << 20
"""Elements or runs processed at a time, to keep temporaries small."""


def integer_dtype(largest: int) -> np.dtype[Any]:
    """Return int32 when the largest value fits, else int64."""
    return _INT32 if largest <= INT32_MAX else _INT64


def convert_indices(indices: NDArray[Any], num_weights: int) -> Integers:
    """Return indices in the form kernels take: one-dimensional, contiguous, integers.

    Parameters
    ----------
    indices : array of float32, float16, float64, int32, int64, int16, int8, uint8 or bool
        Any shape and strides. Floating-point values are truncated towards zero.
    num_weights : int
        Rows of the output.

    Returns
    -------
    array of int32, or of int64 when ``num_weights`` is above 2^31 - 1
        Values outside 0..num_weights-1 stay out of range. nan, inf and values that the dtype cannot
        hold become -1. May be the input itself, so it must not be written to.
    """
    flat = (
        indices
        if indices.ndim == 1 and indices.flags.c_contiguous
        else np.ascontiguousarray(indices).reshape(-1)
    )
    target = integer_dtype(num_weights - 1)
    if flat.dtype == target:
        return flat if flat.flags.writeable and flat.flags.aligned else flat.copy()
    out = np.empty(flat.size, target)
    for first in range(0, flat.size, _PIECE):
        piece = flat[first : first + _PIECE]
        if piece.dtype.kind == "f":
            # The limit is -1 because -0.5 truncates to 0. nan fails both comparisons. num_weights
            # is compared in fp64 because fp16 ends at 65504.
            usable = (piece > -1) & (piece < np.float64(num_weights))
            out[first : first + _PIECE] = np.where(usable, piece, NO_INDEX).astype(target)
        elif piece.dtype.itemsize > target.itemsize:
            out[first : first + _PIECE] = np.where(
                (piece >= 0) & (piece < num_weights), piece, NO_INDEX
            )
        else:
            out[first : first + _PIECE] = piece
    return out


def first_out_of_range(converted: Integers, num_weights: int) -> int:
    """Return the position of the first index outside 0..num_weights-1, or -1.

    ``converted`` is a result of `convert_indices`.
    """
    # Viewed as unsigned, negative values are the largest: one comparison finds both kinds, without
    # a temporary. argmax is faster than max on small arrays.
    unsigned = converted.view(UNSIGNED[converted.itemsize])
    if unsigned.size == 0 or unsigned[unsigned.argmax()] < num_weights:
        return -1
    for first in range(0, unsigned.size, _PIECE):
        bad = unsigned[first : first + _PIECE] >= num_weights
        if bad.any():
            return first + int(bad.argmax())
    return -1


def group_rows(indices: Integers, num_weights: int) -> tuple[Integers, Integers]:
    """Group the rows of grad by index.

    Parameters
    ----------
    indices : int32 or int64 (rows,)
        From `convert_indices`, all in range.
    num_weights : int
        Rows of the output.

    Returns
    -------
    starts : int32 or int64 (num_weights + 1,)
        The run of weight row w is starts[w]..starts[w + 1] of the sorted list.
    positions : int32 or int64 (rows,)
        The row of grad at each slot of the sorted list, ascending within a run.
    """
    dtype = integer_dtype(indices.size)
    starts, positions = np.empty(num_weights + 1, dtype), np.empty(indices.size, dtype)
    # Numba checks signed indices for negative values (counted from the end); unsigned ones not.
    arrays = (indices, starts, positions)
    _group.over(1, *[a.view(UNSIGNED[4]) if a.itemsize == 4 else a for a in arrays])
    return starts, positions


@kernel
def _group(thread: int, indices: Integers, starts: Integers, positions: Integers) -> None:
    """Counting sort on one thread; with several, shared cache lines made it take twice as long."""
    starts[:] = 0
    for row in range(indices.size):
        starts[indices[row]] += 1
    slot = 0
    for weight_row in range(starts.size):
        count = starts[weight_row]
        starts[weight_row] = slot
        slot += count
    for row in range(indices.size):
        if row + LOOKAHEAD_ROWS < indices.size:
            prefetch_to_write(positions, np.int64(starts[indices[row + LOOKAHEAD_ROWS]]))
        index = indices[row]
        positions[starts[index]] = row
        starts[index] += 1
    # Every start is now the end of its run, which is the start of the next one.
    for weight_row in range(starts.size - 1, 0, -1):
        starts[weight_row] = starts[weight_row - 1]
    starts[0] = 0


# --- Division of the runs over threads ---

ROW_COST = 1
"""Cost of writing an output row, in rows of grad."""
HOT_FRACTION = 8
"""A run longer than 1/8 of a thread's part of the rows is split by columns over all threads."""


class Division(NamedTuple):
    """Output rows of each thread."""

    bounds: NDArray[np.int64]
    """int64 (2 * threads + 1,): thread t owns the output rows bounds[t]..bounds[t + 1], and the
    first special row not before them is special[bounds[threads + 1 + t]]."""
    special: NDArray[np.int64]
    """int64: output rows that their owner does not write alone, ascending: r for a row split by
    columns over all threads, ~r for a row that is skipped."""


def divide(starts: Integers, threads: int, skipped: NDArray[np.int64]) -> Division:
    """Divide the runs evenly over threads.

    Parameters
    ----------
    starts : int32 or int64 (runs + 1,)
        The run of output row r is starts[r]..starts[r + 1].
    threads : int
        Number of threads.
    skipped : int64
        Output rows that are not written, ascending.
    """
    runs = starts.size - 1
    if threads == 1:
        return Division(np.array([0, runs, 0], np.int64), ~skipped if skipped.size else skipped)
    rows = int(starts[-1])
    limit = rows // (threads * HOT_FRACTION)
    long_runs = [
        first + np.flatnonzero(np.diff(starts[first : first + _PIECE + 1]) > limit)
        for first in range(0, runs, _PIECE)
    ]
    special = np.concatenate([np.empty(0, np.int64), *long_runs])
    special = np.union1d(special, skipped).astype(np.int64)
    lengths = starts[special + 1] - starts[special]
    special_rows_before = np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))

    def work_before(run: int) -> int:
        special_rows = int(special_rows_before[np.searchsorted(special, run)])
        return int(starts[run]) - special_rows + ROW_COST * run

    total = work_before(runs)
    bounds = [
        bisect_left(range(runs), total * thread // threads, key=work_before)
        for thread in range(threads)
    ]
    places = np.searchsorted(special, bounds)
    special[np.isin(special, skipped)] ^= -1
    return Division(np.array([*bounds, runs, *places], np.int64), special)


# Paths. SORTED, STAGED and DETERMINISTIC divide the sorted list among the cores. SMALL_DIM and
# ROW_ATOMIC divide the rows of grad in their given order, INDEX_ORDER the weight rows.
SORTED = 0
"""Keys 0 and 1, fp32: atomic, chunks of ``chunk_rows`` slots within a core."""
STAGED = 1
"""Key 0, native 16-bit: chunks as in SORTED, but the sums of different cores are combined through
stage slots instead of atomic additions."""
DETERMINISTIC = 2
"""Keys 10 and 11: the core where a run starts adds the entire run in chunks of ``chunk_rows``: its
own slots backwards, then the following slots forwards."""
SMALL_DIM = 3
"""Keys 100 and 101: atomic, one chunk per index and batch of rows."""
ROW_ATOMIC = 4
"""EmbeddingDenseGrad without scale: atomic, every row is a chunk."""
INDEX_ORDER = 5
"""EmbeddingDenseGrad with scale: one core owns each weight row and adds its run row by row."""


class Cut(NamedTuple):
    """Division of one call among the simulated cores, as integers from the plan.

    The first ``former_cores`` cores take ``former_rows`` each, the others ``tail_rows`` each: slots
    of the sorted list (SORTED, STAGED, DETERMINISTIC), rows of grad (SMALL_DIM, ROW_ATOMIC) or
    weight rows (INDEX_ORDER).
    """

    path: int
    cores: int
    former_cores: int
    former_rows: int
    tail_rows: int
    batch_rows: int = 0
    """SMALL_DIM: rows a core copies at a time. No chunk crosses a batch. Unused elsewhere."""
    chunk_rows: int = 0
    """SORTED, STAGED, DETERMINISTIC: rows per chunk. Unused elsewhere."""

    @property
    def is_atomic(self) -> bool:
        """Whether contributions of different cores to one row can arrive in any order."""
        return self.path in (SORTED, SMALL_DIM, ROW_ATOMIC)

    @property
    def splits_slots(self) -> bool:
        """Whether the cores divide the sorted list rather than rows."""
        return self.path <= DETERMINISTIC

    def core_starts(self) -> NDArray[np.int64]:
        """Return the first slot (or row) of each core, followed by the end of the last."""
        tail_cores = self.cores - self.former_cores
        sizes = [self.former_rows] * self.former_cores + [self.tail_rows] * tail_cores
        return np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))


def mark_chunks(cut: Cut, starts: Integers, positions: Integers) -> None:
    """Put every run into program order and mark the last slot of each chunk, in place.

    Parameters
    ----------
    cut : Cut
        Division of the call among cores.
    starts : int32 or int64 (num_weights + 1,)
        The run of weight row w is starts[w]..starts[w + 1].
    positions : same dtype (rows,)
        The row of grad at each slot, ascending within a run. Marked on return.
    """
    if cut.splits_slots:
        backwards = cut.path == DETERMINISTIC
        mark_slots(cut.core_starts(), cut.chunk_rows, starts, positions, backwards)
    elif cut.path == SMALL_DIM:
        _mark_batches.over(1, cut.cores - 1, cut.former_rows, cut.batch_rows, starts, positions)
    else:
        np.invert(positions, out=positions)


def mark_slots(
    borders: NDArray[np.int64],
    chunk_rows: int,
    starts: Integers,
    positions: Integers,
    backwards: bool = False,
) -> None:
    """Mark chunks of ``chunk_rows`` slots, in place; no chunk crosses one of ``borders``.

    ``borders`` are the first slots of parts of the sorted list, followed by the end of the last.
    With ``backwards``, as `DETERMINISTIC` adds. ``starts`` and ``positions`` as in `mark_chunks`.
    """
    _mark_slots.over(1, borders, backwards, chunk_rows, starts, positions)


@device_function
def _mark_every(marked: Integers, begin: int, end: int, chunk_rows: int) -> None:
    """Mark chunks of ``chunk_rows`` in the slots begin..end (at least one); the last is shorter."""
    for last in range(begin + chunk_rows - 1, end - 1, chunk_rows):
        marked[last] = ~marked[last]
    marked[end - 1] = ~marked[end - 1]


@kernel
def _mark_slots(
    thread: int,
    core_starts: NDArray[np.int64],
    backwards: bool,
    chunk_rows: int,
    starts: Integers,
    marked: Integers,
) -> None:
    """SORTED, STAGED, DETERMINISTIC: mark chunks of ``chunk_rows`` in each core's slice of a run.

    With ``backwards``, the core where a run starts takes all of it: its own slots in reverse order,
    then the slots beyond its slice.
    """
    core = 0
    for index in range(starts.size - 1):
        begin, stop = np.int64(starts[index]), np.int64(starts[index + 1])
        if begin == stop:
            continue
        while core_starts[core + 1] <= begin:
            core += 1
        if backwards:
            slice_end = min(stop, core_starts[core + 1])
            for offset in range((slice_end - begin) // 2):
                first, last = begin + offset, slice_end - 1 - offset
                marked[first], marked[last] = marked[last], marked[first]
            _mark_every(marked, begin, slice_end, chunk_rows)
            if slice_end < stop:
                _mark_every(marked, slice_end, stop, chunk_rows)
            continue
        last_core = core
        while begin < stop:
            end = min(stop, core_starts[last_core + 1])
            _mark_every(marked, begin, end, chunk_rows)
            begin, last_core = end, last_core + 1


@kernel
def _mark_batches(
    thread: int, last_core: int, core_rows: int, batch_rows: int, starts: Integers, marked: Integers
) -> None:
    """SMALL_DIM: end a chunk where the next row is of another batch or core, and at a run's end.

    The divisions are multiplications by a reciprocal, which vectorise. They are exact: (row + 0.5)
    / divisor is at least 0.5 / divisor away from every integer, far more than the error of two fp64
    roundings while rows stay below 2^50.
    """
    per_core, per_batch = 1.0 / core_rows, 1.0 / batch_rows
    for slot in range(marked.size - 1):
        row, following = np.float64(marked[slot]), np.float64(marked[slot + 1])
        core = np.floor((row + 0.5) * per_core)
        core = core if core < last_core else np.float64(last_core)
        batch = np.floor((row - core * core_rows + 0.5) * per_batch)
        following_core = np.floor((following + 0.5) * per_core)
        following_core = following_core if following_core < last_core else np.float64(last_core)
        following_batch = np.floor((following - following_core * core_rows + 0.5) * per_batch)
        if core != following_core or batch != following_batch:
            marked[slot] = ~marked[slot]
    for row in range(starts.size - 1):
        if starts[row] < starts[row + 1]:
            last = starts[row + 1] - 1
            marked[last] = min(marked[last], ~marked[last])


def shared_rows(core_starts: NDArray[np.int64], starts: Integers) -> NDArray[np.int64]:
    """Return for every border between two cores the weight row that both reach; -1 for none."""
    inner = core_starts[1:-1]
    rows = np.searchsorted(starts, inner, side="right") - 1
    return np.where(starts[rows] < inner, rows, -1).astype(np.int64)


def depends_on_arrival(cut: Cut, starts: Integers, marked: Integers) -> NDArray[np.bool_]:
    """Return the mask (num_weights,) of rows whose bits depend on the order of arrival.

    Several cores add to such a row, ``ORDERED_ADDITIONS`` chunks or more in all.
    """
    mask = np.zeros(starts.size - 1, np.bool_)
    if not cut.is_atomic:
        return mask
    if cut.splits_slots:
        rows = np.unique(shared_rows(cut.core_starts(), starts))
        rows = rows[rows >= 0]
        mask[rows] = _additions(starts, marked, rows) >= ORDERED_ADDITIONS
        return mask
    for first in range(0, mask.size, _PIECE):
        bounds = starts[first : first + _PIECE + 1]
        rows = np.flatnonzero(np.diff(bounds) > 1)
        # Rows of grad ascend within a run, so its ends belong to its lowest and highest core.
        low, high = marked[bounds[rows]], marked[bounds[rows + 1] - 1]
        rows = first + rows[_core_of(cut, low) != _core_of(cut, high)]
        mask[rows] = _additions(starts, marked, rows) >= ORDERED_ADDITIONS
    return mask


def _additions(starts: Integers, marked: Integers, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the number of chunks in the runs of ascending ``rows``, none of them empty."""
    if rows.size == 0:
        return np.zeros(0, np.int64)
    begins, stops = starts[rows].astype(np.int64), starts[rows + 1].astype(np.int64)
    first = begins[0]
    is_last_slot = np.append(marked[first : stops[-1]] < 0, False)
    bounds = np.stack((begins - first, stops - first), axis=1).reshape(-1)
    return np.add.reduceat(is_last_slot, bounds, dtype=np.int64)[::2]


def _core_of(cut: Cut, slots: Integers) -> Integers:
    """Return the core of each marked slot for paths that divide the rows of grad."""
    # Only the last core may have a different number of rows.
    return np.minimum(np.maximum(slots, ~slots) // cut.former_rows, cut.cores - 1)
