"""RmsNormGrad on Ascend 950: own planner, kernels and checks of sizes.

Rates of vector instructions are not published for this product: the bound is that of the copies.

Source: specification page ``rms_norm_grad_950``.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from npu_sim.framework.vocabulary import (
    FP32_BYTES,
    SYSTEM_WORKSPACE_BYTES,
    TILING_FAILURE,
    Assumed,
    Case,
    Caveat,
    Condition,
    Description,
    Inspection,
    Memory,
    OutputOrder,
    Plan,
    Run,
    TensorSpec,
    Text,
    WorkspacePart,
    align,
    caveat,
    checks,
    decision,
    ub_memory,
    vector_plan,
)
from npu_sim.operators.rms_norm_grad import declaration
from npu_sim.operators.rms_norm_grad.study import dgamma_claim, mean_claim
from npu_sim.operators.shared import normalised_rows
from npu_sim.operators.shared.study import Claim, StudyCall, trees
from npu_sim.tiling.ascend_950 import rms_norm_grad as tiler
from npu_sim.timelines import (
    Copy,
    Node,
    Phase,
    Program,
    Step,
    View,
    Work,
    fp32,
    ranged,
    vector_phase,
    vector_tile,
)

if TYPE_CHECKING:
    from npu_sim.kernels.ascend_950.rms_norm_grad import Trees

PATHS = {
    tiler.KEY_FULL_LOAD: "columns, all rows at once",
    tiler.KEY_BLOCKS: "columns, blocks of rows",
    tiler.KEY_NO_ROWS: "no rows",
    tiler.KEY_BIG_ROWS: "rows",
}
OFFSET_BITS = 32
"""Bits in which keys 7xxx count elements of dgamma's inputs (page, "Warnings")."""

BIG_ROWS = Condition(
    "many rows",
    Text("col <= {least} * cores, row >= 2 * col and row >= {least} * cores", least=32),
    tiler.splits_rows,
    "every core adds consecutive rows of dgamma, core 0 adds their sums",
    "every core adds all rows of its columns of dgamma",
    ("row", "col"),
)
ALL_ROWS = Condition(
    "all rows at once",
    "all rows of 64 columns fit the Unified Buffer twice",
    tiler.holds_all_rows,
    "the rows of 64 columns are folded once and added as a tree",
    "rows come in blocks of 64, which are folded and added as trees; the same order",
    ("row",),
)
WHOLE_ROW = Condition(
    "whole rows of dx",
    Text("col <= {widest}", widest=tiler.WIDEST_ROW),
    lambda row, device, rules: not tiler.is_wide(row.col),
    "the products of a row are folded once, then registers are added",
    "the products of a row are added in pieces of 4096 columns and their partners",
    ("col",),
)


def describe(case: Case) -> Description:
    """Return what the operator states of a plan."""
    tiling = case.tiling
    conditions = []
    if tiling.tiling_key != tiler.KEY_NO_ROWS:
        conditions = [BIG_ROWS, *([] if tiler.is_big(tiling) else [ALL_ROWS]), WHOLE_ROW]
    values = {"col": case.row.col, "row": case.row.row, "cores": case.device.vector_cores}
    path, reason, per_core = _path(case)
    return vector_plan(
        case,
        path=path,
        path_reason=reason,
        per_core=per_core,
        memories=lambda: _memories(case),
        ranges=_ranges(case),
        fields=tiler.vendor_structure(tiling, case.arguments, case.rules),
        workspace=_workspace(case),
        conditions=lambda: [decision(case, condition, **values) for condition in conditions],
        order=(
            OutputOrder(output="dx", fixed=True, reason="every row belongs to one core"),
            OutputOrder(
                output="dgamma",
                fixed=True,
                reason="core 0 adds the sums of the cores in a fixed order"
                if tiler.is_big(tiling)
                else "every column belongs to one core",
            ),
        ),
        caveats=_caveats(case),
    )


def _path(case: Case) -> tuple[str, str, str]:
    """Return the path, its reason, and the work of a core."""
    key, tiling, row = case.tiling.tiling_key, case.tiling, case.row
    if key == tiler.KEY_NO_ROWS:
        return PATHS[key], "", ""
    path = PATHS[key - tiler.WIDE_STEP * tiler.is_wide(row.col)]
    if tiler.is_wide(row.col):
        path = Text("{path}; rows of dx in pieces", path=path)
    if tiler.is_big(tiling):
        return (
            path,
            Text("{rows} rows of {columns} columns", rows=row.row, columns=row.col),
            Text(
                "dgamma: {rows} rows each, one more on {longer} cores",
                rows=tiling.row_blocks.rows,
                longer=tiling.row_blocks.longer,
            ),
        )
    reason = Text(
        "{rows} rows of {columns} columns on {cores} cores",
        rows=row.row,
        columns=row.col,
        cores=case.device.vector_cores,
    )
    return path, reason, Text("dgamma: columns on {cores} cores", cores=tiling.column_sets.cores)


