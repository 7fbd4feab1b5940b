"""Timeline of CrossEntropyLossGrad on Ascend 950: work of the cores and descriptions of tiles.

Rates of vector instructions are not published for this product: the bound is that of the copies.

Source: specification page ``cross_entropy_loss_grad_950``, "Tiling" and "Order".
"""

from npu_sim.language import Text
from npu_sim.numbers.formats import TensorSpec
from npu_sim.plans.model import Plan
from npu_sim.tiling.ascend_950.cross_entropy_loss_grad import EMPTY, REDUCTION_STEP, WHOLE_ROWS
from npu_sim.tiling.cross_entropy_loss_grad import MEAN
from npu_sim.timelines import fp32
from npu_sim.timelines.program import (
    Copy,
    Node,
    Phase,
    Program,
    Work,
    ranged,
    row_pieces,
    rows_of_cores,
    vector_phase,
    vector_tile,
)
from npu_sim.timelines.steps import Step, StepTable, View

NOT_COUNTED = ("subtracting at the target's column",)
READING_WEIGHTS = "reading weights by label"


class Call:
    """The call of a plan, in sizes and tensors."""

    def __init__(self, plan: Plan) -> None:
        tensors = {
            name: TensorSpec.parse(plan.arguments[name])
            for name in ("log_prob", "target", "grad_loss")
        }
        self.log_prob, self.target, self.loss = tensors.values()
        self.tiling = plan.tiling
        self.schedule = (plan.tiling_key or 0) % REDUCTION_STEP
        self.weighted = plan.arguments.get("weight") is not None
        masked = plan.tiling["ignoreIndex"] >= 0
        self.sums_weights = plan.tiling["reduction"] == MEAN and (self.weighted or masked)

    def labels(self, rows: int) -> tuple[Work, ...]:
        """Return the copies of the labels of rows, and of their gradients of the loss."""
        copies: tuple[Work, ...] = (Copy(self.target.itemsize * rows, rows),)
        if self.loss.shape:
            copies = (*copies, Copy(self.loss.itemsize * rows, rows))
        return copies

    def piece(self, columns: int, rows: int) -> tuple[Node, ...]:
        """Return the tile of a piece of some rows."""
        size, tensor_bytes = self.log_prob.itemsize * columns, self.log_prob.nbytes
        copy = (Copy(size, columns, rows, tensor_bytes),)
        elements = columns * rows
        vector = (fp32.exp_root_or_quotient(elements), fp32.combine_scalar(elements))
        return (vector_tile(copy, vector, copy, note="gradient"),)


def program(plan: Plan) -> Program:
    """Return the work of every core."""
    call = Call(plan)
    if call.schedule == EMPTY:
        return Program(())
    phases = (_sum_of_weights(plan, call),) if call.sums_weights else ()
    not_counted = (*NOT_COUNTED, READING_WEIGHTS) if call.weighted else NOT_COUNTED
    return Program((*phases, _gradient(plan, call)), not_counted)


def _sum_of_weights(plan: Plan, call: Call) -> Phase:
    """Return the phase in which every core sums the weights of its rows into the workspace."""

    def core_nodes(rows: int) -> tuple[Node, ...]:
        vector, sums = (fp32.add_up(rows),), (Copy(fp32.BYTES, 1),)
        return (vector_tile(call.labels(rows), vector, sums, note="labels"),)

    cores = {core: core_nodes(stop - start) for core, (start, stop) in rows_of_cores(plan).items()}
    return vector_phase("sum", cores)


def _gradient(plan: Plan, call: Call) -> Phase:
    """Return the phase that computes rows: several at a time, or one in pieces of columns."""
    columns, tiling = call.log_prob.shape[1], call.tiling
    head: tuple[Node, ...] = ()
    if call.sums_weights:
        sums = Copy(fp32.BYTES, 1, plan.block_dim)
        head = (vector_tile((sums,), (fp32.add_up(plan.block_dim),), note="sum"),)

    def whole_rows(rows: int) -> tuple[Node, ...]:
        return vector_tile(call.labels(rows), note="labels"), *call.piece(columns, rows)

    row = row_pieces(
        tiling["alignColLoopNum"],
        tiling["colLoop"],
        tiling["colLoopNumTail"],
        lambda width: call.piece(width, 1),
    )
    cores = {}
    for core, (start, stop) in rows_of_cores(plan).items():
        if call.schedule == WHOLE_ROWS:
            at_once = tiling["alignNCNum"] // tiling["alignColLoopNum"]
            rows = ranged("rows", start, stop, at_once, whole_rows)
        else:
            labels = vector_tile(call.labels(stop - start), note="labels")
            rows = (labels, *ranged("rows", start, stop, 1, lambda _: row))
        cores[core] = (*head, *rows)
    return vector_phase("gradient", cores)


LABELS = ("target", "target_cast", "ignore", "target_weight", "grad_loss")
ROWS = ("log_prob", "x_grad", "fp32_rows", "weight")


def steps(plan: Plan) -> StepTable:
    """Return what every tile of the program reads, holds and writes."""
    call = Call(plan)
    rows, columns = call.log_prob.shape
    by_row, by_column = {"rows": 1}, {"columns": 1}
    views = [
        View("log_prob", rows, columns, by_row, by_column),
        View("target", rows, by_row=by_row),
        View("grad_loss", call.loss.numel, by_row=by_row if call.loss.shape else {}),
        View("out", rows, columns, by_row, by_column),
    ]
    if call.weighted:
        views.insert(2, View("weight", 1, columns))
    sums = (*LABELS, "buf2", "second_sum", "buf3")
    labels = "labels of the core's rows {rows} are copied in"
    weights = Text(
        "{labels}; their weights are added up to one number, which goes to the workspace",
        labels=labels,
    )
    divisor = "S = sum of the numbers that all cores have left in the workspace"
    gradient = (
        "rows {rows}, columns {columns}: out = exp(log_prob) * q; in the label's column q is "
        "taken off"
    )
    live, read = (*ROWS, *LABELS), ("log_prob",)
    table = {
        ("sum", "labels"): Step(weights, ("target",), live=sums),
        ("gradient", "sum"): Step(divisor, live=sums),
        ("gradient", "labels"): Step(labels, ("target",), live=LABELS),
        ("gradient", "gradient"): Step(gradient, read, ("out",), ("grad_loss",), live),
    }
    return StepTable(tuple(views), table)
