"""Timeline of CrossEntropyLoss: what every core does, from the tiling of the plan.

The estimate takes the same instructions: nearly all have one source, so banks do not conflict.

Source: specification page ``cross_entropy_loss``, "Vector instructions, for timeline and estimate".
"""

from collections.abc import Callable, Sequence
from functools import partial

from npu_sim.framework.vocabulary import FP32_BYTES, Plan, TensorSpec
from npu_sim.operators.shared.instructions import instructions_of
from npu_sim.tiling.cross_entropy_loss import CORE_SUM_BYTES, CORE_SUM_FLOATS
from npu_sim.timelines import (
    VECTOR_PIPES,
    Copy,
    Hold,
    Instruction,
    InstructionLists,
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

Vector = Callable[[int], tuple[Work, ...]]
"""A function from a number of columns to their instructions."""


class Call:
    """The call of a plan, in sizes and tensors."""

    def __init__(self, plan: Plan) -> None:
        self.x = TensorSpec.parse(plan.arguments["input"])
        self.target = TensorSpec.parse(plan.arguments["target"])
        self.rows, self.columns = self.x.shape
        self.reduction = plan.arguments["reduction"]
        self.smooths = float(plan.arguments["label_smoothing"]) > 0
        self.weighted = plan.arguments.get("weight") is not None

    def weights(self, columns: int) -> tuple[Copy, ...]:
        """Return the copy of weights of classes, if there are any."""
        return (Copy(FP32_BYTES * columns, columns),) if self.weighted else ()

    def passes(
        self, pieces: tuple[int, int, int], steps: Sequence[Step], vectors: Sequence[Vector]
    ) -> tuple[tuple[Node, ...], ...]:
        """Return the passes over a row, cut as by `row_pieces`: maximum, sum and log_prob."""

        def piece(number: int, columns: int) -> tuple[Node, ...]:
            again = Copy(self.x.itemsize * columns, columns)
            first = Copy(again.bytes, columns, tensor_bytes=self.x.nbytes)
            copies, out = [again if number else first], tuple[Work, ...]()
            if steps[number].writes:
                out = (first,)
                if self.smooths:
                    copies += self.weights(columns)
            return (vector_tile(tuple(copies), vectors[number](columns), out, steps[number]),)

        return tuple(row_pieces(*pieces, partial(piece, number)) for number in range(len(steps)))

    def last_phase(self, copied: Copy, vector: tuple[Work, ...] = ()) -> tuple[Phase, ...]:
        """Return the phase in which core 0 adds the sums of all cores; none without reduction."""
        if self.reduction == "none":
            return ()
        last = vector_tile((copied,), vector, (Copy(self.x.itemsize, 1),), ALL_SUMS)
        return (vector_phase("loss", {0: (last,)}),)


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


def maxima(count: int) -> tuple[Work, ...]:
    """Return the instructions of the maximum of up to 8192 values."""
    times = 2 if HALF < count < PIECE else 1
    return *sums(count), fp32.combine(1, times=times)


def in_pieces(columns: int, piece: Vector) -> tuple[Work, ...]:
    """Return the instructions of a chunk, which is cut into pieces of 8192 columns."""
    whole, rest = divmod(columns, PIECE)
    last = piece(rest) if rest else ()
    return *(work for _ in range(whole) for work in piece(PIECE)), *last


def program(plan: Plan) -> Program:
    """Return the work of every core."""
    call = Call(plan)
    # A core leaves its losses, with mean their weights, and their smoothing.
    kinds = 1 + (call.reduction == "mean") + call.smooths
    all_sums = Copy(CORE_SUM_BYTES, CORE_SUM_BYTES // FP32_BYTES)
    phases = (
        _rows(plan, call, kinds),
        *call.last_phase(all_sums, (fp32.add_up(CORE_SUM_FLOATS, times=kinds),)),
    )
    not_counted = "the scalar unit's additions of pieces, and its reads of maximum, sum and label"
    assumptions = ("no row is ignored",) if call.smooths else ()
    return Program(phases, (not_counted,), assumptions=assumptions, views=tensor_views(call))


def _rows(plan: Plan, call: Call, kinds: int) -> Phase:
    """Return the phase in which every core computes its rows, and the losses of them."""
    tiling, size = plan.tiling, call.x.itemsize

    def maximum(columns: int) -> tuple[Work, ...]:
        return *fp32.widen(columns, size), *in_pieces(columns, maxima)

    def total(columns: int) -> tuple[Work, ...]:
        exps = fp32.combine_scalar(columns), fp32.exp_root_or_quotient(columns)
        return *fp32.widen(columns, size), *exps, *in_pieces(columns, sums)

    def log_prob(columns: int) -> tuple[Work, ...]:
        product = (fp32.combine(columns),) if call.weighted else ()
        smoothing = (*product, *in_pieces(columns, sums)) if call.smooths else ()
        results = fp32.combine_scalar(columns), *fp32.narrow(columns, size)
        return *fp32.widen(columns, size), *results, *smoothing

    chunks = tiling["inputUbSize"], tiling["ubLoopNum"], tiling["ubTailNum"]
    first, second, third = call.passes(chunks, (MAXIMUM, SUM, LOG_PROB), (maximum, total, log_prob))
    looked_up = Copy(call.target.itemsize, 1), *call.weights(1)
    label = vector_tile(looked_up, (fp32.exp_root_or_quotient(1),), step=LABEL)
    row = (*first, *second, label, *third)
    cores = {
        core: (*ranged("rows", *rows, 1, lambda _: row), _ending(call, rows[1] - rows[0], kinds))
        for core, rows in rows_of_cores(plan).items()
    }
    if size == FP32_BYTES:
        # A chunk of fp32 is copied out of the buffer that it was copied into.
        return Phase("rows", VECTOR_PIPES, (Hold(0, 2, 1),), cores)
    return vector_phase("rows", cores)


def _ending(call: Call, rows: int, kinds: int) -> Tile:
    """Return the tile in which a core ends the losses of its rows."""
    product = fp32.combine(rows)
    if call.reduction == "none":
        scaled = fp32.combine_scalar(rows, times=1 + call.smooths)
        vector = (
            product,
            scaled,
            *((product,) * call.smooths),
            *fp32.narrow(rows, call.x.itemsize),
        )
        return vector_tile((), vector, (Copy(call.x.itemsize * rows, rows),), ROW_LOSSES)
    vector = (product, *(in_pieces(rows, sums) * kinds))
    return vector_tile((), vector, (Copy(FP32_BYTES, 1, times=kinds),), CORE_SUMS)


def instructions(plan: Plan) -> InstructionLists:
    """Return the vector instructions of every core; none was compared with a device."""
    return instructions_of(program(plan))
