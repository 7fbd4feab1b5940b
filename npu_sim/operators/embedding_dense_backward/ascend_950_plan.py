"""Planner and plan of EmbeddingDenseBackward on Ascend 950: kernel, tiling, buffers, warnings.

Source: specification page ``embedding_dense_backward_950``.
"""

from collections.abc import Iterator
from typing import Annotated, Any, NamedTuple

from npu_sim.cores import Device
from npu_sim.framework.axes import FLOAT32
from npu_sim.framework.case import Case
from npu_sim.framework.describing import (
    Condition,
    Description,
    decision,
    kernel_parts,
    ub_memory,
    vector_plan,
)
from npu_sim.language import Text
from npu_sim.operators.embedding_dense_backward.plan import padding_caveats, prepare
from npu_sim.operators.embedding_dense_backward.planner import (
    INDEX_DTYPES,
    INT32,
    INT32_MAX,
    INT64,
    KERNEL_GRAD,
    KERNEL_GRAD_V2,
    KERNELS,
    TOTAL_BOUND,
    area_bytes,
)
from npu_sim.plans.answers import Evidence
from npu_sim.plans.model import (
    Caveat,
    Launch,
    LaunchTensor,
    Memory,
    OutputOrder,
    WorkspacePart,
    caveat,
    intermediate,
)
from npu_sim.plans.workspace import aligned_bytes
from npu_sim.tiling.ascend_950 import embedding_dense_backward as v2
from npu_sim.tiling.ascend_950 import embedding_dense_grad as v1
from npu_sim.tiling.ascend_950.embedding_dense_grad import Problem
from npu_sim.tiling.common import FP32_BYTES
from npu_sim.tiling.fields import SUCCESS, Field, Part, nothing

FLOAT64 = INDEX_DTYPES.index("float64")
MANY_ROWS_OF_FP32, MANY_ROWS_OF_16_BIT = 512, 1024
"""From so many rows on V2 runs, if there are at least as many as columns."""
WIDE_COLUMNS = 2048
"""Beyond so many columns the number of weight rows may decide for V2."""
WEIGHTS_OF_A_COLUMN = 5


class CallTiling(NamedTuple):
    """Result of the planner: ``v2`` is set for EmbeddingDenseGradV2, ``v1`` otherwise."""

    status: int
    kernel: Annotated[int, Field("kernel that runs", "2", words=KERNELS)]
    tiling_key: Annotated[int, Field("tiling key of the kernel that runs", "2 * 1000011")]
    block_dim: Annotated[int, Field("cores that work", "vector_cores")]
    total_workspace_bytes: Annotated[
        int,
        Field(
            "workspace of the whole call, contiguous tensors, without what is not published",
            TOTAL_BOUND,
        ),
    ]
    v2: Annotated[v2.Tiling, Part(help=" (EmbeddingDenseGradV2)")]
    v1: Annotated[v1.Tiling, Part(help=" (EmbeddingDenseGrad)")]


NO_TILING: CallTiling = nothing(CallTiling)


def has_many_rows(row: Any) -> bool:
    """Return whether the rows select V2 (page, rule A)."""
    least = MANY_ROWS_OF_FP32 if row.grad_dtype == FLOAT32 else MANY_ROWS_OF_16_BIT
    return bool(row.rows >= row.dim and row.rows >= least)


