"""Timeline of CrossEntropyLoss: what every core does, from the tiling of the plan.

The start-up of the sums of blocks is not published, so there is a bound and no estimate.

Source: specification page ``cross_entropy_loss``, "Vector instructions, for timeline and estimate".
"""

from collections.abc import Callable

from npu_sim.framework.vocabulary import FP32_BYTES, Plan, TensorSpec, itemsize
from npu_sim.tiling.cross_entropy_loss import CORE_SUM_BYTES, CORE_SUM_FLOATS, MEAN, NONE
from npu_sim.timelines import (
    VECTOR_PIPES,
    Copy,
    Hold,
    Instruction,
    Node,
    Phase,
    Program,
    Step,
    Tile,
    View,
    Work,
    fp32,
    ranged,
    row_pieces,
    rows_of_cores,
    vector_phase,
    vector_tile,
)

PIECE, HALF = 8192, 4096
"""Columns that one call of the sum takes, and those that its shorter form takes at once."""
ROW = ("input", "fp32", "scalar A", "scalar B", "work")
LOSSES = ("row losses", "row weights", "smoothing")
LIVE = (*ROW, *LOSSES)
MAXIMUM = Step("maximum", "row {rows}, columns {columns}: the maximum of x", ("input",), live=LIVE)
SUM = Step("sum", "row {rows}, columns {columns}: sum += exp(x - maximum)", ("input",), live=LIVE)
LOG_PROB = Step(
    "log_prob",
    "row {rows}, columns {columns}: log_prob = x - (ln(sum) + maximum)",
    ("input",),
    ("log_prob",),
    live=(*LIVE, "log_prob", "class weights"),
)
LABEL = Step(
    "label", "row {rows}: the logarithm of the sum; label and weight are looked up", ("target",)
)
ROW_LOSSES = Step(
    "losses", "the losses of the core's rows {rows}", (), ("loss",), live=(*LOSSES, "work")
)
CORE_SUMS = Step(
    "sums of a core",
    "the losses of the core's rows {rows} are added up; the sum goes to the workspace",
    live=(*LOSSES, "work"),
)
ALL_SUMS = Step("loss", "core 0 adds the sums of all cores", (), ("loss",), live=("work",))


class Call:
    """The call of a plan, in sizes and tensors."""

    def __init__(self, plan: Plan) -> None:
        self.x = TensorSpec.parse(plan.arguments["input"])
        self.target = TensorSpec.parse(plan.arguments["target"])
        self.rows, self.columns = self.x.shape
        self.reduction = plan.arguments["reduction"]
        self.smooths = float(plan.arguments["label_smoothing"]) > 0
        self.weighted = plan.arguments.get("weight") is not None

    def copy(self, columns: int, *, is_first: bool = False) -> Copy:
        """Return the copy of columns of a row of input or log_prob."""
        size = self.x.itemsize * columns
        return Copy(size, columns, tensor_bytes=self.x.nbytes if is_first else 0)

    def look_up(self) -> tuple[Work, ...]:
        """Return the reads of a label and its weight from memory."""
        weight = (Copy(FP32_BYTES, 1),) if self.weighted else ()
        return (Copy(self.target.itemsize, 1), *weight)


def tensor_views(call: Call) -> tuple[View, ...]:
    """Return the tensors in the order in which they are drawn."""
    by_row, by_column = {"rows": 1}, {"columns": 1}
    by_loss = by_row if call.reduction == "none" else {}
    weight = (View("weight", 1, call.columns, by_column=by_column),) if call.weighted else ()
    return (
        View("input", call.rows, call.columns, by_row, by_column),
        View("target", call.rows, by_row=by_row),
        *weight,
        View("loss", call.rows if by_loss else 1, by_row=by_loss),
        View("log_prob", call.rows, call.columns, by_row, by_column),
    )


def blocks(elements: int) -> Work:
    """Return a sum or maximum of every 8 neighbours."""
    return Instruction("reduce_pair_or_block", "float32", elements)


