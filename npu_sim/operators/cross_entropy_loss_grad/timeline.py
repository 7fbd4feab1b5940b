"""Timeline of CrossEntropyLossGrad: what every core does, from the tiling of the plan.

Source: specification page ``cross_entropy_loss_grad``, "Tiling" and "Kernel and order".
"""

from collections.abc import Callable

from npu_sim.framework.vocabulary import Plan, TensorSpec, Text, itemsize
from npu_sim.operators.shared.labelled_rows.timeline import tensor_views
from npu_sim.tiling.cross_entropy_loss_grad import MEAN
from npu_sim.timelines import (
    Copy,
    Instruction,
    Nodes,
    Phase,
    Program,
    Step,
    Tile,
    View,
    Works,
    fp32,
    ranged,
    row_pieces,
    rows_of_cores,
    vector_phase,
    vector_tile,
)

LABELS = ("target", "target_cast", "ignore", "mask", "target_weight")
ROW_LABELS = ("mask", "target_weight", "grad_loss", "target_cast")
"""Label buffers that the computation of a row reads."""
LIVE = ("log_prob in", "x_grad out", "fp32 row", *ROW_LABELS, "grad_loss_fp32")
MASK = "labels of the core's rows {rows} become a mask: 0 where the label is to be ignored"
ROW = "row {rows}, columns {columns}"
Labels = Callable[[int], tuple[Works, Works]]
"""Function that returns copies and instructions that read the labels of a number of rows."""


def program(plan: Plan) -> Program:
    """Return the program of every core."""
    log_prob, mean = TensorSpec.parse(plan.arguments["log_prob"]), plan.tiling["reduction"] == MEAN
    phases = [_gradient(plan, log_prob, mean)]
    if mean:
        phases.insert(0, sum_of_weights(plan, _masks, MASK, (*LABELS, "buf2", "buf3")))
    not_counted = ["clearing the target's column"]
    if (plan.tiling_key or 0) % 10 == 1:
        not_counted.append("reading weights by label")
    return Program(tuple(phases), tuple(not_counted), views=views_of(plan))


def views_of(plan: Plan) -> tuple[View, ...]:
    """Return the tensors in the order in which they are drawn."""
    return tensor_views(plan, "log_prob", "grad_loss", "out")


def _masks(rows: int) -> tuple[Works, Works]:
    """Return copies and instructions that read the labels of ``rows`` rows and build the mask."""
    return (Copy(itemsize("int64") * rows, rows),), (
        Instruction("cast_to_or_from_int64", "int64", rows),
        Instruction("cast_int32_float32", "int32", rows),
        Instruction("compare_compares_select", "float32", rows, times=2),
    )


def sum_of_weights(plan: Plan, labels: Labels, says: str, live: tuple[str, ...]) -> Phase:
    """Return the phase in which every core sums the weights of its rows into the workspace."""
    step = Step(
        "labels",
        Text(
            "{labels}; their weights are added up to one number, which goes to the workspace",
            labels=says,
        ),
        ("target",),
        live=live,
    )

    def core_nodes(start: int, stop: int) -> Nodes:
        copy_in, vector = labels(stop - start)
        sums = (*vector, fp32.add_up(stop - start))
        return (vector_tile(copy_in, sums, (Copy(fp32.BYTES, 1),), step),)

    return vector_phase(
        "sum", {core: core_nodes(*rows) for core, rows in rows_of_cores(plan).items()}
    )


def divisor(plan: Plan, live: tuple[str, ...]) -> Tile:
    """Return the tile in which a core adds up the sums of all cores."""
    return vector_tile(
        (Copy(fp32.BYTES, 1, times=plan.block_dim),),
        (fp32.add_up(plan.block_dim),),
        step=Step(
            "sum", "S = sum of the numbers that all cores have left in the workspace", live=live
        ),
    )


def _gradient(plan: Plan, log_prob: TensorSpec, mean: bool) -> Phase:
    """Return the phase that computes rows one by one, in pieces of columns: exp times a factor."""
    factors = (
        "grad_loss * weight of its label / sum of the weights"
        if mean
        else "grad_loss * weight of its label"
    )
    piece = row_pieces(
        plan.tiling["alignColLoopNum"],
        plan.tiling["colLoop"],
        plan.tiling["colLoopNumTail"],
        lambda columns: _piece(columns, log_prob, factors),
    )
    masks = Step("labels", MASK, ("target",), live=(*LABELS, "grad_loss", "grad_loss_fp32"))

    def core_nodes(start: int, stop: int) -> Nodes:
        head = (
            divisor(plan, ("buf2", "buf3", *ROW_LABELS))
            if mean
            else vector_tile(*_masks(stop - start), step=masks)
        )
        return (head, *ranged("rows", start, stop, 1, lambda _: piece))

    return vector_phase(
        "gradient", {core: core_nodes(*rows) for core, rows in rows_of_cores(plan).items()}
    )


def _piece(columns: int, log_prob: TensorSpec, factors: str) -> Nodes:
    """Return the tiles of a piece of a row, whose buffer is free after widening or exp."""
    copy = (Copy(log_prob.itemsize * columns, columns, tensor_bytes=log_prob.nbytes),)
    exp, scale = fp32.exp_root_or_quotient(columns), fp32.combine_scalar(columns)
    result = Step(
        "scale",
        Text(
            "{row}: out = exp(log_prob) * factor, with factor = {factors}; in the label's "
            "column factor is taken off",
            row=ROW,
            factors=factors,
        ),
        (),
        ("out",),
        ("log_prob", "grad_loss"),
        LIVE,
    )
    if log_prob.itemsize == fp32.BYTES:
        return vector_tile(
            copy,
            (exp,),
            step=Step("exp", Text("{row}: exp(log_prob)", row=ROW), ("log_prob",), live=LIVE),
        ), vector_tile((), (scale,), copy, result)
    return vector_tile(
        copy,
        fp32.widen(columns),
        step=Step(
            "widen",
            Text("{row}: log_prob is copied in and widened to fp32", row=ROW),
            ("log_prob",),
            live=LIVE,
        ),
    ), vector_tile((), (exp, scale, *fp32.narrow(columns)), copy, result)
