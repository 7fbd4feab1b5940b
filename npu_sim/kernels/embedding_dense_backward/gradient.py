"""EmbeddingDenseBackward: the sum of grad's rows for every index, in the device's order.

Rows of grad are grouped by index (``..._grouping``), every run is cut into chunks as the cores of
the device would (``..._chunks``), brought into the order of arrival (``..._merge``), and summed
(``..._sums``, ``..._staged``). Every element of the output is written by one thread, in an order
that no thread count changes.

Source: specification page ``embedding_dense_backward``.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from npu_sim.kernels.embedding_dense_backward.chunks import (
    INDEX_ORDER,
    STAGED,
    Cut,
    Integers,
    mark_chunks,
    reached_by_several_cores,
)
from npu_sim.kernels.embedding_dense_backward.grouping import group_rows
from npu_sim.kernels.embedding_dense_backward.order import merge_rows, staged_rows, sum_staged_rows
from npu_sim.kernels.embedding_dense_backward.sums import (
    NO_ROWS,
    SCALE_NOTHING,
    SCALE_ROWS,
    SCALE_SUM,
    sum_chunks,
    sum_runs,
)
from npu_sim.kernels.random_order import SEQUENTIAL
from npu_sim.kernels.vectors.lanes import Stored

NO_FACTORS = np.empty(0, np.float32)
EXACT_COUNT = 1 << 24
"""fp32 counts every integer up to here; beyond, a counter depends on how it was added up."""


class Scratch(NamedTuple):
    """Arrays in the product's workspace that hold what the call works with; None where there is none."""

    positions: Integers | None = None
    """int32 (rows,): takes a copy of ``Grouped.marked``, which says where kernels read and so stays
    out of the caller's reach."""
    counters: NDArray[np.float32] | None = None
    """float32 (num_weights,): how often each index occurs, with scale."""


NO_SCRATCH = Scratch()


class Grouped(NamedTuple):
    """One call's grouping and cut: the run of weight row w is ``starts[w]..starts[w + 1]`` of ``marked``."""

    cut: Cut
    starts: Integers
    marked: Integers
    padding_idx: int


def embedding_dense_backward(
    grad: Stored,
    indices: Integers,
    out: Stored,
    cut: Cut,
    padding_idx: int,
    scale: bool,
    core_order: int = SEQUENTIAL,
    seed: int = 0,
    scratch: Scratch = NO_SCRATCH,
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
        How rows are cut over cores, from the plan.
    padding_idx : int
        Weight row that gets nothing; a value outside 0..num_weights-1 matches none.
    scale : bool
        scaleGradByFreq.
    core_order, seed : int
        Code of the order in which chunks of several cores arrive; deterministic paths ignore it.
    scratch : Scratch
        What the workspace has room for.

    Returns
    -------
    Grouped
        For :func:`order_dependent_rows` and studies.
    """
    starts, marked = group_rows(indices, out.shape[0])
    mark_chunks(cut, starts, marked)
    if scratch.positions is not None:
        scratch.positions[:] = marked
    grouped = Grouped(cut, starts, marked, padding_idx if 0 <= padding_idx < out.shape[0] else -1)
    arrived = marked
    if cut.is_atomic and core_order != SEQUENTIAL:
        rows = np.flatnonzero(order_dependent_rows(grouped))
        arrived = merge_rows(cut, starts, marked, rows, core_order, seed)
    mode = SCALE_NOTHING if not scale else SCALE_ROWS if cut.path == INDEX_ORDER else SCALE_SUM
    factors = _factors(grouped, arrived, mode, scratch.counters) if scale else NO_FACTORS
    staged = staged_rows(cut, starts, grouped.padding_idx) if cut.path == STAGED else NO_ROWS
    sum_runs(grad, starts, arrived, grouped.padding_idx, mode, factors, out, staged)
    sum_staged_rows(grad, cut, starts, marked, staged, out)
    return grouped


def order_dependent_rows(grouped: Grouped) -> NDArray[np.bool_]:
    """Return the mask (num_weights,) of output rows that contributions of at least two cores reach in an open order."""
    mask = reached_by_several_cores(grouped.cut, grouped.starts, grouped.marked)
    if grouped.padding_idx >= 0:
        mask[grouped.padding_idx] = False
    return mask


def _factors(
    grouped: Grouped, arrived: Integers, mode: int, counters: NDArray[np.float32] | None
) -> NDArray[np.float32]:
    """Return the fp32 reciprocal of every row's counter, 1 where it is 0.

    EmbeddingDenseGrad counts in the dtype of the index. EmbeddingDenseGradV2 adds the rows of every
    flush in fp32, which is exact up to 2^24. Nothing counts the padding row.
    """
    starts = grouped.starts
    counts = np.diff(starts)
    if counters is None:
        counters = np.empty(counts.size, np.float32)
    counters[:] = counts
    if mode == SCALE_SUM:
        for row in np.flatnonzero(counts > EXACT_COUNT):
            ends = np.flatnonzero(arrived[starts[row] : starts[row + 1]] < 0)
            counters[row] = np.add.accumulate(np.diff(ends, prepend=-1), dtype=np.float32)[-1]
    if grouped.padding_idx >= 0:
        counters[grouped.padding_idx] = 0
    return (np.float32(1) / np.where(counters == 0, np.float32(1), counters)).astype(
        np.float32, copy=False
    )


def core_sum(grad: Stored, marked: Integers, begin: int, stop: int) -> NDArray[np.float32]:
    """Return one core's sum of the slots begin..stop: its chunks, one after the other."""
    stops = begin + 1 + np.flatnonzero(marked[begin:stop] < 0).astype(np.int64)
    values = np.empty((stops.size, grad.shape[1]), np.float32)
    sum_chunks(grad, marked, np.concatenate(([begin], stops[:-1])).astype(np.int64), stops, values)
    total = np.zeros(grad.shape[1], np.float32)
    for chunk in values:
        total = total + chunk
    return total
