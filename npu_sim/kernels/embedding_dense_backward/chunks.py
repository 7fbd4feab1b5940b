"""EmbeddingDenseBackward: which core adds which rows, and where its sums are cut into chunks.

All rows of grad with one index form a *run*: a range of slots of the sorted list, each slot naming
a row of grad. Every path of the device adds a run in *chunks*: rows summed from zero, then added
once to the output row. `mark_chunks` brings every run into the device's program order and marks the
last slot of each chunk; the sums, the merges, the mask and the declared summation trees only read
the marks. So this is the one place that says how a path cuts a run.

A slot holds its row of grad, or the bitwise complement of it (negative) when it is the last of a
chunk. Either way the row is ``max(slot, ~slot)``.

Source: specification page ``embedding_dense_backward``, "Tiling" and "Kernels and accumulation
order".
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from npu_sim.kernels.engine.compile import device_function, kernel

Integers = NDArray[Any]
"""int32 or int64, one dimension: int32 wherever the values fit, to halve the memory."""

# Paths. Up to DETERMINISTIC the cores split the sorted list, after it the rows of grad as they
# come.
SORTED = 0
"""Keys 0 and 1, fp32: atomic, chunks of ``chunk_rows`` slots within a core."""
STAGED = 1
"""Key 0, native 16-bit: chunks as in SORTED, but cores meet in stage slots instead of
atomically."""
DETERMINISTIC = 2
"""Keys 10 and 11: the core where a run starts adds all of it, first backwards, then forwards, in
chunks of ``chunk_rows``."""
SMALL_DIM = 3
"""Keys 100 and 101: atomic, one chunk per index and batch of rows."""
ROW_ATOMIC = 4
"""EmbeddingDenseGrad without scale: atomic, every row is a chunk."""
INDEX_ORDER = 5
"""EmbeddingDenseGrad with scale: the cores split the weight rows, one core adds all of a run, row
by row."""


class Cut(NamedTuple):
    """How one call is cut over cores: plain integers out of the plan.

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
    """SMALL_DIM: rows a core copies at a time; a chunk stays within one batch. Unused elsewhere."""
    chunk_rows: int
    """SORTED, STAGED, DETERMINISTIC: rows of a chunk. Unused elsewhere."""

    @property
    def is_atomic(self) -> bool:
        """Whether contributions of different cores to one row arrive in any order."""
        return self.path in (SORTED, SMALL_DIM, ROW_ATOMIC)

    @property
    def splits_slots(self) -> bool:
        """Whether the cores split the sorted list, not the rows of grad."""
        return self.path <= DETERMINISTIC

    def core_starts(self) -> NDArray[np.int64]:
        """Return the first slot (or row) of each core, and the end of the last."""
        tail_cores = self.cores - self.former_cores
        shares = [self.former_rows] * self.former_cores + [self.tail_rows] * tail_cores
        return np.concatenate(([0], np.cumsum(shares, dtype=np.int64)))


def even_cut(
    path: int, cores: int, former_cores: int, former_rows: int, tail_rows: int, chunk_rows: int
) -> Cut:
    """Cut of SORTED, STAGED and DETERMINISTIC: the row split of the tiling."""
    return Cut(path, cores, former_cores, former_rows, tail_rows, 0, chunk_rows)


def small_dim_cut(cores: int, former_copy_row: int, tail_copy_row: int, max_row_in_ub: int) -> Cut:
    """Cut of SMALL_DIM: the last core takes ``tail_copy_row`` rows."""
    return Cut(SMALL_DIM, cores, cores - 1, former_copy_row, tail_copy_row, max_row_in_ub, 0)


def share_cut(path: int, cores: int, share: int) -> Cut:
    """Cut of ROW_ATOMIC and INDEX_ORDER: ``share`` rows (or weight rows) each, the last core what is left."""
    return Cut(path, cores, cores, share, share, 0, 0)