def _ranges(case: Case) -> list[tuple[int, int]]:
    """Return the rows of dx of every core that makes some."""
    split = case.tiling.dx
    starts = range(0, split.cores * split.block_factor, max(split.block_factor, 1))
    return [(start, min(start + split.block_factor, split.rows)) for start in starts] or [(0, 0)]


def _memories(case: Case) -> Iterator[Memory]:
    """Yield the buffers of dx and of dgamma, which take turns, and those of the merge."""
    tiling = case.tiling
    phases: dict[str, dict[str, int]] = {
        "dx": tiler.dx_buffers(tiling)._asdict(),
        "dgamma": tiler.dgamma_buffers(tiling, case.row.dtype)._asdict(),
        "merge of dgamma, core 0": {"sums": tiler.merge_bytes(tiling, case.device.ub_bytes)},
    }
    for phase, buffers in phases.items():
        if any(buffers.values()):
            yield ub_memory(case, buffers, phase)


def _workspace(case: Case) -> list[WorkspacePart]:
    parts = [normalised_rows.SYSTEM]
    kernel_bytes = case.tiling.workspace_bytes - SYSTEM_WORKSPACE_BYTES
    if kernel_bytes:
        parts.append(WorkspacePart(name="dgamma of every core", bytes=kernel_bytes, kind="kernel"))
    return parts


def _caveats(case: Case) -> Iterator[Caveat]:
    """Yield the warnings of a plan (page, "Warnings")."""
    row, tiling, gamma = case.row, case.tiling, case.specs["gamma"]
    if tiling.tiling_key == tiler.KEY_NO_ROWS:
        yield caveat(
            "dgamma_is_nan",
            "x",
            "without rows dgamma becomes nan in every column, not 0. Read in the public "
            "sources; not run on a device",
            since="9.1",
            until="sources later than 22 August 2026",
        )
        return
    if 0 < 2 * tiling.dx.body < row.col:
        yield caveat(
            "last_column_left_out_of_mean",
            "gamma",
            "the mean of a row of {columns} columns leaves out the last one, which still gets "
            "its dx. Read in the public sources; not run on a device",
            columns=row.col,
            since="9.1",
            until="sources later than 22 August 2026",
        )
    half_block = 0 < row.col % 16 <= 8  # the last block of 16-bit rows is at most half full
    mixed = gamma.dtype == "float32" and case.specs["dy"].dtype != "float32"
    if mixed and half_block and not tiler.is_wide(row.col):
        yield caveat(
            "stale_gamma_lanes",
            "gamma",
            "up to 8 lanes of the gamma buffer that no copy fills are multiplied by zeros: "
            "inf or nan left there by an earlier kernel makes whole rows of dx nan; the simulator "
            "counts them as 0. Read in the public sources; not run on a device",
            since="9.1",
        )
    if not tiler.is_big(tiling) and row.row * row.col > 1 << OFFSET_BITS:
        yield caveat(
            "offsets_wrap",
            "x",
            "dgamma counts elements of its inputs in {bits} bits: beyond 2^{bits} elements it "
            "reads wrong ones; the simulator computes as if it did not. Read in the public "
            "sources; not run on a device",
            bits=OFFSET_BITS,
            not_modelled="*",
            since="9.1",
        )


def trees_of(case: Case) -> "Trees":
    """Return the kernel's argument for the order of the rows in dgamma."""
    from npu_sim.kernels.ascend_950 import rms_norm_grad as kernels

    if tiler.is_big(case.tiling):
        split = case.tiling.row_blocks
        return kernels.core_trees(case.row.row, split.cores, split.piece, split.merge_columns)
    return kernels.column_trees(case.row.row)


def compute(run: Run) -> None:
    """Compute dx and dgamma; without rows dgamma is nan. A given workspace stays unfilled."""
    case = run.case
    with run.watch.stage("load"):
        from npu_sim.kernels.ascend_950.rms_norm_grad import Rows, rms_norm_grad
    with run.watch.stage("compute"):
        shape, dgamma = (case.row.row, case.row.col), run.written("dgamma").reshape(-1)
        if case.tiling.tiling_key == tiler.KEY_NO_ROWS:
            dgamma.fill(np.nan)
            return
        rows = Rows(
            run.stored("dy").reshape(shape),
            run.stored("x").reshape(shape),
            run.stored("rstd").reshape(-1),
            run.stored("gamma").reshape(-1),
            run.written("dx").reshape(shape),
        )
        rms_norm_grad(rows, trees_of(case), case.tiling.dx.body, dgamma)


