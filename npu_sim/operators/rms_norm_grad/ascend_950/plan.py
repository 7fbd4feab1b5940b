"""The plan of RmsNormGrad on Ascend 950: paths, buffers of both phases, conditions and warnings.

Source: specification page ``rms_norm_grad_950``.
"""

from collections.abc import Iterator
from typing import Any

from npu_sim.framework.case import Case
from npu_sim.framework.describing import Condition, decision, ub_memory, vector_plan
from npu_sim.language import Text
from npu_sim.operators.shared import normalised_rows
from npu_sim.plans.model import Caveat, Memory, OutputOrder, WorkspacePart
from npu_sim.tiling.ascend_950 import rms_norm_grad as tiler
from npu_sim.tiling.common import SYSTEM_WORKSPACE_BYTES

PATHS = {
    tiler.KEY_FULL_LOAD: "columns, all rows at once",
    tiler.KEY_BLOCKS: "columns, blocks of rows",
    tiler.KEY_NO_ROWS: "no rows",
    tiler.KEY_BIG_ROWS: "rows",
}
OFFSET_BITS = 32
"""Bits in which keys 7xxx count elements of dgamma's inputs (page, "Warnings")."""
LANES_OF_16_BITS, LANES_OF_FP32 = 16, 8
"""Elements of a 32-byte block."""

BIG_ROWS = Condition(
    "many rows",
    Text("col <= {least} * cores, row >= 2 * col and row >= {least} * cores", least=32),
    lambda row, device, rules: tiler.splits_rows(tiler.problem_of_row(row), device),
    "every core adds consecutive rows of dgamma, core 0 adds their sums",
    "every core adds all rows of its columns of dgamma",
    ("row", "col"),
)
ALL_ROWS = Condition(
    "all rows at once",
    "all rows of 64 columns fit the Unified Buffer twice",
    lambda row, device, rules: tiler.holds_all_rows(tiler.problem_of_row(row), device),
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


def describe(case: Case) -> dict[str, Any]:
    """Return the fields of the plan that depend on the case."""
    tiling = case.tiling
    conditions = []
    if tiling.tiling_key != tiler.KEY_NO_ROWS:
        conditions = [BIG_ROWS, *([] if tiler.is_big(tiling) else [ALL_ROWS]), WHOLE_ROW]
    plan = vector_plan(
        case,
        path=_path(case),
        path_reason=_path_reason(case),
        per_core=_per_core(case),
        buffers={},
        ranges=_ranges(case),
        workspace=_workspace(case),
        conditions=[
            decision(
                case, condition, row=case.row.row, col=case.row.col, cores=case.device.vector_cores
            )
            for condition in conditions
        ],
        order=_order(case),
        caveats=tuple(_caveats(case)),
    )
    return {**plan, "tiling": tiler.vendor_structure(tiling), "memories": tuple(_memories(case))}


def _path(case: Case) -> str:
    key = case.tiling.tiling_key
    wide = tiler.is_wide(case.row.col) and key != tiler.KEY_NO_ROWS
    path = PATHS[key - tiler.WIDE_STEP if wide else key]
    return Text("{path}; rows of dx in pieces", path=path) if wide else path


def _path_reason(case: Case) -> str:
    row, cores = case.row, case.device.vector_cores
    if case.tiling.tiling_key == tiler.KEY_NO_ROWS:
        return ""
    if tiler.is_big(case.tiling):
        return Text("{rows} rows of {columns} columns", rows=row.row, columns=row.col)
    return Text(
        "{rows} rows of {columns} columns on {cores} cores",
        rows=row.row,
        columns=row.col,
        cores=cores,
    )


def _ranges(case: Case) -> list[tuple[int, int]]:
    """Return the rows of dx of every core that makes some."""
    split = case.tiling.dx
    starts = range(0, split.cores * split.block_factor, max(split.block_factor, 1))
    return [(start, min(start + split.block_factor, split.rows)) for start in starts] or [(0, 0)]


def _per_core(case: Case) -> str:
    tiling = case.tiling
    if tiler.is_big(tiling):
        return Text(
            "dgamma: {rows} rows each, one more on {longer} cores",
            rows=tiling.row_blocks.rows,
            longer=tiling.row_blocks.longer,
        )
    if tiling.tiling_key == tiler.KEY_NO_ROWS:
        return ""
    return Text("dgamma: columns on {cores} cores", cores=tiling.column_sets.cores)


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


def _order(case: Case) -> tuple[OutputOrder, ...]:
    reason = Text("every column belongs to one core")
    if tiler.is_big(case.tiling):
        reason = Text("core 0 adds the sums of the cores in a fixed order")
    return (
        OutputOrder(output="dx", fixed=True, reason="every row belongs to one core"),
        OutputOrder(output="dgamma", fixed=True, reason=reason),
    )


def _caveats(case: Case) -> Iterator[Caveat]:
    """Yield the warnings of a plan (page, "Warnings")."""
    row, tiling, gamma = case.row, case.tiling, case.specs["gamma"]
    if tiling.tiling_key == tiler.KEY_NO_ROWS:
        yield Caveat(
            code="dgamma_is_nan",
            argument="x",
            message="without rows dgamma becomes nan in every column, not 0. Read in the public "
            "sources; not run on a device",
        )
        return
    if 0 < 2 * tiling.dx.body < row.col:
        yield Caveat(
            code="last_column_left_out_of_mean",
            argument="gamma",
            message=Text(
                "the mean of a row of {columns} columns leaves out the last one, which still gets "
                "its dx. Read in the public sources; not run on a device",
                columns=row.col,
            ),
        )
    partial = 0 < row.col % LANES_OF_16_BITS <= LANES_OF_FP32
    mixed = gamma.dtype == "float32" and case.specs["dy"].dtype != "float32"
    if mixed and partial and not tiler.is_wide(row.col):
        yield Caveat(
            code="stale_gamma_lanes",
            argument="gamma",
            message="up to 8 lanes of the gamma buffer that no copy fills are multiplied by zeros: "
            "inf or nan left there by an earlier kernel makes whole rows of dx nan; the simulator "
            "counts them as 0. Read in the public sources; not run on a device",
        )
    if not tiler.is_big(tiling) and row.row * row.col > 1 << OFFSET_BITS:
        yield Caveat(
            code="offsets_wrap",
            argument="x",
            message=Text(
                "dgamma counts elements of its inputs in {bits} bits: beyond 2^{bits} elements it "
                "reads wrong ones; the simulator computes as if it did not. Read in the public "
                "sources; not run on a device",
                bits=OFFSET_BITS,
            ),
        )
