"""RmsNorm on Ascend 950: computation in the product's order.

Source: specification page ``rms_norm_950``, "Kernels and order".
"""

from typing import TYPE_CHECKING

from npu_sim.framework.case import Case
from npu_sim.operators.rms_norm.compute import compute_rows

if TYPE_CHECKING:
    from npu_sim.framework.execution import Run
    from npu_sim.kernels.ascend_950.rms_norm import Split


def split_of(case: Case) -> "Split":
    """Return the kernel's argument for the summation of a row."""
    from npu_sim.kernels.ascend_950.rms_norm import Split

    return Split(case.tiling.fold, case.tiling.ub_factor, case.tiling.ub_loop)


def compute(run: "Run") -> None:
    """Compute y and rstd."""
    with run.watch.stage("load"):
        from npu_sim.kernels.ascend_950.rms_norm import rms_norm
    compute_rows(run, rms_norm, split_of(run.case))
