"""EmbeddingDenseBackward on Ascend 950: for every index, the sum of its rows of grad.

Order of accumulation, in fp32. A run is the rows of one index in sorted order; groups of ten (V2)
or five (V1) rows are summed from +0, and each is added to a total that starts from +0.

V2: cores split the sorted rows; groups restart at every batch of a core. The sums of an index that
several cores reach are summed like rows: groups of ten stage slots, every group added to a total. A
core has two slots, one for its first and one for its last index; where both are the same index, the
first one holds zeros.

V1: rows come in batches in their own order, and the sum of an index in a batch is added to its
total.

Both are a matter of marks and parts, so the kernels are those of the older products.

Slow references with the orders: ``tests/ascend_950/test_embedding_dense_backward.py``.

Source: specification page ``embedding_dense_backward_950``, "Kernel and order of V2", "of V1".
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from npu_sim.kernels.embedding_dense_backward.gradient import Staged, staged_in, sum_parts
from npu_sim.kernels.embedding_dense_backward.grouping import (
    Integers,
    group_rows,
    mark_slots,
    shared_rows,
)
from npu_sim.kernels.embedding_dense_backward.sums import NO_ROWS, SCALE_SUM, Runs, sum_runs
from npu_sim.kernels.shared.elementwise import narrow_array, widen_array
from npu_sim.kernels.vectors.lanes import Stored
from npu_sim.numbers.formats import FORMAT_OF_STORAGE, from_storage, storage_view

GROUP_OF_V2, GROUP_OF_V1 = 10, 5
"""Rows of a group."""
PAIRS_TESTED = 64
"""Neighbouring cores that V2 tests for a shared index (page, "merge_test_sees_64_pairs")."""


class Call(NamedTuple):
    """Tensors and attributes of one call.

    Attributes
    ----------
    grad : float32, int16 (fp16) or uint16 (bf16) (rows, dim)
        C-contiguous.
    indices : int32 or int64 (rows,)
        From ``convert_indices``, all in range.
    out : dtype of grad (num_weights, dim)
        C-contiguous; every element is written.
    padding_idx : int
        Weight row that stays zero; a value outside 0..num_weights-1 matches none.
    scale : bool
        Attribute scaleGradByFreq.
    """

    grad: Stored
    indices: Integers
    out: Stored
    padding_idx: int
    scale: bool


def borders_of(rows: int, part_rows: int) -> NDArray[np.int64]:
    """Return the first row of every part of ``part_rows`` rows, followed by ``rows``."""
    return np.append(np.arange(0, rows, part_rows), rows).astype(np.int64)


def sum_v2(call: Call, core_rows: int, batch_rows: int) -> NDArray[np.int64]:
    """Compute EmbeddingDenseGradV2; a core takes ``core_rows`` sorted rows in batches.

    Return the weight rows that hold the part of one core only, because the merge was left out.
    """
    rows = call.indices.size
    starts, marked = group_rows(call.indices, len(call.out))
    mark_slots(borders_of(rows, batch_rows), GROUP_OF_V2, starts, marked)
    staged = _staged_of_v2(call, starts, borders_of(rows, core_rows))
    _sum(call, starts, marked, staged)
    return staged.indices[staged.begins != starts[staged.indices]]


def _staged_of_v2(call: Call, starts: Integers, core_starts: NDArray[np.int64]) -> Staged:
    """Return the rows that several cores reach, with the stage slots of every core."""
    padding = call.padding_idx
    shared = shared_rows(core_starts, starts)
    shared[shared == padding] = -1
    indices = np.unique(shared[shared >= 0])
    begins, stops = _ends(starts, indices)
    if not (shared[:PAIRS_TESTED] >= 0).any():
        # The merge is left out: the row holds the part of the core that stores last.
        last = np.searchsorted(core_starts, stops - 1, side="right") - 1
        begins = np.maximum(begins, core_starts[last])
    first = np.searchsorted(starts, core_starts[:-1], side="right") - 1
    last = np.searchsorted(starts, core_starts[1:] - 1, side="right") - 1
    # Its first slot is zero if a core wrote one index only, or if it begins with padding.
    zeros = (first == last) | (first == padding)
    if 0 <= padding < len(call.out):
        zeros |= (last == padding) & (starts[first + 1] == starts[padding])
    zeros[0] = False  # the first slot of core 0 is not used
    return staged_in(
        core_starts,
        (indices, begins, stops),
        (zeros, np.zeros_like(zeros)),
        GROUP_OF_V2,
        _reciprocals(stops - begins) if call.scale else np.ones(indices.size, np.float32),
    )


def sum_v1(call: Call, batch_rows: int, full_load: bool) -> None:
    """Compute EmbeddingDenseGrad; with ``full_load`` all rows are one batch."""
    starts, marked = group_rows(call.indices, len(call.out))
    borders = _borders_of_batches(starts, marked, batch_rows)
    mark_slots(borders, GROUP_OF_V1, starts, marked)
    if full_load and call.scale:
        _sum(call._replace(scale=False), starts, marked, _staged_of_v1(call, starts, borders))
        _divide_sums(call, starts, marked)
    else:
        _sum(call, starts, marked, _staged_of_v1(call, starts, borders))


def _borders_of_batches(
    starts: Integers, positions: Integers, batch_rows: int
) -> NDArray[np.int64]:
    """Return where another batch or another index begins in the sorted list, and its end."""
    if positions.size <= batch_rows:
        return np.array([0, positions.size], np.int64)
    batches = positions // batch_rows
    is_border = np.empty(positions.size + 1, np.bool_)
    is_border[1:-1] = batches[1:] != batches[:-1]
    is_border[starts] = True
    return np.flatnonzero(is_border)


def _staged_of_v1(call: Call, starts: Integers, borders: NDArray[np.int64]) -> Staged:
    """Return the rows with several batches, one of them with more than one group.

    Where every batch of a row has one group, the groups are added to the total like the sums of
    batches; such rows need no parts.
    """
    indices = NO_ROWS
    if borders.size > 2:
        long_parts = borders[:-1][np.diff(borders) > GROUP_OF_V1]
        indices = np.unique(np.searchsorted(starts, long_parts, side="right") - 1)
        begins, stops = _ends(starts, indices)
        parts = np.searchsorted(borders, stops) - np.searchsorted(borders, begins)
        indices = indices[(parts > 1) & (indices != call.padding_idx)]
    begins, stops = _ends(starts, indices)
    no_zeros = np.zeros(borders.size - 1, np.bool_)
    return staged_in(
        borders,
        (indices, begins, stops),
        (no_zeros, no_zeros),
        call.indices.size + 1,  # one chunk of slots: sums of batches are added one by one
        _reciprocals(stops - begins) if call.scale else np.ones(indices.size, np.float32),
    )


def _ends(
    starts: Integers, indices: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return begin and end of the runs of some weight rows."""
    return starts[indices].astype(np.int64), starts[indices + 1].astype(np.int64)


