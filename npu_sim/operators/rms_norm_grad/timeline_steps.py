"""What the tiles of RmsNormGrad hold and add.

Source: specification page ``rms_norm_grad``, "Kernels and accumulation order".
"""

from npu_sim.plans.model import Plan
from npu_sim.timelines.steps import Step, StepTable, View

ALWAYS = ("gamma", "rstd")
"""Allocations that hold something between the tiles of a group of rows."""
CLEARING = ("zeros", "synchronisation")


def steps(plan: Plan) -> StepTable:
    """Return what every tile of the program holds and adds."""
    rows, columns = plan.tiling["row"], plan.tiling["col"]
    by_row, by_column = {"rows": 1, "row": 1}, {"columns": 1}
    views = (
        View("dy", rows, columns, by_row, by_column),
        View("x", rows, columns, by_row, by_column),
        View("rstd", rows, by_row=by_row),
        View("gamma", 1, columns, by_column=by_column),
        View("dx", rows, columns, by_row, by_column),
        View("dgamma", 1, columns, by_column=by_column),
    )
    kept_apart = bool(plan.tiling["fixed_output"])
    whole = ("dy", "x", "dx", "dgamma", "means", "scratch", *ALWAYS)
    return StepTable(
        views,
        {
            ("rows", "gamma"): Step(
                "gamma comes in, widened to fp32", ("gamma",), live=("gamma", "dgamma", *CLEARING)
            ),
            ("rows", "rstd"): Step(
                "rstd of rows {rows} comes in", ("rstd",), live=("rstd", "means", *CLEARING)
            ),
            ("rows", ""): Step(
                "rows {rows}: dgamma += dy * x * rstd; m = mean of dy * gamma * x * rstd over the row; "
                "dx = (dy * gamma - x * rstd * m) * rstd",
                ("dy", "x", "rstd"),
                ("dx",),
                ("gamma", "dgamma"),
                whole,
            ),
            ("rows", "sums"): Step(
                "row {row} of the group, columns {columns}: dgamma += dy * x * rstd; "
                "the row's m += sum of dy * gamma * x * rstd over these columns",
                ("dy", "x"),
                (),
                ("rstd", "gamma", "dgamma"),
                ("dy", "x", "dgamma", "means", *ALWAYS),
            ),
            ("rows", "dgamma"): Step(
                "what this core has added to dgamma goes out"
                + (
                    " to its place in the workspace"
                    if kept_apart
                    else ", added atomically to what the other cores add"
                ),
                (),
                () if kept_apart else ("dgamma",),
                live=("dgamma", "means", *ALWAYS),
            ),
            ("rows", "dx"): Step(
                "row {row} of the group, columns {columns}: dx = (dy * gamma - x * rstd * m) * rstd, with m of the whole row",
                ("dy", "x"),
                ("dx",),
                ("rstd", "gamma"),
                ("dy", "x", "dx", "means", *ALWAYS),
            ),
            ("merge dgamma", "merge"): Step(
                "columns {columns}: dgamma = sum of what the cores have left in the workspace, in the order of the cores",
                (),
                ("dgamma",),
            ),
        },
    )
