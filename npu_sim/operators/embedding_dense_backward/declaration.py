"""EmbeddingDenseBackward: the gradient of an embedding table.

Source: product document aclnnEmbeddingDenseBackward; specification page
``embedding_dense_backward``, "Contract" and "Documented limits".
"""

from typing import Annotated, Any, NamedTuple

from npu_sim.framework.vocabulary import (
    ASCEND_950,
    DOCUMENTED,
    FLOAT32,
    FLOAT_DTYPES,
    INVALID,
    NPU_ARCH_A2_A3,
    SORTABLE_ROWS,
    SUCCESS,
    AclnnError,
    Argument,
    Attribute,
    Case,
    Derived,
    Device,
    Evidence,
    Field,
    Inspection,
    MessageAndHint,
    Number,
    Operator,
    Output,
    Part,
    PlannerMessage,
    Switch,
    Tensor,
    Text,
    Word,
    aligned_bytes,
    checks,
    nothing,
    sort_workspace_bytes,
)
from npu_sim.tiling import embedding_dense_backward as v2
from npu_sim.tiling.embedding_dense_backward import embedding_dense_grad as v1

UINT64_MAX = 2**64 - 1


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


NO_TILING = nothing(CallTiling)


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
    weights, index_bytes, cores = row.num_weights, older_index_bytes(row), device.vector_cores
    usable = v1.usable_scale_bytes(device.ub_bytes)
    return (
        v1.largest_scale_dim(weights, index_bytes, cores, bound_bytes - 1),
        v1.largest_scale_dim(weights, index_bytes, cores, usable),
    )


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


def tile_row(row: Any, device: Device, rules: Any) -> CallTiling:
    """Return the plan of a row, which has rows, columns and (with scale) weights."""
    is_16_bit, sizes = row.grad_dtype != FLOAT32, (row.rows, row.dim, row.num_weights)
    scale, deterministic = row.scale_grad_by_freq == 1, row.deterministic == 1
    if not takes_v2(row, device):
        index_bytes = older_index_bytes(row)
        older = v1.tile(v1.Problem(*sizes, index_bytes, scale, deterministic), device)
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
    # The kernel reads 16 bits if the release has such a kernel and the size requires no cast.
    native = is_16_bit and rules.kernel_takes_16_bit == 1 and not needs_cast(row)
    element_bytes = 2 if native else 4
    tiling = v2.tile(v2.Problem(*sizes, element_bytes, scale, deterministic), device, rules)
    if tiling.status != SUCCESS:
        return NO_TILING
    casts, sorts = is_16_bit and not native, not v2.is_small_dim(tiling.tiling_key)
    total = total_workspace_bytes(
        row, tiling.workspace_bytes, casts, sorts, False, rules.zeros_like == 1
    )
    return CallTiling(
        status=SUCCESS,
        kernel=KERNEL_GRAD_V2,
        block_dim=tiling.block_dim,
        total_workspace_bytes=total,
        element_bytes=element_bytes,
        tiling=tiling,
        older=v1.NO_TILING,
    )


def older_can_run(most: Any) -> int:
    """Return 1 if EmbeddingDenseGrad can run in a sweep with these largest values, else 0."""
    return int(
        any(arch != NPU_ARCH_A2_A3 for arch in most.npu_archs)
        or max(most.rows, most.num_weights) > INT32_MAX
    )


def check_index_count(call: Inspection) -> None:
    """Check that there is one index for every row of grad, if grad has columns."""
    grad, indices = call.specs["grad"], call.specs["indices"]
    if call.size("dim") and call.size("rows") != indices.numel:
        raise AclnnError(
            INVALID,
            "indices",
            "indices {indices} has {numel} elements, grad {grad} has {size} rows",
            "indices needs {size} elements: one for every row of grad",
            indices=indices,
            numel=indices.numel,
            grad=grad,
            size=call.size("rows"),
        )


def _no_weights_message(call: Inspection) -> MessageAndHint:
    return (
        "num_weights = 0 with scale_grad_by_freq: there is no row to scale",
        "num_weights >= 1, or scale_grad_by_freq = False",
    )


