"""EmbeddingDenseBackward: division of the rows of grad among cores and into chunks.

All rows of grad with the same index form a *run*: a range of slots of the sorted list, where each
slot names a row of grad. Every path of the device adds a run in *chunks*: the rows of a chunk are
summed from zero, and that sum is added once to the output row. `mark_chunks` puts every run into
the device's program order and marks the last slot of each chunk. The sums, the merges, the mask of
order-dependent rows and the declared summation trees only read these marks; how a path forms its
chunks is defined here and nowhere else. (The work of the host is divided by *thread*, never by
chunk.)

A slot holds its row of grad, or the bitwise complement of it (negative) when it is the last slot of
a chunk. Either way the row is ``max(slot, ~slot)``.

Source: specification page ``embedding_dense_backward``, "Tiling" and "Kernels and accumulation
order".
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from npu_sim.kernels.engine.compile import device_function, kernel
from npu_sim.numbers.formats import ORDERED_ADDITIONS

Integers = NDArray[Any]
"""int32 or int64, one dimension: int32 wherever the values fit, to halve the memory."""

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
    batch_rows: int
    """SMALL_DIM: rows a core copies at a time. No chunk crosses a batch. Unused elsewhere."""
    chunk_rows: int
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


def sorted_cut(
    path: int, cores: int, former_cores: int, former_rows: int, tail_rows: int, chunk_rows: int
) -> Cut:
    """Return the cut of SORTED, STAGED and DETERMINISTIC: the row split of the tiling."""
    return Cut(path, cores, former_cores, former_rows, tail_rows, 0, chunk_rows)


def small_dim_cut(cores: int, former_copy_row: int, tail_copy_row: int, max_row_in_ub: int) -> Cut:
    """Return the cut of SMALL_DIM: the last core takes ``tail_copy_row`` rows."""
    return Cut(SMALL_DIM, cores, cores - 1, former_copy_row, tail_copy_row, max_row_in_ub, 0)


def dense_grad_cut(path: int, cores: int, core_rows: int) -> Cut:
    """Return the cut of ROW_ATOMIC or INDEX_ORDER: ``core_rows`` (weight) rows per core, at most.

    The last core takes the remainder.
    """
    return Cut(path, cores, cores, core_rows, core_rows, 0, 0)


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


def depends_on_arrival(cut: Cut, starts: Integers, marked: Integers) -> NDArray[np.bool_]:
    """Return the mask (num_weights,) of rows whose bits depend on the order of arrival.

    Several cores add to such a row, ``ORDERED_ADDITIONS`` chunks or more in all.
    """
    mask = np.zeros(starts.size - 1, np.bool_)
    if not cut.is_atomic:
        return mask
    if cut.splits_slots:
        inner = cut.core_starts()[1:-1]
        rows = np.searchsorted(starts, inner, side="right") - 1
        rows = np.unique(rows[starts[rows] < inner])
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
    counts: NDArray[np.int64] = np.add.reduceat(is_last_slot, bounds, dtype=np.int64)[::2]
    return counts


def _core_of(cut: Cut, slots: Integers) -> Integers:
    """Return the core of each marked slot for paths that divide the rows of grad."""
    # Only the last core may have a different number of rows.
    cores: Integers = np.minimum(np.maximum(slots, ~slots) // cut.former_rows, cut.cores - 1)
    return cores


_PIECE = 1 << 20
"""Runs processed at a time, to keep temporaries small."""
