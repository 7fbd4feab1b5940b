"""What the tiles of CrossEntropyLossGrad hold and add.

Source: specification page ``cross_entropy_loss_grad``, "Tiling" and "Kernel and order".
"""

from npu_sim.numbers.formats import TensorSpec
from npu_sim.operators.cross_entropy_loss_grad.timeline import MEAN
from npu_sim.plans.model import Plan
from npu_sim.timelines.step_table import Step, StepTable, View

LABELS = ("target", "target_cast", "ignore", "mask", "target_weight")
KEPT = ("mask", "target_weight", "grad_loss", "target_cast")
"""What a row needs of its core's labels."""
GRADIENT = ("log_prob in", "x_grad out", "fp32 row", *KEPT)


def steps(plan: Plan) -> StepTable:
    """Return what every tile of the program holds and adds."""
    rows, columns = TensorSpec.parse(plan.arguments["log_prob"]).shape
    loss = TensorSpec.parse(plan.arguments["grad_loss"])
    by_row, by_column = {"rows": 1}, {"columns": 1}
    views = [
        View("log_prob", rows, columns, by_row, by_column),
        View("target", rows, by_row=by_row),
        View("grad_loss", loss.numel, by_row=by_row if loss.shape else {}),
        View("out", rows, columns, by_row, by_column),
    ]
    if "weight" in plan.arguments:
        views.insert(2, View("weight", 1, columns))
    factors = (
        "grad_loss * weight of its label / sum of the weights"
        if plan.tiling["reduction"] == MEAN
        else "grad_loss * weight of its label"
    )
    row = "row {rows}, columns {columns}"
    labels = "labels of the core's rows {rows} become a mask: 0 where the label is to be ignored"
    found = {
        ("sum", "labels"): Step(
            f"{labels}; their weights are added up to one number, which goes to the workspace",
            ("target",),
            live=(*LABELS, "buf2", "buf3"),
        ),
        ("gradient", "sum"): Step(
            "S = sum of the numbers that all cores have left in the workspace",
            live=("buf2", "buf3", *KEPT),
        ),
        ("gradient", "labels"): Step(
            labels, ("target",), live=(*LABELS, "grad_loss", "grad_loss_fp32")
        ),
        ("gradient", "widen"): Step(
            f"{row}: log_prob comes in and is widened to fp32",
            ("log_prob",),
            live=(*GRADIENT, "grad_loss_fp32"),
        ),
        ("gradient", "exp"): Step(
            f"{row}: exp(log_prob)", ("log_prob",), live=(*GRADIENT, "grad_loss_fp32")
        ),
        ("gradient", "scale"): Step(
            f"{row}: out = exp(log_prob) * factor, with factor = {factors}; in the label's column factor is taken off",
            (),
            ("out",),
            ("log_prob", "grad_loss"),
            (*GRADIENT, "grad_loss_fp32"),
        ),
    }
    return StepTable(tuple(views), found)