def sums(count: int) -> tuple[Work, ...]:
    """Return the instructions of a sum or maximum of up to 8192 values (page, "sums")."""
    if count == PIECE:
        return blocks(PIECE), blocks(PIECE // 8), blocks(PIECE // 64), fp32.add_up(PIECE // 512)
    if count <= HALF:
        whole, rest = count // 64 * 64, count % 64
        parts = tuple(fp32.add_up(part) for part in (whole, rest) if part)
        return *parts, fp32.add_up(-(-count // 64))
    return blocks(HALF), blocks(HALF // 8), fp32.add_up(HALF // 64), *sums(count - HALF)


def in_pieces(columns: int, piece: Callable[[int], tuple[Work, ...]]) -> tuple[Work, ...]:
    """Return the instructions of a chunk, which is cut into pieces of 8192 columns."""
    whole, rest = divmod(columns, PIECE)
    last = piece(rest) if rest else ()
    return *(work for _ in range(whole) for work in piece(PIECE)), *last


def maxima(count: int) -> tuple[Work, ...]:
    """Return the instructions of the maximum of up to 8192 values."""
    times = 2 if HALF < count < PIECE else 1
    return *sums(count), fp32.combine(1, times=times)


def program(plan: Plan) -> Program:
    """Return the work of every core."""
    call = Call(plan)
    phases = [_rows(plan, call)]
    reduces = plan.tiling["reduction"] != NONE
    if reduces:
        phases.append(vector_phase("loss", {0: (_loss(plan, call),)}))
    not_counted = ["the scalar unit's additions of pieces, and its reads of maximum, sum and label"]
    assumptions = ("no row is ignored",) if call.smooths else ()
    return Program(
        tuple(phases), tuple(not_counted), assumptions=assumptions, views=tensor_views(call)
    )


def _rows(plan: Plan, call: Call) -> Phase:
    tiling, size = plan.tiling, call.x.itemsize
    chunk = tiling["inputUbSize"], tiling["ubLoopNum"], tiling["ubTailNum"]
    passes = (_maximum(call), _sum(call), _log_prob(call))
    maximum, total, log_prob = (row_pieces(*chunk, each) for each in passes)
    label = vector_tile(call.look_up(), (fp32.exp_root_or_quotient(1),), step=LABEL)
    row = (*maximum, *total, label, *log_prob)
    cores = {
        core: (*ranged("rows", start, stop, 1, lambda _: row), _ending(plan, call, stop - start))
        for core, (start, stop) in rows_of_cores(plan).items()
    }
    if size == FP32_BYTES:
        # A chunk of fp32 is copied out of the buffer that it was copied into.
        return Phase("rows", VECTOR_PIPES, (Hold(0, 2, 1),), cores)
    return vector_phase("rows", cores)


def _maximum(call: Call) -> Callable[[int], tuple[Node, ...]]:
    def chunk(columns: int) -> tuple[Node, ...]:
        vector = (*fp32.widen(columns, call.x.itemsize), *in_pieces(columns, maxima))
        return (vector_tile((call.copy(columns, is_first=True),), vector, step=MAXIMUM),)

    return chunk


def _sum(call: Call) -> Callable[[int], tuple[Node, ...]]:
    def chunk(columns: int) -> tuple[Node, ...]:
        widen = fp32.widen(columns, call.x.itemsize)
        exps = fp32.combine_scalar(columns), fp32.exp_root_or_quotient(columns)
        vector = (*widen, *exps, *in_pieces(columns, sums))
        return (vector_tile((call.copy(columns),), vector, step=SUM),)

    return chunk


def _log_prob(call: Call) -> Callable[[int], tuple[Node, ...]]:
    def chunk(columns: int) -> tuple[Node, ...]:
        size = call.x.itemsize
        copies: tuple[Work, ...] = (call.copy(columns),)
        vector = *fp32.widen(columns, size), fp32.combine_scalar(columns)
        smoothing: tuple[Work, ...] = ()
        if call.smooths:
            smoothing = in_pieces(columns, sums)
            if call.weighted:
                copies = (*copies, Copy(FP32_BYTES * columns, columns))
                smoothing = (fp32.combine(columns), *smoothing)
        vector = (*vector, *fp32.narrow(columns, size), *smoothing)
        return (vector_tile(copies, vector, (call.copy(columns, is_first=True),), LOG_PROB),)

    return chunk


def _ending(plan: Plan, call: Call, rows: int) -> Tile:
    """Return the tile in which a core ends the losses of its rows."""
    product = fp32.combine(rows)
    if plan.tiling["reduction"] == NONE:
        scaled = (fp32.combine_scalar(rows, times=1 + call.smooths),)
        added = (fp32.combine(rows),) if call.smooths else ()
        vector = (product, *scaled, *added, *fp32.narrow(rows, call.x.itemsize))
        return vector_tile((), vector, (Copy(call.x.itemsize * rows, rows),), ROW_LOSSES)
    kinds = _kinds(plan, call)
    vector = (product, *(work for _ in range(kinds) for work in in_pieces(rows, sums)))
    return vector_tile((), vector, (Copy(FP32_BYTES, 1, times=kinds),), CORE_SUMS)


def _kinds(plan: Plan, call: Call) -> int:
    """Return the numbers that a core leaves: loss, weight with mean, smoothing."""
    is_mean: bool = plan.tiling["reduction"] == MEAN
    return 1 + is_mean + call.smooths


def _loss(plan: Plan, call: Call) -> Tile:
    """Return the tile in which core 0 adds the sums of all cores."""
    vector = (fp32.add_up(CORE_SUM_FLOATS, times=_kinds(plan, call)),)
    out = (Copy(itemsize(call.x.dtype), 1),)
    return vector_tile((Copy(CORE_SUM_BYTES, CORE_SUM_BYTES // 4),), vector, out, ALL_SUMS)
