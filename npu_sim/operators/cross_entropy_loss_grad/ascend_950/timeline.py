"""Timeline of CrossEntropyLossGrad on Ascend 950.

Source: specification page ``cross_entropy_loss_grad_950``.
"""

from npu_sim.framework.vocabulary import Plan, TensorSpec
from npu_sim.operators.cross_entropy_loss_grad.timeline import divisor, sum_of_weights, views_of
from npu_sim.tiling.ascend_950 import cross_entropy_loss_grad as tiler
from npu_sim.tiling.cross_entropy_loss_grad import MEAN, NONE
from npu_sim.timelines import (
    Copy,
    Nodes,
    Phase,
    Program,
    Step,
    Works,
    fp32,
    ranged,
    row_pieces,
    rows_of_cores,
    vector_phase,
    vector_tile,
)

LABELS = ("target", "target_cast", "ignore", "target_weight", "grad_loss")
SUMMING = (*LABELS, "buf2", "second_sum", "buf3")
COPIED = "labels of the core's rows {rows} are copied in"
LABELS_IN = Step("labels", COPIED, ("target",), live=LABELS)
GRADIENT = Step(
    "gradient",
    "rows {rows}, columns {columns}: out = exp(log_prob) * q; in the label's column q is taken off",
    ("log_prob",),
    ("out",),
    ("grad_loss",),
    ("log_prob", "x_grad", "fp32_rows", "weight", *LABELS),
)


class Call:
    """The call of a plan, in sizes and tensors."""

    def __init__(self, plan: Plan) -> None:
        self.log_prob, self.target, self.loss = (
            TensorSpec.parse(plan.arguments[name]) for name in ("log_prob", "target", "grad_loss")
        )
        self.schedule = (plan.tiling_key or 0) % tiler.REDUCTION_STEP
        self.weighted = plan.arguments.get("weight") is not None
        reduction, masked = plan.tiling["reduction"], plan.tiling["ignoreIndex"] >= 0
        self.loss_by_row = reduction == NONE
        self.sums_weights = reduction == MEAN and (self.weighted or masked)

    def labels(self, rows: int) -> tuple[Works, Works]:
        """Return the copies of the labels of rows, and of their gradients of the loss."""
        copy = Copy(self.target.itemsize * rows, rows)
        return (copy, Copy(self.loss.itemsize * rows, rows)) if self.loss_by_row else (copy,), ()

    def piece(self, columns: int, rows: int) -> Nodes:
        """Return the tile of a piece of some rows."""
        size, elements = self.log_prob.itemsize * columns, columns * rows
        copy = (Copy(size, columns, rows, self.log_prob.nbytes),)
        vector = (fp32.exp_root_or_quotient(elements), fp32.combine_scalar(elements))
        return (vector_tile(copy, vector, copy, GRADIENT),)


def program(plan: Plan) -> Program:
    """Return the work of every core."""
    call = Call(plan)
    if call.schedule == tiler.EMPTY:
        return Program((), views=views_of(plan))
    phases = [_gradient(plan, call)]
    if call.sums_weights:
        phases.insert(0, sum_of_weights(plan, call.labels, COPIED, SUMMING))
    not_counted = ["subtracting at the target's column"]
    if call.weighted:
        not_counted.append("reading weights by label")
    return Program(tuple(phases), tuple(not_counted), views=views_of(plan))


def _gradient(plan: Plan, call: Call) -> Phase:
    """Return the phase that computes rows: several at a time, or one in pieces of columns."""
    columns, tiling = call.log_prob.shape[1], plan.tiling
    head = (divisor(plan, SUMMING),) if call.sums_weights else ()

    def whole_rows(rows: int) -> Nodes:
        return vector_tile(*call.labels(rows), step=LABELS_IN), *call.piece(columns, rows)

    row = row_pieces(
        tiling["alignColLoopNum"],
        tiling["colLoop"],
        tiling["colLoopNumTail"],
        lambda width: call.piece(width, 1),
    )
    cores = {}
    for core, (start, stop) in rows_of_cores(plan).items():
        if call.schedule == tiler.WHOLE_ROWS:
            at_once = tiling["alignNCNum"] // tiling["alignColLoopNum"]
            rows = ranged("rows", start, stop, at_once, whole_rows)
        else:
            labels = vector_tile(*call.labels(stop - start), step=LABELS_IN)
            rows = (labels, *ranged("rows", start, stop, 1, lambda _: row))
        cores[core] = (*head, *rows)
    return vector_phase("gradient", cores)
