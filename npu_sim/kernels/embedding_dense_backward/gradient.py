"""EmbeddingDenseBackward: for every index, the sum of its rows of grad in the device's order.

Steps: group the rows of grad by index (`grouping`), mark the chunks in which the device's cores add
them (`chunks`), put the chunks of different cores into their order of arrival (`order`), and sum
(`sums`; `order` for the staged rows of the native 16-bit path). The result does not depend on the
number of threads.

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
    depends_on_arrival,
    mark_chunks,
)
from npu_sim.kernels.embedding_dense_backward.grouping import group_rows
from npu_sim.kernels.embedding_dense_backward.order import merge_rows, staged_rows, sum_staged_rows
from npu_sim.kernels.embedding_dense_backward.sums import (
    NO_ROWS,
    SCALE_ROWS,
    SCALE_SUM,
    Runs,
    sum_chunks,
    sum_runs,
)
from npu_sim.kernels.random_order import SEQUENTIAL
from npu_sim.kernels.vectors.lanes import Stored

EXACT_COUNT = 1 << 24
"""fp32 counts exactly up to here; beyond, a counter depends on its order of additions."""


class Scratch(NamedTuple):
    """Arrays in the product's workspace that receive intermediate values; None if not present."""

    positions: Integers | None = None
    """int32 (rows,): receives a copy of ``Grouped.marked``. Kernels read the original, because the
    caller can modify the workspace."""
    counters: NDArray[np.float32] | None = None
    """float32 (num_weights,): receives the count of each index, with scale."""


NO_SCRATCH = Scratch()


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
        Division of the rows among cores, from the plan.
    padding_idx : int
        Weight row that stays zero; a value outside 0..num_weights-1 matches none.
    scale : bool
        Attribute scaleGradByFreq.
    core_order, seed : int
        Code of the order in which chunks of several cores arrive; deterministic paths ignore it.
    scratch : Scratch
        Arrays of the workspace.

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
    runs = Runs(starts, grouped.padding_idx)
    if scale:
        mode = SCALE_ROWS if cut.path == INDEX_ORDER else SCALE_SUM
        factors = _factors(grouped, arrived, mode, scratch.counters)
        runs = runs._replace(scale=mode, factors=factors)
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


def _factors(
    grouped: Grouped, arrived: Integers, mode: int, counters: NDArray[np.float32] | None
) -> NDArray[np.float32]:
    """Return the fp32 reciprocal of every row's counter, 1 where it is 0.

    EmbeddingDenseGrad counts in the dtype of the index. EmbeddingDenseGradV2 adds the rows of every
    flush in fp32, which is exact up to 2^24. The padding row is not counted.
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
    reciprocals = np.float32(1) / np.where(counters == 0, np.float32(1), counters)
    return reciprocals.astype(np.float32, copy=False)


def core_sum(grad: Stored, marked: Integers, begin: int, stop: int) -> NDArray[np.float32]:
    """Return one core's sum of the slots begin..stop: its chunks added in order."""
    stops = begin + 1 + np.flatnonzero(marked[begin:stop] < 0).astype(np.int64)
    values = np.empty((stops.size, grad.shape[1]), np.float32)
    sum_chunks(grad, marked, np.concatenate(([begin], stops[:-1])).astype(np.int64), stops, values)
    total = np.zeros(grad.shape[1], np.float32)
    for chunk in values:
        total = total + chunk
    return total
