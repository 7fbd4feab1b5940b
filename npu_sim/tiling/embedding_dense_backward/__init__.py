"""Tiling of EmbeddingDenseGradV2 on Atlas A2 and A3: pure integer functions.

Source: specification page ``embedding_dense_backward``, section "Tiling, Atlas A2/A3". Sizes are
elements unless the name contains bytes.
"""

from collections.abc import Mapping
from math import prod
from typing import Annotated, Any, NamedTuple

from npu_sim.cores import Device
from npu_sim.tiling.common import (
    BLOCK_BYTES,
    DTYPE_CODES,
    FP32_BYTES,
    FP32_PER_BLOCK,
    SUCCESS,
    VECTOR_LANES,
    Field,
    FieldRun,
    Part,
    Range,
    Raw,
    ScheduleMode,
    Structure,
    align,
    ceil_div,
    element_bytes,
    even_range,
    nothing,
    raw_planner,
    vendor_fields,
)

DETERMINISTIC_KEY, SMALL_DIM_KEY = 10, 100
"""Parts of the tiling key, the sum of these and 1 for scale; never both."""
BATCH_BOUND = "max(ub_bytes, rows)"

SMALL_DIM_LIMIT = 512
"""Largest embedding dim of the small-dim kernel (page, "Dataflow", 3)."""
SMALL_DIM_WEIGHTS = 16777216
"""2^24: the small-dim kernel holds index values in fp32, exact up to here (page, "Dataflow", 3)."""
UB_RESERVED_BYTES = 20480
"""Bytes the kernel keeps free of the usable Unified Buffer (page, "UB budget")."""
INDEX_BYTES = 96
"""Three 32-byte blocks: sorted index, position, frequency (page, "UB budget")."""

WORKSPACE_BOUND = (
    "system_workspace_bytes + 4 * (num_weights + 8) * (dim + 1) + 8 * (dim + 1) * vector_cores + 32"
)
WORKSPACE_FIELDS = "workspace_fields"
"""Switch of the release: whether the tiling has coreNum and the lengths of the workspace."""
ELSEWHERE = Part(vendor="")
"""A group that is in another structure of the vendor, or filled on some paths only: see
:func:`vendor_structure`."""


class VectorSplit(NamedTuple):
    """A dim cut into whole vector instructions and a tail."""

    compute_rep_time: Annotated[int, Field("vector instructions", "dim", "ComputeRepTime")]
    compute_former_num: Annotated[int, Field("columns they cover", "dim", "ComputeFormerNum")]
    compute_tail_num: Annotated[int, Field("columns left", "dim", "ComputeTailNum")]


class RowSplit(NamedTuple):
    """Rows per core: ``former_row_num`` on ``former_row_rep_time`` cores, then ``tail_row_num``."""

    former_row_num: Annotated[int, Field("rows of the first cores", "rows + 1", "formerRowNum")]
    tail_row_num: Annotated[int, Field("rows of the other cores", "rows + 1", "tailRowNum")]
    former_row_rep_time: Annotated[
        int, Field("how many cores are the first cores", "vector_cores", "formerRowRepTime")
    ]


class WeightSplit(NamedTuple):
    """The same split of weight rows, for the cores that scale them."""

    former_row_num: Annotated[
        int, Field("weight rows of the first cores", "num_weights + 1", "formerCoreRowNum")
    ]
    tail_row_num: Annotated[
        int, Field("weight rows of the other cores", "num_weights + 1", "tailCoreRowNum")
    ]
    former_row_rep_time: Annotated[
        int, Field("how many cores are the first cores", "vector_cores", "formerCoreRowRepTime")
    ]


class SmallDimSplit(NamedTuple):
    """Rows and batches of the small-dim kernel: ``tail`` of the last core, ``former`` of others."""

    part_num: Annotated[int, Field("parts", vendor="partNum")]
    former_copy_row: Annotated[
        int, Field("rows of every core but the last", "rows + 1", "formerCopyRow")
    ]
    tail_copy_row: Annotated[int, Field("rows of the last core", "rows + 1", "tailCopyRow")]
    former_copy_time: Annotated[
        int, Field("batches of every core but the last", "rows + 1", "formerCopyTime")
    ]
    tail_copy_time: Annotated[int, Field("batches of the last core", "rows + 1", "tailCopyTime")]
    max_row_in_ub: Annotated[int, Field("rows of one batch", BATCH_BOUND, "maxRowInUb")]
    former_last_row: Annotated[int, Field("rows of the last batch", BATCH_BOUND, "formerLastRow")]
    tail_last_row: Annotated[
        int, Field("rows of the last batch of the last core", BATCH_BOUND, "tailLastRow")
    ]


