"""Timeline of RmsNorm on Ascend 950.

Source: specification page ``rms_norm_950``.
"""

from dataclasses import replace

from npu_sim.framework.vocabulary import Plan
from npu_sim.operators.shared.normalised_rows.timeline import Steps950, program_on_950
from npu_sim.tiling.ascend_950 import rms_norm as tiler
from npu_sim.timelines import Program, Step

SUMMING = ("x", "rstd", "register_sums", "row_sums", "fp32", "work", "levels", "pair")
Y_OF_ROWS = Step(
    "y",
    "rows {rows}: x * x is folded and added as trees; y = x * rstd * gamma",
    ("x",),
    ("y",),
    ("gamma",),
    (*SUMMING, "gamma", "y"),
)
STEPS = Steps950(
    Y_OF_ROWS,
    Step(
        "sum",
        "row {row} of the group, columns {columns}: x * x is added in pairs of registers",
        ("x",),
        live=SUMMING,
    ),
    replace(Y_OF_ROWS, says="row {row} of the group, columns {columns}: y = x * rstd * gamma"),
)
ASSUMPTION = "gamma is copied in once for every 64 rows of a core"


def program(plan: Plan) -> Program:
    """Return the work of every core."""
    factor = plan.tiling["ub_factor"]
    is_whole = plan.tiling_key == tiler.KEY_FULL_LOAD
    rows, piece = (factor, 0) if is_whole else (tiler.SPLIT_ROWS, factor)
    return program_on_950(plan, "x", STEPS, rows, piece, ASSUMPTION)
