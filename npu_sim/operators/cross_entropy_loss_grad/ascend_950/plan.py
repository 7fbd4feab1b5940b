"""Plan of CrossEntropyLossGrad on Ascend 950.

Source: specification page ``cross_entropy_loss_grad_950``.
"""

from collections.abc import Iterator
from typing import Any

from npu_sim.framework.vocabulary import (
    SYSTEM_WORKSPACE_BYTES,
    Case,
    Caveat,
    Condition,
    Decision,
    Description,
    Text,
    WorkspacePart,
    caveat,
    decision,
    vector_plan,
)
from npu_sim.operators.cross_entropy_loss_grad.plan import order_of
from npu_sim.operators.shared.labelled_rows.plan import path_of
from npu_sim.tiling.ascend_950 import cross_entropy_loss_grad as tiler
from npu_sim.tiling.cross_entropy_loss_grad import MEAN, row_range, vendor_structure

WHOLE = Condition(
    "whole rows",
    "at least one row, with its labels, fits the Unified Buffer",
    lambda row, device, rules: (
        tiler.whole_rows(tiler.problem_of_row(row)._replace(columns=max(row.C, 1)), device) >= 1
    ),
    "rows pass through the buffer whole, several at a time",
    "a row passes through the buffer in pieces of columns",
    ("C",),
)
BARRIER = Condition(
    "cores wait for one another",
    "reduction is mean, with weight or an ignore_index of 0 or more",
    lambda row, device, rules: sums_weights(row),
    "every core leaves the sum of its rows in the workspace, and all add them up",
    "cores do not wait",
    ("reduction", "ignore_index"),
)


def sums_weights(row: Any) -> bool:
    """Return whether ``mean`` divides by a sum: without weight and mask it divides by N."""
    return bool(row.reduction == MEAN and (row.weighted or row.ignore_index >= 0))


def row_ranges(case: Case) -> list[tuple[int, int]]:
    """Return the half-open range of rows of every core; one without rows for an empty call."""
    return [row_range(case.tiling, core) for core in range(case.tiling.used_cores)] or [(0, 0)]


def describe(case: Case) -> Description:
    """Return what the operator states of a plan."""
    row, tiling = case.row, case.tiling
    path, per_core = _path(case)
    rows = tiler.row_buffers(tiling, case.specs["log_prob"].itemsize, bool(row.weighted))
    return vector_plan(
        case,
        path=path,
        per_core=per_core,
        buffers={**rows._asdict(), **tiling.buffers._replace(smooth=0)._asdict()},
        ranges=row_ranges(case),
        fields=vendor_structure(tiling, case.arguments, case.rules),
        conditions=lambda: () if (tiler.schedule_of(tiling) == tiler.EMPTY) else _decisions(case),
        workspace=_workspace(tiling),
        order=order_of(sums_weights=sums_weights(row)),
        caveats=_caveats(case),
    )


def _decisions(case: Case) -> Iterator[Decision]:
    yield decision(case, WHOLE, C=case.row.C)
    values = {"ignore_index": case.row.ignore_index, "weight": bool(case.row.weighted)}
    yield decision(case, BARRIER, reduction=case.arguments.reduction, **values)


def _path(case: Case) -> tuple[str, str]:
    """Return the path, and the work of a core."""
    tiling, schedule = case.tiling, tiler.schedule_of(case.tiling)
    if schedule == tiler.EMPTY:
        return "no elements", ""
    if schedule == tiler.WHOLE_ROWS:
        at_once = Text("up to {rows} rows at a time", rows=tiler.rows_at_once(tiling))
        return path_of(case, "whole rows"), at_once
    return path_of(case, "columns cut"), Text(
        "one row in pieces of {columns} columns, {pieces} in all",
        columns=tiling.align_columns,
        pieces=tiling.column_loop + (tiling.column_tail > 0),
    )


def _workspace(tiling: tiler.Tiling) -> list[WorkspacePart]:
    parts = (
        WorkspacePart(
            name="system",
            bytes=SYSTEM_WORKSPACE_BYTES,
            kind="system",
            note="16 MiB on every SoC; the sums of the cores lie at its start",
        ),
        WorkspacePart(
            name="sums of the cores",
            bytes=tiling.workspace_bytes - SYSTEM_WORKSPACE_BYTES,
            kind="kernel",
            note="the kernel uses none",
        ),
    )
    return [part for part in parts if part.bytes]


def _caveats(case: Case) -> Iterator[Caveat]:
    """Yield the warnings of a plan (page, "Warnings")."""
    if case.row.ignore_index < 0:
        yield caveat(
            "negative_ignore_index",
            "ignore_index",
            "a negative ignore_index masks nothing on Ascend 950, here {ignore_index}; A2 and "
            "A3 mask labels of this value. There such a label is out of range: the kernel "
            "counts its row and changes another row's gradient or reads outside the tensors. "
            "Give ignored rows a label from 0 to C - 1 and set ignore_index to it. Read in the "
            "public sources; not run on a device",
            ignore_index=case.row.ignore_index,
        )
    if case.specs["target"].dtype == "int32":
        yield caveat(
            "int32_labels_undocumented",
            "target",
            "the product document names int64 labels only; the planner and the kernel take "
            "int32. Read in the public sources; not run on a device",
        )
    if tiler.schedule_of(case.tiling) == tiler.EMPTY or not sums_weights(case.row):
        return
    yield caveat(
        "barrier_without_batch_mode",
        "reduction",
        "all cores wait for each other, but the planner does not ask that they start "
        "together, as it does on A2 and A3: the kernel may hang if they do not. Read in the public "
        "sources; not run on a device",
        since="9.1",
    )
    if case.row.weighted:
        yield caveat(
            "sum_differs_between_products",
            "weight",
            "the weights that mean divides by are added in another order than on A2 and "
            "A3, which depends on N, C, the dtypes and the number of cores: the last bits of "
            "x_grad can differ. Read in the public sources; not run on a device",
        )
