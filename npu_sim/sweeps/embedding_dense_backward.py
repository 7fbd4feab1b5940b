"""What a sweep of EmbeddingDenseBackward can vary, and the plan of one row in whole numbers."""

from typing import Any, NamedTuple

from npu_sim.cores import NPU_ARCH_ATLAS_A2, Device, Profile
from npu_sim.formats import TensorSpec
from npu_sim.ops.embedding_dense_backward import INDEX_DTYPES, NAME, Arguments
from npu_sim.planning.embedding_dense_backward_case import INT32_MAX
from npu_sim.sweeps.common import (
    DOCUMENTED,
    DTYPES,
    FLOAT32,
    REFUSED,
    TILING_FAILED,
    cores_bound,
    dtype_mask,
    has_dtype,
    status_bound,
    switch_bound,
)
from npu_sim.sweeps.declaration import Column, Declaration, Number, Switch, Values, Word
from npu_sim.tiling import embedding_dense_backward as v2
from npu_sim.tiling import embedding_dense_grad as v1
from npu_sim.workspace import aligned_bytes

INT32, INT64 = INDEX_DTYPES.index("int32"), INDEX_DTYPES.index("int64")
KERNELS = ("none", "EmbeddingDenseGradV2", "EmbeddingDenseGrad")

AXES = (
    Word("grad_dtype", "dtype of grad", DTYPES, "float32"),
    Word("indices_dtype", "dtype of indices", INDEX_DTYPES, "int32"),
    Switch("scale_grad_by_freq", "scale_grad_by_freq", aliases=("scaleGradByFreq",)),
    Number("num_weights", "rows of the output", 1000, unit="weight row", aliases=("numWeights",)),
    Number("dim", "last axis of grad", 128, unit="column", aliases=("embedding_dim", "embeddingDim")),
    Number("rows", "product of the other axes of grad; element count of indices", 1024, unit="row"),
)


class Row(NamedTuple):
    """Codes of the axes."""

    grad_dtype: int
    indices_dtype: int
    scale_grad_by_freq: int
    num_weights: int
    dim: int
    rows: int
    limits: int
    deterministic: int


class Rules(NamedTuple):
    """What the contract needs of a profile: whether it has the operator, its dtypes, and the documented bound in bytes (0 for none)."""

    supported: int
    dtypes: int
    scale_bound_bytes: int


class Record(NamedTuple):
    """Plan of one row; ``tiling`` is filled when EmbeddingDenseGradV2 runs, ``older`` when EmbeddingDenseGrad does."""

    status: int
    kernel: int
    block_dim: int
    total_workspace_bytes: int
    tiling: v2.Tiling
    older: v1.Tiling


def contract_status(row: Row, device: Device, rules: Rules) -> int:
    """Return the status of the first check that fails on a call of consistent shapes, as ``ops`` does; 0 when none does."""
    if rules.supported == 0 or not has_dtype(rules.dtypes, row.grad_dtype):
        return REFUSED
    if row.rows == 0 or row.dim == 0:
        return 0
    if row.scale_grad_by_freq == 1 and row.num_weights == 0:
        return TILING_FAILED
    if row.scale_grad_by_freq == 1 and rules.scale_bound_bytes > 0 and not takes_v2(row, device):
        return scale_bound_status(row, device, rules)
    return 0


def scale_bound_status(row: Row, device: Device, rules: Rules) -> int:
    """Apply the embeddingDim bound, the documented or the physical one."""
    index_bytes, cores = older_index_bytes(row), device.vector_cores
    if row.limits == DOCUMENTED:
        largest = v1.largest_scale_dim_documented(row.num_weights, index_bytes, cores, rules.scale_bound_bytes)
    else:
        largest = v1.largest_scale_dim_hardware(row.num_weights, index_bytes, cores, device.ub_bytes)
    return 0 if row.dim <= largest else TILING_FAILED


def takes_v2(row: Row, device: Device) -> bool:
    """Whether EmbeddingDenseGradV2 runs."""
    return device.npu_arch == NPU_ARCH_ATLAS_A2 and row.rows <= INT32_MAX and row.num_weights <= INT32_MAX


def older_index_bytes(row: Row) -> int:
    """Bytes of one index as EmbeddingDenseGrad sees it."""
    return 8 if row.indices_dtype == INT64 else 4


def no_older_tiling() -> v1.Tiling:
    """Return the tiling of a kernel that does not run."""
    return v1.Tiling(0, 0, 0, 0, 0, 0, 0, 0)


def area_bytes(size: int, exists: bool) -> int:
    """Return what an area takes in the workspace; nothing when there is none."""
    return aligned_bytes(size) if exists else 0


