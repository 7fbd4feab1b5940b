"""The planner of EmbeddingDenseBackward on Ascend 950: kernel, tiling, and workspace of the call.

Source: specification page ``embedding_dense_backward_950``, "Contract differences".
"""

from typing import Annotated, Any, NamedTuple

from npu_sim.cores import Device
from npu_sim.framework.axes import FLOAT32
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
from npu_sim.plans.workspace import aligned_bytes
from npu_sim.tiling.ascend_950 import embedding_dense_backward as v2
from npu_sim.tiling.ascend_950 import embedding_dense_grad as v1
from npu_sim.tiling.ascend_950.embedding_dense_grad import Problem
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
        kernel, tiling, other = KERNEL_GRAD_V2, v2.tile(problem, device), v1.NO_TILING
        status, key, cores = tiling.status, tiling.tiling_key, tiling.block_dim
        kernel_bytes = tiling.workspace_bytes
    else:
        kernel, tiling, other = KERNEL_GRAD, v2.NO_TILING, v1.tile(problem, device)
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
