"""The plan of CrossEntropyLossGrad on Ascend 950: path, buffers, conditions and warnings.

Source: specification page ``cross_entropy_loss_grad_950``.
"""

from collections.abc import Iterator
from typing import Any

from npu_sim.framework.case import Case
from npu_sim.framework.describing import Condition, decision, vector_plan
from npu_sim.language import Text, joined
from npu_sim.operators.cross_entropy_loss_grad.ascend_950.compute import row_ranges, sums_weights
from npu_sim.plans.model import Caveat, OutputOrder, WorkspacePart
from npu_sim.tiling.ascend_950 import cross_entropy_loss_grad as tiler
from npu_sim.tiling.common import SYSTEM_WORKSPACE_BYTES
from npu_sim.tiling.cross_entropy_loss_grad import MEAN, vendor_structure

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
    lambda row, device, rules: (
        row.reduction == MEAN and (row.weighted == 1 or row.ignore_index >= 0)
    ),
    "every core leaves the sum of its rows in the workspace, and all add them up",
    "cores do not wait",
    ("reduction", "ignore_index"),
)


def describe(case: Case) -> dict[str, Any]:
    """Return the fields of the plan that depend on the case."""
    row, tiling = case.row, case.tiling
    weighted = bool(row.weighted)
    rows = tiler.row_buffers(tiling, case.specs["log_prob"].itemsize, weighted)
    labels = tiling.buffers._replace(smooth=0)
    is_empty = tiler.schedule_of(tiling) == tiler.EMPTY
    plan = vector_plan(
        case,
        path=_path(case),
        per_core=_per_core(case),
        buffers={**rows._asdict(), **labels._asdict()},
        ranges=row_ranges(case),
        conditions=[] if is_empty else [decision(case, WHOLE, C=row.C), _barrier(case)],
        workspace=_workspace(tiling),
        order=(OutputOrder(output="x_grad", fixed=True, reason=_order(case)),),
        caveats=tuple(_caveats(case)),
    )
    return {**plan, "tiling": vendor_structure(tiling, row.ignore_index, 0.0)}


def _barrier(case: Case) -> Any:
    values = {"ignore_index": case.row.ignore_index, "weight": bool(case.row.weighted)}
    return decision(case, BARRIER, reduction=case.arguments.reduction, **values)


def _path(case: Case) -> str:
    schedule = tiler.schedule_of(case.tiling)
    if schedule == tiler.EMPTY:
        return "no elements"
    return Text(
        "{row}, {reduction}, {weight}",
        row="whole rows" if schedule == tiler.WHOLE_ROWS else "columns cut",
        reduction=case.arguments.reduction,
        weight="with weight" if case.row.weighted else "no weight",
    )


def _per_core(case: Case) -> str:
    tiling = case.tiling
    schedule = tiler.schedule_of(tiling)
    if schedule == tiler.EMPTY:
        return ""
    if schedule == tiler.WHOLE_ROWS:
        return Text("up to {rows} rows at a time", rows=tiler.rows_at_once(tiling))
    return Text(
        "one row in pieces of {columns} columns, {pieces} in all",
        columns=tiling.align_columns,
        pieces=tiling.column_loop + (tiling.column_tail > 0),
    )


def _workspace(tiling: tiler.Tiling) -> list[WorkspacePart]:
    note = "16 MiB on every SoC; the sums of the cores lie at its start"
    parts = [WorkspacePart(name="system", bytes=SYSTEM_WORKSPACE_BYTES, kind="system", note=note)]
    kernel_bytes = tiling.workspace_bytes - SYSTEM_WORKSPACE_BYTES
    if kernel_bytes:
        parts.append(
            WorkspacePart(
                name="sums of the cores",
                bytes=kernel_bytes,
                kind="kernel",
                note="the kernel uses none",
            )
        )
    return parts


def _order(case: Case) -> str:
    reasons = ["every row belongs to one core, nothing is added atomically"]
    if sums_weights(case):
        reasons.append("the divisor is summed core by core")
    return joined(reasons)


def _caveats(case: Case) -> Iterator[Caveat]:
    """Yield the warnings of a plan (page, "Warnings")."""
    if case.row.ignore_index < 0:
        yield Caveat(
            code="negative_ignore_index",
            argument="ignore_index",
            message=Text(
                "a negative ignore_index masks nothing on Ascend 950, here {ignore_index}; A2 and "
                "A3 mask labels of this value. There such a label is out of range: the kernel "
                "counts its row and changes another row's gradient or reads outside the tensors. "
                "Give ignored rows a label from 0 to C - 1 and set ignore_index to it. Read in the "
                "public sources; not run on a device",
                ignore_index=case.row.ignore_index,
            ),
        )
    if case.specs["target"].dtype == "int32":
        yield Caveat(
            code="int32_labels_undocumented",
            argument="target",
            message="the product document names int64 labels only; the planner and the kernel take "
            "int32. Read in the public sources; not run on a device",
        )
    if tiler.schedule_of(case.tiling) == tiler.EMPTY or not sums_weights(case):
        return
    yield Caveat(
        code="barrier_without_batch_mode",
        argument="reduction",
        message="all cores wait for each other, but the planner does not ask that they start "
        "together, as it does on A2 and A3: the kernel may hang if they do not. Read in the public "
        "sources; not run on a device",
    )
    if case.row.weighted:
        yield Caveat(
            code="sum_differs_between_products",
            argument="weight",
            message="the weights that mean divides by are added in another order than on A2 and "
            "A3, which depends on N, C, the dtypes and the number of cores: the last bits of "
            "x_grad can differ. Read in the public sources; not run on a device",
        )
