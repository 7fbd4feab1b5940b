"""Timeline of RmsNormGrad on Ascend 950: work of the cores and descriptions of tiles.

Rates of vector instructions are not published for this product: the bound is that of the copies.

Source: specification page ``rms_norm_grad_950``, "Unified Buffer of a core", "Kernels and order".
"""

from typing import Any

from npu_sim.numbers.formats import TensorSpec
from npu_sim.plans.model import Plan
from npu_sim.tiling.common import FP32_BYTES, align
from npu_sim.timelines import fp32
from npu_sim.timelines.program import (
    Copy,
    Node,
    Phase,
    Program,
    Work,
    ranged,
    vector_phase,
    vector_tile,
)
from npu_sim.timelines.steps import Step, StepTable, View

WIDEST_ROW, PIECE_COLUMNS, SET_COLUMNS, BLOCK_ROWS = 6144, 4096, 64, 64
ASSUMED = (
    "a row of more than 6144 columns is copied in twice, for its mean and for dx",
    "sets of 64 columns that do not divide evenly go to the first cores",
)


class Call:
    """The call of a plan, in sizes and tensors."""

    def __init__(self, plan: Plan) -> None:
        self.dy, self.gamma = (TensorSpec.parse(plan.arguments[name]) for name in ("dy", "gamma"))
        self.tiling: dict[str, Any] = dict(plan.tiling)
        self.dx: dict[str, Any] = self.tiling["dxTilingData"]
        self.rows, self.columns = self.dx["rows"], self.dx["cols"]

    def inputs(self, rows: int, columns: int) -> tuple[Work, ...]:
        """Return the copies of rows of dy, x and rstd."""
        elements = rows * columns
        copy = Copy(self.dy.itemsize * elements, elements, 2, self.dy.nbytes)
        return copy, Copy(FP32_BYTES * rows, rows)


def program(plan: Plan) -> Program:
    """Return the work of every core; without rows the cores only fill dgamma."""
    if "dxTilingData" not in plan.tiling:
        columns, used = plan.tiling["colsPerCoreDG"], plan.tiling["usedCoreNumDG"]
        filled = Copy(FP32_BYTES * columns, columns)
        tile = vector_tile(copy_out=(filled,), note="nan")
        return Program((vector_phase("dgamma", dict.fromkeys(range(used), (tile,))),))
    call = Call(plan)
    is_big = "dgammaUsedCoreNum" in call.tiling
    cores: dict[int, tuple[Node, ...]] = {}
    for core in range(plan.block_dim):
        nodes = _dx(call, core) + (_rows_of_dgamma if is_big else _columns_of_dgamma)(call, core)
        if nodes:
            cores[core] = nodes
    phases = [vector_phase("rows", cores, in_buffers=2, out_buffers=2)]
    if is_big:
        phases.append(_merge(call))
    return Program(tuple(phases), assumptions=ASSUMED)


def _dx(call: Call, core: int) -> tuple[Node, ...]:
    rows_per_core = call.dx["blockFactorDx"]
    first, last = core * rows_per_core, min((core + 1) * rows_per_core, call.rows)
    columns = call.columns
    gamma = Copy(call.gamma.itemsize * columns, columns)
    if first >= last:
        return ()

    def whole(rows: int) -> tuple[Node, ...]:
        elements = rows * columns
        out = Copy(call.dy.itemsize * elements, elements, 1, call.dy.nbytes)
        vector = (fp32.combine(elements, 7),)
        return (vector_tile(call.inputs(rows, columns), vector, (out,), note="dx"),)

    def pieces(rows: int) -> tuple[Node, ...]:
        def inputs(width: int) -> tuple[Work, ...]:
            return *call.inputs(1, width), Copy(call.gamma.itemsize * width, width)

        def mean(width: int) -> tuple[Node, ...]:
            return (vector_tile(inputs(width), (fp32.combine(width, 3),), note="mean"),)

        def gradient(width: int) -> tuple[Node, ...]:
            vector = (fp32.combine(width, 5),)
            out = Copy(call.dy.itemsize * width, width, 1, call.dy.nbytes)
            return (vector_tile(inputs(width), vector, (out,), note="dx of a piece"),)

        return (
            *ranged("columns", 0, columns, PIECE_COLUMNS, mean),
            *ranged("columns", 0, columns, PIECE_COLUMNS, gradient),
        )

    if columns > WIDEST_ROW:
        return ranged("rows", first, last, 1, pieces)
    at_once = WIDEST_ROW // align(columns, 128)
    return vector_tile((gamma,), note="gamma"), *ranged("rows", first, last, at_once, whole)


