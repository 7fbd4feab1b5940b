"""Plan of RmsNormGrad on Ascend 950.

Source: specification page ``rms_norm_grad_950``.
"""

from collections.abc import Iterator

from npu_sim.framework.vocabulary import (
    SYSTEM_WORKSPACE,
    SYSTEM_WORKSPACE_BYTES,
    Case,
    Caveat,
    Condition,
    Description,
    Memory,
    OutputOrder,
    Text,
    WorkspacePart,
    caveat,
    decision,
    release_inferred,
    ub_memory,
    vector_plan,
)
from npu_sim.tiling.ascend_950 import rms_norm_grad as tiler

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
    conditions = [BIG_ROWS, ALL_ROWS, WHOLE_ROW]
    if tiling.tiling_key == tiler.KEY_NO_ROWS:
        conditions = []
    elif tiler.is_big(tiling):
        conditions.remove(ALL_ROWS)
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
    parts = [SYSTEM_WORKSPACE]
    kernel_bytes = case.tiling.workspace_bytes - SYSTEM_WORKSPACE_BYTES
    if kernel_bytes:
        parts.append(WorkspacePart(name="dgamma of every core", bytes=kernel_bytes, kind="kernel"))
    return parts


def _inferred(case: Case) -> Caveat:
    """Return the caveat on what the kernel does otherwise than that of the release before."""
    if case.tiling.tiling_key == tiler.KEY_NO_ROWS:
        return release_inferred(case, "x", Text("without rows dgamma is cleared to 0"), "dgamma")
    what = Text("dx takes one fused multiply-add, whose product is not rounded")
    return release_inferred(case, "x", what, "dx")


def _caveats(case: Case) -> Iterator[Caveat]:
    """Yield the warnings of a plan (page, "Warnings")."""
    row, tiling, gamma = case.row, case.tiling, case.specs["gamma"]
    if case.rules.fuses_dx:
        yield _inferred(case)
    if tiling.tiling_key == tiler.KEY_NO_ROWS:
        if case.rules.mean_has_all_columns:
            return
        yield caveat(
            "dgamma_is_nan",
            "x",
            "without rows dgamma becomes nan in every column, not 0. Read in the public "
            "sources; not run on a device",
            since="9.1",
            until=Text("release {release}", release="9.2"),
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
            until=Text("release {release}", release="9.2"),
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
