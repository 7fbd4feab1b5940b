"""Timeline of RmsNormGrad on Ascend 950.

Source: specification page ``rms_norm_grad_950``.
"""

from dataclasses import replace
from typing import Any

from npu_sim.framework.vocabulary import FP32_BYTES, Plan, TensorSpec, align, release_rules
from npu_sim.tiling.ascend_950 import rms_norm_grad as tiler
from npu_sim.timelines import (
    Copy,
    Nodes,
    Phase,
    Program,
    Step,
    View,
    Works,
    fp32,
    ranged,
    vector_phase,
    vector_tile,
)

PIECE_COLUMNS = 4096
ASSUMED = (
    "a row of more than 6144 columns is copied in twice, for its mean and for dx",
    "sets of 64 columns that do not divide evenly go to the first cores",
)


INPUTS = ("dy", "x", "rstd")
LIVE = ("dy", "x", "dx", "gamma", "rstd", "fp32_products", "sums", "levels", "work")


DX = Step(
    "dx",
    "rows {rows}: the mean of dy * gamma * xh, then dx = (dy * gamma - xh * mean) * rstd",
    INPUTS,
    ("dx",),
    ("gamma",),
    LIVE,
)
FUSED_DX = replace(
    DX, says="rows {rows}: the mean of dy * gamma * xh, then dx = fma(xh, -mean, dy * gamma) * rstd"
)
MEAN = Step(
    "mean",
    "rows {rows}, columns {columns}: dy * gamma * xh is added in pairs of registers",
    (*INPUTS, "gamma"),
    live=LIVE,
)
DX_OF_PIECE = replace(
    MEAN,
    note="dx of a piece",
    says="rows {rows}, columns {columns}: dx = (dy * gamma - xh * mean) * rstd",
    writes=("dx",),
)
FUSED_DX_OF_PIECE = replace(
    DX_OF_PIECE, says="rows {rows}, columns {columns}: dx = fma(xh, -mean, dy * gamma) * rstd"
)


NAN = Step("nan", "dgamma becomes nan", (), ("dgamma",))
CLEAR = Step("clear", "dgamma is cleared to 0", (), ("dgamma",))


class Call:
    """The call of a plan, in sizes and tensors."""

    def __init__(self, plan: Plan) -> None:
        self.dy, self.gamma = (TensorSpec.parse(plan.arguments[name]) for name in ("dy", "gamma"))
        self.tiling: dict[str, Any] = dict(plan.tiling)
        self.dx: dict[str, Any] = self.tiling["dxTilingData"]
        self.rows, self.columns = self.dx["rows"], self.dx["cols"]
        self.fused = release_rules(plan.release, plan.operator, plan.npu_arch).fuses_dx

    def inputs(self, rows: int, columns: int) -> Works:
        """Return the copies of rows of dy, x and rstd."""
        elements = rows * columns
        return Copy(self.dy.itemsize * elements, elements, 2, self.dy.nbytes), Copy(
            FP32_BYTES * rows, rows
        )


def program(plan: Plan) -> Program:
    """Return the work of every core; without rows the cores only fill dgamma."""
    if "dxTilingData" not in plan.tiling:
        clears = release_rules(plan.release, plan.operator, plan.npu_arch).mean_has_all_columns
        columns, used = plan.tiling["colsPerCoreDG"], plan.tiling["usedCoreNumDG"]
        tile = vector_tile(
            copy_out=(Copy(FP32_BYTES * columns, columns),), step=CLEAR if clears else NAN
        )
        phase = vector_phase("dgamma", dict.fromkeys(range(used), (tile,)))
        return Program((phase,), views=(View("dgamma", 1, plan.tiling["cols"]),))
    call = Call(plan)
    is_big = "dgammaUsedCoreNum" in call.tiling
    cores: dict[int, Nodes] = {}
    for core in range(plan.block_dim):
        nodes = _dx(call, core) + (_rows_of_dgamma if is_big else _columns_of_dgamma)(call, core)
        if nodes:
            cores[core] = nodes
    phases = [vector_phase("rows", cores, in_buffers=2, out_buffers=2, memory="dx")]
    if is_big:
        phases.append(_merge(call))
    by_row, by_column = {"rows": 1}, {"columns": 1}
    views = (
        *(View(name, call.rows, call.columns, by_row, by_column) for name in ("dy", "x", "dx")),
        View("gamma", 1, call.columns, by_column=by_column),
        View("rstd", call.rows, by_row=by_row),
        View("dgamma", 1, call.columns, by_column=by_column),
    )
    return Program(tuple(phases), assumptions=ASSUMED, views=views)


