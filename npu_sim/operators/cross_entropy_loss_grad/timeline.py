"""Timeline of CrossEntropyLossGrad: what every core does, from the tiling of the plan.

Source: specification page ``cross_entropy_loss_grad``, "Tiling" and "Kernel and order".
"""

from npu_sim.language import Text
from npu_sim.numbers.formats import TensorSpec
from npu_sim.plans.model import Plan
from npu_sim.tiling.cross_entropy_loss_grad import MEAN, NONE
from npu_sim.timelines import fp32
from npu_sim.timelines.program import (
    Copy,
    Instruction,
    Node,
    Phase,
    Program,
    Step,
    View,
    Work,
    ranged,
    row_pieces,
    rows_of_cores,
    vector_phase,
    vector_tile,
)

TARGET_BYTES = 8
LABELS = ("target", "target_cast", "ignore", "mask", "target_weight")
ROW_LABELS = ("mask", "target_weight", "grad_loss", "target_cast")
"""Label buffers that the computation of a row reads."""
LIVE = ("log_prob in", "x_grad out", "fp32 row", *ROW_LABELS, "grad_loss_fp32")
MASK = "labels of the core's rows {rows} become a mask: 0 where the label is to be ignored"
MASK_IN = Step("labels", MASK, ("target",), live=(*LABELS, "grad_loss", "grad_loss_fp32"))
WEIGHTS = Step(
    "labels",
    Text(
        "{labels}; their weights are added up to one number, which goes to the workspace",
        labels=MASK,
    ),
    ("target",),
    live=(*LABELS, "buf2", "buf3"),
)
DIVISOR = Step(
    "sum",
    "S = sum of the numbers that all cores have left in the workspace",
    live=("buf2", "buf3", *ROW_LABELS),
)
ROW = "row {rows}, columns {columns}"
WIDEN = Step(
    "widen",
    Text("{row}: log_prob is copied in and widened to fp32", row=ROW),
    ("log_prob",),
    live=LIVE,
)
EXP = Step("exp", Text("{row}: exp(log_prob)", row=ROW), ("log_prob",), live=LIVE)
FACTORS = "grad_loss * weight of its label"
MEAN_FACTORS = "grad_loss * weight of its label / sum of the weights"


def program(plan: Plan) -> Program:
    """Return the program of every core."""
    tiling = plan.tiling
    log_prob = TensorSpec.parse(plan.arguments["log_prob"])
    mean = tiling["reduction"] == MEAN
    phases = (_sum_of_weights(plan),) if mean else ()
    not_counted = ["clearing the target's column"]
    if (plan.tiling_key or 0) % 10 == 1:
        not_counted.append("reading weights by label")
    gradient = _gradient(plan, log_prob, mean)
    return Program((*phases, gradient), tuple(not_counted), views=tensor_views(plan))


def tensor_views(plan: Plan) -> tuple[View, ...]:
    """Return the tensors in the order in which they are drawn."""
    rows, columns = TensorSpec.parse(plan.arguments["log_prob"]).shape
    loss = TensorSpec.parse(plan.arguments["grad_loss"])
    by_row, by_column = {"rows": 1}, {"columns": 1}
    weight = (View("weight", 1, columns),) if plan.arguments.get("weight") is not None else ()
    return (
        View("log_prob", rows, columns, by_row, by_column),
        View("target", rows, by_row=by_row),
        *weight,
        View("grad_loss", loss.numel, by_row=by_row if plan.tiling["reduction"] == NONE else {}),
        View("out", rows, columns, by_row, by_column),
    )


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
        return (vector_tile(copy_in, sums, (Copy(fp32.BYTES, 1),), WEIGHTS),)

    cores = rows_of_cores(plan).items()
    return vector_phase("sum", {core: core_nodes(stop - start) for core, (start, stop) in cores})


def _gradient(plan: Plan, log_prob: TensorSpec, mean: bool) -> Phase:
    """Return the phase that computes rows one by one, in pieces of columns: exp times a factor."""
    tiling = plan.tiling
    piece = row_pieces(
        tiling["alignColLoopNum"],
        tiling["colLoop"],
        tiling["colLoopNumTail"],
        lambda n: _piece(n, log_prob, MEAN_FACTORS if mean else FACTORS),
    )

    def core_nodes(start: int, stop: int) -> tuple[Node, ...]:
        if mean:
            copy_in = (Copy(fp32.BYTES, 1, times=plan.block_dim),)
            head = vector_tile(copy_in, (fp32.add_up(plan.block_dim),), step=DIVISOR)
        else:
            head = vector_tile(*_masks(stop - start), step=MASK_IN)
        return (head, *ranged("rows", start, stop, 1, lambda _: piece))

    cores = {core: core_nodes(*rows) for core, rows in rows_of_cores(plan).items()}
    return vector_phase("gradient", cores)


def _piece(columns: int, log_prob: TensorSpec, factors: str) -> tuple[Node, ...]:
    """Return the tiles of a piece of a row, whose buffer is free after widening or exp."""
    copy = (Copy(log_prob.itemsize * columns, columns, tensor_bytes=log_prob.nbytes),)
    exp, scale = fp32.exp_root_or_quotient(columns), fp32.combine_scalar(columns)
    says = Text(
        "{row}: out = exp(log_prob) * factor, with factor = {factors}; in the label's "
        "column factor is taken off",
        row=ROW,
        factors=factors,
    )
    result = Step("scale", says, (), ("out",), ("log_prob", "grad_loss"), LIVE)
    if log_prob.itemsize == fp32.BYTES:
        return vector_tile(copy, (exp,), step=EXP), vector_tile((), (scale,), copy, result)
    scaling = vector_tile((), (exp, scale, *fp32.narrow(columns)), copy, result)
    return vector_tile(copy, fp32.widen(columns), step=WIDEN), scaling
