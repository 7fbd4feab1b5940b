"""Contract of EmbeddingDenseBackward on Ascend 950.

Source: specification page ``embedding_dense_backward_950``.
"""

from typing import Annotated, Any, NamedTuple

from npu_sim.framework.vocabulary import (
    FLOAT32,
    SUCCESS,
    Device,
    Field,
    Part,
    aligned_bytes,
    nothing,
)
from npu_sim.operators.embedding_dense_backward.declaration import (
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
from npu_sim.tiling.ascend_950 import embedding_dense_backward as v2
from npu_sim.tiling.ascend_950.embedding_dense_backward import embedding_dense_grad as v1
from npu_sim.tiling.ascend_950.embedding_dense_backward.embedding_dense_grad import Problem

FLOAT64 = INDEX_DTYPES.index("float64")
MANY_ROWS_OF_FP32, MANY_ROWS_OF_16_BIT = 512, 1024
"""From so many rows on V2 runs, if there are at least as many as columns."""
WIDE_COLUMNS, WEIGHTS_OF_A_COLUMN = 2048, 5
"""Beyond so many columns, more weight rows than five times the columns decide for V2."""


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


NO_TILING = nothing(CallTiling)


def has_fitting_weights(row: Any) -> bool:
    """Return whether columns and weight rows select V2 (page, rule B)."""
    if row.dim <= WIDE_COLUMNS:
        return False
    many = row.num_weights > WEIGHTS_OF_A_COLUMN * row.dim
    scales = row.scale_grad_by_freq == 1 and row.num_weights > 0
    return bool(many or (scales and row.dim // max(row.num_weights, 1) < 2))


def takes_v2(row: Any) -> bool:
    """Return whether EmbeddingDenseGradV2 runs, not EmbeddingDenseGrad (page, rules A and B)."""
    many = MANY_ROWS_OF_FP32 if row.grad_dtype == FLOAT32 else MANY_ROWS_OF_16_BIT
    fits = row.rows >= max(row.dim, many) or has_fitting_weights(row)
    return bool(fits and row.rows <= INT32_MAX)


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
    problem, newer, older = problem_of_row(row), v2.NO_TILING, v1.NO_TILING
    if takes_v2(row):
        newer = v2.tile(problem, device, rules)
    else:
        older = v1.tile(problem, device, rules)
    if newer.status != SUCCESS and older.status != SUCCESS:
        return NO_TILING
    # The numbers of the kernel that does not run are 0.
    kernel_bytes = max(newer.workspace_bytes, older.workspace_bytes)
    return CallTiling(
        status=SUCCESS,
        kernel=KERNEL_GRAD_V2 if takes_v2(row) else KERNEL_GRAD,
        tiling_key=max(newer.tiling_key, older.tiling_key),
        block_dim=max(newer.block_dim, older.block_dim),
        total_workspace_bytes=total_workspace_bytes(row, kernel_bytes),
        v2=newer,
        v1=older,
    )
