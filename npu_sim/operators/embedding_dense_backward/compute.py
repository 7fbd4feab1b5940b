"""EmbeddingDenseBackward: computation in the order of the product, formula, and generated data.

Source: specification pages ``embedding_dense_backward`` and ``workspace``. Kernels are imported
when a call runs: plans need this module, but not Numba.

With a workspace, these tensors lie in it: contiguous copies, the gradient as fp32, the indices as
int32, the sorted indices and positions (the simulator stores the complement of the last position of
a chunk), the fp32 result or the fp32 copy of out, the frequency counters, and the staged rows of
every core on the native 16-bit path. The system workspace is reserved and stays unwritten.
"""

import itertools
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from npu_sim.framework.case import Case
from npu_sim.framework.execution import runtime_failure
from npu_sim.language import Text
from npu_sim.numbers.formats import FORMATS, TensorSpec, numpy_dtype
from npu_sim.numbers.storage import kernel_input, storage_view
from npu_sim.operators.embedding_dense_backward.planner import KERNEL_GRAD, rows_per_flush
from npu_sim.plans.workspace import Areas, contiguous
from npu_sim.tiling import embedding_dense_backward as v2

if TYPE_CHECKING:
    from npu_sim.framework.execution import Run
    from npu_sim.kernels.embedding_dense_backward import Cut, Grouped, Scratch

Array = np.ndarray[Any, Any]


def cut_of(case: Case) -> "Cut":
    """Return how the rows are split over cores, as the kernel takes it."""
    from npu_sim.kernels.embedding_dense_backward import chunks

    outcome = case.tiling
    if outcome.kernel == KERNEL_GRAD:
        path = chunks.INDEX_ORDER if outcome.older.splits_weights else chunks.ROW_ATOMIC
        return chunks.dense_grad_cut(path, outcome.block_dim, outcome.older.share)
    tiling = outcome.tiling
    key, small, split = tiling.tiling_key, tiling.small_dim, tiling.row_split
    if v2.is_small_dim(key):
        return chunks.small_dim_cut(
            outcome.block_dim, small.former_copy_row, small.tail_copy_row, small.max_row_in_ub
        )
    default_path = chunks.STAGED if outcome.native_16_bit else chunks.SORTED
    path = chunks.DETERMINISTIC if v2.is_deterministic(key) else default_path
    sizes = split.former_row_rep_time, split.former_row_num, split.tail_row_num
    return chunks.sorted_cut(path, outcome.block_dim, *sizes, rows_per_flush(key, case.rules))


def checked_indices(indices: Array, num_weights: int) -> Array:
    """Return the indices as the kernel takes them.

    Raises
    ------
    AclnnError
        361001 for an index outside [0, num_weights); the message gives the position and value of
        the first one.
    """
    from npu_sim.kernels.embedding_dense_backward import grouping

    converted = grouping.convert_indices(indices, num_weights)
    first_bad = grouping.first_out_of_range(converted, num_weights)
    if first_bad >= 0:
        position = ", ".join(
            str(int(axis_index)) for axis_index in np.unravel_index(first_bad, indices.shape)
        )
        message = Text(
            "indices[{position}] = {index} is out of range: num_weights = {num_weights}",
            position=position,
            index=indices.reshape(-1)[first_bad],
            num_weights=num_weights,
        )
        hint = Text("0 <= index < {num_weights}; nothing was written", num_weights=num_weights)
        raise runtime_failure("indices", message, hint)
    return converted


def compute(run: "Run") -> None:
    """Compute the gradient; with a workspace, each intermediate tensor lies in its area."""
    from npu_sim.kernels.embedding_dense_backward import NO_SCRATCH, order_dependent_rows

    with run.watch.stage("check"):
        indices = checked_indices(run.tensors["indices"], run.case.row.num_weights)
    with run.watch.stage("compute"):
        if run.areas:
            grouped = _in_workspace(run, indices, run.areas)
            # Computed now: the workspace may be overwritten before the mask is read.
            run.masks["grad_weight"] = order_dependent_rows(grouped)
        else:
            result = run.written("grad_weight")
            grouped = _grouped(run, run.stored("grad"), indices, result, NO_SCRATCH)
            run.masks["grad_weight"] = partial(order_dependent_rows, grouped)


def _grouped(
    run: "Run", grad: Array, indices: Array, result: Array, scratch: "Scratch"
) -> "Grouped":
    from npu_sim.kernels import embedding_dense_backward as kernels

    row, order = run.case.row, run.order
    return kernels.embedding_dense_backward(
        grad.reshape(row.rows, row.dim),
        indices,
        result,
        cut_of(run.case),
        row.padding_idx,
        row.scale_grad_by_freq == 1,
        order.code,
        order.seed,
        scratch,
    )


def _in_workspace(run: "Run", indices: Array, areas: Areas) -> "Grouped":
    """Compute the gradient with every intermediate tensor in its area."""
    from npu_sim.kernels.elementwise import narrow_array
    from npu_sim.kernels.embedding_dense_backward import Scratch

    case, row = run.case, run.case.row
    written = run.outputs["grad_weight"] = _last_array(run, areas)
    grad = _grad(run, areas)
    _place_indices(run.tensors["indices"], indices, areas)
    result = _result(case, written, areas)
    scratch = Scratch(
        _area(areas, "positions", row.rows, "int32"),
        _area(areas, "frequency counters", row.num_weights, "float32"),
    )
    grouped = _grouped(run, grad, indices, storage_view(result), scratch)
    if "sorted indices" in areas:
        indices_in_order = np.arange(row.num_weights, dtype=np.int32)
        areas.put("sorted indices", np.repeat(indices_in_order, np.diff(grouped.starts)))
    if "stage rows" in areas:
        _stage(case, grad, grouped, areas)
    if result is not written:
        narrow_array(result, case.specs["grad"].dtype, out=written)
    return grouped


