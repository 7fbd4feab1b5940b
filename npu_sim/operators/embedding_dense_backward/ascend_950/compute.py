"""EmbeddingDenseBackward on Ascend 950: computation.

Source: specification page ``embedding_dense_backward_950``.
"""

from collections.abc import Iterator

import numpy as np

from npu_sim.framework.vocabulary import Caveat, Run, caveat, storage_view
from npu_sim.kernels.ascend_950 import embedding_dense_backward as kernels
from npu_sim.operators.embedding_dense_backward.compute import checked_indices
from npu_sim.operators.embedding_dense_backward.declaration import KERNEL_GRAD_V2
from npu_sim.tiling.ascend_950.embedding_dense_backward import embedding_dense_grad as v1


def compute(run: Run) -> None:
    """Compute the gradient."""
    case, row = run.case, run.case.row
    with run.watch.stage("check"):
        indices = checked_indices(run.tensors["indices"], row.num_weights)
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
            run.caveats += tuple(_unmerged(kernels.sum_v2(call, core_rows, tiling.batch_rows)))
        else:
            kernels.sum_v1(call, case.tiling.v1.batch_rows, v1.is_full_load(case.tiling.v1))


def _unmerged(rows: np.ndarray) -> Iterator[Caveat]:
    """Warn of rows that hold the sum of one core, because the merge was left out."""
    if rows.size:
        yield caveat(
            "sum_of_one_core",
            "indices",
            "{count} rows of grad_weight hold the sum of one core only, the first one is row {row}"
            ": no index is shared among cores 0 to 64, so the merge is left out. Read in the "
            "public sources; not run on a device",
            count=rows.size,
            row=int(rows[0]),
        )
