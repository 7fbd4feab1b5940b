"""EmbeddingDenseBackward: equal work for every thread."""

from bisect import bisect_left

import numpy as np
from numpy.typing import NDArray

from npu_sim.kernels.embedding_dense_backward_chunks import Integers

ROW_COST = 2
"""Cost of an output row in rows of grad: it is fetched and written back."""
HOT_SHARE = 8
"""A run above 1/8 of a thread's share of the rows is split by columns over all threads."""
_PIECE = 1 << 20
"""Runs looked at together, so that temporaries stay small."""


def divide(starts: Integers, threads: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Divide the runs among threads.

    Returns
    -------
    bounds : int64 (2 * threads + 1,)
        Thread t owns the output rows bounds[t]..bounds[t + 1], and bounds[threads + 1 + t] is its first row's place
        among the hot ones.
    hot : int64
        Output rows whose runs are too long for one thread, ascending.
    """
    runs = starts.size - 1
    rows = int(starts[-1]) - int(starts[0])
    limit = rows // (threads * HOT_SHARE) if threads > 1 else rows
    pieces = range(0, runs, _PIECE)
    found = [first + np.flatnonzero(np.diff(starts[first : first + _PIECE + 1]) > limit) for first in pieces]
    hot = np.concatenate(found) if found else np.empty(0, np.int64)
    rows_of_hot = np.concatenate(([0], np.cumsum(starts[hot + 1] - starts[hot], dtype=np.int64)))

    def work_before(run: int) -> int:
        hot_before = int(np.searchsorted(hot, run))
        return int(starts[run]) - int(starts[0]) - int(rows_of_hot[hot_before]) + ROW_COST * run

    total = work_before(runs)
    bounds = [bisect_left(range(runs), total * thread // threads, key=work_before) for thread in range(threads)]
    bounds = [*bounds, runs]
    return np.array(bounds + list(np.searchsorted(hot, bounds[:-1])), np.int64), hot
