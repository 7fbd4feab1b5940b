"""EmbeddingDenseBackward computed, with a workspace in it (specification pages ``embedding_dense_backward`` and ``workspace``).

In the workspace lie: contiguous copies, the gradient as fp32, the indices as int32, the sorted
indices and positions (the simulator marks chunks in the positions: the last of a chunk is its
complement), the fp32 result or fp32 copy of out, the frequency counters, and what every core stages
on the native 16-bit path. Reserved and not filled: the system workspace.
"""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from npu_sim.framework.case import Case
from npu_sim.framework.results import runtime_failure
from npu_sim.numbers.formats import FORMATS, TensorSpec, numpy_dtype
from npu_sim.numbers.storage import kernel_input, storage_view
from npu_sim.numbers.values import normal, zipf
from npu_sim.operators.embedding_dense_backward.planner import GRAD, rows_per_flush
from npu_sim.plans.areas import Areas, contiguous

if TYPE_CHECKING:
    from npu_sim.framework.execution import Run
    from npu_sim.kernels.embedding_dense_backward import Cut, Grouped, Scratch

Array = np.ndarray[Any, Any]


def cut_of(case: Case) -> "Cut":
    """Return how the case's rows are cut over cores, as the kernel takes it."""
    from npu_sim.kernels.embedding_dense_backward import chunks as cuts

    outcome = case.tiling
    if outcome.kernel == GRAD:
        path = cuts.INDEX_ORDER if outcome.older.splits_weights else cuts.ROW_ATOMIC
        return cuts.dense_grad_cut(path, outcome.block_dim, outcome.older.share)
    key, small, split = (
        outcome.tiling.tiling_key,
        outcome.tiling.small_dim,
        outcome.tiling.row_split,
    )
    if key >= 100:
        return cuts.small_dim_cut(
            outcome.block_dim, small.former_copy_row, small.tail_copy_row, small.max_row_in_ub
        )
    in_default_mode = cuts.STAGED if outcome.native_16_bit else cuts.SORTED
    path = cuts.DETERMINISTIC if key >= 10 else in_default_mode
    shares = split.former_row_rep_time, split.former_row_num, split.tail_row_num
    return cuts.sorted_cut(path, outcome.block_dim, *shares, rows_per_flush(key, case.rules))


def checked_indices(indices: Array, num_weights: int) -> Array:
    """Return the indices as the kernel takes them.

    Raises
    ------
    AclnnError
        361001 for an index outside [0, num_weights), naming the first one's position and value.
    """
    from npu_sim.kernels.embedding_dense_backward import grouping

    converted = grouping.convert_indices(indices, num_weights)
    bad = grouping.first_out_of_range(converted, num_weights)
    if bad >= 0:
        position = ", ".join(str(int(place)) for place in np.unravel_index(bad, indices.shape))
        message = f"indices[{position}] = {indices.reshape(-1)[bad]} is out of range: num_weights = {num_weights}"
        raise runtime_failure(
            "indices", message, f"0 <= index < {num_weights}; nothing was written"
        )
    return converted


def compute(run: "Run") -> None:
    """Compute the gradient; with a workspace, every intermediate tensor in its area."""
    from npu_sim.kernels.embedding_dense_backward import order_dependent_rows

    with run.watch.stage("check"):
        indices = checked_indices(run.tensors["indices"], run.case.row.num_weights)
    with run.watch.stage("compute"):
        if run.areas:
            grouped = _in_workspace(run, indices, run.areas)
            # What lies in the workspace may be gone when somebody asks.
            run.masks["grad_weight"] = order_dependent_rows(grouped)
        else:
            grouped = _grouped(run, run.stored("grad"), indices, run.written("grad_weight"))
            run.masks["grad_weight"] = partial(order_dependent_rows, grouped)


def _grouped(
    run: "Run", grad: Array, indices: Array, result: Array, scratch: "Scratch | None" = None
) -> "Grouped":
    from npu_sim.kernels import embedding_dense_backward as kernels

    row, order = run.case.row, run.order
    call = (
        run.case.once(cut_of),
        row.padding_idx,
        row.scale_grad_by_freq == 1,
        order.code,
        order.seed,
        scratch or kernels.NO_SCRATCH,
    )
    return kernels.embedding_dense_backward(grad.reshape(row.rows, row.dim), indices, result, *call)


def _in_workspace(run: "Run", indices: Array, areas: Areas) -> "Grouped":
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
        areas.put(
            "sorted indices",
            np.repeat(np.arange(row.num_weights, dtype=np.int32), np.diff(grouped.starts)),
        )
    if "stage rows" in areas:
        _stage(case, grad, grouped, areas)
    if result is not written:
        narrow_array(result, case.specs["grad"].dtype, out=written)
    return grouped


def _last_array(run: "Run", areas: Areas) -> Array:
    """Return the array whose values go to the caller: in the workspace when the caller's array is strided."""
    spec = run.case.specs["out"]
    if "result in the dtype of out" in areas:
        return areas.array("result in the dtype of out", spec.shape, spec.dtype)
    if "result" in areas and "grad as fp32" not in areas:
        return areas.array("result", spec.shape, spec.dtype)
    return run.outputs["grad_weight"]