def _scaled_message(call: Inspection) -> MessageAndHint:
    """Return message and hint for the bound on embeddingDim (product document, "约束与限制")."""
    row, device, cores = call.row, call.device, call.device.vector_cores
    index_bytes, bound_bytes = older_index_bytes(row), call.rules.scale_bound_bytes
    documented, hardware = (
        str(max(dim, 0) or "none") for dim in largest_scaled_dims(row, device, bound_bytes)
    )
    return Text(
        "embeddingDim = {dim} is too large for scale_grad_by_freq on {title}: "
        "{bytes_per_column}*embeddingDim + {index_bytes}*countsSize = {scale_bytes} must be "
        "{bound}; countsSize = {num_weights}//{cores} + {num_weights}%{cores} = {counts_size}",
        dim=row.dim,
        title=call.profile.title,
        bytes_per_column=v1.bytes_per_column(index_bytes),
        index_bytes=index_bytes,
        scale_bytes=v1.scale_bytes(row.dim, row.num_weights, index_bytes, cores),
        bound=Text("< {bound_bytes} (documented)", bound_bytes=bound_bytes)
        if call.limits == "documented"
        else Text(
            "<= {physical} (Unified Buffer)", physical=v1.usable_scale_bytes(device.ub_bytes)
        ),
        num_weights=row.num_weights,
        cores=cores,
        counts_size=v1.counts_size(row.num_weights, cores),
    ), Text(
        "largest embeddingDim for numWeights {num_weights}: {both}",
        num_weights=row.num_weights,
        both=Text(
            "{documented} documented, {hardware} by the Unified Buffer ({limits})",
            documented=documented,
            hardware=hardware,
            limits=Argument("limits", "hardware"),
        ),
    )


def _no_tiling_message(case: Case) -> PlannerMessage:
    return (
        "grad",
        Text(
            "no row of dim {dim} fits the Unified Buffer of {product_title}: {ub_bytes} usable "
            "bytes",
            dim=case.row.dim,
            product_title=case.profile.title,
            ub_bytes=case.device.ub_bytes,
        ),
        Text(
            "the kernel keeps {ub_reserved_bytes} bytes free: it needs a larger buffer or a "
            "smaller dim",
            ub_reserved_bytes=v2.UB_RESERVED_BYTES,
        ),
    )


OPERATOR = Operator(
    name="embedding_dense_backward",
    title="EmbeddingDenseBackward",
    summary="Sum the rows of ``grad`` that share an index, as the product does.",
    arguments=(
        Tensor(
            "grad",
            "rows+ dim",
            "gradient of the embedding's output, (..., dim)",
            "grad_dtype",
            samples=0,
        ),
        Tensor(
            "indices",
            "rows~",
            "index of every gradient row, same element count as grad without its last axis",
            "indices_dtype",
            samples=0,
            addresses=True,
        ),
        Attribute("num_weights", int, "rows of the output", low=0, high=UINT64_MAX),
        Attribute(
            "padding_idx",
            int,
            "row that gets no gradient; negative means none",
            -1,
            low=-(2**63),
            high=UINT64_MAX,
        ),
        Attribute(
            "scale_grad_by_freq", bool, "divide every row by how often its index occurs", False
        ),
        Output(
            "out",
            "num_weights dim",
            "the output, (num_weights, dim)",
            "grad_dtype",
            result="grad_weight",
        ),
    ),
    axes=(
        Word("grad_dtype", "dtype of grad", FLOAT_DTYPES, "float32"),
        Word("indices_dtype", "dtype of indices", INDEX_DTYPES, "int32"),
        Switch("scale_grad_by_freq", "scale_grad_by_freq", aliases=("scaleGradByFreq",)),
        Number(
            "num_weights", "rows of the output", 1000, unit="weight row", aliases=("numWeights",)
        ),
        Number(
            "dim",
            "last axis of grad",
            128,
            unit="column",
            aliases=("embedding_dim", "embeddingDim"),
        ),
        Number(
            "rows", "product of the other axes of grad; element count of indices", 1024, unit="row"
        ),
    ),
    derived=(Derived("padding_idx", "-1"),),
    shards=("num_weights",),
    checks=(
        checks.Given(),
        checks.Supported(),
        checks.Attributes("num_weights padding_idx scale_grad_by_freq"),
        checks.Dtypes("grad", checks.product_dtypes),
        checks.Dtypes("indices", INDEX_DTYPES),
        checks.SameDtype("out", "grad"),
        checks.Ranks("grad indices out", 0),
        checks.Ranks("grad", 2),
        checks.Ranks("indices", 1),
        checks.Shapes("grad"),
        check_index_count,
        checks.Shapes("out"),
        checks.Formats(checks.PLAIN_FORMATS),
        checks.NothingToDo("rows == 0 or dim == 0"),
        checks.Holds(
            "num_weights >= 1 or scale_grad_by_freq == 0", "num_weights", _no_weights_message
        ),
        checks.Fits(fits_scaled, "grad", _scaled_message),
    ),
    tiling=CallTiling,
    tile=tile_row,
    evidence=Evidence.EXACT,
    empty="empty: nothing runs, the output is all zeros",
    planner_message=_no_tiling_message,
    bounds={"older": older_can_run},
    families=(ASCEND_950,),
    package=__package__,
)
