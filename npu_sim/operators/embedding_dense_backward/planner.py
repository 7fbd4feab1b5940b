"""The planner of EmbeddingDenseBackward on integers: kernel, tiling, and workspace of the call.

Source: specification pages ``embedding_dense_backward``, "Dataflow" and "Documented limits", and
``workspace``.
"""

from typing import Annotated, Any, NamedTuple

from npu_sim.cores import NPU_ARCH_A2_A3, Device
from npu_sim.framework.axes import DOCUMENTED, FLOAT32
from npu_sim.plans.workspace import aligned_bytes
from npu_sim.tiling import embedding_dense_backward as v2
from npu_sim.tiling import embedding_dense_grad as v1
from npu_sim.tiling.common import SORTABLE_ROWS, sort_workspace_bytes
from npu_sim.tiling.fields import SUCCESS, Field, Part, nothing

KERNELS = ("none", "EmbeddingDenseGradV2", "EmbeddingDenseGrad")
KERNEL_GRAD_V2, KERNEL_GRAD = 1, 2
INDEX_DTYPES = ("float32", "float16", "float64", "int32", "int64", "int16", "int8", "uint8", "bool")
INT32, INT64 = INDEX_DTYPES.index("int32"), INDEX_DTYPES.index("int64")
INT32_MAX = 2147483647
CAST_LIMIT_BYTES = 104857600
"""100 MiB: a 16-bit gradient is cast to fp32 if gradient and output are smaller in sum (page,
"Dataflow", 1)."""
CAST_LIMIT_ROWS = 512
"""A 16-bit gradient with fewer rows is cast to fp32 (page, "Dataflow", 1)."""
TOTAL_BOUND = "system_workspace_bytes + 8 * (rows + num_weights + 1024) * (dim + vector_cores + 64)"


class CallTiling(NamedTuple):
    """Result of the planner: ``tiling`` is set for EmbeddingDenseGradV2, ``older`` otherwise."""

    status: int
    kernel: Annotated[int, Field("kernel that runs", "2", words=KERNELS)]
    block_dim: Annotated[int, Field("cores that work", "vector_cores")]
    total_workspace_bytes: Annotated[
        int,
        Field(
            "workspace of the whole call, contiguous tensors, without what is not published",
            TOTAL_BOUND,
        ),
    ]
    element_bytes: Annotated[int, Field("bytes of an element of grad as the kernel sees it")]
    tiling: Annotated[v2.Tiling, Part(prefix="")]
    older: Annotated[v1.Tiling, Part(help=" (EmbeddingDenseGrad)")]

    @property
    def native_16_bit(self) -> bool:
        """Whether the kernel reads 16-bit rows without a cast."""
        return self.element_bytes == 2


NO_TILING: CallTiling = nothing(CallTiling)


def takes_v2(row: Any, device: Device) -> bool:
    """Return whether EmbeddingDenseGradV2 runs, not EmbeddingDenseGrad."""
    counts_fit = row.rows <= INT32_MAX and row.num_weights <= INT32_MAX
    return bool(device.npu_arch == NPU_ARCH_A2_A3 and counts_fit)


def needs_cast(row: Any) -> bool:
    """Return whether a 16-bit gradient is cast to fp32 before EmbeddingDenseGradV2, by its size.

    EmbeddingDenseGrad takes fp32 only.
    """
    small = (row.rows * row.dim + row.num_weights * row.dim) * 2 < CAST_LIMIT_BYTES
    return bool(small or row.rows < CAST_LIMIT_ROWS or row.scale_grad_by_freq == 1)


def takes_native_16_bit(row: Any, rules: Any) -> bool:
    """Return whether EmbeddingDenseGradV2 reads a 16-bit gradient without a cast.

    The release must have such a kernel, and the size must not require a cast.
    """
    has_kernel = rules.kernel_takes_16_bit == 1
    return bool(row.grad_dtype != FLOAT32 and has_kernel and not needs_cast(row))


def rows_per_flush(tiling_key: int, rules: Any) -> int:
    """Return the rows that a core sums between two flushes, for a tiling key that sorts."""
    rows: int = (
        rules.rows_per_deterministic_flush
        if v2.is_deterministic(tiling_key)
        else rules.rows_per_flush
    )
    return rows


def casts_indices(row: Any, keeps_int64: bool) -> bool:
    """Return whether indices are cast to int32, the only type that EmbeddingDenseGradV2 takes.

    The older kernel also takes int64.
    """
    return row.indices_dtype != INT32 and not (keeps_int64 and row.indices_dtype == INT64)


def older_index_bytes(row: Any) -> int:
    """Return the bytes of an index in EmbeddingDenseGrad."""
    return 8 if row.indices_dtype == INT64 else 4


