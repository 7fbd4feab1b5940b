"""EmbeddingDenseBackward: rows of grad grouped by index, and the groups divided over threads.

Grouping is a counting sort. It is stable, like the device's sort, and needs two passes over the
indices and one over the weight rows instead of comparisons.

Source: specification page ``embedding_dense_backward``, "Kernels and accumulation order".
"""

from bisect import bisect_left
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from npu_sim.kernels.embedding_dense_backward.chunks import Integers
from npu_sim.kernels.engine.compile import kernel
from npu_sim.kernels.vectors.lanes import prefetch_to_write
from npu_sim.numbers.storage import UNSIGNED

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


@lru_cache(maxsize=64)
def _one_thread_bounds(runs: int) -> NDArray[np.int64]:
    """Return the bounds for one thread; shared between calls, so they must not be modified."""
    return np.array([0, runs, 0], np.int64)


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
        return Division(_one_thread_bounds(runs), ~skipped if skipped.size else skipped)
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