def split_vector(dim: int) -> VectorSplit:
    """Cut a dim into whole instructions of 64 lanes and a tail."""
    rep_time = dim // VECTOR_LANES
    return VectorSplit(rep_time, rep_time * VECTOR_LANES, dim - rep_time * VECTOR_LANES)


def split_rows(rows: int, cores: int) -> RowSplit:
    """Split rows over cores as evenly as possible, longer parts first."""
    tail = rows // cores
    return RowSplit(tail + 1, tail, rows % cores)


def split_small_dim(rows: int, cores: int, max_row_in_ub: int) -> SmallDimSplit:
    """Split the rows of the small-dim kernel; the last core also takes the remainder."""
    former = rows // cores
    tail = rows - former * (cores - 1)
    former_time = ceil_div(former, max_row_in_ub)
    tail_time = ceil_div(tail, max_row_in_ub)
    return SmallDimSplit(
        part_num=1,
        former_copy_row=former,
        tail_copy_row=tail,
        former_copy_time=former_time,
        tail_copy_time=tail_time,
        max_row_in_ub=max_row_in_ub,
        former_last_row=former - max_row_in_ub * (former_time - 1),
        tail_last_row=tail - max_row_in_ub * (tail_time - 1),
    )


class Problem(NamedTuple):
    """One call; gradients that the operator casts first have the 4 bytes of fp32."""

    rows: int
    dim: int
    num_weights: int
    element_bytes: int
    scale_grad_by_freq: bool
    deterministic: bool


def _length(help: str, bound: str, vendor: str) -> Field:
    """Return the field of the length of a workspace area, which not every release has."""
    return Field(help, bound, vendor, switch=WORKSPACE_FIELDS)


class Tiling(NamedTuple):
    """Result of the planner; unused groups are 0, as in the product."""

    status: int
    tiling_key: Annotated[int, Field("tiling key", "111")]
    block_dim: Annotated[int, Field("cores that work", vendor="coreNum", switch=WORKSPACE_FIELDS)]
    schedule_mode: ScheduleMode
    workspace_bytes: Annotated[int, Field("workspace of the kernel itself", WORKSPACE_BOUND)]
    rows: int
    num_weights: Annotated[int, Field("rows of the output", vendor="numWeights")]
    dim: Annotated[int, Field("columns", vendor="embeddingDim")]
    scale_grad_by_freq: Annotated[int, Field("1 when rows are scaled", vendor="scaleGradByFreq")]
    former_dim: Annotated[
        int, Field("columns of a whole piece of a row", "dim", "formerEmbeddingDim")
    ]
    former_dim_rep_time: Annotated[int, Field("whole pieces of a row", "dim", "formerDimRepTime")]
    tail_dim: Annotated[int, Field("columns of the last piece", "dim", "tailEmbeddingDim")]
    row_split: Annotated[RowSplit, ELSEWHERE]
    weight_split: Annotated[WeightSplit, ELSEWHERE]
    former_vector: Annotated[VectorSplit, Part(vendor="", help=", whole piece")]
    tail_vector: Annotated[VectorSplit, Part(vendor="", help=", last piece")]
    small_dim: Annotated[SmallDimSplit, ELSEWHERE]
    scale_workspace_length: Annotated[
        int,
        _length("elements of the counters in workspace", "num_weights + 8", "scaleWorkspaceLength"),
    ]
    out_stage_workspace_length: Annotated[
        int,
        _length(
            "elements of the stage area", "2 * dim * vector_cores + 8", "outStageWorkspaceLength"
        ),
    ]
    out_index_workspace_length: Annotated[
        int, _length("elements of the stage indices", "", "outIndexWorkspaceLength")
    ]
    out_casted_workspace_length: Annotated[
        int, _length("elements of out in fp32", "num_weights * dim", "outCastedWorkspaceLength")
    ]


NO_TILING = nothing(Tiling)


def is_small_dim(tiling_key: int) -> bool:
    """Return whether a tiling key selects the small-dim kernel (page, "Tiling, Atlas A2/A3")."""
    return tiling_key >= SMALL_DIM_KEY


def is_deterministic(tiling_key: int) -> bool:
    """Return whether a tiling key selects the deterministic kernel (same section)."""
    return DETERMINISTIC_KEY <= tiling_key < SMALL_DIM_KEY


def takes_small_dim(dim: int, num_weights: int, deterministic: bool) -> bool:
    """Return whether the small-dim kernel runs, which adds rows atomically without sorting."""
    return (not deterministic) and dim <= SMALL_DIM_LIMIT and num_weights <= SMALL_DIM_WEIGHTS


