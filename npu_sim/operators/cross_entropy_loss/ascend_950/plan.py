"""Plan of CrossEntropyLoss on Ascend 950.

Source: specification page ``cross_entropy_loss_950``.
"""

from collections.abc import Iterator

from npu_sim.framework.vocabulary import (
    SYSTEM_WORKSPACE,
    SYSTEM_WORKSPACE_BYTES,
    Case,
    Caveat,
    Condition,
    Description,
    Text,
    WorkspacePart,
    caveat,
    core_ranges,
    decision,
    vector_plan,
)
from npu_sim.operators.cross_entropy_loss.plan import barrier_of, order_of, smoothing_caveats
from npu_sim.operators.shared.labelled_rows.plan import path_of
from npu_sim.tiling.ascend_950 import cross_entropy_loss as tiler
from npu_sim.tiling.cross_entropy_loss_grad import MEAN

WHOLE = Condition(
    "whole rows",
    "a block of rows, with what is computed of them, fits the Unified Buffer",
    lambda row, device, rules: tiler.whole_rows(row, device)[0] > 0,
    "rows pass through the buffer whole, several at a time, and are read once",
    "a row passes through the buffer in blocks of columns, three times",
    ("C",),
)


def describe(case: Case) -> Description:
    """Return what the operator states of a plan."""
    tiling, schedule = case.tiling, tiler.schedule_of(case.tiling)
    is_empty = schedule == tiler.EMPTY
    row = "rows cut" if schedule == tiler.CUT_COLUMNS else "whole rows"
    sums = WorkspacePart(
        name="sums of the cores",
        bytes=tiling.workspace_bytes - SYSTEM_WORKSPACE_BYTES,
        kind="kernel",
    )
    return vector_plan(
        case,
        path="no rows" if is_empty else path_of(case, row),
        per_core=_per_core(tiling),
        buffers=tiler.buffers(case.row, tiling),
        ranges=core_ranges(tiler.row_range, tiling),
        fields=tiler.vendor_structure(tiling, case.arguments, case.rules),
        workspace=[part for part in (SYSTEM_WORKSPACE, sums) if part.bytes],
        conditions=lambda: (
            () if is_empty else (decision(case, WHOLE, C=case.row.C), barrier_of(case))
        ),
        order=order_of(case),
        caveats=_caveats(case),
    )


def _per_core(tiling: tiler.Tiling) -> str:
    rows, blocks = tiling.passes.rows, tiling.blocks
    if rows == 0:
        return ""
    if blocks.number == 0:
        return Text("up to {rows} rows at a time", rows=rows)
    return Text(
        "one row in blocks of {columns} columns, {blocks} in all",
        columns=blocks.columns,
        blocks=blocks.number,
    )


def _caveats(case: Case) -> Iterator[Caveat]:
    """Yield the warnings of a plan (page, "Warnings")."""
    row, schedule = case.row, tiler.schedule_of(case.tiling)
    yield from smoothing_caveats(case)
    if schedule == tiler.EMPTY:
        return
    yield caveat(
        "log_prob_differs_between_products",
        "log_prob",
        "log_prob is (x - maximum) - ln(sum), on A2 and A3 x - (ln(sum) + maximum): many of its "
        "last bits differ between the products. Read in the public sources; not run on a device",
    )
    is_cut, low = schedule == tiler.CUT_COLUMNS, tiler.low_bits(row.ignore_index)
    if not is_cut and low != row.ignore_index:
        yield caveat(
            "label_low_32_bits",
            "ignore_index",
            "labels and ignore_index {ignore_index} are compared in their low 32 bits: labels "
            "equal to {low} are ignored too",
            ignore_index=row.ignore_index,
            low=low,
        )
    if is_cut and row.ignore_index < 0:
        yield caveat(
            "negative_ignore_index",
            "ignore_index",
            "a negative ignore_index masks nothing on Ascend 950 where rows are cut, here "
            "{ignore_index}; a label equal to it is refused: its loss would be that of another row "
            "or of memory that nothing wrote. Give ignored rows a label from 0 to C - 1 and set "
            "ignore_index to it. Read in the public sources; not run on a device",
            ignore_index=row.ignore_index,
        )
    if is_cut and row.reduction == MEAN and not row.weighted:
        yield caveat(
            "weight_buffer_unplanned",
            "reduction",
            "the kernel reserves {bytes} bytes for the weights of the labels that the plan does "
            "not count: its last buffers can lie beyond the Unified Buffer. The simulator computes "
            "as if they fitted. Read in the public sources; not run on a device",
            bytes=tiler.PASS_BYTES,
        )
