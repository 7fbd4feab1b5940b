"""Plan of EmbeddingDenseBackward on Ascend 950.

Source: specification page ``embedding_dense_backward_950``.
"""

from collections.abc import Iterator
from math import prod

from npu_sim.framework.vocabulary import (
    FP32_BYTES,
    Case,
    Caveat,
    Condition,
    Description,
    Evidence,
    Launch,
    LaunchTensor,
    Memory,
    OutputOrder,
    Text,
    WorkspacePart,
    caveat,
    core_ranges,
    decision,
    intermediate,
    kernel_parts,
    release_inferred,
    ub_memory,
    vector_plan,
)
from npu_sim.operators.embedding_dense_backward.ascend_950.declaration import (
    MANY_ROWS_OF_16_BIT,
    MANY_ROWS_OF_FP32,
    WEIGHTS_OF_A_COLUMN,
    WIDE_COLUMNS,
    casts_indices,
    index_bytes,
    problem_of_row,
    sorts,
    takes_v2,
)
from npu_sim.operators.embedding_dense_backward.declaration import KERNEL_GRAD_V2, KERNELS
from npu_sim.operators.embedding_dense_backward.plan import launches_of, padding_caveats
from npu_sim.tiling.ascend_950 import embedding_dense_backward as v2
from npu_sim.tiling.ascend_950.embedding_dense_backward import embedding_dense_grad as v1

FIRST_GROUPED = 3
"""Rows of grad from which on the order can differ from that of A2 and A3."""
PAIRS_TESTED = 64
"""Neighbouring cores that V2 tests for a shared index."""

V2 = Condition(
    "EmbeddingDenseGradV2",
    Text(
        "rows <= 2147483647, and either rows >= dim and rows >= {fp32} (16-bit grad: {half}), or "
        "dim > {wide} and num_weights > {many} * dim, or dim > {wide} and scale_grad_by_freq and "
        "dim // num_weights < 2",
        fp32=MANY_ROWS_OF_FP32,
        half=MANY_ROWS_OF_16_BIT,
        wide=WIDE_COLUMNS,
        many=WEIGHTS_OF_A_COLUMN,
    ),
    lambda row, device, rules: takes_v2(row),
    "the rows are sorted, and cores split the sorted rows",
    "EmbeddingDenseGrad: cores split the columns, and sort the rows in batches of their own order",
    ("rows", "dim", "num_weights"),
)
ALL_ROWS = Condition(
    "all rows at once",
    Text(
        "rows <= {rows}, and they fit the Unified Buffer with {least} bytes of columns",
        rows=v1.MOST_FULL_LOAD_ROWS,
        least=v1.LEAST_COLUMN_BYTES,
    ),
    lambda row, device, rules: (
        v1.full_load_columns(problem_of_row(row)._replace(rows=max(row.rows, 1)), device) > 0
    ),
    "the rows are one batch",
    "the rows come in batches, and the groups of five restart at every batch",
    ("rows",),
)
IN_PIECES = Condition(
    "columns in pieces",
    Text("a row of grad has more than {most} bytes", most=v2.PIECE_BYTES),
    lambda row, device, rules: v2.has_pieces(problem_of_row(row)),
    "a batch takes its columns piece by piece; the same order",
    "a batch takes all columns at once",
    ("dim",),
)


def describe(case: Case) -> Description:
    """Return what the operator states of a plan."""
    is_v2, row = case.tiling.kernel == KERNEL_GRAD_V2, case.row
    tiling, planner = (case.tiling.v2, v2) if is_v2 else (case.tiling.v1, v1)
    path, per_core, reason = _texts_of_v2(case) if is_v2 else _texts_of_v1(case)
    values = {"rows": row.rows, "dim": row.dim, "num_weights": row.num_weights}
    launches = launches_of(
        case,
        _kernel_parts(case),
        index_dtype=f"int{8 * index_bytes(row)}" if casts_indices(row) else "",
        sort=_sort if sorts(row) else None,
        zeros=is_v2,
    )
    return vector_plan(
        case,
        path=path,
        path_reason=Text("{rows} rows of {dim} columns", rows=row.rows, dim=row.dim),
        per_core=per_core,
        memories=lambda: _memories(case),
        ranges=core_ranges(planner.core_range, tiling),
        unit="sorted row" if is_v2 else "column",
        kernel=KERNELS[case.tiling.kernel],
        tiling=tiling,
        fields=planner.vendor_structure(tiling, case.arguments, case.rules),
        launches=launches,
        conditions=lambda: [
            decision(case, V2, scale_grad_by_freq=row.scale_grad_by_freq, **values),
            decision(case, IN_PIECES if is_v2 else ALL_ROWS, **values),
        ],
        order=(OutputOrder(output="grad_weight", fixed=True, reason=reason),),
        caveats=(*_caveats(case), *padding_caveats(case)),
    )


def _texts_of_v2(case: Case) -> tuple[str, str, str]:
    """Return the path, the work of a core, and the order of EmbeddingDenseGradV2."""
    tiling = case.tiling.v2
    return (
        "sorted rows over cores, columns in pieces"
        if v2.has_pieces(problem_of_row(case.row))
        else "sorted rows over cores",
        Text(
            "up to {batches} batches of {rows} rows, {columns} columns at a time",
            batches=tiling.core_batches,
            rows=tiling.batch_rows,
            columns=tiling.piece_columns,
        ),
        Text(
            "every core adds the rows of an index in groups of ten, which restart after every "
            "{rows} sorted rows; the sums of several cores are added in the order of the cores",
            rows=tiling.batch_rows,
        ),
    )


