"""The plan of EmbeddingDenseBackward on Ascend 950: kernel, buffers, conditions and warnings.

Source: specification page ``embedding_dense_backward_950``.
"""

from collections.abc import Iterator
from typing import Any

from npu_sim.framework.case import Case
from npu_sim.framework.describing import Condition, decision, ub_memory, vector_plan
from npu_sim.language import Text
from npu_sim.operators.embedding_dense_backward.ascend_950.planner import (
    MANY_ROWS_OF_16_BIT,
    MANY_ROWS_OF_FP32,
    WEIGHTS_OF_A_COLUMN,
    WIDE_COLUMNS,
    casts_indices,
    index_bytes,
    index_dtype,
    problem_of_row,
    sorts,
    takes_v2,
)
from npu_sim.operators.embedding_dense_backward.plan import padding_caveats, prepare
from npu_sim.operators.embedding_dense_backward.planner import KERNEL_GRAD_V2, KERNELS
from npu_sim.plans.answers import Evidence
from npu_sim.plans.model import (
    Caveat,
    Launch,
    LaunchTensor,
    Memory,
    OutputOrder,
    WorkspacePart,
    intermediate,
)
from npu_sim.plans.workspace import executor_workspace
from npu_sim.tiling.ascend_950 import embedding_dense_backward as v2
from npu_sim.tiling.ascend_950 import embedding_dense_grad as v1
from npu_sim.tiling.common import FP32_BYTES

FIRST_GROUPED = 3
"""Rows of grad from which on the order can differ from that of A2 and A3."""
CORES_TESTED = 65
"""With more cores, V2 does not test every pair of neighbours for a shared index."""

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


def describe(case: Case) -> dict[str, Any]:
    """Return the fields of the plan that depend on the case."""
    is_v2, row = case.tiling.kernel == KERNEL_GRAD_V2, case.row
    tiling = case.tiling.v2 if is_v2 else case.tiling.v1
    core_range = v2.core_range if is_v2 else v1.core_range
    launches = launches_of(case)
    plan = vector_plan(
        case,
        path=_path_of_v2(case) if is_v2 else _path_of_v1(tiling),
        path_reason=Text("{rows} rows of {dim} columns", rows=row.rows, dim=row.dim),
        per_core=_per_core_of_v2(tiling) if is_v2 else _per_core_of_v1(tiling),
        buffers={},
        ranges=[core_range(tiling, core) for core in range(tiling.block_dim)],
        unit="sorted row" if is_v2 else "column",
        kernel=KERNELS[case.tiling.kernel],
        conditions=[
            decision(case, condition, rows=row.rows, dim=row.dim, num_weights=row.num_weights)
            for condition in (V2, IN_PIECES if is_v2 else ALL_ROWS)
        ],
        order=(
            OutputOrder(
                output="grad_weight",
                fixed=True,
                reason=_order_of_v2(tiling) if is_v2 else _order_of_v1(tiling),
            ),
        ),
        caveats=(*_caveats(case), *padding_caveats(case)),
    )
    return {
        **plan,
        "tiling_key": tiling.tiling_key,
        "schedule_mode": tiling.schedule_mode,
        "tiling": vendor_structure(case),
        "memories": tuple(_memories(case)),
        "launches": launches,
        "workspace": executor_workspace(launches, tiling.workspace_bytes),
    }


def vendor_structure(case: Case) -> dict[str, int | float]:
    """Return the tiling data of the kernel that runs, under the vendor's names."""
    if case.tiling.kernel == KERNEL_GRAD_V2:
        return v2.vendor_structure(case.tiling.v2, case.row.padding_idx)
    return v1.vendor_structure(case.tiling.v1, problem_of_row(case.row), case.row.padding_idx)


def _path_of_v2(case: Case) -> str:
    if v2.has_pieces(problem_of_row(case.row)):
        return "sorted rows over cores, columns in pieces"
    return "sorted rows over cores"


def _path_of_v1(tiling: v1.Tiling) -> str:
    if v1.is_full_load(tiling):
        return "columns over cores, all rows at once"
    return "columns over cores, batches of rows"


def _per_core_of_v2(tiling: v2.Tiling) -> str:
    return Text(
        "up to {batches} batches of {rows} rows, {columns} columns at a time",
        batches=tiling.core_batches,
        rows=tiling.batch_rows,
        columns=tiling.piece_columns,
    )


def _per_core_of_v1(tiling: v1.Tiling) -> str:
    columns = min(tiling.columns, tiling.core_columns)
    if tiling.batches == 1:
        return Text(
            "{rows} rows and up to {columns} columns at a time",
            rows=tiling.batch_rows,
            columns=columns,
        )
    return Text(
        "{batches} batches of {rows} rows, up to {columns} columns at a time",
        batches=tiling.batches,
        rows=tiling.batch_rows,
        columns=columns,
    )


def _order_of_v2(tiling: v2.Tiling) -> str:
    return Text(
        "every core adds the rows of an index in groups of ten, which restart after every {rows} "
        "sorted rows; the sums of several cores are added in the order of the cores",
        rows=tiling.batch_rows,
    )


