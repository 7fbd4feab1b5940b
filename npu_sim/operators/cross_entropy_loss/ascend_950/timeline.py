"""Timeline of CrossEntropyLoss on Ascend 950.

Source: specification page ``cross_entropy_loss_950``.
"""

from dataclasses import replace

from npu_sim.framework.vocabulary import FP32_BYTES, Plan
from npu_sim.operators.cross_entropy_loss.timeline import (
    CORE_SUMS,
    LOG_PROB,
    MAXIMUM,
    ROW_LOSSES,
    SUM,
    Call,
    tensor_views,
)
from npu_sim.tiling.ascend_950 import cross_entropy_loss as tiler
from npu_sim.timelines import (
    Copy,
    Node,
    Program,
    Step,
    Tile,
    fp32,
    ranged,
    ranged_cores,
    rows_of_cores,
    vector_phase,
    vector_tile,
)

BUFFERS = ("input", "log_prob", "target", "class weights", "label weights", "maximum", "sum")
WHOLE = (*BUFFERS, "x - maximum", "exp", "smoothing", "row losses", "library")
CUT = (*BUFFERS, "block", "second block", "sums of blocks", "smoothing", "row losses")
SUMMED = ("row losses", "smoothing", "label weights", "sum of a core")
WHOLE_ROWS = Step(
    "rows",
    "rows {rows}: maximum, sum of exp(x - maximum), log_prob = (x - maximum) - ln(sum)",
    ("input", "target"),
    ("log_prob",),
    live=WHOLE,
)
CUT_STEPS = (
    replace(MAXIMUM, live=CUT),
    replace(SUM, live=CUT),
    replace(
        LOG_PROB, says="row {rows}, columns {columns}: log_prob = (x - maximum) - ln(sum)", live=CUT
    ),
)
LABELS = Step(
    "labels", "labels of the core's rows {rows} are copied in", ("target",), live=("target",)
)


def program(plan: Plan) -> Program:
    """Return the work of every core."""
    call = Call(plan)
    schedule = (plan.tiling_key or 0) % tiler.REDUCTION_STEP
    if schedule == tiler.EMPTY:
        return Program((), views=tensor_views(call))
    is_whole = schedule == tiler.WHOLE_ROWS
    cores = _whole(plan, call) if is_whole else _cut(plan, call)
    for core, (start, stop) in rows_of_cores(plan).items():
        cores[core] = (*cores[core], _ending(call, stop - start))
    in_buffers = plan.tiling["db"] if is_whole else 2
    phases = (
        vector_phase("rows", cores, in_buffers=in_buffers),
        *call.last_phase(Copy(FP32_BYTES, 1, times=3 * plan.block_dim)),
    )
    return Program(phases, views=tensor_views(call))


def _ending(call: Call, rows: int) -> Tile:
    """Return the tile in which a core copies out its losses or their sums."""
    if call.reduction == "none":
        step = replace(ROW_LOSSES, live=("loss",))
        return vector_tile((), (), (Copy(call.x.itemsize * rows, rows),), step)
    step = replace(CORE_SUMS, live=SUMMED)
    return vector_tile((), (fp32.add_up(rows),), (Copy(FP32_BYTES, 1, times=3),), step)


def _whole(plan: Plan, call: Call) -> dict[int, tuple[Node, ...]]:
    """Return passes over whole rows, which are read once."""

    def rows_at_once(rows: int) -> tuple[Node, ...]:
        elements = rows * call.columns
        copy = Copy(call.x.itemsize * elements, elements, tensor_bytes=call.x.nbytes)
        labels = Copy(call.target.itemsize * rows, rows)
        copies = (copy, labels, *call.weights(call.columns))
        vector = (fp32.combine(elements, times=2), fp32.exp_root_or_quotient(elements))
        return (vector_tile(copies, (*vector, fp32.add_up(elements)), (copy,), WHOLE_ROWS),)

    return ranged_cores(plan, "rows", plan.tiling["onceNSize"], rows_at_once)


def _cut(plan: Plan, call: Call) -> dict[int, tuple[Node, ...]]:
    """Return rows in blocks of columns, which are read three times."""
    tiling = plan.tiling
    last = tiling["cOnceNumTail"]
    row = call.passes(
        (tiling["cOnceNum"], tiling["cLoopTimes"] - (last > 0), last),
        CUT_STEPS,
        (
            lambda width: (fp32.combine(width),),
            lambda width: (
                fp32.combine(width),
                fp32.exp_root_or_quotient(width),
                fp32.add_up(width),
            ),
            lambda width: (fp32.combine(width, times=2),),
        ),
    )
    nodes = tuple(node for nodes in row for node in nodes)

    def rows_of(start: int, stop: int) -> tuple[Node, ...]:
        count = stop - start
        labels = vector_tile((Copy(call.target.itemsize * count, count),), step=LABELS)
        return labels, *ranged("rows", start, stop, 1, lambda _: nodes)

    return {core: rows_of(*rows) for core, rows in rows_of_cores(plan).items()}
