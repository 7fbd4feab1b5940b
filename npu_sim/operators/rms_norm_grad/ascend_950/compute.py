"""RmsNormGrad on Ascend 950: computation.

Source: specification page ``rms_norm_grad_950``.
"""

import numpy as np

from npu_sim.framework.vocabulary import Case, Run
from npu_sim.kernels.ascend_950 import rms_norm_grad as kernels
from npu_sim.tiling.ascend_950 import rms_norm_grad as tiler


def trees_of(case: Case) -> kernels.Trees:
    """Return the kernel's argument for the order of the rows in dgamma."""
    if tiler.is_big(case.tiling):
        split = case.tiling.row_blocks
        return kernels.core_trees(case.row.row, split.cores, split.piece, split.merge_columns)
    return kernels.column_trees(case.row.row)


def compute(run: Run) -> None:
    """Compute dx and dgamma; without rows dgamma is nan, or 0. A given workspace stays unfilled."""
    case = run.case
    with run.watch.stage("compute"):
        shape, dgamma = (case.row.row, case.row.col), run.written("dgamma").reshape(-1)
        if case.tiling.tiling_key == tiler.KEY_NO_ROWS:
            dgamma.fill(0 if case.rules.mean_has_all_columns else np.nan)
            return
        rows = kernels.Rows(
            run.stored("dy").reshape(shape),
            run.stored("x").reshape(shape),
            run.stored("rstd").reshape(-1),
            run.stored("gamma").reshape(-1),
            run.written("dx").reshape(shape),
        )
        fused, body = bool(case.rules.fuses_dx), case.tiling.dx.body
        kernels.rms_norm_grad(rows, trees_of(case), body, dgamma, fused=fused)