def _order_of_v1(tiling: v1.Tiling) -> str:
    if tiling.batches == 1:
        return "every column belongs to one core, which adds the rows of an index in groups of five"
    return Text(
        "every column belongs to one core, which adds the rows of an index in groups of five; the "
        "groups restart after every {rows} rows",
        rows=tiling.batch_rows,
    )


def _memories(case: Case) -> Iterator[Memory]:
    """Yield the buffers of the rows, and those of what follows after a barrier."""
    size, index_size = case.specs["grad"].itemsize, index_bytes(case.row)
    if case.tiling.kernel == KERNEL_GRAD_V2:
        phases = {
            "rows": v2.buffers(case.tiling.v2, size, index_size),
            "merge of the cores": v2.merge_buffers(case.tiling.v2, size, index_size),
        }
    else:
        scale = case.row.scale_grad_by_freq == 1
        phases = {
            "rows": v1.buffers(case.tiling.v1, size, index_size),
            "second pass": v1.scan_buffers(case.tiling.v1, size, index_size, scale),
        }
    for phase, buffers in phases.items():
        if any(buffers.values()):
            yield ub_memory(case, buffers, phase)


def _kernel_parts(case: Case) -> tuple[WorkspacePart, ...]:
    """Return the workspace of the kernel by part."""
    row, system = case.row, case.device.system_workspace_bytes
    sizes = {}
    if case.tiling.kernel == KERNEL_GRAD_V2:
        sizes["first and last sum of every core"] = case.tiling.v2.workspace_bytes - system
    elif not v1.is_full_load(case.tiling.v1):
        sizes["counters"] = row.num_weights * index_bytes(row)
        sizes["fp32 copy of out"] = FP32_BYTES * row.num_weights * row.dim
    parts = (WorkspacePart(name=name, bytes=size, kind="kernel") for name, size in sizes.items())
    return (WorkspacePart(name="system", bytes=system, kind="system"), *parts)


def launches_of(case: Case) -> tuple[Launch, ...]:
    """Return the launches of a call, in launch order (page, "Contract differences")."""
    row, launches = case.row, list[Launch]()
    grad = prepare(launches, case, "grad", "")
    cast_to = index_dtype(row) if casts_indices(row) else ""
    indices = prepare(launches, case, "indices", cast_to)
    out = case.tensor("out")
    is_contiguous = case.specs["out"].contiguous
    written = out if is_contiguous else intermediate("result", out.shape, out.dtype)
    inputs: tuple[LaunchTensor, ...] = (grad, indices)
    if sorts(row):
        launches.append(_sort(indices.viewed((row.rows,), indices.dtype)))
        inputs = (grad, *launches[-1].outputs)
    if case.tiling.kernel == KERNEL_GRAD_V2:
        launches.append(Launch(kernel="ZerosLike", outputs=(written,)))
    launches.append(
        Launch(
            kernel=KERNELS[case.tiling.kernel],
            inputs=inputs,
            outputs=(written,),
            block_dim=case.tiling.block_dim,
            workspace=_kernel_parts(case),
        )
    )
    if not is_contiguous:
        launches.append(
            Launch(kernel="ViewCopy", inputs=(written,), outputs=(out,), evidence=Evidence.MODEL)
        )
    return tuple(launches)


def _sort(indices: LaunchTensor) -> Launch:
    """Return the launch that sorts the indices, stably and ascending."""
    part = WorkspacePart(
        name="workspace of Sort",
        bytes=0,
        kind="kernel",
        evidence=Evidence.UNKNOWN,
        note="not published for Ascend 950",
    )
    return Launch(
        kernel="Sort",
        inputs=(indices,),
        outputs=(
            intermediate("sorted indices", indices.shape, indices.dtype),
            intermediate("positions", indices.shape, "int32"),
        ),
        workspace=(part,),
    )


def _caveats(case: Case) -> Iterator[Caveat]:
    """Yield the warnings of a plan (page, "Kernel and order", "Warnings")."""
    is_v2 = case.tiling.kernel == KERNEL_GRAD_V2
    tiling = case.tiling.v2 if is_v2 else case.tiling.v1
    if case.row.rows >= FIRST_GROUPED:
        yield Caveat(
            code="sum_differs_between_products",
            argument="grad_weight",
            message="Ascend 950 adds the rows of an index in other groups than A2 and A3: the last "
            "bits of grad_weight can differ from theirs. Read in the public sources; not run on a "
            "device",
        )
    if tiling.batches > 1:
        yield Caveat(
            code="order_depends_on_sizes",
            argument="grad_weight",
            message=Text(
                "groups of rows restart after every {rows} rows, a number that sizes, dtypes and "
                "the SoC decide: other sizes, or more rows of other indices, can change the last "
                "bits. Read in the public sources; not run on a device",
                rows=tiling.batch_rows,
            ),
        )
    if is_v2 and tiling.block_dim > CORES_TESTED:
        yield Caveat(
            code="merge_test_sees_64_pairs",
            argument="indices",
            message=Text(
                "{cores} cores, but whether neighbours share an index is tested for cores 0 to 64 "
                "only: if only later cores do, the row of that index holds the sum of one core. "
                "Read in the public sources; not run on a device",
                cores=tiling.block_dim,
            ),
        )