def has_fitting_weights(row: Any) -> bool:
    """Return whether columns and weight rows select V2 (page, rule B)."""
    if row.dim <= WIDE_COLUMNS:
        return False
    many = row.num_weights > WEIGHTS_OF_A_COLUMN * row.dim
    scales = row.scale_grad_by_freq == 1 and row.num_weights > 0
    return bool(many or (scales and row.dim // max(row.num_weights, 1) < 2))


def takes_v2(row: Any) -> bool:
    """Return whether EmbeddingDenseGradV2 runs, not EmbeddingDenseGrad."""
    fits = has_many_rows(row) or has_fitting_weights(row)
    return bool(fits and row.rows <= INT32_MAX)


def index_dtype(row: Any) -> str:
    """Return the dtype of the indices in the kernel."""
    return "int64" if row.indices_dtype in (INT64, FLOAT64) else "int32"


def casts_indices(row: Any) -> bool:
    """Return whether indices are cast before the kernel."""
    return bool(row.indices_dtype != INT32 and row.indices_dtype != INT64)


def index_bytes(row: Any) -> int:
    """Return the bytes of an index in the kernel."""
    return 8 if row.indices_dtype == INT64 or row.indices_dtype == FLOAT64 else 4


def sorts(row: Any) -> bool:
    """Return whether Sort runs before the kernel: before V2, unless there is one row."""
    return takes_v2(row) and row.rows > 1


def problem_of_row(row: Any) -> Problem:
    """Return the problem of a call given as integers."""
    return Problem(
        row.rows,
        row.dim,
        row.num_weights,
        row.grad_dtype,
        index_bytes(row),
        row.scale_grad_by_freq == 1,
    )


def total_workspace_bytes(row: Any, kernel_bytes: int) -> int:
    """Return the workspace of the call for contiguous tensors, without that of Sort.

    After the sort the place of the cast indices is free for the workspace of the kernel.
    """
    size = index_bytes(row) * row.rows
    indices = area_bytes(size, casts_indices(row))
    kernel = aligned_bytes(kernel_bytes)
    if sorts(row):
        return aligned_bytes(size) + aligned_bytes(4 * row.rows) + max(indices, kernel)
    return indices + kernel


def tile_row(row: Any, device: Device, rules: Any) -> CallTiling:
    """Plan a call given as integers, which has rows and columns."""
    problem = problem_of_row(row)
    if takes_v2(row):
        kernel, tiling, other = KERNEL_GRAD_V2, v2.tile(problem, device, rules), v1.NO_TILING
        status, key, cores = tiling.status, tiling.tiling_key, tiling.block_dim
        kernel_bytes = tiling.workspace_bytes
    else:
        kernel, tiling, other = KERNEL_GRAD, v2.NO_TILING, v1.tile(problem, device, rules)
        status, key, cores = other.status, other.tiling_key, other.block_dim
        kernel_bytes = other.workspace_bytes
    if status != SUCCESS:
        return NO_TILING
    return CallTiling(
        status=SUCCESS,
        kernel=kernel,
        tiling_key=key,
        block_dim=cores,
        total_workspace_bytes=total_workspace_bytes(row, kernel_bytes),
        v2=tiling,
        v1=other,
    )


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


def describe(case: Case) -> Description:
    """Return what the operator states of a plan."""
    is_v2, row = case.tiling.kernel == KERNEL_GRAD_V2, case.row
    tiling = case.tiling.v2 if is_v2 else case.tiling.v1
    core_range = v2.core_range if is_v2 else v1.core_range
    values = {"rows": row.rows, "dim": row.dim, "num_weights": row.num_weights}
    scale = {"scale_grad_by_freq": row.scale_grad_by_freq}
    return vector_plan(
        case,
        path=_path_of_v2(case) if is_v2 else _path_of_v1(tiling),
        path_reason=Text("{rows} rows of {dim} columns", rows=row.rows, dim=row.dim),
        per_core=_per_core_of_v2(tiling) if is_v2 else _per_core_of_v1(tiling),
        memories=lambda: _memories(case),
        ranges=[core_range(tiling, core) for core in range(tiling.block_dim)],
        unit="sorted row" if is_v2 else "column",
        kernel=KERNELS[case.tiling.kernel],
        tiling=tiling,
        fields=vendor_structure(case),
        launches=launches_of(case),
        conditions=lambda: [
            decision(case, V2, **scale, **values),
            decision(case, IN_PIECES if is_v2 else ALL_ROWS, **values),
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


def vendor_structure(case: Case) -> dict[str, int | float]:
    """Return the tiling data of the kernel that runs, under the vendor's names."""
    if case.tiling.kernel == KERNEL_GRAD_V2:
        return v2.vendor_structure(case.tiling.v2, case.arguments, case.rules)
    return v1.vendor_structure(case.tiling.v1, case.arguments, case.rules)


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
    row, sizes = case.row, {}
    if case.tiling.kernel == KERNEL_GRAD_V2:
        own = case.tiling.v2.workspace_bytes - case.device.system_workspace_bytes
        sizes["first and last sum of every core"] = own
    elif not v1.is_full_load(case.tiling.v1):
        sizes["counters"] = row.num_weights * index_bytes(row)
        sizes["fp32 copy of out"] = FP32_BYTES * row.num_weights * row.dim
    return kernel_parts(case, sizes)


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
    if is_v2 and tiling.block_dim > CORES_TESTED:
        yield caveat(
            "merge_test_sees_64_pairs",
            "indices",
            "{cores} cores, but whether neighbours share an index is tested for cores 0 to 64 "
            "only: if only later cores do, the row of that index holds the sum of one core. "
            "Read in the public sources; not run on a device",
            cores=tiling.block_dim,
        )