def total_workspace_bytes(row: Row, kernel_bytes: int, casts: bool, sorts: bool, keeps_int64: bool) -> int:
    """Return the workspace of all kernels for contiguous tensors, without what is not published.

    The rule of :mod:`npu_sim.workspace` for the launch orders this operator has: the gradient and the result in fp32 live across the
    kernel, and so do the sorted indices. Indices as int32 are done with once they are sorted, and the next area takes their place.
    """
    casts_indices = row.indices_dtype != INT32 and not (keeps_int64 and row.indices_dtype == INT64)
    grad = area_bytes(4 * row.rows * row.dim, casts)
    result = area_bytes(4 * row.num_weights * row.dim, casts)
    indices = area_bytes(4 * row.rows, casts_indices)
    kernel = area_bytes(kernel_bytes, kernel_bytes > 0)
    if not sorts or row.rows == 1:
        return grad + indices + kernel + result
    pairs = 2 * aligned_bytes(4 * row.rows)
    if casts:
        return grad + max(indices, result) + pairs + kernel
    return max(indices, kernel) + pairs


def plan_row(row: Row, device: Device, rules: Rules) -> Record:
    """Plan one row."""
    status = contract_status(row, device, rules)
    if status != 0 or row.rows == 0 or row.dim == 0:
        return Record(status, 0, 0, 0, v2.failed_tiling(), no_older_tiling())
    scale, deterministic = row.scale_grad_by_freq == 1, row.deterministic == 1
    if takes_v2(row, device):
        native_16_bit = row.grad_dtype != FLOAT32 and not v2.needs_cast(row.rows, row.dim, row.num_weights, scale)
        element_bytes = 2 if native_16_bit else 4
        tiling = v2.tile(v2.Problem(row.rows, row.dim, row.num_weights, element_bytes, scale, deterministic), device)
        if tiling.status != v2.SUCCESS:
            return Record(TILING_FAILED, 0, 0, 0, v2.failed_tiling(), no_older_tiling())
        casts, sorts = row.grad_dtype != FLOAT32 and element_bytes == 4, tiling.tiling_key < 100
        total = total_workspace_bytes(row, tiling.workspace_bytes, casts, sorts, False)
        return Record(0, 1, tiling.block_dim, total, tiling, no_older_tiling())
    older = v1.tile(v1.Problem(row.rows, row.dim, row.num_weights, older_index_bytes(row), scale, deterministic), device)
    return Record(0, 2, older.block_dim, total_workspace_bytes(row, 0, row.grad_dtype != FLOAT32, False, True), v2.failed_tiling(), older)


def call(values: Values) -> dict[str, Any]:
    """Return the arguments of a call with these sizes and dtypes."""
    rows, dim = int(values["rows"]), int(values["dim"])
    return {
        "grad": TensorSpec((rows, dim), str(values["grad_dtype"])),
        "indices": TensorSpec((rows,), str(values["indices_dtype"])),
        "num_weights": values["num_weights"],
        "scale_grad_by_freq": values["scale_grad_by_freq"],
    }


def read(arguments: Arguments) -> Values:
    """Return the sizes and dtypes of given arguments."""
    values: Values = {"num_weights": arguments.num_weights, "scale_grad_by_freq": arguments.scale_grad_by_freq}
    if arguments.indices is not None:
        values |= {"indices_dtype": arguments.indices.dtype, "rows": arguments.indices.numel}
    if arguments.grad is not None and arguments.grad.rank >= 2:
        dim = arguments.grad.shape[-1]
        values |= {"grad_dtype": arguments.grad.dtype, "dim": dim}
        if dim:
            values["rows"] = arguments.grad.numel // dim
    return values


def rules(profile: Profile) -> Rules:
    """Return what the contract needs of a profile."""
    return Rules(
        supported=int(NAME in profile.product.operators),
        dtypes=dtype_mask(profile),
        scale_bound_bytes=profile.limits.embedding_scale_bound_bytes or 0,
    )


def _older(most: Any) -> bool:
    """Whether EmbeddingDenseGrad can run at all."""
    return any(arch != NPU_ARCH_ATLAS_A2 for arch in most.npu_archs) or max(most.rows, most.num_weights) > INT32_MAX


def _share(most: Any) -> int:
    return int(max(most.rows, most.num_weights) + 1) if _older(most) else 0


def _dim(most: Any) -> int:
    return int(most.dim)


def _ub(most: Any) -> int:
    return int(max(most.ub_bytes, most.rows))


def _rows(most: Any) -> int:
    return int(most.rows + 1)


def _weights(most: Any) -> int:
    return int(most.num_weights + 1)


