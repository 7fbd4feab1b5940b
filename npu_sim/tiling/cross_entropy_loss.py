"""Tiling of CrossEntropyLoss on Atlas A2 and A3: pure integer functions.

Source: specification page ``cross_entropy_loss``, sections "Tiling" and "The limit". Sizes are
bytes unless the name contains rows, columns, blocks, chunks or floats.
"""

from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

from npu_sim.cores import Device
from npu_sim.tiling.common import (
    BLOCK_BYTES,
    DTYPE_CODES,
    FP32,
    FP32_BYTES,
    FP32_PER_BLOCK,
    SUCCESS,
    Field,
    FieldRun,
    Raw,
    ScheduleMode,
    Structure,
    align,
    align_down,
    alignment,
    ceil_div,
    element_bytes,
    most_rows,
    nothing,
    raw_planner,
    split_longest_first,
    to_fp32,
    vendor_fields,
)
from npu_sim.tiling.cross_entropy_loss_grad import (
    NONE,
    REDUCTIONS,
    FrontCores,
    ReductionCode,
    TailCores,
    attribute_fields,
    takes_attributes,
)

PIECE_COLUMNS, HALF_PIECE = 8192, 4096
"""Values that one call of the sum takes, and those that its shorter form takes at once; a chunk is
cut into pieces of so many columns."""
WORK_BYTES = 4096
"""The buffer in which sums are made."""
CHUNK_BYTES = 512
"""A chunk of a cut row is a multiple of this, in the dtype of the input."""
CORE_SUM_FLOATS = 64
"""Sums of cores in the workspace, for each of loss, weight and smoothing (page, "How the cores
meet"); one instruction adds as many."""
CORE_SUM_BYTES = 3 * FP32_BYTES * CORE_SUM_FLOATS
UNSIGNED = 1 << 62
"""Modulus of unsigned differences: above all sizes, as the product's 2^64, and an int64."""


class Problem(NamedTuple):
    """The axes of a call that the planner reads; input has shape (N, C) and dtype ``dtype``."""

    N: int
    C: int
    dtype: int
    weighted: int
    label_smoothing: int
    reduction: int


class Tiling(NamedTuple):
    """Result of the planner.

    A row of more than ``chunk_columns`` columns is cut into ``chunks`` of as many, and a last one
    of ``tail_columns``; a shorter one is that tail.
    """

    status: int
    block_dim: Annotated[int, Field("cores that work", "vector_cores")]
    tiling_key: Annotated[int, Field("tiling key", "3")]
    schedule_mode: ScheduleMode
    workspace_bytes: Annotated[
        int, Field("workspace of the kernel", f"system_workspace_bytes + {CORE_SUM_BYTES}")
    ]
    columns: Annotated[int, Field("classes", vendor="targetNum")]
    front_cores: FrontCores
    front_rows: Annotated[int, Field("rows of the first cores", "N", "frontBatchNum")]
    tail_cores: TailCores
    tail_rows: Annotated[int, Field("rows of the other cores", "N", "tailBatchNum")]
    chunk_columns: Annotated[
        int, Field("columns in the Unified Buffer at a time", "C + 15", "inputUbSize")
    ]
    cast_bytes: Annotated[
        int, Field("buffer of a chunk in fp32; 0 for fp32", "2 * ub_bytes", "castTmpBufByte")
    ]
    row_floats: Annotated[
        int, Field("numbers of the buffer of losses", "N + 7", "lnTmpBufSize weightTmpBufSize")
    ]
    smoothing_floats: Annotated[
        int, Field("numbers of the buffer of class weights", "ub_bytes", "weight4SmoothingBufSize")
    ]
    scratch_bytes: Annotated[
        int, Field("all buffers but that of the input", "12 * N + 5 * ub_bytes", "totalTmpBufByte")
    ]
    chunks: Annotated[int, Field("whole chunks of a cut row, else 0", "C", "ubLoopNum")]
    tail_columns: Annotated[int, Field("columns of the last chunk", "C", "ubTailNum")]
    chunk_pieces: Annotated[int, Field("pieces of 8192 columns of a chunk", "C", "vecLoopNum")]
    chunk_rest: Annotated[int, Field("columns of its last piece", "C + 15", "vecTailNum")]
    tail_pieces: Annotated[
        int, Field("pieces of 8192 columns of the last chunk", "C", "tailVecLoopNum")
    ]
    tail_rest: Annotated[int, Field("columns of its last piece", "C", "tailVecTailNum")]
    reduction: ReductionCode