def _reciprocals(counts: NDArray[Any]) -> NDArray[np.float32]:
    """Return 1 / count in fp32, 1 where it is 0."""
    return np.float32(1) / np.maximum(counts, 1).astype(np.float32)


def _sum(call: Call, starts: Integers, marked: Integers, staged: Staged) -> None:
    """Write all rows of out: those in parts, and the others from their marks."""
    runs = Runs(starts, call.padding_idx if 0 <= call.padding_idx < len(call.out) else -1)
    if call.scale:
        runs = runs._replace(scale=SCALE_SUM, factors=_reciprocals(np.diff(starts)))
    sum_runs(call.grad, marked, runs, call.out, staged.indices)
    sum_parts(call.grad, marked, staged, call.out)


def _divide_sums(call: Call, starts: Integers, marked: Integers) -> None:
    """Full load with scale: write the rows of indices that occur, sum / count in fp32.

    The sums are few, at most 1024, but they are divided before they are rounded to 16 bits.
    """
    counts = np.diff(starts)
    present = np.flatnonzero(counts)
    dtype = FORMAT_OF_STORAGE[call.grad.dtype]
    grad = widen_array(from_storage(call.grad, dtype))
    sums = np.empty((present.size, call.out.shape[1]), np.float32)
    sum_runs(grad, marked, Runs(np.append(starts[present], starts[-1:]), -1), sums)
    with np.errstate(all="ignore"):
        sums /= counts[present].astype(np.float32)[:, None]
    is_real = present != call.padding_idx
    call.out[present[is_real]] = storage_view(narrow_array(sums[is_real], dtype))