COLUMNS = (
    Column("status", status_bound, "aclnn status; 0 when the call runs"),
    Column("kernel", lambda most: len(KERNELS), "kernel that runs", KERNELS),
    Column("block_dim", cores_bound, "cores that work"),
    Column(
        "total_workspace_bytes",
        lambda most: most.system_workspace_bytes + 8 * (most.rows + most.num_weights + 1024) * (most.dim + most.vector_cores + 64),
        "workspace of the whole call, contiguous tensors, without what is not published",
    ),
    Column("tiling.tiling_key", lambda most: 111, "tiling key"),
    Column("tiling.schedule_mode", switch_bound, "1 when all cores start together, else -1"),
    Column(
        "tiling.workspace_bytes",
        lambda most: (
            most.system_workspace_bytes + 4 * (most.num_weights + 8) * (most.dim + 1) + 8 * (most.dim + 1) * most.vector_cores + 32
        ),
        "workspace of the kernel itself",
    ),
    Column("tiling.former_dim", _dim, "columns of a whole piece of a row"),
    Column("tiling.former_dim_rep_time", _dim, "whole pieces of a row"),
    Column("tiling.tail_dim", _dim, "columns of the last piece"),
    Column("tiling.row_split.former_row_num", _rows, "rows of the first cores"),
    Column("tiling.row_split.tail_row_num", _rows, "rows of the other cores"),
    Column("tiling.row_split.former_row_rep_time", cores_bound, "how many cores take the longer share"),
    Column("tiling.weight_split.former_row_num", _weights, "weight rows of the first cores"),
    Column("tiling.weight_split.tail_row_num", _weights, "weight rows of the other cores"),
    Column("tiling.weight_split.former_row_rep_time", cores_bound, "how many cores take the longer share"),
    Column("tiling.former_vector.compute_rep_time", _dim, "vector instructions of a whole piece"),
    Column("tiling.former_vector.compute_former_num", _dim, "columns they cover"),
    Column("tiling.former_vector.compute_tail_num", _dim, "columns left"),
    Column("tiling.tail_vector.compute_rep_time", _dim, "vector instructions of the last piece"),
    Column("tiling.tail_vector.compute_former_num", _dim, "columns they cover"),
    Column("tiling.tail_vector.compute_tail_num", _dim, "columns left"),
    Column("tiling.small_dim.former_copy_row", _rows, "rows of every core but the last"),
    Column("tiling.small_dim.tail_copy_row", _rows, "rows of the last core"),
    Column("tiling.small_dim.former_copy_time", _rows, "batches of every core but the last"),
    Column("tiling.small_dim.tail_copy_time", _rows, "batches of the last core"),
    Column("tiling.small_dim.max_row_in_ub", _ub, "rows of one batch"),
    Column("tiling.small_dim.former_last_row", _ub, "rows of the last batch"),
    Column("tiling.small_dim.tail_last_row", _ub, "rows of the last batch of the last core"),
    Column("tiling.scale_workspace_length", lambda most: most.num_weights + 8, "elements of the counters in workspace"),
    Column("tiling.out_stage_workspace_length", lambda most: 2 * most.dim * most.vector_cores + 8, "elements of the stage area"),
    Column("tiling.out_casted_workspace_length", lambda most: most.num_weights * most.dim, "elements of the output in fp32"),
    Column("older.splits_weights", _older, "EmbeddingDenseGrad: 1 when weight rows are split over cores"),
    Column("older.share", _share, "EmbeddingDenseGrad: rows of one core"),
    Column("older.batch_rows", lambda most: most.ub_bytes * _older(most), "EmbeddingDenseGrad: rows in the Unified Buffer at a time"),
    Column("older.dim_piece", lambda most: most.dim * _older(most), "EmbeddingDenseGrad: columns of a piece of a row"),
    Column("older.dim_pieces", lambda most: most.dim * _older(most), "EmbeddingDenseGrad: pieces of a row"),
    Column("older.counters", _share, "EmbeddingDenseGrad: counters of a core"),
    Column("older.counters_fit", _older, "EmbeddingDenseGrad: whether they fit the Unified Buffer"),
)

DECLARATION = Declaration(
    operator=NAME,
    axes=AXES,
    call=call,
    read=read,
    row=Row,
    rules=rules,
    plan_row=plan_row,
    columns=COLUMNS,
    left_out=(
        "tiling.status",
        "tiling.block_dim",
        "tiling.rows",
        "tiling.dim",
        "tiling.num_weights",
        "tiling.scale_grad_by_freq",
        "tiling.small_dim.part_num",
        "tiling.out_index_workspace_length",
        "older.block_dim",
    ),
)