def _last_array(run: "Run", areas: Areas) -> Array:
    """Return the array with the final values: in the workspace if the caller's array is strided."""
    spec = run.case.specs["out"]
    if "result in the dtype of out" in areas:
        return areas.array("result in the dtype of out", spec.shape, spec.dtype)
    if "result" in areas and "grad as fp32" not in areas:
        return areas.array("result", spec.shape, spec.dtype)
    return run.outputs["grad_weight"]


def _area(areas: Areas, name: str, size: int, dtype: str) -> Array | None:
    """Return an area as a vector; None if the call has no such area."""
    return areas.array(name, (size,), dtype) if name in areas else None


def _grad(run: "Run", areas: Areas) -> Array:
    """Return the rows of grad that the kernel reads, and write those that lie in the workspace."""
    from npu_sim.kernels.elementwise import widen_array

    rows = contiguous("grad", run.tensors["grad"], areas)
    if "grad as fp32" in areas:
        return widen_array(rows, out=areas.array("grad as fp32", rows.shape, "float32"))
    # The device widens 16-bit rows one by one; the simulator's kernel needs fp32 rows to write fp32
    # sums.
    return widen_array(rows) if "fp32 copy of out" in areas else kernel_input(rows)


def _place_indices(given: Array, converted: Array, areas: Areas) -> None:
    """Write the indices to the areas where the device keeps them.

    The conversion gives the values of the device's cast. The simulator reads its own copy: the
    workspace is the caller's memory, which may change after the check.
    """
    contiguous("indices", given, areas)
    if "indices as int32" in areas:
        areas.put("indices as int32", converted, "int32")


def _result(case: Case, written: Array, areas: Areas) -> Array:
    """Return the array that the kernel writes: fp32 if a cast follows."""
    if "fp32 copy of out" in areas:
        return areas.array("fp32 copy of out", written.shape, "float32")
    if "result" in areas and "grad as fp32" in areas:
        return areas.array("result", written.shape, "float32")
    return written


def _stage(case: Case, grad: Array, grouped: "Grouped", areas: Areas) -> None:
    """Write the staged rows of every core: the sums of its first and last index, and the indices.

    If the slice of a core holds one index, its second row is zero; so is a row of the padding
    index. Rows longer than the Unified Buffer are staged piece by piece: the last piece remains.
    """
    from npu_sim.kernels.embedding_dense_backward import core_sum

    tiling, grad = case.tiling.tiling, grad.reshape(case.row.rows, case.row.dim)
    columns = tiling.tail_dim or tiling.former_dim
    core_starts = grouped.cut.core_starts()
    rows = areas.array("stage rows", (2 * grouped.cut.cores, tiling.former_dim), "float32")
    staged = areas.array("stage indices", (2 * grouped.cut.cores,), "int32")
    for core, (begin, stop) in enumerate(itertools.pairwise(core_starts.tolist())):
        ends = np.array([begin, stop - 1])
        first, last = (np.searchsorted(grouped.starts, ends, side="right") - 1).tolist()
        for slot, index in enumerate((first, last)):
            sum_begin = max(begin, int(grouped.starts[index]))
            sum_stop = min(stop, int(grouped.starts[index + 1]))
            sums = rows[2 * core + slot, :columns]
            staged[2 * core + slot] = index
            if index == grouped.padding_idx or (slot == 1 and first == last):
                sums[:] = 0
            else:
                sums[:] = core_sum(grad, grouped.marked, sum_begin, sum_stop)[-columns:]


BLOCK_COLUMNS = 256
"""Columns of the formula summed at a time; limits the size of the gathered copy of grad."""


def formula(
    arguments: Any, tensors: Mapping[str, np.ndarray], precision: np.dtype[Any]
) -> dict[str, np.ndarray]:
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


def data(arguments: Any, seed: int) -> dict[str, np.ndarray]:
    """Return normal gradients and indices distributed as in text (Zipf's law), frequent first."""
    from npu_sim.numbers.values import normal, zipf

    random, indices = np.random.default_rng(seed), arguments.indices
    gradient = normal(random, arguments.grad)
    vocabulary = max(min(arguments.num_weights, _consecutive_integers(indices)), 1)
    drawn = zipf(random, indices.numel, vocabulary).reshape(indices.shape)
    return {"grad": gradient, "indices": drawn.astype(numpy_dtype(indices.dtype))}


def _consecutive_integers(spec: TensorSpec) -> int:
    """Return n if a dtype represents all integers 0..n-1 exactly and consecutively."""
    if spec.dtype == "bool":
        return 2
    dtype = numpy_dtype(spec.dtype)
    if dtype.kind in "iu":
        return int(np.iinfo(dtype).max) + 1
    mantissa_bits = (
        FORMATS[spec.dtype].mantissa_bits if spec.dtype in FORMATS else np.finfo(dtype).nmant
    )
    return int(2 ** (mantissa_bits + 1)) + 1
