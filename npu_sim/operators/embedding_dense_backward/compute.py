"""EmbeddingDenseBackward: computation, formula and generated data.

Source: specification page ``embedding_dense_backward``.
"""

from functools import partial
from typing import Any

import numpy as np

from npu_sim.framework.vocabulary import (
    FORMATS,
    Arrays,
    Case,
    Dtype,
    Run,
    TensorSpec,
    Text,
    numpy_dtype,
    runtime_failure,
)
from npu_sim.kernels import embedding_dense_backward as kernels
from npu_sim.kernels.embedding_dense_backward import grouping
from npu_sim.operators.embedding_dense_backward.declaration import KERNEL_GRAD
from npu_sim.operators.embedding_dense_backward.plan import rows_per_flush
from npu_sim.tiling import embedding_dense_backward as v2

Array = np.ndarray[Any, Any]


def cut_of(case: Case) -> grouping.Cut:
    """Return how the rows are split over cores, as the kernel takes it."""
    outcome = case.tiling
    if outcome.kernel == KERNEL_GRAD:
        path = grouping.INDEX_ORDER if outcome.older.splits_weights else grouping.ROW_ATOMIC
        share = outcome.older.share  # the last core takes the remainder
        return grouping.Cut(path, outcome.block_dim, outcome.block_dim, share, share)
    tiling = outcome.tiling
    key, small, split = tiling.tiling_key, tiling.small_dim, tiling.row_split
    if v2.is_small_dim(key):
        return grouping.Cut(
            grouping.SMALL_DIM,
            outcome.block_dim,
            outcome.block_dim - 1,
            small.former_copy_row,
            small.tail_copy_row,
            batch_rows=small.max_row_in_ub,
        )
    path = grouping.STAGED if outcome.native_16_bit else grouping.SORTED
    return grouping.Cut(
        grouping.DETERMINISTIC if v2.is_deterministic(key) else path,
        outcome.block_dim,
        split.former_row_rep_time,
        split.former_row_num,
        split.tail_row_num,
        chunk_rows=rows_per_flush(key, case.rules),
    )


def checked_indices(indices: Array, num_weights: int) -> Array:
    """Return the indices as the kernel takes them.

    Raises
    ------
    AclnnError
        361001 for an index outside [0, num_weights); the message gives the position and value of
        the first one.
    """
    converted = grouping.convert_indices(indices, num_weights)
    first_bad = grouping.first_out_of_range(converted, num_weights)
    if first_bad >= 0:
        raise runtime_failure(
            "indices",
            Text(
                "indices[{position}] = {index} is out of range: num_weights = {num_weights}",
                position=", ".join(
                    str(int(axis_index))
                    for axis_index in np.unravel_index(first_bad, indices.shape)
                ),
                index=indices.reshape(-1)[first_bad],
                num_weights=num_weights,
            ),
            Text("0 <= index < {num_weights}; nothing was written", num_weights=num_weights),
        )
    return converted


def compute(run: Run) -> None:
    """Compute the gradient."""
    row, order = run.case.row, run.order
    with run.watch.stage("check"):
        indices = checked_indices(run.tensors["indices"], row.num_weights)
    with run.watch.stage("compute"):
        grouped = kernels.embedding_dense_backward(
            run.stored("grad").reshape(row.rows, row.dim),
            indices,
            run.written("grad_weight"),
            cut_of(run.case),
            row.padding_idx,
            row.scale_grad_by_freq == 1,
            kernels.ArrivalOrder(order.code, order.seed),
        )
        run.masks["grad_weight"] = partial(kernels.order_dependent_rows, grouped)


BLOCK_COLUMNS = 256
"""Columns of the formula summed at a time; limits the size of the gathered copy of grad."""


def formula(arguments: Any, tensors: Arrays, precision: Dtype) -> Arrays:
    """Return the sums of the rows of every index, divided by their number when scaled."""
    indices = np.trunc(tensors["indices"]).astype(np.int64).reshape(-1)
    grad = tensors["grad"]
    grad = grad.reshape(indices.size, -1) if indices.size else grad.reshape(0, grad.shape[-1])
    out = np.zeros((arguments.num_weights, grad.shape[1]), precision)
    order = np.argsort(indices, kind="stable")
    rows = order[indices[order] != arguments.padding_idx]
    if rows.size == 0:
        return {"grad_weight": out}
    present, starts, counts = np.unique(indices[rows], return_index=True, return_counts=True)
    for begin in range(0, grad.shape[1], BLOCK_COLUMNS):
        columns = slice(begin, begin + BLOCK_COLUMNS)
        terms = grad[rows, columns].astype(precision)
        out[present, columns] = np.add.reduceat(terms, starts, axis=0)
    if arguments.scale_grad_by_freq:
        out[present] /= counts.astype(precision)[:, None]
    return {"grad_weight": out}


def data(arguments: Any, seed: int) -> Arrays:
    """Return normal gradients and indices distributed as in text (Zipf's law), frequent first."""
    from npu_sim.numbers.values import normal, zipf

    random, spec = np.random.default_rng(seed), arguments.indices
    gradient = normal(random, arguments.grad)
    vocabulary = max(min(arguments.num_weights, _consecutive_integers(spec)), 1)
    indices = zipf(random, spec.numel, vocabulary).reshape(spec.shape)
    return {"grad": gradient, "indices": indices.astype(numpy_dtype(spec.dtype))}


def _consecutive_integers(spec: TensorSpec) -> int:
    """Return n if a dtype represents all integers 0..n-1 exactly and consecutively."""
    if spec.dtype == "bool":
        return 2
    dtype = numpy_dtype(spec.dtype)
    if dtype.kind in "iu":
        return int(np.iinfo(dtype).max) + 1
    bits = FORMATS[spec.dtype].mantissa_bits if spec.dtype in FORMATS else np.finfo(dtype).nmant
    return int(2 ** (bits + 1)) + 1
