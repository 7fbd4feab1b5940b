"""EmbeddingDenseBackward on Ascend 950: computation in the product's order.

If the caller passes a workspace, contiguous copies, cast indices, sorted indices and the result of
a strided output are placed in it. Its other areas stay unwritten.

Source: specification page ``embedding_dense_backward_950``.
"""

from typing import TYPE_CHECKING

from npu_sim.language import Text
from npu_sim.numbers.storage import storage_view
from npu_sim.operators.embedding_dense_backward.ascend_950.planner import index_dtype
from npu_sim.operators.embedding_dense_backward.compute import checked_indices
from npu_sim.operators.embedding_dense_backward.planner import KERNEL_GRAD_V2
from npu_sim.plans.model import Caveat
from npu_sim.plans.workspace import Areas, contiguous
from npu_sim.tiling.ascend_950 import embedding_dense_grad as v1

if TYPE_CHECKING:
    import numpy as np

    from npu_sim.framework.execution import Run


def compute(run: "Run") -> None:
    """Compute the gradient."""
    case, row = run.case, run.case.row
    with run.watch.stage("load"):
        from npu_sim.kernels.ascend_950 import embedding_dense_backward as kernels
    with run.watch.stage("check"):
        indices = checked_indices(run.tensors["indices"], row.num_weights)
    if run.areas is not None:
        _fill_areas(run, indices, run.areas)
    with run.watch.stage("compute"):
        call = kernels.Call(
            run.stored("grad").reshape(row.rows, row.dim),
            indices,
            storage_view(run.outputs["grad_weight"]),
            row.padding_idx,
            row.scale_grad_by_freq == 1,
        )
        if case.tiling.kernel == KERNEL_GRAD_V2:
            tiling = case.tiling.v2
            core_rows = tiling.batch_rows * tiling.core_batches
            run.caveats += _unmerged(kernels.sum_v2(call, core_rows, tiling.batch_rows))
        else:
            kernels.sum_v1(call, case.tiling.v1.batch_rows, v1.is_full_load(case.tiling.v1))


def _fill_areas(run: "Run", indices: "np.ndarray", areas: Areas) -> None:
    """Write the indices to their areas, and place a result that is copied to a strided output."""
    dtype = index_dtype(run.case.row)
    contiguous("indices", run.tensors["indices"], areas)
    if f"indices as {dtype}" in areas:
        areas.put(f"indices as {dtype}", indices, dtype)
    if "sorted indices" in areas:
        order = indices.argsort(kind="stable")
        areas.put("sorted indices", indices[order], dtype)
        areas.put("positions", order, "int32")
    if "result" in areas:
        spec = run.case.specs["out"]
        run.outputs["grad_weight"] = areas.array("result", spec.shape, spec.dtype)


def _unmerged(rows: "np.ndarray") -> tuple[Caveat, ...]:
    """Warn of rows that hold the sum of one core, because the merge was left out."""
    if not rows.size:
        return ()
    message = Text(
        "{count} rows of grad_weight hold the sum of one core only, the first one is row {row}: no "
        "index is shared among cores 0 to 64, so the merge is left out. Read in the public "
        "sources; not run on a device",
        count=rows.size,
        row=int(rows[0]),
    )
    return (Caveat(code="sum_of_one_core", argument="indices", message=message),)
