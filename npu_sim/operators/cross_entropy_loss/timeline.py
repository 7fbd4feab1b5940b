"""Timeline of CrossEntropyLoss: what every core does, from the tiling of the plan.

The estimate takes the same instructions: nearly all have one source, so banks do not conflict.

Source: specification page ``cross_entropy_loss``, "Vector instructions, for timeline and estimate".
"""

from collections.abc import Callable
from functools import partial

from npu_sim.framework.vocabulary import FP32_BYTES, Plan, TensorSpec, to_fp32
from npu_sim.operators.shared.instructions import instructions_of
from npu_sim.operators.shared.labelled_rows.timeline import tensor_views
from npu_sim.tiling.cross_entropy_loss import (
    CORE_SUM_BYTES,
    CORE_SUM_FLOATS,
    HALF_PIECE,
    PIECE_COLUMNS,
)
from npu_sim.timelines import (
    VECTOR_PIPES,
    Copy,
    Hold,
    Instruction,
    InstructionLists,
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

LOSSES = ("row losses", "row weights", "smoothing")
LIVE = ("input", "fp32", "scalar A", "scalar B", "work", *LOSSES)
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

Vector = Callable[[int], Works]
"""A function from a number of columns to their instructions."""

blocks = partial(Instruction, "reduce_pair_or_block", "float32")
"""Sum or maximum of every 8 neighbours."""


class Call:
    """The call of a plan, in sizes and tensors."""

    def __init__(self, plan: Plan) -> None:
        self.x, self.target = (
            TensorSpec.parse(plan.arguments[name]) for name in ("input", "target")
        )
        self.columns = self.x.shape[1]
        self.reduction = plan.arguments["reduction"]
        self.smooths = bool(to_fp32(plan.arguments["label_smoothing"]) > 0)
        self.weighted = plan.arguments.get("weight") is not None
        # A core leaves its losses, with mean their weights, and their smoothing.
        self.kinds = 1 + (self.reduction == "mean") + self.smooths

    def labels(self, rows: int) -> Copy:
        """Return the copy of the labels of rows."""
        return Copy(self.target.itemsize * rows, rows)

    def weights(self, columns: int) -> Works:
        """Return the copy of weights of classes, if there are any."""
        return (Copy(FP32_BYTES * columns, columns),) if self.weighted else ()

    def one_pass(
        self, pieces: tuple[int, int, int], step: Step, vector: Vector, widened: int = FP32_BYTES
    ) -> Nodes:
        """Return one of the passes over a row, cut as by `row_pieces`.

        Elements of ``widened`` bytes become fp32 first.
        """

        def piece(columns: int) -> Nodes:
            size = self.x.itemsize * columns
            first = Copy(size, columns, tensor_bytes=self.x.nbytes)
            smoothing = self.weights(columns) if step.writes and self.smooths else ()
            copies = (first if step == MAXIMUM else Copy(size, columns), *smoothing)
            works = fp32.widen(columns, widened) + vector(columns)
            return (vector_tile(copies, works, (first,) if step.writes else (), step),)

        return row_pieces(*pieces, piece)

    def last_phase(self, copied: Copy, vector: Works = ()) -> tuple[Phase, ...]:
        """Return the phase in which core 0 adds the sums of all cores; none without reduction."""
        if self.reduction == "none":
            return ()
        last = vector_tile((copied,), vector, (Copy(self.x.itemsize, 1),), ALL_SUMS)
        return (vector_phase("loss", {0: (last,)}),)


def views_of(plan: Plan) -> tuple[View, ...]:
    """Return the tensors in the order in which they are drawn."""
    return tensor_views(plan, "input", "loss", "log_prob", {"columns": 1})


def sums(count: int) -> Works:
    """Return the instructions of a sum or maximum of up to 8192 values (page, "sums")."""
    if count == PIECE_COLUMNS:
        return (
            blocks(PIECE_COLUMNS),
            blocks(PIECE_COLUMNS // 8),
            blocks(PIECE_COLUMNS // 64),
            fp32.add_up(PIECE_COLUMNS // 512),
        )
    if count <= HALF_PIECE:
        whole, rest = count // 64 * 64, count % 64
        parts = tuple(fp32.add_up(part) for part in (whole, rest) if part)
        return *parts, fp32.add_up(-(-count // 64))
    return (
        blocks(HALF_PIECE),
        blocks(HALF_PIECE // 8),
        fp32.add_up(HALF_PIECE // 64),
        *sums(count - HALF_PIECE),
    )


def maxima(count: int) -> Works:
    """Return the instructions of the maximum of up to 8192 values."""
    times = 2 if HALF_PIECE < count < PIECE_COLUMNS else 1
    return *sums(count), fp32.combine(1, times=times)


def in_pieces(columns: int, piece: Vector) -> Works:
    """Return the instructions of a chunk, which is cut into pieces of 8192 columns."""
    whole, rest = divmod(columns, PIECE_COLUMNS)
    return whole * piece(PIECE_COLUMNS) + (piece(rest) if rest else ())


def program(plan: Plan) -> Program:
    """Return the work of every core."""
    call = Call(plan)
    all_sums = Copy(CORE_SUM_BYTES, CORE_SUM_BYTES // FP32_BYTES)
    phases = (
        _rows(plan, call),
        *call.last_phase(all_sums, (fp32.add_up(CORE_SUM_FLOATS, times=call.kinds),)),
    )
    return Program(
        phases,
        ("the scalar unit's additions of pieces, and its reads of maximum, sum and label",),
        ("no row is ignored",) if call.smooths else (),
        views=views_of(plan),
    )


def _rows(plan: Plan, call: Call) -> Phase:
    """Return the phase in which every core computes its rows, and the losses of them."""
    tiling, size = plan.tiling, call.x.itemsize
    chunks = tiling["inputUbSize"], tiling["ubLoopNum"], tiling["ubTailNum"]
    row_pass = partial(call.one_pass, chunks, widened=size)

    def exps(columns: int) -> Works:
        terms = fp32.combine_scalar(columns), fp32.exp_root_or_quotient(columns)
        return *terms, *in_pieces(columns, sums)

    def log_prob(columns: int) -> Works:
        product = (fp32.combine(columns),) if call.weighted else ()
        smoothing = (*product, *in_pieces(columns, sums)) if call.smooths else ()
        return fp32.combine_scalar(columns), *fp32.narrow(columns, size), *smoothing

    looked_up = call.labels(1), *call.weights(1)
    row = (
        *row_pass(MAXIMUM, lambda columns: in_pieces(columns, maxima)),
        *row_pass(SUM, exps),
        vector_tile(looked_up, (fp32.exp_root_or_quotient(1),), step=LABEL),
        *row_pass(LOG_PROB, log_prob),
    )
    cores = {
        core: (*ranged("rows", *rows, 1, lambda _: row), _ending(call, rows[1] - rows[0]))
        for core, rows in rows_of_cores(plan).items()
    }
    if size == FP32_BYTES:
        # A chunk of fp32 is copied out of the buffer that it was copied into.
        return Phase("rows", VECTOR_PIPES, (Hold(0, 2, 1),), cores)
    return vector_phase("rows", cores)


def _ending(call: Call, rows: int) -> Tile:
    """Return the tile in which a core ends the losses of its rows."""
    product, size = fp32.combine(rows), call.x.itemsize
    if call.reduction == "none":
        scaled = fp32.combine_scalar(rows, times=1 + call.smooths)
        vector = (product, scaled, *(call.smooths * (product,)), *fp32.narrow(rows, size))
        return vector_tile((), vector, (Copy(size * rows, rows),), ROW_LOSSES)
    vector = (product, *(in_pieces(rows, sums) * call.kinds))
    return vector_tile((), vector, (Copy(FP32_BYTES, 1, times=call.kinds),), CORE_SUMS)


def instructions(plan: Plan) -> InstructionLists:
    """Return the vector instructions of every core; none was compared with a device."""
    return instructions_of(program(plan))
