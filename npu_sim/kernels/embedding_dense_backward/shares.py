"""EmbeddingDenseBackward: equal work for every thread."""

from bisect import bisect_left
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from npu_sim.kernels.embedding_dense_backward.chunks import Integers

ROW_COST = 1
"""Cost of an output row in rows of grad."""
HOT_SHARE = 8
"""A run above 1/8 of a thread's share of the rows is split by columns over all threads."""
_PIECE = 1 << 20
"""Runs looked at together, so that temporaries stay small."""


@lru_cache(maxsize=64)
def _whole(runs: int) -> NDArray[np.int64]:
    """Return the bounds of the only thread, which are not to be changed."""
    return np.array([0, runs, 0], np.int64)


def divide(
    starts: Integers, threads: int, skipped: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Divide the runs among threads.

    Parameters
    ----------
    starts : int32 or int64 (runs + 1,)
        The run of output row r is starts[r]..starts[r + 1].
    threads : int
        How many threads there are.
    skipped : int64
        Output rows that nobody writes, ascending.

    Returns
    -------
    bounds : int64 (2 * threads + 1,)
        Thread t owns the output rows bounds[t]..bounds[t + 1], and bounds[threads + 1 + t] is the place among the special rows of
        the first of them that is not before its own.
    special : int64
        Output rows that are not their owner's alone, ascending: r where the run is too long for one thread, ~r where it is skipped.
    """
    runs = starts.size - 1
    if threads == 1:
        return _whole(runs), ~skipped if skipped.size else skipped
    rows = int(starts[-1])
    limit = rows // (threads * HOT_SHARE)
    pieces = range(0, runs, _PIECE)
    found = [
        first + np.flatnonzero(np.diff(starts[first : first + _PIECE + 1]) > limit)
        for first in pieces
    ]
    special = np.union1d(np.concatenate([np.empty(0, np.int64), *found]), skipped).astype(np.int64)
    apart = np.concatenate(([0], np.cumsum(starts[special + 1] - starts[special], dtype=np.int64)))

    def work_before(run: int) -> int:
        return int(starts[run]) - int(apart[np.searchsorted(special, run)]) + ROW_COST * run

    total = work_before(runs)
    bounds = [
        bisect_left(range(runs), total * thread // threads, key=work_before)
        for thread in range(threads)
    ]
    places = np.searchsorted(special, bounds)
    special[np.isin(special, skipped)] ^= -1
    return np.array([*bounds, runs, *places], np.int64), special
