"""Timeline of CrossEntropyLossGrad: what every core does, from the tiling of the plan.

Source: specification page ``cross_entropy_loss_grad``, "Tiling" and "Kernel and order".
"""

from npu_sim.language import Text
from npu_sim.numbers.formats import TensorSpec
from npu_sim.plans.model import Plan
from npu_sim.timelines import fp32
from npu_sim.timelines.program import (
    Copy,
    Instruction,
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

MEAN = 1
"""Code of the reduction ``mean`` (page, "reduction code")."""
TARGET_BYTES = 8


def program(plan: Plan) -> Program:
    """Return the program of every core."""
    tiling = plan.tiling
    log_prob = TensorSpec.parse(plan.arguments["log_prob"])
    mean = tiling["reduction"] == MEAN
    phases = (_sum_of_weights(plan),) if mean else ()
    not_counted = ["clearing the target's column"]
    if (plan.tiling_key or 0) % 10 == 1:
        not_counted.append("reading weights by label")
    return Program((*phases, _gradient(plan, log_prob, mean)), tuple(not_counted))


def _masks(rows: int) -> tuple[tuple[Work, ...], tuple[Work, ...]]:
    """Return copies and instructions that read the labels of ``rows`` rows and build the mask."""
    vector = (
        Instruction("cast_to_or_from_int64", "int64", rows),
        Instruction("cast_int32_float32", "int32", rows),
        Instruction("compare_compares_select", "float32", rows, times=2),
    )
    return (Copy(TARGET_BYTES * rows, rows),), vector


def _sum_of_weights(plan: Plan) -> Phase:
    """Return the phase in which every core sums the mask of its rows into the workspace."""

    def core_nodes(rows: int) -> tuple[Node, ...]:
        copy_in, vector = _masks(rows)
        sums = (*vector, fp32.add_up(rows))
        return (vector_tile(copy_in, sums, (Copy(fp32.BYTES, 1),), note="labels"),)

    cores = rows_of_cores(plan).items()
    return vector_phase("sum", {core: core_nodes(stop - start) for core, (start, stop) in cores})


def _gradient(plan: Plan, log_prob: TensorSpec, mean: bool) -> Phase:
    """Return the phase that computes rows one by one, in pieces of columns: exp times a factor."""
    tiling = plan.tiling
    piece = row_pieces(
        tiling["alignColLoopNum"],
        tiling["colLoop"],
        tiling["colLoopNumTail"],
        lambda n: _piece(n, log_prob),
    )

    def core_nodes(start: int, stop: int) -> tuple[Node, ...]:
        if mean:
            copy_in = (Copy(fp32.BYTES, 1, times=plan.block_dim),)
            head = vector_tile(copy_in, (fp32.add_up(plan.block_dim),), note="sum")
        else:
            head = vector_tile(*_masks(stop - start), note="labels")
        return (head, *ranged("rows", start, stop, 1, lambda _: piece))

    cores = {core: core_nodes(*rows) for core, rows in rows_of_cores(plan).items()}
    return vector_phase("gradient", cores)


def _piece(columns: int, log_prob: TensorSpec) -> tuple[Node, ...]:
    """Return the tiles of a piece of a row, whose buffer is free after widening or exp."""
    copy = (Copy(log_prob.itemsize * columns, columns, tensor_bytes=log_prob.nbytes),)
    exp, scale = fp32.exp_root_or_quotient(columns), fp32.combine_scalar(columns)
    if log_prob.itemsize == fp32.BYTES:
        return vector_tile(copy, (exp,), note="exp"), vector_tile((), (scale,), copy, note="scale")
    scaling = vector_tile((), (exp, scale, *fp32.narrow(columns)), copy, note="scale")
    return vector_tile(copy, fp32.widen(columns), note="widen"), scaling


LABELS = ("target", "target_cast", "ignore", "mask", "target_weight")
ROW_LABELS = ("mask", "target_weight", "grad_loss", "target_cast")
"""Label buffers that the computation of a row reads."""
GRADIENT = ("log_prob in", "x_grad out", "fp32 row", *ROW_LABELS)


def steps(plan: Plan) -> StepTable:
    """Return what every tile of the program reads, holds and writes."""
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
    factors = "grad_loss * weight of its label"
    if plan.tiling["reduction"] == MEAN:
        factors = "grad_loss * weight of its label / sum of the weights"
    row = "row {rows}, columns {columns}"
    labels = "labels of the core's rows {rows} become a mask: 0 where the label is to be ignored"
    weights = Text(
        "{labels}; their weights are added up to one number, which goes to the workspace",
        labels=labels,
    )
    total = "S = sum of the numbers that all cores have left in the workspace"
    widen = Text("{row}: log_prob is copied in and widened to fp32", row=row)
    scale = Text(
        "{row}: out = exp(log_prob) * factor, with factor = {factors}; in the label's "
        "column factor is taken off",
        row=row,
        factors=factors,
    )
    target, log_prob, live = ("target",), ("log_prob",), (*GRADIENT, "grad_loss_fp32")
    table = {
        ("sum", "labels"): Step(weights, target, live=(*LABELS, "buf2", "buf3")),
        ("gradient", "sum"): Step(total, live=("buf2", "buf3", *ROW_LABELS)),
        ("gradient", "labels"): Step(labels, target, live=(*LABELS, "grad_loss", "grad_loss_fp32")),
        ("gradient", "widen"): Step(widen, log_prob, live=live),
        ("gradient", "exp"): Step(Text("{row}: exp(log_prob)", row=row), log_prob, live=live),
        ("gradient", "scale"): Step(scale, (), ("out",), ("log_prob", "grad_loss"), live),
    }
    return StepTable(tuple(views), table)
