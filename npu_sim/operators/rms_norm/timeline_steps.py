"""What the tiles of RmsNorm hold and add.

Source: specification page ``rms_norm``, "Vector instructions of a tile".
"""

from npu_sim.plans.model import Plan
from npu_sim.tiling.rms_norm import KEY_MERGE_N, KEY_SPLIT_D
from npu_sim.timelines.steps import Step, StepTable, View

SUMMING = ("x", "x_fp32", "squares", "reduction", "sums", "rstd", "zeros")
WRITING = ("x", "x_fp32", "gamma", "y", "rstd", "sums", "zeros")


def steps(plan: Plan) -> StepTable:
    """Return what every tile of the program holds and adds."""
    rows, columns, key = plan.tiling["num_row"], plan.tiling["num_col"], plan.tiling_key
    by_row, by_column = {"rows": 1, "row": 1}, {"columns": 1}
    views = (
        View("x", rows, columns, by_row, by_column),
        View("gamma", 1, columns, by_column=by_column),
        View("rstd", rows, by_row=by_row),
        View("y", rows, columns, by_row, by_column),
    )
    kept = () if key == KEY_SPLIT_D else ("gamma",)
    row = "row {row} of the group"
    sums = (
        f"{row}, columns {{columns}}: the row's sum += x * x over these columns"
        if key == KEY_SPLIT_D
        else _sum_of_a_row(row)
    )
    found = {
        "gamma": Step(
            "gamma comes in",
            ("gamma",),
            live=(*kept, "gamma", *(("sums",) if key == KEY_SPLIT_D else ())),
        ),
        "sum": Step(sums, ("x",), (), kept, (*SUMMING, *kept)),
        "sums": Step(
            "rows {rows}: x * x is added up lane by lane, 64 columns apart, then the lanes; rstd = 1 / root(mean + epsilon); x * rstd",
            ("x",),
            (),
            ("gamma",),
            (*SUMMING, "gamma"),
        ),
        "rstd of sums": Step(
            "rows {rows}: rstd = 1 / root(sum / columns + epsilon)",
            (),
            (),
            ("rstd",),
            ("sums", "rstd", "reduction", "zeros"),
        ),
        "x again": Step(
            f"{row}, columns {{columns}}: x comes in again, times rstd",
            ("x",),
            (),
            ("gamma", "rstd"),
            WRITING,
        ),
        "y": Step(
            ("rows {rows}" if key == KEY_MERGE_N else row)
            + ", columns {columns}: y = x * rstd * gamma",
            (),
            ("y",),
            ("gamma", "rstd"),
            WRITING,
        ),
        "rstd": Step("rstd of rows {rows} goes out", (), ("rstd",), kept, ("rstd", *kept)),
    }
    return StepTable(views, {("rows", note): step for note, step in found.items()})


def _sum_of_a_row(row: str) -> str:
    return f"{row}: x * x, folded in halves down to 64 lanes, these added in one instruction; rstd = 1 / root(mean + epsilon)"
