"""Timeline of AddRmsNorm on Ascend 950.

Source: specification page ``add_rms_norm_950``; rates of vector instructions are not published.
"""

from dataclasses import replace

from npu_sim.framework.vocabulary import Plan
from npu_sim.operators.shared.normalised_rows.timeline import Steps950, program_on_950
from npu_sim.timelines import Program, Step

LIVE = ("x1", "x2", "x", "rstd", "row_sums", "fp32", "register_sums", "work", "levels", "pair")
Y_OF_ROWS = Step(
    "y",
    "rows {rows}: x = x1 + x2; x * x is folded and added as trees; y = x * rstd * gamma",
    ("x1", "x2"),
    ("x", "y"),
    ("gamma",),
    (*LIVE, "gamma", "y"),
)
STEPS = Steps950(
    Y_OF_ROWS,
    Step(
        "sum",
        "row {row} of the group, columns {columns}: x = x1 + x2; x * x is added in pairs of "
        "registers",
        ("x1", "x2"),
        ("x",),
        live=LIVE,
    ),
    replace(
        Y_OF_ROWS,
        says="row {row} of the group, columns {columns}: y = x * rstd * gamma",
        writes=("y",),
    ),
)
ASSUMPTION = "a piece of x1 and x2 is copied in again for y"


def program(plan: Plan) -> Program:
    """Return the work of every core."""
    # Only rows in pieces have a piece.
    piece = plan.tiling.get("ubFactor", 0)
    return program_on_950(plan, "x1", STEPS, plan.tiling["rowFactor"], piece, ASSUMPTION)
