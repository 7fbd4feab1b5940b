"""The plan of CrossEntropyLossGrad: path, buffers, workspace and decisions.

Source: specification pages ``cross_entropy_loss_grad`` and ``workspace``.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from npu_sim.framework.vocabulary import (
    Case,
    Caveat,
    Condition,
    Decision,
    Description,
    Device,
    OutputOrder,
    Text,
    caveat,
    core_ranges,
    counted,
    decision,
    joined,
    kernel_parts,
    vector_plan,
)
from npu_sim.operators.shared.labelled_rows.plan import path_of
from npu_sim.tiling import cross_entropy_loss_grad as tiler

EXACT_LABELS = 16777216
"""2^24: labels are compared in fp32, exact up to here (page, "Kernel and order")."""


def describe(case: Case) -> Description:
    """Return what the operator states of a plan."""
    tiling = case.tiling
    pieces = tiling.column_loop + (tiling.column_tail > 0)
    row = "whole rows" if pieces == 1 else Text("rows in {pieces} pieces", pieces=pieces)
    return vector_plan(
        case,
        path=path_of(case, row),
        path_reason=Text(
            "C {c} {compared} {column_budget} columns that fit; pieces are multiples of {unit} "
            "columns",
            c=case.row.C,
            compared=">" if tiling.column_budget < case.row.C else "<=",
            column_budget=tiling.column_budget,
            unit=tiler.unit_columns(case.row.dtype),
        ),
        per_core=_per_core(tiling),
        ranges=core_ranges(tiler.row_range, tiling),
        buffers=tiler.buffers(tiling, case.row.dtype),
        notes={"log_prob in": "longest piece of a row"},
        fields=tiler.vendor_structure(tiling, case.arguments, case.rules),
        workspace=kernel_parts(
            case, {"sums of the cores": tiler.core_sum_bytes(case.device.vector_cores)}
        ),
        conditions=lambda: _decisions(case),
        order=order_of(sums_weights=case.arguments.reduction == "mean"),
        caveats=_caveats(case, tiling),
    )


def order_of(*, sums_weights: bool) -> tuple[OutputOrder, ...]:
    """Return the order of x_grad; ``sums_weights``: ``mean`` divides by a sum of weights."""
    reasons = ["every row belongs to one core, nothing is added atomically"]
    if sums_weights:
        reasons.append("the divisor is summed core by core")
    return (OutputOrder(output="x_grad", fixed=True, reason=joined(reasons)),)


def _per_core(tiling: tiler.Tiling) -> str:
    labels = Text("labels of {count} at once", count=counted(tiling.front_rows, "row"))
    if tiling.align_columns == 0:
        return Text(
            "{labels}; each row in one piece of {column_tail} columns",
            labels=labels,
            column_tail=tiling.column_tail,
        )
    loop, rest = tiling.column_loop, tiling.column_tail
    return Text(
        "{labels}; each row in {times} of {align_columns} columns{tail}",
        labels=labels,
        times="one piece" if loop == 1 else Text("{column_loop} pieces", column_loop=loop),
        align_columns=tiling.align_columns,
        tail=Text(" and one of {column_tail}", column_tail=rest) if rest else "",
    )


def is_beyond_documented(case: Case) -> bool:
    """Return whether the call has more rows than the product document allows."""
    return bool(0 <= case.rules.rows_below <= case.row.N)


def _is_legal(case: Case) -> bool:
    """Return whether the limits in force allow the rows and columns of the case."""
    refused = case.limits == "documented" and is_beyond_documented(case)
    return not refused and tiler.fits(case.row, case.device, case.rules)


def _decisions(case: Case) -> Iterator[Decision]:
    tiling, columns, unit = case.tiling, case.row.C, tiler.unit_columns(case.row.dtype)
    most_rows = tiler.largest_rows(case.row, case.device, case.rules, columns)

    def legal(axis: str, *sizes: int) -> Callable[[Any, Device, Any], Iterator[int]]:
        return lambda row, device, rules: (
            size for size in sizes if size > 0 and _is_legal(case.changed(**{axis: size}))
        )

    beyond = Condition(
        "row beyond the buffer",
        "C > (Unified Buffer - row buffers) // bytes of a column",
        lambda row, device, rules: not tiler.leaves_room(row, row.C, device, rules),
        "a row passes through the buffer in pieces",
        "a row fits; columns beyond the last whole block go last",
        ("C", "N"),
        {
            "C": legal("C", tiling.column_budget, tiling.column_budget + 1),
            "N": legal("N", most_rows, most_rows + 1),
        },
    )
    values = {
        "C": columns,
        "Unified Buffer": case.device.ub_bytes,
        "row buffers": sum(tiling.buffers),
        "bytes of a column": tiler.bytes_per_column(case.row.dtype),
        "columns that fit": tiling.column_budget,
    }
    yield decision(case, beyond, **values)
    yield decision(
        case,
        Condition(
            "short row",
            Text(
                "min(C, columns that fit) < {unit}, one block of {column_unit_bytes} bytes",
                unit=unit,
                column_unit_bytes=tiler.COLUMN_UNIT_BYTES,
            ),
            lambda row, device, rules: tiler.tile(row, device, rules).align_columns == 0,
            "alignColLoopNum is 0: the whole row is the tail",
            Text("alignColLoopNum is {align_columns}", align_columns=tiling.align_columns),
            ("C",),
            {"C": legal("C", unit, unit - 1)},
        ),
        **{"C": columns, "columns that fit": tiling.column_budget},
    )
    yield decision(case, BARRIER, reduction=case.arguments.reduction)


BARRIER = Condition(
    "cores wait for one another",
    "reduction is mean",
    lambda row, device, rules: row.reduction == tiler.MEAN,
    "every core leaves the sum of its rows in the workspace, and all add them up",
    "cores do not wait",
    ("reduction",),
)


def aliased_labels(ignore_index: int, columns: int) -> tuple[int, int]:
    """Return the first and last label in [0, C) whose fp32 value is that of ignore_index.

    first > last when there is none.
    """
    ignored = np.float32(ignore_index)
    below = int(np.nextafter(ignored, np.float32(-np.inf)))
    above = int(np.nextafter(ignored, np.float32(np.inf)))
    first, last = (below + int(ignored) + 1) // 2, (int(ignored) + above) // 2
    # A label midway between two fp32 numbers rounds to the even one.
    first += int(np.float32(first) != ignored)
    last -= int(np.float32(last) != ignored)
    return max(first, 0), min(last, columns - 1)


def _caveats(case: Case, tiling: tiler.Tiling) -> Iterator[Caveat]:
    row = case.row
    if row.C > EXACT_LABELS:
        yield _label_caveat(row.ignore_index, row.C)
    if tiling.align_columns == 0:
        yield caveat(
            "row_without_own_bytes",
            "log_prob",
            "alignColLoopNum is 0: the buffer of the fp32 row has 0 bytes, the product writes "
            "{bytes} bytes beyond it, into buffers that are no longer needed",
            bytes=4 * tiling.column_tail,
        )
    if is_beyond_documented(case):
        yield caveat(
            "rows_beyond_documented",
            "log_prob",
            "N {n} is beyond the documented N < {rows_below}; the Unified Buffer holds it",
            n=row.N,
            rows_below=case.rules.rows_below,
        )


def _label_caveat(ignored: int, columns: int) -> Caveat:
    first, last = aliased_labels(ignored, columns)
    if ignored >= 0 and first < last:
        return caveat(
            "labels_alias",
            "ignore_index",
            "labels are compared with ignore_index {ignore_index} in fp32: labels {first} to "
            "{last} are all ignored",
            ignore_index=ignored,
            first=first,
            last=last,
        )
    return caveat(
        "labels_beyond_fp32",
        "log_prob",
        "labels are compared in fp32, exact up to {exact_labels}; an ignore_index beyond "
        "would ignore its neighbours too, {ignore_index} does not",
        exact_labels=EXACT_LABELS,
        ignore_index=ignored,
    )