def _dx(call: Call, core: int) -> Nodes:
    rows_per_core = call.dx["blockFactorDx"]
    first, last = core * rows_per_core, min((core + 1) * rows_per_core, call.rows)
    columns = call.columns
    gamma = Copy(call.gamma.itemsize * columns, columns)
    if first >= last:
        return ()

    def whole(rows: int) -> Nodes:
        elements = rows * columns
        return (
            vector_tile(
                call.inputs(rows, columns),
                (fp32.combine(elements, 7 - call.fused),),
                (Copy(call.dy.itemsize * elements, elements, 1, call.dy.nbytes),),
                FUSED_DX if call.fused else DX,
            ),
        )

    def pieces(rows: int) -> Nodes:
        def inputs(width: int) -> Works:
            return *call.inputs(1, width), Copy(call.gamma.itemsize * width, width)

        def mean(width: int) -> Nodes:
            return (vector_tile(inputs(width), (fp32.combine(width, 3),), step=MEAN),)

        def gradient(width: int) -> Nodes:
            return (
                vector_tile(
                    inputs(width),
                    (fp32.combine(width, 5 - call.fused),),
                    (Copy(call.dy.itemsize * width, width, 1, call.dy.nbytes),),
                    FUSED_DX_OF_PIECE if call.fused else DX_OF_PIECE,
                ),
            )

        return (
            *ranged("columns", 0, columns, PIECE_COLUMNS, mean),
            *ranged("columns", 0, columns, PIECE_COLUMNS, gradient),
        )

    if columns > tiler.WIDEST_ROW:
        return ranged("rows", first, last, 1, pieces)
    at_once = tiler.WIDEST_ROW // align(columns, 128)
    return vector_tile(
        (gamma,), step=Step("gamma", "gamma is copied in", ("gamma",), live=("gamma",))
    ), *ranged("rows", first, last, at_once, whole)


def _dgamma_rows(call: Call, first: int, rows: int, step: int, columns: int) -> Nodes:
    """Return the work on all given rows of some columns of dgamma."""

    def some(count: int) -> Nodes:
        return (
            vector_tile(
                call.inputs(count, columns),
                (fp32.combine(count * columns, 3),),
                step=Step(
                    "dgamma",
                    "rows {rows}, columns {columns}: dy * xh is added as a tree",
                    INPUTS,
                    live=INPUTS,
                ),
            ),
        )

    out = vector_tile(
        copy_out=(Copy(FP32_BYTES * columns, columns),),
        step=Step("dgamma out", "columns {columns} of dgamma are copied out", (), ("dgamma",)),
    )
    return *ranged("rows", first, first + rows, step, some), out


def _columns_of_dgamma(call: Call, core: int) -> Nodes:
    tiling = call.tiling
    if core >= tiling["usedCoreNumDG"]:
        return ()
    columns_of_core, longer = tiling["colsPerCoreDG"], tiling["tailCoreNumDG"]
    first = core * columns_of_core
    if tiling["isMultiColset"]:
        first += tiler.SET_COLUMNS * min(core, longer)
        columns_of_core += tiler.SET_COLUMNS * (core < longer)
    last = min(first + columns_of_core, call.columns)

    def columns(width: int) -> Nodes:
        return _dgamma_rows(call, 0, call.rows, tiling["rowsPerUBDG"], width)

    return ranged("columns", first, last, tiler.SET_COLUMNS, columns)


def _rows_of_dgamma(call: Call, core: int) -> Nodes:
    tiling = call.tiling
    if core >= tiling["dgammaUsedCoreNum"]:
        return ()
    rows_per_core, longer = tiling["dgammaMPerBlock"], tiling["dgammaMReminder"]
    first, rows = core * rows_per_core + min(core, longer), rows_per_core + (core < longer)

    def columns(width: int) -> Nodes:
        return _dgamma_rows(call, first, rows, tiler.BLOCK_ROWS, width)

    return ranged("columns", 0, call.columns, tiling["dgammaNfactorBlockAligned"], columns)


def _merge(call: Call) -> Phase:
    used = call.tiling["dgammaUsedCoreNum"]

    def step(width: int) -> Nodes:
        return (
            vector_tile(
                (Copy(FP32_BYTES * width, width, used),),
                (fp32.combine(width, used),),
                (Copy(FP32_BYTES * width, width),),
                Step(
                    "merge", "columns {columns}: core 0 adds the sums of all cores", (), ("dgamma",)
                ),
            ),
        )

    nodes = ranged("columns", 0, call.columns, call.tiling["dgammaAInnerAlignedStg1"], step)
    return vector_phase("merge", {0: nodes}, memory="merge of dgamma, core 0")