PIECE_COLUMNS = 4096
ASSUMED = (
    "a row of more than 6144 columns is copied in twice, for its mean and for dx",
    "sets of 64 columns that do not divide evenly go to the first cores",
)


INPUTS = ("dy", "x", "rstd")
LIVE = ("dy", "x", "dx", "gamma", "rstd", "products", "sums", "levels", "work")


DX = Step(
    "dx",
    "rows {rows}: the mean of dy * gamma * xh, then dx = (dy * gamma - xh * mean) * rstd",
    INPUTS,
    ("dx",),
    ("gamma",),
    LIVE,
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
        return Copy(self.dy.itemsize * elements, elements, 2, self.dy.nbytes), Copy(
            FP32_BYTES * rows, rows
        )


instructions = None
"""No rates of vector instructions are published."""


def program(plan: Plan) -> Program:
    """Return the work of every core; without rows the cores only fill dgamma."""
    if "dxTilingData" not in plan.tiling:
        columns, used = plan.tiling["colsPerCoreDG"], plan.tiling["usedCoreNumDG"]
        tile = vector_tile(
            copy_out=(Copy(FP32_BYTES * columns, columns),),
            step=Step("nan", "dgamma becomes nan", (), ("dgamma",)),
        )
        phase = vector_phase("dgamma", dict.fromkeys(range(used), (tile,)))
        return Program((phase,), views=(View("dgamma", 1, plan.tiling["cols"]),))
    call = Call(plan)
    is_big = "dgammaUsedCoreNum" in call.tiling
    cores: dict[int, tuple[Node, ...]] = {}
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


def _dx(call: Call, core: int) -> tuple[Node, ...]:
    rows_per_core = call.dx["blockFactorDx"]
    first, last = core * rows_per_core, min((core + 1) * rows_per_core, call.rows)
    columns = call.columns
    gamma = Copy(call.gamma.itemsize * columns, columns)
    if first >= last:
        return ()

    def whole(rows: int) -> tuple[Node, ...]:
        elements = rows * columns
        return (
            vector_tile(
                call.inputs(rows, columns),
                (fp32.combine(elements, 7),),
                (Copy(call.dy.itemsize * elements, elements, 1, call.dy.nbytes),),
                DX,
            ),
        )

    def pieces(rows: int) -> tuple[Node, ...]:
        def inputs(width: int) -> tuple[Work, ...]:
            return *call.inputs(1, width), Copy(call.gamma.itemsize * width, width)

        def mean(width: int) -> tuple[Node, ...]:
            return (vector_tile(inputs(width), (fp32.combine(width, 3),), step=MEAN),)

        def gradient(width: int) -> tuple[Node, ...]:
            return (
                vector_tile(
                    inputs(width),
                    (fp32.combine(width, 5),),
                    (Copy(call.dy.itemsize * width, width, 1, call.dy.nbytes),),
                    DX_OF_PIECE,
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


def _dgamma_rows(call: Call, first: int, rows: int, step: int, columns: int) -> tuple[Node, ...]:
    """Return the work on all given rows of some columns of dgamma."""

    def some(count: int) -> tuple[Node, ...]:
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


def _columns_of_dgamma(call: Call, core: int) -> tuple[Node, ...]:
    tiling = call.tiling
    if core >= tiling["usedCoreNumDG"]:
        return ()
    columns_of_core, longer = tiling["colsPerCoreDG"], tiling["tailCoreNumDG"]
    first = core * columns_of_core
    if tiling["isMultiColset"]:
        first += tiler.SET_COLUMNS * min(core, longer)
        columns_of_core += tiler.SET_COLUMNS * (core < longer)
    last = min(first + columns_of_core, call.columns)

    def columns(width: int) -> tuple[Node, ...]:
        return _dgamma_rows(call, 0, call.rows, tiling["rowsPerUBDG"], width)

    return ranged("columns", first, last, tiler.SET_COLUMNS, columns)


def _rows_of_dgamma(call: Call, core: int) -> tuple[Node, ...]:
    tiling = call.tiling
    if core >= tiling["dgammaUsedCoreNum"]:
        return ()
    rows_per_core, longer = tiling["dgammaMPerBlock"], tiling["dgammaMReminder"]
    first, rows = core * rows_per_core + min(core, longer), rows_per_core + (core < longer)

    def columns(width: int) -> tuple[Node, ...]:
        return _dgamma_rows(call, first, rows, tiler.BLOCK_ROWS, width)

    return ranged("columns", 0, call.columns, tiling["dgammaNfactorBlockAligned"], columns)


def _merge(call: Call) -> Phase:
    used = call.tiling["dgammaUsedCoreNum"]

    def step(width: int) -> tuple[Node, ...]:
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


parts = None
"""No sum depends on the order in which cores finish."""


def claims(call: StudyCall) -> Iterator[Claim]:
    """Yield the tree of a column of dgamma, and that of the mean in dx.

    Where the product leaves the last column out of the mean, there is no second one.
    """
    case, columns = call.case, call.case.row.col
    if case.row.row == 0:
        return
    yield dgamma_claim(call, range(columns), dgamma_tree(case))
    if columns > 2 and (case.tiling.dx.body == 0 or 2 * case.tiling.dx.body >= columns):
        yield mean_claim(call, mean_tree(case))


def dgamma_tree(case: Case) -> trees.Tree | None:
    """Return the tree of the rows of one column."""
    rows = list(range(case.row.row))
    if not tiler.is_big(case.tiling):
        return trees.ntree(trees.fold(rows, trees.largest_power(len(rows))))
    split, begin = case.tiling.row_blocks, 0
    cores: list[trees.Tree | None] = []
    for core in range(split.cores):
        blocks = split.main if core < split.longer else split.other
        block_rows, begin = rows[begin : begin + blocks.rows], begin + blocks.rows
        cores.append(core_tree(block_rows, blocks.folded, split.piece))
    return _rows_sum(cores, split.merge_columns)


def core_tree(rows: trees.Values, folded: int, width: int) -> trees.Tree | None:
    """Return the tree of the rows of one core on key 9000; ``folded`` are its blocks, 0 for one."""
    if folded == 0:
        return _rows_sum(rows, width)
    front = trees.fold(rows, tiler.BLOCK_ROWS * folded)
    blocks = (front[at : at + tiler.BLOCK_ROWS] for at in range(0, len(front), tiler.BLOCK_ROWS))
    return trees.ntree([_rows_sum(block, width) for block in blocks])


def _rows_sum(rows: trees.Values, width: int) -> trees.Tree | None:
    return trees.rows_sum([[row] for row in rows], width)[0]


def mean_tree(case: Case) -> trees.Tree | None:
    """Return the tree of the products of a row."""
    columns, body = list(range(case.row.col)), case.tiling.dx.body
    if body == 0:
        return trees.cols_sum(trees.padded(columns, align(len(columns), 128)))
    slots = []
    for begin in range(0, body, PIECE_COLUMNS):
        piece = columns[begin : begin + PIECE_COLUMNS]
        piece = piece + columns[body + begin : body + begin + PIECE_COLUMNS]
        count = align(len(piece), 128)
        power = PIECE_COLUMNS if count < 2 * PIECE_COLUMNS else 2 * PIECE_COLUMNS
        slots.append(trees.paired(piece, count, power))
    return trees.level(slots)


MOST_ROWS = 2**31 - 1
"""More rows overflow fields of 32 bits (page, "Contract differences")."""


def _rows_message(call: Inspection) -> tuple[str, str]:
    return Text(
        "row = {size}: fields of 32 bits overflow, what the product does then is not described",
        size=call.size("row"),
    ), f"row <= {MOST_ROWS}"


FIELDS: dict[str, Any] = {
    "checks": (
        checks.Given(),
        checks.Supported(),
        checks.Contiguous(),
        checks.DtypeTable("dy x rstd gamma dx dgamma", declaration.dtype_rows),
        checks.Formats(checks.PLAIN_FORMATS, status=TILING_FAILURE),
        partial(declaration.check_shapes, takes_no_rows=True),
        checks.Ranks("rstd", 0, status=TILING_FAILURE),
        checks.Holds("col >= 1", "gamma"),
        checks.Holds(f"row <= {MOST_ROWS}", "x", _rows_message),
    ),
    "tiling": tiler.Tiling,
    "tile": tiler.tile,
    "used_bytes": tiler.used_bytes,
    "assumed": (
        Assumed(
            "system_workspace_bytes",
            SYSTEM_WORKSPACE_BYTES,
            "specification page rms_norm_grad_950, Tiling",
        ),
    ),
}
"""Fields of the declaration that differ on Ascend 950."""