def _area(areas: Areas, name: str, size: int, dtype: str) -> Array | None:
    return areas.array(name, (size,), dtype) if name in areas else None


def _grad(run: "Run", areas: Areas) -> Array:
    from npu_sim.kernels.elementwise import widen_array

    rows = contiguous("grad", run.tensors["grad"], areas)
    if "grad as fp32" in areas:
        return widen_array(rows, out=areas.array("grad as fp32", rows.shape, "float32"))
    # The device widens 16-bit rows one by one; the simulator's kernel writes fp32 sums of fp32 rows
    # only.
    return widen_array(rows) if "fp32 copy of out" in areas else kernel_input(rows)


def _place_indices(given: Array, converted: Array, areas: Areas) -> None:
    """Put the indices where the device has them; the conversion has the same values as the device's cast.

    The simulator reads its own: the workspace is the caller's memory, which may change after the
    check.
    """
    contiguous("indices", given, areas)
    if "indices as int32" in areas:
        areas.put("indices as int32", converted, "int32")


def _result(case: Case, written: Array, areas: Areas) -> Array:
    """Return what the kernel writes: fp32 where a cast follows."""
    if "fp32 copy of out" in areas:
        return areas.array("fp32 copy of out", written.shape, "float32")
    if "result" in areas and "grad as fp32" in areas:
        return areas.array("result", written.shape, "float32")
    return written


def _stage(case: Case, grad: Array, grouped: "Grouped", areas: Areas) -> None:
    """Write what every core stages: the sums of its first and its last index, and those indices.

    A core whose slice holds one index stages zeros second; the padding index stages zeros. Rows
    longer than the Unified Buffer are staged a piece at a time: the last piece is what stays.
    """
    from npu_sim.kernels.embedding_dense_backward import core_sum

    tiling, grad = case.tiling.tiling, grad.reshape(case.row.rows, case.row.dim)
    columns = tiling.tail_dim or tiling.former_dim
    core_starts = grouped.cut.core_starts()
    rows = areas.array("stage rows", (2 * grouped.cut.cores, tiling.former_dim), "float32")
    staged = areas.array("stage indices", (2 * grouped.cut.cores,), "int32")
    for core, (begin, stop) in enumerate(
        zip(core_starts[:-1].tolist(), core_starts[1:].tolist(), strict=True)
    ):
        first, last = (
            int(np.searchsorted(grouped.starts, slot, side="right")) - 1
            for slot in (begin, stop - 1)
        )
        for slot, index in enumerate((first, last)):
            own_begin, own_stop = (
                max(begin, int(grouped.starts[index])),
                min(stop, int(grouped.starts[index + 1])),
            )
            sums = rows[2 * core + slot, :columns]
            staged[2 * core + slot] = index
            if index == grouped.padding_idx or (slot == 1 and first == last):
                sums[:] = 0
            else:
                sums[:] = core_sum(grad, grouped.marked, own_begin, own_stop)[-columns:]


BLOCK_COLUMNS = 256
"""Columns of the formula summed at a time, so that the gathered copy of the gradient stays
small."""


def formula(
    arguments: Any, tensors: Mapping[str, np.ndarray], precision: np.dtype[Any]
) -> dict[str, np.ndarray]:
    """Sum the rows of every index, and divide them by their number when scaled."""
    indices = np.trunc(tensors["indices"]).astype(np.int64).reshape(-1)
    grad = (
        tensors["grad"].reshape(indices.size, -1)
        if indices.size
        else tensors["grad"].reshape(0, tensors["grad"].shape[-1])
    )
    out = np.zeros((arguments.num_weights, grad.shape[1]), precision)
    order = np.argsort(indices, kind="stable")
    kept = order[indices[order] != arguments.padding_idx]
    if kept.size == 0:
        return {"grad_weight": out}
    words, starts, counts = np.unique(indices[kept], return_index=True, return_counts=True)
    for begin in range(0, grad.shape[1], BLOCK_COLUMNS):
        columns = slice(begin, begin + BLOCK_COLUMNS)
        out[words, columns] = np.add.reduceat(grad[kept, columns].astype(precision), starts, axis=0)
    if arguments.scale_grad_by_freq:
        out[words] /= counts.astype(precision)[:, None]
    return {"grad_weight": out}


def data(arguments: Any, seed: int) -> dict[str, np.ndarray]:
    """Return normal gradients of tokens that occur as often as words do (Zipf's law), frequent ones first as in most vocabularies."""
    random, indices = np.random.default_rng(seed), arguments.indices
    gradient = normal(random, arguments.grad)
    words = max(min(arguments.num_weights, _countable(indices)), 1)
    return {
        "grad": gradient,
        "indices": zipf(random, indices.numel, words)
        .reshape(indices.shape)
        .astype(numpy_dtype(indices.dtype)),
    }


def _countable(spec: TensorSpec) -> int:
    """Return how many whole numbers from 0 on a dtype holds without a gap."""
    if spec.dtype == "bool":
        return 2
    dtype = numpy_dtype(spec.dtype)
    if dtype.kind in "iu":
        return int(np.iinfo(dtype).max) + 1
    mantissa_bits = (
        FORMATS[spec.dtype].mantissa_bits if spec.dtype in FORMATS else np.finfo(dtype).nmant
    )
    return int(2 ** (mantissa_bits + 1)) + 1