def largest_scaled_dims(row: Any, device: Device, bound_bytes: int) -> tuple[int, int]:
    """Return the largest dim that EmbeddingDenseGrad scales: documented, and by the hardware."""
    index_bytes, cores = older_index_bytes(row), device.vector_cores
    weights, ub_bytes = row.num_weights, device.ub_bytes
    documented = v1.largest_scale_dim_documented(weights, index_bytes, cores, bound_bytes)
    hardware = v1.largest_scale_dim_hardware(weights, index_bytes, cores, ub_bytes)
    return documented, hardware


def fits_scaled(row: Any, device: Device, rules: Any) -> bool:
    """Return whether a row fits EmbeddingDenseGrad with scale (product document, "约束与限制").

    True where the product documents no bound.
    """
    if row.scale_grad_by_freq == 0 or rules.scale_bound_bytes < 0 or takes_v2(row, device):
        return True
    documented, hardware = largest_scaled_dims(row, device, rules.scale_bound_bytes)
    return bool(row.dim <= (documented if row.limits == DOCUMENTED else hardware))


def area_bytes(size: int, exists: bool) -> int:
    """Return the aligned bytes of a workspace area; 0 if it does not exist."""
    return aligned_bytes(size) if exists else 0


def total_workspace_bytes(
    row: Any, kernel_bytes: int, casts: bool, sorts: bool, keeps_int64: bool, zeros_like: bool
) -> int:
    """Return the workspace of all kernels for contiguous tensors, without what is not published.

    This is the rule of :mod:`npu_sim.plans.workspace` for the launch orders of this operator: the
    fp32 gradient, the fp32 result and the sorted indices live across the kernel. The int32 indices
    and the workspace of Sort are dead after the sort; the next area (the workspace of the kernel,
    or with ZerosLike the result) reuses the place of the last of them.
    """
    grad = area_bytes(4 * row.rows * row.dim, casts)
    result = area_bytes(4 * row.num_weights * row.dim, casts)
    indices = area_bytes(4 * row.rows, casts_indices(row, keeps_int64))
    kernel = area_bytes(kernel_bytes, kernel_bytes > 0)
    if not sorts or row.rows == 1:
        return grad + indices + kernel + result
    sort = area_bytes(sort_workspace_bytes(row.rows), row.rows < SORTABLE_ROWS)
    first, second = (result, kernel) if zeros_like and casts else (kernel, result)
    if sort == 0:
        sort, indices = indices, 0
    return grad + 2 * aligned_bytes(4 * row.rows) + max(sort, first) + max(indices, second)


def problem_of(row: Any, rules: Any) -> v2.Problem:
    """Return the input of the EmbeddingDenseGradV2 planner for a row."""
    element_bytes = 2 if takes_native_16_bit(row, rules) else 4
    return v2.Problem(
        row.rows,
        row.dim,
        row.num_weights,
        element_bytes,
        row.scale_grad_by_freq == 1,
        row.deterministic == 1,
    )


def tile_row(row: Any, device: Device, rules: Any) -> CallTiling:
    """Return the plan of a row, which has rows, columns and (with scale) weights."""
    is_16_bit = row.grad_dtype != FLOAT32
    if not takes_v2(row, device):
        scale, deterministic = row.scale_grad_by_freq == 1, row.deterministic == 1
        index_bytes = older_index_bytes(row)
        older = v1.tile(
            v1.Problem(row.rows, row.dim, row.num_weights, index_bytes, scale, deterministic),
            device,
        )
        total = total_workspace_bytes(
            row, 0, is_16_bit, sorts=False, keeps_int64=True, zeros_like=False
        )
        return CallTiling(
            status=SUCCESS,
            kernel=KERNEL_GRAD,
            block_dim=older.block_dim,
            total_workspace_bytes=total,
            element_bytes=4,
            tiling=v2.NO_TILING,
            older=older,
        )
    problem = problem_of(row, rules)
    tiling = v2.tile(problem, device, rules)
    if tiling.status != SUCCESS:
        return NO_TILING
    casts = is_16_bit and problem.element_bytes == 4
    sorts = not v2.is_small_dim(tiling.tiling_key)
    total = total_workspace_bytes(
        row, tiling.workspace_bytes, casts, sorts, False, rules.zeros_like == 1
    )
    return CallTiling(
        status=SUCCESS,
        kernel=KERNEL_GRAD_V2,
        block_dim=tiling.block_dim,
        total_workspace_bytes=total,
        element_bytes=problem.element_bytes,
        tiling=tiling,
        older=v1.NO_TILING,
    )


def older_can_run(most: Any) -> int:
    """Return 1 if EmbeddingDenseGrad can run in a sweep with these largest values, else 0."""
    return int(
        any(arch != NPU_ARCH_A2_A3 for arch in most.npu_archs)
        or max(most.rows, most.num_weights) > INT32_MAX
    )
