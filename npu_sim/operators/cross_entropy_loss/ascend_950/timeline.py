"""Timeline of CrossEntropyLoss on Ascend 950.

Source: specification page ``cross_entropy_loss_950``.
"""

from dataclasses import replace
from functools import partial

from npu_sim.framework.vocabulary import FP32_BYTES, Plan
from npu_sim.operators.cross_entropy_loss.timeline import (
    CORE_SUMS,
    LOG_PROB,
    MAXIMUM,
    ROW_LOSSES,
    SUM,
    Call,
    views_of,
)
from npu_sim.tiling.ascend_950 import cross_entropy_loss as tiler
from npu_sim.timelines import (
    Copy,
    Nodes,
    Program,
    Step,
    Tile,
    Works,
    fp32,
    ranged,
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
LOG_PROB_CUT = replace(
    LOG_PROB, says="row {rows}, columns {columns}: log_prob = (x - maximum) - ln(sum)", live=CUT
)
LABELS = Step(
    "labels", "labels of the core's rows {rows} are copied in", ("target",), live=("target",)
)


def program(plan: Plan) -> Program:
    """Return the work of every core."""
    call = Call(plan)
    schedule = tiler.schedule_of(plan)
    if schedule == tiler.EMPTY:
        return Program((), views=views_of(plan))
    is_whole = schedule == tiler.WHOLE_ROWS
    rows_in = _whole_rows if is_whole else _cut_rows
    cores = {
        core: (*rows_in(plan, call, *rows), _ending(call, rows[1] - rows[0]))
        for core, rows in rows_of_cores(plan).items()
    }
    phases = (
        vector_phase("rows", cores, in_buffers=plan.tiling["db"] or 2),
        *call.last_phase(Copy(FP32_BYTES, 1, times=3 * plan.block_dim)),
    )
    return Program(phases, views=views_of(plan))


def _ending(call: Call, rows: int) -> Tile:
    """Return the tile in which a core copies out its losses or their sums."""
    if call.reduction == "none":
        step = replace(ROW_LOSSES, live=("loss",))
        return vector_tile((), (), (Copy(call.x.itemsize * rows, rows),), step)
    step = replace(CORE_SUMS, live=SUMMED)
    return vector_tile((), (fp32.add_up(rows),), (Copy(FP32_BYTES, 1, times=3),), step)


def _whole_rows(plan: Plan, call: Call, start: int, stop: int) -> Nodes:
    """Return passes over whole rows, which are read once."""

    def rows_at_once(rows: int) -> Nodes:
        elements = rows * call.columns
        copy = Copy(call.x.itemsize * elements, elements, tensor_bytes=call.x.nbytes)
        copies = copy, call.labels(rows), *call.weights(call.columns)
        vector = fp32.combine(elements, times=2), *_exps(elements)
        return (vector_tile(copies, vector, (copy,), WHOLE_ROWS),)

    return ranged("rows", start, stop, plan.tiling["onceNSize"], rows_at_once)


def _exps(elements: int) -> Works:
    return fp32.exp_root_or_quotient(elements), fp32.add_up(elements)


def _cut_rows(plan: Plan, call: Call, start: int, stop: int) -> Nodes:
    """Return rows in blocks of columns, which are read three times."""
    columns, last = plan.tiling["cOnceNum"], plan.tiling["cOnceNumTail"]
    row_pass = partial(call.one_pass, (columns, plan.tiling["cLoopTimes"] - (last > 0), last))
    row = (
        *row_pass(replace(MAXIMUM, live=CUT), lambda width: (fp32.combine(width),)),
        *row_pass(replace(SUM, live=CUT), lambda width: (fp32.combine(width), *_exps(width))),
        *row_pass(LOG_PROB_CUT, lambda width: (fp32.combine(width, times=2),)),
    )
    labels = vector_tile((call.labels(stop - start),), step=LABELS)
    return labels, *ranged("rows", start, stop, 1, lambda _: row)
