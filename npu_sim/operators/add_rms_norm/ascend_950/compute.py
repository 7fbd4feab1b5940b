"""AddRmsNorm on Ascend 950: computation.

Source: specification page ``add_rms_norm_950``.
"""

from npu_sim.framework.vocabulary import Case, Run
from npu_sim.kernels.add_rms_norm import Arithmetic
from npu_sim.kernels.shared.square_sums import FOLDED, LISTS, Split
from npu_sim.operators.add_rms_norm.compute import compute_rows
from npu_sim.tiling.ascend_950.rms_norm import SPLIT_ALIGNMENT_BYTES


def split_of(case: Case) -> Split:
    """Return the kernel's argument for the summation of a row."""
    tiling = case.tiling
    path = FOLDED if tiling.fold > 0 else LISTS
    granule = SPLIT_ALIGNMENT_BYTES // case.specs["x1"].itemsize
    return Split(path, tiling.ub_factor, tiling.fold, tiling.ub_loop, granule)


def arithmetic_of(case: Case) -> Arithmetic:
    """Return where the product rounds: nothing but x and y, once (page, "Kernel")."""
    return Arithmetic()


def compute(run: Run) -> None:
    """Compute y, rstd and x of the rows that the product plans; others are 0."""
    case = run.case
    if case.tiling.rows < case.row.row:
        for array in run.outputs.values():
            array.fill(0)
    compute_rows(run, case.tiling.rows, split_of(case), arithmetic_of(case))
