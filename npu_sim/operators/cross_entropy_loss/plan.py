"""The plan of CrossEntropyLoss: path, buffers, workspace and decisions.

Source: specification page ``cross_entropy_loss``.
"""

from collections.abc import Iterator

from npu_sim.framework.vocabulary import (
    VECTOR_LANES,
    Case,
    Caveat,
    Condition,
    Decision,
    Description,
    OutputOrder,
    Text,
    caveat,
    ceil_div,
    core_ranges,
    counted,
    decision,
    kernel_parts,
    vector_plan,
)
from npu_sim.operators.shared.labelled_rows.plan import path_of
from npu_sim.tiling import cross_entropy_loss as tiler
from npu_sim.tiling.cross_entropy_loss_grad import MEAN, NONE, row_range

CUT = Condition(
    "row cut",
    "C > the columns that fit beside the buffers of the core's rows",
    lambda row, device, rules: tiler.most_columns(row, device) < row.C,
    "a row passes through the buffer in chunks; their width depends on N and the cores",
    "a row passes through the buffer whole",
    ("C",),
)
BARRIER = Condition(
    "cores wait for one another",
    "reduction is mean or sum",
    lambda row, device, rules: row.reduction != NONE,
    "every core leaves the sums of its rows in the workspace, and core 0 adds them up",
    "cores do not wait",
    ("reduction",),
)


def describe(case: Case) -> Description:
    """Return what the operator states of a plan."""
    tiling, columns = case.tiling, tiler.most_columns(case.row, case.device)
    values = {"C": case.row.C, "columns that fit": columns}
    return vector_plan(
        case,
        path=path_of(case, "rows cut" if tiling.chunks else "whole rows"),
        path_reason=Text(
            "C {c} {compared} {columns} columns that fit beside the buffers of {rows}",
            c=case.row.C,
            compared=">" if tiling.chunks else "<=",
            columns=columns,
            rows=counted(tiling.front_rows, "row"),
        ),
        per_core=_per_core(tiling),
        ranges=core_ranges(row_range, tiling),
        buffers=tiler.buffers(tiling, case.row.dtype),
        notes={"input": "longest chunk of a row"},
        fields=tiler.vendor_structure(tiling, case.arguments, case.rules),
        workspace=kernel_parts(case, {"sums of the cores": tiler.CORE_SUM_BYTES}),
        conditions=lambda: (decision(case, CUT, **values), barrier_of(case)),
        order=order_of(case),
        caveats=_caveats(case),
    )


def barrier_of(case: Case) -> Decision:
    """Return whether the cores wait for one another."""
    return decision(case, BARRIER, reduction=case.arguments.reduction)


def order_of(case: Case) -> tuple[OutputOrder, ...]:
    """Return the order of the outputs, which is fixed."""
    row = loss = "every row belongs to one core, nothing is added atomically"
    if case.row.reduction != NONE:
        loss = "core 0 adds the sums of the cores, in their order"
    return (
        OutputOrder(output="loss", fixed=True, reason=loss),
        OutputOrder(output="log_prob", fixed=True, reason=row),
    )


def _per_core(tiling: tiler.Tiling) -> str:
    if not tiling.chunks:
        return Text(
            "{rows}, each in one chunk of {columns} columns",
            rows=counted(tiling.front_rows, "row"),
            columns=tiling.tail_columns,
        )
    return Text(
        "{rows}, each in {chunks} of {columns} columns{tail}",
        rows=counted(tiling.front_rows, "row"),
        chunks=counted(tiling.chunks, "chunk"),
        columns=tiling.chunk_columns,
        tail=Text(" and one of {tail}", tail=tiling.tail_columns) if tiling.tail_columns else "",
    )


def smoothing_caveats(case: Case) -> Iterator[Caveat]:
    """Yield the warning that the gradient refuses label smoothing."""
    if case.row.label_smoothing:
        yield caveat(
            "smoothing_has_no_gradient",
            "label_smoothing",
            "CrossEntropyLossGrad refuses label smoothing: this loss has no gradient there",
        )


def _caveats(case: Case) -> Iterator[Caveat]:
    """Yield the warnings of a plan (page, "Warnings a plan gives")."""
    tiling = case.tiling
    if tiling.chunks:
        yield caveat(
            "row_is_cut",
            "input",
            "a row is summed in {chunks} of {columns} columns and what is left; the width depends "
            "on N and on the cores, so the last bits of log_prob of a row can differ in a batch of "
            "another size",
            chunks=counted(tiling.chunks, "chunk"),
            columns=tiling.chunk_columns,
        )
    if case.row.reduction != NONE:
        yield from _row_caveats(case)
        yield from _barrier_caveats(case)
    yield from smoothing_caveats(case)


def _row_caveats(case: Case) -> Iterator[Caveat]:
    """Yield the warnings of cores with more rows than one sum adds."""
    tiling, most, half = case.tiling, tiler.PIECE_COLUMNS, tiler.HALF_PIECE
    if tiling.front_rows > most:
        yield caveat(
            "rows_lost",
            "input",
            "reduction {reduction}: a core takes {rows} rows, and the sum of more than {most} adds "
            "the first {half} alone: the other rows do not count",
            reduction=case.arguments.reduction,
            rows=tiling.front_rows,
            most=most,
            half=half,
        )
    place = tiler.overwritten_place(tiling)
    overwritten = [
        rows
        for rows in (tiling.front_rows, tiling.tail_rows)
        if rows != most and ceil_div(rows - half, VECTOR_LANES) > place
    ]
    if overwritten and case.row.reduction == MEAN:
        yield caveat(
            "row_sum_overwritten",
            "input",
            "a core takes {rows} rows, whose partial sums overwrite the sum of the losses while it "
            "is made: of the first {half} rows it has 64 others in their place",
            rows=overwritten[0],
            half=half,
        )


def _barrier_caveats(case: Case) -> Iterator[Caveat]:
    row = case.row
    is_reused = row.reduction == MEAN and row.label_smoothing and not row.weighted
    if is_reused and case.arguments.input.dtype == "float32":
        yield caveat(
            "weight_sum_reused",
            "label_smoothing",
            "the bytes from which a core's sum of weights is copied out receive the sum of the "
            "smoothing next, with no explicit synchronisation between; the simulator computes as "
            "if the copy came first",
        )
    if case.tiling.schedule_mode < 0:
        yield caveat(
            "barrier_without_batch_mode",
            "reduction",
            "all cores wait for each other, but release {release} does not ask that they start "
            "together: the kernel may hang if they do not",
            release=case.profile.release,
            since="8.3",
            until=Text("release {release}", release="9.0"),
        )
