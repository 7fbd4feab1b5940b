"""RmsNorm on Ascend 950: computation.

Source: specification page ``rms_norm_950``.
"""

from npu_sim.framework.vocabulary import Case, Run
from npu_sim.kernels.shared.square_sums import FOLDED, LISTS, Split
from npu_sim.operators.rms_norm.compute import compute_rows
from npu_sim.tiling.ascend_950.rms_norm import SPLIT_ALIGNMENT_BYTES


def split_of(case: Case) -> Split:
    """Return the kernel's argument for the summation of a row."""
    tiling = case.tiling
    path = FOLDED if tiling.fold > 0 else LISTS
    granule = SPLIT_ALIGNMENT_BYTES // case.specs["x"].itemsize
    return Split(path, tiling.ub_factor, tiling.fold, tiling.ub_loop, granule)


def compute(run: Run) -> None:
    """Compute y and rstd."""
    compute_rows(run, split_of)