def mark_chunks(cut: Cut, starts: Integers, positions: Integers) -> None:
    """Bring every run into program order and mark the last slot of each chunk, in place.

    Parameters
    ----------
    cut : Cut
        How the call is cut over cores.
    starts : int32 or int64 (num_weights + 1,)
        The run of weight row w is starts[w]..starts[w + 1].
    positions : same dtype (rows,)
        The row of grad at each slot, ascending within a run; marked on return.
    """
    if cut.splits_slots:
        backwards = cut.path == DETERMINISTIC
        _mark_slots.over(1, cut.core_starts(), backwards, cut.chunk_rows, starts, positions)
    elif cut.path == SMALL_DIM:
        _mark_batches.over(1, cut.cores - 1, cut.former_rows, cut.batch_rows, starts, positions)
    else:
        np.invert(positions, out=positions)


@device_function
def _mark_every(marked: Integers, begin: int, end: int, chunk_rows: int) -> None:
    """Cut the slots begin..end, at least one, into chunks of ``chunk_rows``, the last one shorter."""
    for last in range(begin + chunk_rows - 1, end - 1, chunk_rows):
        marked[last] = ~marked[last]
    marked[end - 1] = ~marked[end - 1]


@kernel
def _mark_slots(
    share: int,
    core_starts: NDArray[np.int64],
    backwards: bool,
    rows: int,
    starts: Integers,
    marked: Integers,
) -> None:
    """SORTED, STAGED, DETERMINISTIC: runs follow each other through the cores' slices of the sorted list, in chunks of ``rows``."""
    core = 0
    for index in range(starts.size - 1):
        begin, stop = np.int64(starts[index]), np.int64(starts[index + 1])
        if begin == stop:
            continue
        while core_starts[core + 1] <= begin:
            core += 1
        if backwards:
            # Back from the end of the first core's share of the run, then on from there.
            share_end = min(stop, core_starts[core + 1])
            for ahead in range((share_end - begin) // 2):
                first, last = begin + ahead, share_end - 1 - ahead
                marked[first], marked[last] = marked[last], marked[first]
            _mark_every(marked, begin, share_end, rows)
            if share_end < stop:
                _mark_every(marked, share_end, stop, rows)
            continue
        last_core = core
        while begin < stop:
            end = min(stop, core_starts[last_core + 1])
            _mark_every(marked, begin, end, rows)
            begin, last_core = end, last_core + 1


@kernel
def _mark_batches(
    share: int, last_core: int, core_rows: int, batch_rows: int, starts: Integers, marked: Integers
) -> None:
    """SMALL_DIM: a chunk ends where the next row belongs to another batch or core, and with the run.

    Division by multiplication: (row + 0.5) / divisor lies at least 0.5 / divisor from every
    integer, far more than the error of two fp64 roundings while rows stay below 2^50. It lets the
    compiler take many slots at a time.
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


def reached_by_several_cores(cut: Cut, starts: Integers, marked: Integers) -> NDArray[np.bool_]:
    """Return the mask (num_weights,) of rows that contributions of at least two cores reach in an open order."""
    mask = np.zeros(starts.size - 1, np.bool_)
    if not cut.is_atomic:
        return mask
    if cut.splits_slots:
        inner = cut.core_starts()[1:-1]
        rows = np.searchsorted(starts, inner, side="right") - 1
        mask[rows[starts[rows] < inner]] = True
        return mask
    for first in range(0, mask.size, _PIECE):
        bounds = starts[first : first + _PIECE + 1]
        rows = np.flatnonzero(np.diff(bounds) > 1)
        # Rows of grad ascend within a run: its ends lie on the lowest and the highest core.
        low, high = marked[bounds[rows]], marked[bounds[rows + 1] - 1]
        mask[first + rows] = _core_of(cut, low) != _core_of(cut, high)
    return mask


def _core_of(cut: Cut, slots: Integers) -> Integers:
    """Return the cores of marked slots where the rows of grad are split; only the last core may have another number of rows."""
    cores: Integers = np.minimum(np.maximum(slots, ~slots) // cut.former_rows, cut.cores - 1)
    return cores


_PIECE = 1 << 20
"""Runs looked at together, so that temporaries stay small."""