NO_TILING = nothing(Tiling)


def reserved_bytes(core_rows: int) -> int:
    """Return the bytes of the buffers that do not depend on the columns (page, "reserve")."""
    rows = FP32_BYTES * align(core_rows, FP32_PER_BLOCK)
    return 3 * rows + 2 * BLOCK_BYTES + WORK_BYTES


def core_rows_of(problem: Problem, device: Device) -> int:
    """Return the rows of the first cores."""
    return max(ceil_div(problem.N, device.vector_cores), 1)


def most_columns(problem: Problem, device: Device) -> int:
    """Return the columns that fit beside the buffers of a core's rows.

    The product subtracts unsigned numbers: where these buffers exceed the Unified Buffer, any row
    seems to fit.
    """
    free = (device.ub_bytes - reserved_bytes(core_rows_of(problem, device))) % UNSIGNED
    smooths = problem.weighted * problem.label_smoothing
    parts = 1 + smooths if problem.dtype == FP32 else 4 + 2 * smooths
    return align_down(free // parts, CHUNK_BYTES) // element_bytes(problem.dtype)


def tile(problem: Problem, device: Device, rules: Any) -> Tiling:
    """Plan one call as the product does: whether the buffers fit is left to :func:`fits`.

    ``status`` is 1 (the product's 561002) without cores.
    """
    cores = device.vector_cores
    if cores <= 0:
        return NO_TILING
    front_cores, tail_cores, _, tail_rows = split_longest_first(problem.N, cores)
    front_cores, front_rows = min(front_cores, problem.N), core_rows_of(problem, device)
    if tail_cores == 0:
        tail_rows = 0
    columns = min(most_columns(problem, device), align(problem.C, alignment(problem.dtype)))
    chunks, tail_columns = 0, min(columns, problem.C)
    if 0 < columns < problem.C:
        chunks, tail_columns = problem.C // columns, problem.C % columns
    cast = 0 if problem.dtype == FP32 else FP32_BYTES * columns
    smoothing = columns * problem.weighted * problem.label_smoothing
    schedule_mode = -1 if problem.reduction == NONE else rules.schedule_mode
    return Tiling(
        status=SUCCESS,
        block_dim=front_cores + tail_cores,
        tiling_key=3 - problem.dtype,  # 3 for fp32, 2 for fp16, 1 for bf16
        schedule_mode=schedule_mode,
        workspace_bytes=device.system_workspace_bytes + CORE_SUM_BYTES,
        columns=problem.C,
        front_cores=front_cores,
        front_rows=front_rows,
        tail_cores=tail_cores,
        tail_rows=tail_rows,
        chunk_columns=columns,
        cast_bytes=cast,
        row_floats=align(front_rows, FP32_PER_BLOCK),
        smoothing_floats=smoothing,
        scratch_bytes=reserved_bytes(front_rows) + cast + cast // 2 + FP32_BYTES * smoothing,
        chunks=chunks,
        tail_columns=tail_columns,
        chunk_pieces=columns // PIECE_COLUMNS,
        chunk_rest=columns % PIECE_COLUMNS,
        tail_pieces=tail_columns // PIECE_COLUMNS,
        tail_rest=tail_columns % PIECE_COLUMNS,
        reduction=problem.reduction,
    )


def buffers(tiling: Tiling, dtype_code: int) -> dict[str, int]:
    """Return the bytes of the buffers of a core by name, in their order."""
    rows = FP32_BYTES * tiling.row_floats
    return {
        "input": element_bytes(dtype_code) * tiling.chunk_columns,
        "fp32": tiling.cast_bytes,
        "log_prob": tiling.cast_bytes // 2,
        "class weights": FP32_BYTES * tiling.smoothing_floats,
        "scalar A": BLOCK_BYTES,
        "scalar B": BLOCK_BYTES,
        "row losses": rows,
        "row weights": rows,
        "smoothing": rows,
        "work": WORK_BYTES,
    }


def fits(problem: Problem, device: Device, rules: Any) -> bool:
    """Return whether a core has columns in its buffers, and these fit (page, "The limit")."""
    tiling = tile(problem, device, rules)
    used_bytes = element_bytes(problem.dtype) * tiling.chunk_columns + tiling.scratch_bytes
    return tiling.chunk_columns > 0 and used_bytes <= device.ub_bytes


def overwritten_place(tiling: Tiling) -> int:
    """Return from which partial sum of 64 rows on ``mean`` overwrites the sum that is being made.

    Source: page, "Warnings", ``row_sum_overwritten``; log_prob in 16 bits has half of the bytes of
    the chunk in fp32.
    """
    log_prob = tiling.cast_bytes // 2 // FP32_BYTES
    return tiling.chunk_columns + log_prob + tiling.smoothing_floats + 8


def adds_cores(problem: Problem, device: Device, rules: Any) -> bool:
    """Return whether one instruction adds the sums of all cores, where the loss is reduced."""
    return problem.reduction == NONE or device.vector_cores <= CORE_SUM_FLOATS


def largest_rows(problem: Any, device: Device, rules: Any) -> int:
    """Return the largest N whose buffers fit, or 0."""
    return most_rows(lambda rows: fits(problem._replace(N=rows), device, rules), device)


def vendor_structure(tiling: Any, arguments: Mapping[str, Any], rules: Any) -> Raw:
    """Return the tiling data under the vendor's names, of a call or of the raw planner's inputs."""
    weight = arguments.get("weight", arguments.get("weight_shape"))
    return {
        **vendor_fields(tiling),
        **attribute_fields(arguments),
        "defaultWeight": int(weight is None),
    }


def problem_of(
    inputs: Raw, rules: Any, target_dtypes: tuple[str, ...] = ("int64",)
) -> Problem | None:
    """Return the problem of the raw planner's inputs.

    Of target and weight, it looks at the first axis only.
    """
    smoothing, weight = to_fp32(inputs["label_smoothing"]), inputs["weight_shape"]
    (rows, columns), dtype = inputs["input_shape"], inputs["input_dtype"]
    if not (
        takes_attributes(inputs, dtype, target_dtypes)
        and not (smoothing < 0 or smoothing > 1)
        and list(inputs["target_shape"][:1]) == [rows]
        and (weight is None or list(weight[:1]) == [columns])
    ):
        return None
    return Problem(
        rows,
        columns,
        DTYPE_CODES[dtype],
        int(weight is not None),
        int(smoothing > 0),
        REDUCTIONS.index(inputs["reduction"]),
    )


KERNELS = {"cross_entropy_loss": raw_planner(problem_of, tile, vendor_structure)}

STRUCTURES = (
    Structure(
        "CrossEntropyLoss",
        "8.3",
        (
            FieldRun(
                "uint64_t",
                "targetNum frontCoreNum frontBatchNum tailCoreNum tailBatchNum inputUbSize "
                "castTmpBufByte lnTmpBufSize weightTmpBufSize weight4SmoothingBufSize "
                "totalTmpBufByte ubLoopNum ubTailNum vecLoopNum vecTailNum tailVecLoopNum "
                "tailVecTailNum reduction",
            ),
            FieldRun("int64_t", "ignoreIndex"),
            FieldRun("float", "labelSmoothing"),
            FieldRun("uint32_t", "defaultWeight"),
        ),
    ),
)
"""Tiling structure of the kernel as bytes (page ``cross_entropy_loss``, "Structure")."""