def _dgamma_rows(call: Call, first: int, rows: int, step: int, columns: int) -> tuple[Node, ...]:
    """Return the work on all given rows of some columns of dgamma."""

    def some(count: int) -> tuple[Node, ...]:
        vector = (fp32.combine(count * columns, 3),)
        return (vector_tile(call.inputs(count, columns), vector, note="dgamma"),)

    out = vector_tile(copy_out=(Copy(FP32_BYTES * columns, columns),), note="dgamma out")
    return *ranged("rows", first, first + rows, step, some), out


def _columns_of_dgamma(call: Call, core: int) -> tuple[Node, ...]:
    tiling = call.tiling
    if core >= tiling["usedCoreNumDG"]:
        return ()
    columns_of_core, longer = tiling["colsPerCoreDG"], tiling["tailCoreNumDG"]
    first = core * columns_of_core
    if tiling["isMultiColset"]:
        first += SET_COLUMNS * min(core, longer)
        columns_of_core += SET_COLUMNS * (core < longer)
    last = min(first + columns_of_core, call.columns)

    def columns(width: int) -> tuple[Node, ...]:
        return _dgamma_rows(call, 0, call.rows, tiling["rowsPerUBDG"], width)

    return ranged("columns", first, last, SET_COLUMNS, columns)


def _rows_of_dgamma(call: Call, core: int) -> tuple[Node, ...]:
    tiling = call.tiling
    if core >= tiling["dgammaUsedCoreNum"]:
        return ()
    rows_per_core, longer = tiling["dgammaMPerBlock"], tiling["dgammaMReminder"]
    first, rows = core * rows_per_core + min(core, longer), rows_per_core + (core < longer)

    def columns(width: int) -> tuple[Node, ...]:
        return _dgamma_rows(call, first, rows, BLOCK_ROWS, width)

    return ranged("columns", 0, call.columns, tiling["dgammaNfactorBlockAligned"], columns)


def _merge(call: Call) -> Phase:
    used = call.tiling["dgammaUsedCoreNum"]

    def step(width: int) -> tuple[Node, ...]:
        inputs = (Copy(FP32_BYTES * width, width, used),)
        out = (Copy(FP32_BYTES * width, width),)
        return (vector_tile(inputs, (fp32.combine(width, used),), out, note="merge"),)

    nodes = ranged("columns", 0, call.columns, call.tiling["dgammaAInnerAlignedStg1"], step)
    return vector_phase("merge", {0: nodes})


def steps(plan: Plan) -> StepTable:
    """Return the descriptions of the tiles."""
    if "dxTilingData" not in plan.tiling:
        step = Step("dgamma becomes nan", (), ("dgamma",))
        view = View("dgamma", 1, plan.tiling["cols"])
        return StepTable((view,), {("dgamma", "nan"): step})
    call = Call(plan)
    by_row, by_column = {"rows": 1}, {"columns": 1}
    views = (
        *(View(name, call.rows, call.columns, by_row, by_column) for name in ("dy", "x", "dx")),
        View("gamma", 1, call.columns, by_column=by_column),
        View("rstd", call.rows, by_row=by_row),
        View("dgamma", 1, call.columns, by_column=by_column),
    )
    inputs = ("dy", "x", "rstd")
    live = ("dy", "x", "dx", "gamma", "rstd", "products", "sums", "levels", "work")
    all_inputs = (*inputs, "gamma")
    whole = "rows {rows}: the mean of dy * gamma * xh, then dx = (dy * gamma - xh * mean) * rstd"
    mean = "rows {rows}, columns {columns}: dy * gamma * xh is added in pairs of registers"
    dx = "rows {rows}, columns {columns}: dx = (dy * gamma - xh * mean) * rstd"
    dgamma = "rows {rows}, columns {columns}: dy * xh is added as a tree"
    merge = "columns {columns}: core 0 adds the sums of all cores"
    descriptions = {
        "gamma": Step("gamma is copied in", ("gamma",), live=("gamma",)),
        "dx": Step(whole, inputs, ("dx",), ("gamma",), live),
        "mean": Step(mean, all_inputs, live=live),
        "dx of a piece": Step(dx, all_inputs, ("dx",), (), live),
        "dgamma": Step(dgamma, inputs, live=inputs),
        "dgamma out": Step("columns {columns} of dgamma are copied out", (), ("dgamma",)),
    }
    table = {("rows", note): step for note, step in descriptions.items()}
    table["merge", "merge"] = Step(merge, (), ("dgamma",))
    memories = {"rows": "dx", "merge": "merge of dgamma, core 0"}
    return StepTable(views, table, memories)