def _texts_of_v1(case: Case) -> tuple[str, str, str]:
    """Return the path, the work of a core, and the order of EmbeddingDenseGrad."""
    tiling = case.tiling.v1
    path = (
        "columns over cores, all rows at once"
        if v1.is_full_load(tiling)
        else "columns over cores, batches of rows"
    )
    sizes = {"rows": tiling.batch_rows, "columns": min(tiling.columns, tiling.core_columns)}
    if tiling.batches == 1:
        order = (
            "every column belongs to one core, which adds the rows of an index in groups of five"
        )
        return path, Text("{rows} rows and up to {columns} columns at a time", **sizes), order
    per_core = Text(
        "{batches} batches of {rows} rows, up to {columns} columns at a time",
        batches=tiling.batches,
        **sizes,
    )
    order = Text(
        "every column belongs to one core, which adds the rows of an index in groups of five; the "
        "groups restart after every {rows} rows",
        rows=tiling.batch_rows,
    )
    return path, per_core, order


def _memories(case: Case) -> Iterator[Memory]:
    """Yield the buffers of the rows, and those of what follows after a barrier."""
    size, index_size = case.specs["grad"].itemsize, index_bytes(case.row)
    if case.tiling.kernel == KERNEL_GRAD_V2:
        phases = {
            "rows": v2.buffers(case.tiling.v2, size, index_size),
            "merge of the cores": v2.merge_buffers(case.tiling.v2, size, index_size),
        }
    else:
        scales = case.row.scale_grad_by_freq == 1
        phases = {
            "rows": v1.buffers(case.tiling.v1, size, index_size),
            "second pass": v1.scan_buffers(case.tiling.v1, size, index_size, scales),
        }
    for phase, buffers in phases.items():
        if any(buffers.values()):
            yield ub_memory(case, buffers, phase)


def _kernel_parts(case: Case) -> tuple[WorkspacePart, ...]:
    """Return the workspace of the kernel by part."""
    row, sizes = case.row, {}
    if case.tiling.kernel == KERNEL_GRAD_V2:
        kernel_bytes = case.tiling.v2.workspace_bytes - case.device.system_workspace_bytes
        sizes["first and last sum of every core"] = kernel_bytes
    elif not v1.is_full_load(case.tiling.v1):
        sizes["counters"] = row.num_weights * index_bytes(row)
        sizes["fp32 copy of out"] = FP32_BYTES * row.num_weights * row.dim
    return kernel_parts(case, sizes)


def _sort(indices: LaunchTensor) -> Launch:
    """Return the launch that sorts the indices, stably and ascending."""
    indices = indices.viewed((prod(indices.shape),), indices.dtype)
    return Launch(
        kernel="Sort",
        inputs=(indices,),
        outputs=(
            intermediate("sorted indices", indices.shape, indices.dtype),
            intermediate("positions", indices.shape, "int32"),
        ),
        workspace=(
            WorkspacePart(
                name="workspace of Sort",
                bytes=0,
                kind="kernel",
                evidence=Evidence.UNKNOWN,
                note="not published for Ascend 950",
            ),
        ),
    )


def _caveats(case: Case) -> Iterator[Caveat]:
    """Yield the warnings of a plan (page, "Kernel and order", "Warnings")."""
    is_v2 = case.tiling.kernel == KERNEL_GRAD_V2
    tiling = case.tiling.v2 if is_v2 else case.tiling.v1
    if case.row.rows >= FIRST_GROUPED:
        yield caveat(
            "sum_differs_between_products",
            "grad_weight",
            "Ascend 950 adds the rows of an index in other groups than A2 and A3: the last "
            "bits of grad_weight can differ from theirs. Read in the public sources; not run on a "
            "device",
        )
    if tiling.batches > 1:
        yield caveat(
            "order_depends_on_sizes",
            "grad_weight",
            "groups of rows restart after every {rows} rows, a number that sizes, dtypes and "
            "the SoC decide: other sizes, or more rows of other indices, can change the last "
            "bits. Read in the public sources; not run on a device",
            rows=tiling.batch_rows,
        )
    if case.row.num_weights == 0 and case.rules.takes_no_weights:
        what = Text("the planner takes num_weights 0")
        yield release_inferred(case, "num_weights", what, "grad_weight")
    elif case.row.num_weights == 0:
        yield caveat(
            "host_divides_by_zero",
            "num_weights",
            "the planner divides by num_weights, 0, which can end the process; guarded in "
            "v9.2.0-beta.1. Read in the public sources; not run on a device",
            since="9.1",
            until=Text("release {release}", release="9.2"),
        )
    if is_v2 and tiling.block_dim > PAIRS_TESTED + 1:
        yield caveat(
            "merge_test_sees_64_pairs",
            "indices",
            "{cores} cores, but whether neighbours share an index is tested for cores 0 to 64 "
            "only: if only later cores do, the row of that index holds the sum of one core. "
            "Read in the public sources; not run on a device",
            cores=tiling.block_dim,
            since="9.1",
        )