def max_former_dim(ub_bytes: int, grad_bytes: int, granule: int) -> int:
    """Return the longest piece of a row that fits, a multiple of ``granule``; 0 when none does."""
    usable = ub_bytes - UB_RESERVED_BYTES - INDEX_BYTES
    rows_in_ub = 3 if grad_bytes == FP32_BYTES else 4
    return usable // (FP32_BYTES * granule * rows_in_ub) * granule if usable > 0 else 0


def max_small_dim_rows(ub_bytes: int, dim: int, grad_bytes: int) -> int:
    """Return the rows of one batch of the small-dim kernel; not above 0 when none fits."""
    per_row = 10 + align(dim, FP32_PER_BLOCK)
    rows = ((ub_bytes - UB_RESERVED_BYTES) // 4 - dim - 256) // per_row
    return rows if grad_bytes == FP32_BYTES else rows // 2


def scale_workspace_length(problem: Problem, counter_bytes: int) -> int:
    """Return the counters of weight rows in workspace, in whole 32-byte blocks; 0 without scale."""
    if not problem.scale_grad_by_freq:
        return 0
    return align(problem.num_weights, BLOCK_BYTES // counter_bytes)


def workspace_bytes(
    problem: Problem, former_dim: int, block_dim: int, small_dim: bool, device: Device, rules: Any
) -> int:
    """Return the workspace of the kernel itself."""
    total: int = device.system_workspace_bytes + rules.counter_bytes * scale_workspace_length(
        problem, rules.counter_bytes
    )
    if problem.element_bytes == 2:
        if small_dim:
            total += 4 * problem.num_weights * problem.dim
        else:
            total += 4 * align(former_dim * block_dim * 2, FP32_PER_BLOCK) + 4 * 2 * block_dim
    return total


def tile(problem: Problem, device: Device, rules: Any) -> Tiling:
    """Plan one call.

    ``status`` is 1 (the product's 561002) without rows, columns or cores, if the Unified Buffer is
    too small, and for 16-bit gradients that the kernel of the release does not take.
    """
    block_dim = min(device.vector_cores, problem.rows)
    if problem.scale_grad_by_freq:
        block_dim = min(block_dim, problem.num_weights)
    longest = max_former_dim(device.ub_bytes, problem.element_bytes, rules.dim_granule)
    taken = problem.element_bytes == FP32_BYTES or rules.kernel_takes_16_bit != 0
    if not taken or min(problem.dim, block_dim, longest) <= 0:
        return NO_TILING
    small = NO_TILING.small_dim
    small_dim = takes_small_dim(problem.dim, problem.num_weights, problem.deterministic)
    if small_dim:
        most = max_small_dim_rows(device.ub_bytes, problem.dim, problem.element_bytes)
        if most <= 0:
            return NO_TILING
        small = split_small_dim(problem.rows, block_dim, most)
    scale = 1 if problem.scale_grad_by_freq else 0
    tiling_key = (
        scale
        + (
            DETERMINISTIC_KEY
            if problem.deterministic and problem.element_bytes == FP32_BYTES
            else 0
        )
        + (SMALL_DIM_KEY if small_dim else 0)
    )
    schedule_mode = rules.schedule_mode if tiling_key == 0 or tiling_key == SMALL_DIM_KEY else -1
    former_dim = min(problem.dim, longest)
    former_dim_rep_time = problem.dim // former_dim
    tail_dim = problem.dim - former_dim * former_dim_rep_time
    return Tiling(
        status=SUCCESS,
        tiling_key=tiling_key,
        block_dim=block_dim,
        schedule_mode=schedule_mode,
        workspace_bytes=workspace_bytes(problem, former_dim, block_dim, small_dim, device, rules),
        rows=problem.rows,
        num_weights=problem.num_weights,
        dim=problem.dim,
        scale_grad_by_freq=scale,
        former_dim=former_dim,
        former_dim_rep_time=former_dim_rep_time,
        tail_dim=tail_dim,
        row_split=split_rows(problem.rows, block_dim),
        weight_split=WeightSplit(*split_rows(problem.num_weights, block_dim)),
        former_vector=split_vector(former_dim),
        tail_vector=split_vector(tail_dim),
        small_dim=small,
        scale_workspace_length=scale_workspace_length(problem, rules.counter_bytes),
        out_stage_workspace_length=align(former_dim * block_dim * 2, FP32_PER_BLOCK),
        out_index_workspace_length=2 * block_dim,
        out_casted_workspace_length=problem.num_weights * problem.dim,
    )


def row_range(tiling: Tiling, core: int) -> Range:
    """Return the half-open range of (sorted) rows that a core takes."""
    if is_small_dim(tiling.tiling_key):
        start = tiling.small_dim.former_copy_row * core
        last = core == tiling.block_dim - 1
        return start, tiling.rows if last else start + tiling.small_dim.former_copy_row
    return even_range(core, tiling.row_split.tail_row_num, tiling.row_split.former_row_rep_time)


def weight_range(tiling: Tiling, core: int) -> Range:
    """Return the half-open range of weight rows that a core scales."""
    split = tiling.weight_split
    return even_range(core, split.tail_row_num, split.former_row_rep_time)


def vendor_structure(tiling: Tiling, arguments: Mapping[str, Any], rules: Any) -> Raw:
    """Return the tiling data under the vendor's names; groups unused on the path are 0."""
    on_deterministic = is_deterministic(tiling.tiling_key)
    on_sorted = not on_deterministic and not is_small_dim(tiling.tiling_key)
    scale = tiling.scale_grad_by_freq == 1

    def group(part: Any, used: bool, name: str = "{}") -> dict[str, int | float]:
        return {
            name.format(suffix): value if used else 0
            for suffix, value in vendor_fields(part).items()
        }

    def vectors(used: bool) -> dict[str, int | float]:
        return group(tiling.former_vector, used, "former{}") | group(
            tiling.tail_vector, used, "tail{}"
        )

    rows = group(tiling.row_split, on_deterministic)
    return {
        "params": {
            **vendor_fields(tiling, rules),
            "paddingIdx": arguments["padding_idx"] % 2**64,
            **group(tiling.row_split, on_sorted),
            "computeMask": VECTOR_LANES if on_sorted else 0,
            **vectors(on_sorted or scale),
        },
        "scaleTiling": {
            **group(tiling.weight_split, scale),
            "mask": VECTOR_LANES if scale else 0,
            **vectors(on_sorted or scale),
        },
        "determinTiling": {
            "gradRow": tiling.rows if on_sorted or on_deterministic else 0,
            "formerRowNumRepTime": rows.pop("formerRowRepTime"),
            **rows,
            "computeMask": VECTOR_LANES if on_deterministic else 0,
            **vectors(on_deterministic),
        },
        "smallDimTiling": vendor_fields(tiling.small_dim),
    }


def problem_of(inputs: Raw, rules: Any) -> Problem:
    """Return the problem of the raw planner's inputs."""
    *leading, dim = inputs["grad_shape"]
    return Problem(
        prod(leading),
        dim,
        inputs["num_weights"],
        element_bytes(DTYPE_CODES[inputs["grad_dtype"]]),
        inputs["scale_grad_by_freq"],
        inputs["deterministic"],
    )


KERNELS = {"embedding_dense_grad_v2": raw_planner(problem_of, tile, vendor_structure)}
STRUCTURES = (
    Structure(
        "EmbeddingDenseGradV2",
        "8.3",
        (
            FieldRun("uint64_t", "coreNum", "params", since="8.5"),
            FieldRun(
                "uint64_t",
                "tailRowNum formerRowNum formerRowRepTime computeMask formerComputeRepTime "
                "formerComputeFormerNum formerComputeTailNum numWeights embeddingDim paddingIdx "
                "scaleGradByFreq formerDimRepTime formerEmbeddingDim tailEmbeddingDim "
                "tailComputeRepTime tailComputeFormerNum tailComputeTailNum",
                "params",
            ),
            FieldRun(
                "uint64_t",
                "scaleWorkspaceLength outStageWorkspaceLength outIndexWorkspaceLength "
                "outCastedWorkspaceLength",
                "params",
                since="8.5",
            ),
            FieldRun(
                "uint64_t",
                "tailCoreRowNum formerCoreRowNum formerCoreRowRepTime mask formerComputeRepTime "
                "formerComputeFormerNum formerComputeTailNum tailComputeRepTime "
                "tailComputeFormerNum tailComputeTailNum",
                "scaleTiling",
            ),
            FieldRun(
                "uint64_t",
                "gradRow tailRowNum formerRowNum formerRowNumRepTime computeMask "
                "formerComputeRepTime formerComputeFormerNum formerComputeTailNum "
                "tailComputeRepTime tailComputeFormerNum tailComputeTailNum",
                "determinTiling",
            ),
            FieldRun(
                "uint64_t",
                "partNum formerCopyRow tailCopyRow formerCopyTime tailCopyTime maxRowInUb "
                "formerLastRow tailLastRow",
                "smallDimTiling",
            ),
        ),
    ),
)
"""Tiling structure of the kernel as bytes (page ``tiling_bytes``)."""
