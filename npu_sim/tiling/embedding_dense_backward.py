"""Tiling of EmbeddingDenseGradV2 (Atlas A2, A3): pure integer functions.

Source: specification page ``embedding_dense_backward``, section "Tiling, Atlas A2/A3". All sizes are elements unless the name
says bytes.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

from npu_sim.tiling.integers import align, ceil_div

if TYPE_CHECKING:
    from npu_sim.cores import Device

SUCCESS = 0
FAILED = 1

SMALL_DIM_LIMIT = 512
"""Largest embedding dim of the small-dim kernel (page, "Dataflow", 3)."""
SMALL_DIM_WEIGHTS = 16777216
"""2^24: the small-dim kernel holds index values in fp32, exact up to here (page, "Dataflow", 3)."""
CAST_LIMIT_BYTES = 104857600
"""100 MiB: below this size of gradient and output together a 16-bit gradient is cast to fp32 (page, "Dataflow", 1)."""
CAST_LIMIT_ROWS = 512
"""Below this many rows a 16-bit gradient is cast to fp32 (page, "Dataflow", 1)."""
UB_RESERVED_BYTES = 20480
"""Bytes the kernel keeps free of the usable Unified Buffer (page, "UB budget")."""
INDEX_BYTES = 96
"""Three 32-byte blocks: sorted index, position, frequency (page, "UB budget")."""
VECTOR_LANES = 64
"""fp32 lanes of one vector instruction (page, "Vector split")."""
ALIGNED_LANES = 8
"""fp32 elements of one 32-byte block."""


class Problem(NamedTuple):
    """What the kernel sees: 16-bit gradients are fp32 already when the cast decision says so."""

    rows: int
    dim: int
    num_weights: int
    element_bytes: int
    scale_grad_by_freq: bool
    deterministic: bool


class VectorSplit(NamedTuple):
    """A dim cut into whole vector instructions and a tail."""

    compute_rep_time: int
    compute_former_num: int
    compute_tail_num: int


class RowSplit(NamedTuple):
    """The first ``former_row_rep_time`` cores take ``former_row_num`` rows, the others ``tail_row_num``."""

    former_row_num: int
    tail_row_num: int
    former_row_rep_time: int


class SmallDimSplit(NamedTuple):
    """Rows and batches of the small-dim kernel: every core but the last copies ``former_copy_row`` rows."""

    part_num: int
    former_copy_row: int
    tail_copy_row: int
    former_copy_time: int
    tail_copy_time: int
    max_row_in_ub: int
    former_last_row: int
    tail_last_row: int


class Tiling(NamedTuple):
    """Result of the planner; unused groups are 0, as in the product."""

    status: int
    tiling_key: int
    block_dim: int
    schedule_mode: int
    workspace_bytes: int
    rows: int
    dim: int
    num_weights: int
    scale_grad_by_freq: int
    former_dim: int
    former_dim_rep_time: int
    tail_dim: int
    row_split: RowSplit
    weight_split: RowSplit
    former_vector: VectorSplit
    tail_vector: VectorSplit
    small_dim: SmallDimSplit
    scale_workspace_length: int
    out_stage_workspace_length: int
    out_index_workspace_length: int
    out_casted_workspace_length: int


def needs_cast(rows: int, dim: int, num_weights: int, scale_grad_by_freq: bool) -> bool:
    """Whether a 16-bit gradient is cast to fp32 before the kernel, which then sees fp32."""
    small = (rows * dim + num_weights * dim) * 2 < CAST_LIMIT_BYTES
    return small or rows < CAST_LIMIT_ROWS or scale_grad_by_freq


def takes_small_dim(dim: int, num_weights: int, deterministic: bool) -> bool:
    """Whether the small-dim kernel runs: nothing is sorted, and rows are added atomically."""
    return (not deterministic) and dim <= SMALL_DIM_LIMIT and num_weights <= SMALL_DIM_WEIGHTS


def max_former_dim(ub_bytes: int, element_bytes: int) -> int:
    """Largest piece of a row that fits the Unified Buffer; 0 when none does."""
    usable = ub_bytes - UB_RESERVED_BYTES - INDEX_BYTES
    rows_in_ub = 3 if element_bytes == 4 else 4
    return usable // (VECTOR_LANES * rows_in_ub) * 16 if usable > 0 else 0


def split_vector(dim: int) -> VectorSplit:
    """Cut a dim into whole instructions of 64 lanes and a tail."""
    rep_time = dim // VECTOR_LANES
    return VectorSplit(rep_time, rep_time * VECTOR_LANES, dim - rep_time * VECTOR_LANES)


def split_rows(rows: int, cores: int) -> RowSplit:
    """Spread rows over cores as evenly as possible, longer shares first."""
    tail = rows // cores
    return RowSplit(tail + 1, tail, rows % cores)


def max_small_dim_rows(ub_bytes: int, dim: int, element_bytes: int) -> int:
    """Rows of one batch of the small-dim kernel; not above 0 when not one fits."""
    per_row = 10 + align(dim, ALIGNED_LANES)
    free = (ub_bytes - UB_RESERVED_BYTES) // 4 - dim - 256
    if free <= 0:
        return 0
    rows = free // per_row
    return rows if element_bytes == 4 else rows // 2


def split_small_dim(rows: int, cores: int, max_row_in_ub: int) -> SmallDimSplit:
    """Cut the rows of the small-dim kernel over cores, the remainder on the last, and into batches."""
    former = rows // cores
    tail = rows - former * (cores - 1)
    former_time = ceil_div(former, max_row_in_ub)
    tail_time = ceil_div(tail, max_row_in_ub)
    return SmallDimSplit(
        1,
        former,
        tail,
        former_time,
        tail_time,
        max_row_in_ub,
        former - max_row_in_ub * (former_time - 1),
        tail - max_row_in_ub * (tail_time - 1),
    )


def workspace_bytes(problem: Problem, former_dim: int, block_dim: int, small_dim: bool, device: "Device") -> int:
    """Workspace of the kernel itself in bytes."""
    total = device.system_workspace_bytes
    if problem.scale_grad_by_freq:
        total += 4 * align(problem.num_weights, ALIGNED_LANES)
    if problem.element_bytes == 2:
        if small_dim:
            total += 4 * problem.num_weights * problem.dim
        else:
            total += 4 * align(former_dim * block_dim * 2, ALIGNED_LANES) + 4 * 2 * block_dim
    return total


def failed_tiling() -> Tiling:
    """The result of a planner that found no tiling."""
    rows = RowSplit(0, 0, 0)
    vector = VectorSplit(0, 0, 0)
    small = SmallDimSplit(0, 0, 0, 0, 0, 0, 0, 0)
    return Tiling(FAILED, 0, 0, -1, 0, 0, 0, 0, 0, 0, 0, 0, rows, rows, vector, vector, small, 0, 0, 0, 0)


def tile(problem: Problem, device: "Device") -> Tiling:
    """Plan one call.

    Parameters
    ----------
    problem
        What the kernel sees.
    device
        The SoC.

    Returns
    -------
    Tiling
        With ``status`` 1 (the product's 561002) for no rows, no columns, no core, or a Unified Buffer too small.
    """
    block_dim = min(device.vector_cores, problem.rows)
    if problem.scale_grad_by_freq:
        block_dim = min(block_dim, problem.num_weights)
    max_former = max_former_dim(device.ub_bytes, problem.element_bytes)
    if problem.dim == 0 or block_dim == 0 or max_former == 0:
        return failed_tiling()
    small_dim = takes_small_dim(problem.dim, problem.num_weights, problem.deterministic)
    small = SmallDimSplit(0, 0, 0, 0, 0, 0, 0, 0)
    if small_dim:
        max_rows = max_small_dim_rows(device.ub_bytes, problem.dim, problem.element_bytes)
        if max_rows <= 0:
            return failed_tiling()
        small = split_small_dim(problem.rows, block_dim, max_rows)
    deterministic_kernel = problem.deterministic and problem.element_bytes == 4
    scale = 1 if problem.scale_grad_by_freq else 0
    tiling_key = scale + (10 if deterministic_kernel else 0) + (100 if small_dim else 0)
    former_dim = min(problem.dim, max_former)
    former_dim_rep_time = problem.dim // former_dim
    tail_dim = problem.dim - former_dim * former_dim_rep_time
    return Tiling(
        SUCCESS,
        tiling_key,
        block_dim,
        1 if tiling_key == 0 or tiling_key == 100 else -1,
        workspace_bytes(problem, former_dim, block_dim, small_dim, device),
        problem.rows,
        problem.dim,
        problem.num_weights,
        scale,
        former_dim,
        former_dim_rep_time,
        tail_dim,
        split_rows(problem.rows, block_dim),
        split_rows(problem.num_weights, block_dim),
        split_vector(former_dim),
        split_vector(tail_dim),
        small,
        align(problem.num_weights, ALIGNED_LANES) if problem.scale_grad_by_freq else 0,
        align(former_dim * block_dim * 2, ALIGNED_LANES),
        2 * block_dim,
        problem.num_weights * problem.dim,
    )


def row_range(tiling: Tiling, core: int) -> tuple[int, int]:
    """Return the half-open range of (sorted) rows that a core takes."""
    if tiling.tiling_key >= 100:
        start = tiling.small_dim.former_copy_row * core
        last = core == tiling.block_dim - 1
        return start, start + (tiling.small_dim.tail_copy_row if last else tiling.small_dim.former_copy_row)
    return _split_range(tiling.row_split, core)


def weight_range(tiling: Tiling, core: int) -> tuple[int, int]:
    """Return the half-open range of weight rows that a core scales."""
    return _split_range(tiling.weight_split, core)


def _split_range(split: RowSplit, core: int) -> tuple[int, int]:
    start = split.tail_row_num * core + min(core, split.former_row_rep_time)
    return start, start + (split.former_row_num if core < split.former_row_rep_time else split.tail_row_num)


def vendor_fields(tiling: Tiling, padding_idx: int) -> dict[str, dict[str, int]]:
    """Return the tiling data under the vendor's names, groups unused on the path filled with 0."""
    key = tiling.tiling_key
    on_sorted, on_deterministic, scale = key in (0, 1), key in (10, 11), tiling.scale_grad_by_freq == 1
    params = {
        "coreNum": tiling.block_dim,
        **_fields(tiling.row_split, ("formerRowNum", "tailRowNum", "formerRowRepTime"), on_sorted),
        "computeMask": VECTOR_LANES if on_sorted else 0,
        **_vector_fields(tiling, on_sorted or scale),
        "numWeights": tiling.num_weights,
        "embeddingDim": tiling.dim,
        "paddingIdx": padding_idx % 2**64,
        "scaleGradByFreq": tiling.scale_grad_by_freq,
        "formerDimRepTime": tiling.former_dim_rep_time,
        "formerEmbeddingDim": tiling.former_dim,
        "tailEmbeddingDim": tiling.tail_dim,
        "scaleWorkspaceLength": tiling.scale_workspace_length,
        "outStageWorkspaceLength": tiling.out_stage_workspace_length,
        "outIndexWorkspaceLength": tiling.out_index_workspace_length,
        "outCastedWorkspaceLength": tiling.out_casted_workspace_length,
    }
    scale_tiling = {
        **_fields(tiling.weight_split, ("formerCoreRowNum", "tailCoreRowNum", "formerCoreRowRepTime"), scale),
        "mask": VECTOR_LANES if scale else 0,
        **_vector_fields(tiling, on_sorted or scale),
    }
    determin_tiling = {
        "gradRow": tiling.rows if on_sorted or on_deterministic else 0,
        **_fields(tiling.row_split, ("formerRowNum", "tailRowNum", "formerRowNumRepTime"), on_deterministic),
        "computeMask": VECTOR_LANES if on_deterministic else 0,
        **_vector_fields(tiling, on_deterministic),
    }
    small_names = (
        "partNum",
        "formerCopyRow",
        "tailCopyRow",
        "formerCopyTime",
        "tailCopyTime",
        "maxRowInUb",
        "formerLastRow",
        "tailLastRow",
    )
    small_dim_tiling = dict(zip(small_names, tiling.small_dim, strict=True))
    return {
        "params": params,
        "scaleTiling": scale_tiling,
        "determinTiling": determin_tiling,
        "smallDimTiling": small_dim_tiling,
    }


def _fields(values: tuple[int, ...], names: tuple[str, ...], filled: bool) -> dict[str, int]:
    return {name: value if filled else 0 for name, value in zip(names, values, strict=True)}


def _vector_fields(tiling: Tiling, filled: bool) -> dict[str, int]:
    names = ("ComputeRepTime", "ComputeFormerNum", "ComputeTailNum")
    former = _fields(tiling.former_vector, tuple("former" + name for name in names), filled)
    return former | _fields(tiling.tail_vector, tuple("tail" + name for name in names), filled)


def plan_kernel(kernel: str, inputs: dict[str, Any], device: "Device", deterministic: bool) -> dict[str, Any]:
    """Run the raw planner on one golden line's inputs; return its ``expect`` structure (see :mod:`npu_sim.tiling`)."""
    *leading, dim = inputs["grad_shape"]
    rows = 1
    for size in leading:
        rows *= size
    element_bytes = 4 if inputs["grad_dtype"] == "float32" else 2
    problem = Problem(rows, dim, inputs["num_weights"], element_bytes, inputs["scale_grad_by_freq"], deterministic)
    tiling = tile(problem, device)
    if tiling.status != SUCCESS:
        return {"status": "failed"}
    return {
        "status": "success",
        "block_dim": tiling.block_dim,
        "tiling_key": tiling.tiling_key,
        "workspace_bytes": tiling.workspace_bytes,
        "schedule_mode": 1 if tiling.schedule_mode == 1 else None,
        "tiling": vendor_fields(tiling, inputs["padding_idx"]),
    }
