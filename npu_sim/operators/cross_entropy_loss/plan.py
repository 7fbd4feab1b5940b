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
    counted,
    decision,
    kernel_parts,
    ub_memory,
    vector_plan,
)
from npu_sim.tiling import cross_entropy_loss as tiler

MOST_TREE_ROWS, HALF_TREE_ROWS = 8192, 4096
"""Most rows of a core that one sum adds, and those of its first half."""
CUT = Condition(
    "row cut",
    "C > the columns that fit beside the buffers of the core's rows",
    lambda row, device, rules: tiler.tile(row, device, rules).chunk_columns < row.C,
    "a row passes through the buffer in chunks; their width depends on N and the cores",
    "a row passes through the buffer whole",
    ("C",),
)
BARRIER = Condition(
    "cores wait for one another",
    "reduction is mean or sum",
    lambda row, device, rules: row.reduction != tiler.NONE,
    "every core leaves the sums of its rows in the workspace, and core 0 adds them up",
    "cores do not wait",
    ("reduction",),
)


def describe(case: Case) -> Description:
    """Return what the operator states of a plan."""
    tiling = case.tiling
    return vector_plan(
        case,
        Description(
            path=path_of(case, is_cut=tiling.chunks > 0),
            path_reason=Text(
                "C {c} {compared} {columns} columns that fit beside the buffers of {rows}",
                c=case.row.C,
                compared=">" if tiling.chunks else "<=",
                columns=tiler.most_columns(case.row, case.device, case.rules),
                rows=counted(tiling.front_rows, "row"),
            ),
            per_core=_per_core(tiling),
            memories=lambda: [
                ub_memory(
                    case,
                    tiler.buffers(tiling, case.row.dtype),
                    notes={"input": "longest chunk of a row"},
                )
            ],
            tiling=tiler.vendor_structure(tiling, case.arguments, case.rules),
            decisions=lambda: _decisions(case),
            order=order_of(case),
            caveats=_caveats(case),
        ),
        ranges=[tiler.row_range(tiling, core) for core in range(tiling.block_dim)],
        workspace=kernel_parts(case, {"sums of the cores": tiler.CORE_SUM_BYTES}),
    )


def path_of(case: Case, *, is_cut: bool) -> str:
    """Return the path of a plan."""
    return Text(
        "{row}, {reduction}, {weight}{smoothing}",
        row="rows cut" if is_cut else "whole rows",
        reduction=case.arguments.reduction,
        weight="with weight" if case.row.weighted else "no weight",
        smoothing=Text(", label smoothing") if case.row.label_smoothing else "",
    )


def order_of(case: Case) -> tuple[OutputOrder, ...]:
    """Return the order of the outputs, which is fixed."""
    row = "every row belongs to one core, nothing is added atomically"
    reduced = "core 0 adds the sums of the cores, in their order"
    loss = row if case.row.reduction == tiler.NONE else reduced
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


def _decisions(case: Case) -> Iterator[Decision]:
    columns = tiler.most_columns(case.row, case.device, case.rules)
    values = {"C": case.row.C, "columns that fit": columns}
    yield decision(case, CUT, **values)
    yield decision(case, BARRIER, reduction=case.arguments.reduction)


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
    tiling, row = case.tiling, case.row
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
    if row.reduction != tiler.NONE:
        yield from _row_caveats(case)
        yield from _barrier_caveats(case)
    yield from smoothing_caveats(case)


def _row_caveats(case: Case) -> Iterator[Caveat]:
    """Yield the warnings of cores with more rows than one sum adds."""
    tiling, reduction = case.tiling, case.arguments.reduction
    most, half = MOST_TREE_ROWS, HALF_TREE_ROWS
    if tiling.front_rows > most:
        yield caveat(
            "rows_lost",
            "input",
            "reduction {reduction}: a core takes {rows} rows, and the sum of more than {most} adds "
            "the first {half} alone: the other rows do not count",
            reduction=reduction,
            rows=tiling.front_rows,
            most=most,
            half=half,
        )
    place = tiler.overwritten_place(tiling, case.row.dtype)
    overwritten = [
        rows
        for rows in (tiling.front_rows, tiling.tail_rows)
        if rows > half and rows != most and ceil_div(rows - half, VECTOR_LANES) > place
    ]
    if overwritten and case.row.reduction == tiler.MEAN:
        yield caveat(
            "row_sum_overwritten",
            "input",
            "a core takes {rows} rows, whose partial sums overwrite the sum of the losses while it "
            "is made: of the first {half} rows it has 64 others in their place",
            rows=overwritten[0],
            half=half,
        )


def _barrier_caveats(case: Case) -> Iterator[Caveat]:
    row, tiling = case.row, case.tiling
    is_reused = row.reduction == tiler.MEAN and row.label_smoothing and not row.weighted
    if is_reused and case.arguments.input.dtype == "float32":
        yield caveat(
            "weight_sum_reused",
            "label_smoothing",
            "the bytes from which a core's sum of weights is copied out receive the sum of the "
            "smoothing next, with no explicit synchronisation between; the simulator computes as "
            "if the copy came first",
        )
    if tiling.schedule_mode < 0:
        yield caveat(
            "barrier_without_batch_mode",
            "reduction",
            "all cores wait for each other, but release {release} does not ask that they start "
            "together: the kernel may hang if they do not",
            release=case.profile.release,
            since="8.3",
            until=Text("release {release}", release="9.0"),
        )
