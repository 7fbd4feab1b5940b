"""Tiling of CrossEntropyLoss on Atlas A2 and A3: pure integer functions.

Source: specification page ``cross_entropy_loss``, sections "Tiling" and "The limit". Sizes are
bytes unless the name contains rows, columns, blocks, chunks or floats.
"""

from bisect import bisect_left
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

from npu_sim.cores import Device
from npu_sim.tiling.common import (
    BLOCK_BYTES,
    DTYPE_CODES,
    FP32,
    FP32_BYTES,
    SUCCESS,
    Field,
    FieldRun,
    Raw,
    Structure,
    align,
    align_down,
    ceil_div,
    element_bytes,
    nothing,
    raw_planner,
    split_longest_first,
    to_fp32,
    vendor_fields,
)
from npu_sim.tiling.cross_entropy_loss_grad import MEAN as MEAN
from npu_sim.tiling.cross_entropy_loss_grad import NONE as NONE
from npu_sim.tiling.cross_entropy_loss_grad import REDUCTIONS as REDUCTIONS
from npu_sim.tiling.cross_entropy_loss_grad import SUM as SUM
from npu_sim.tiling.cross_entropy_loss_grad import row_range as row_range

KEYS = (3, 2, 1)
"""Tiling key by dtype code."""
PIECE_COLUMNS = 8192
"""Columns that one call of the sum takes; a chunk is cut into pieces of this many."""
WORK_BYTES = 4096
"""The buffer in which sums are made."""
SCALAR_BYTES = 2 * BLOCK_BYTES
"""The two buffers of one number."""
CHUNK_BYTES = 512
"""A chunk of a cut row is a multiple of this, in the dtype of the input."""
CORE_SUM_FLOATS = 64
"""Sums of cores in the workspace, for each of loss, weight and smoothing (page, "How the cores
meet"); one instruction adds as many."""
CORE_SUM_BYTES = 3 * FP32_BYTES * CORE_SUM_FLOATS


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
    schedule_mode: Annotated[int, Field("1 when all cores start together, else -1", "1", none=-1)]
    workspace_bytes: Annotated[
        int, Field("workspace of the kernel", f"system_workspace_bytes + {CORE_SUM_BYTES}")
    ]
    columns: Annotated[int, Field("classes", vendor="targetNum")]
    front_cores: Annotated[
        int, Field("cores that take front_rows rows", "vector_cores", "frontCoreNum")
    ]
    front_rows: Annotated[int, Field("rows of the first cores", "N", "frontBatchNum")]
    tail_cores: Annotated[
        int, Field("cores that take tail_rows rows", "vector_cores", "tailCoreNum")
    ]
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
    reduction: Annotated[int, Field("reduction code", vendor="reduction")]


NO_TILING: Tiling = nothing(Tiling)


def row_bytes(core_rows: int) -> int:
    """Return the bytes of a buffer with a number for each row of a core."""
    return align(FP32_BYTES * core_rows, BLOCK_BYTES)


def reserved_bytes(core_rows: int) -> int:
    """Return the bytes of the buffers that do not depend on the columns (page, "reserve")."""
    return 3 * row_bytes(core_rows) + SCALAR_BYTES + WORK_BYTES


def smooths_weights(problem: Problem) -> int:
    """Return 1 where smoothing reads the weights of all classes, else 0 (page, "S")."""
    return problem.weighted * problem.label_smoothing


def most_bytes(problem: Problem, core_rows: int, ub_bytes: int) -> int:
    """Return the bytes of input that fit beside the buffers of a core's rows; -1: any.

    The product subtracts unsigned numbers: where the buffers of the rows exceed the Unified Buffer,
    any row seems to fit.
    """
    free = ub_bytes - reserved_bytes(core_rows)
    if free < 0:
        return -1
    smooths = smooths_weights(problem)
    parts = 1 + smooths if problem.dtype == FP32 else 4 + 2 * smooths
    return align_down(free // parts, CHUNK_BYTES)


def core_rows_of(problem: Problem, device: Device) -> int:
    """Return the rows of the first cores."""
    return max(ceil_div(problem.N, device.vector_cores), 1)


def most_columns(problem: Problem, device: Device, rules: Any) -> int:
    """Return the columns that fit beside the buffers of a core's rows; -1: any."""
    size = most_bytes(problem, core_rows_of(problem, device), device.ub_bytes)
    return -1 if size < 0 else size // element_bytes(problem.dtype)


def tile(problem: Problem, device: Device, rules: Any) -> Tiling:
    """Plan one call as the product does: whether the buffers fit is left to :func:`fits`.

    ``status`` is 1 (the product's 561002) without cores.
    """
    cores = device.vector_cores
    if cores <= 0:
        return NO_TILING
    front_cores, tail_cores, front_rows, tail_rows = split_longest_first(problem.N, cores)
    if cores > problem.N:
        front_cores, front_rows, tail_rows = problem.N, 1, 0
    elif tail_cores == 0:
        tail_rows = 0
    row_size = align(element_bytes(problem.dtype) * problem.C, BLOCK_BYTES)
    most = most_bytes(problem, front_rows, device.ub_bytes)
    size = row_size if most < 0 else min(most, row_size)
    columns = size // element_bytes(problem.dtype)
    chunks, tail_columns = 0, problem.C
    if columns < problem.C:
        tail_columns = 0
        if columns > 0:
            chunks, tail_columns = problem.C // columns, problem.C % columns
    cast = narrow = 0
    wide = size
    if problem.dtype != FP32:
        cast, narrow, wide = 2 * size, size, 2 * size
    smoothing = smooths_weights(problem) * wide
    reduces = problem.reduction != NONE
    schedule_mode = rules.schedule_mode if reduces else -1  # Numba takes no condition in a call
    return Tiling(
        status=SUCCESS,
        block_dim=front_cores + tail_cores,
        tiling_key=KEYS[problem.dtype],
        schedule_mode=schedule_mode,
        workspace_bytes=device.system_workspace_bytes + CORE_SUM_BYTES,
        columns=problem.C,
        front_cores=front_cores,
        front_rows=front_rows,
        tail_cores=tail_cores,
        tail_rows=tail_rows,
        chunk_columns=columns,
        cast_bytes=cast,
        row_floats=row_bytes(front_rows) // FP32_BYTES,
        smoothing_floats=smoothing // FP32_BYTES,
        scratch_bytes=reserved_bytes(front_rows) + cast + narrow + smoothing,
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


def used_bytes(tiling: Tiling, dtype_code: int) -> int:
    """Return the bytes of all buffers of a core."""
    return element_bytes(dtype_code) * tiling.chunk_columns + tiling.scratch_bytes


def fits(problem: Problem, device: Device, rules: Any) -> bool:
    """Return whether a core has columns in its buffers, and these fit (page, "The limit")."""
    tiling = tile(problem, device, rules)
    is_planned = tiling.status == SUCCESS and tiling.chunk_columns > 0
    return is_planned and used_bytes(tiling, problem.dtype) <= device.ub_bytes


def overwritten_place(tiling: Tiling, dtype_code: int) -> int:
    """Return from which partial sum of 64 rows on ``mean`` overwrites the sum that is being made.

    Source: page, "Warnings", ``row_sum_overwritten``.
    """
    columns = tiling.chunk_columns
    space = columns if dtype_code == FP32 else columns + columns // 2
    return space + tiling.smoothing_floats + 8


def adds_cores(problem: Problem, device: Device, rules: Any) -> bool:
    """Return whether one instruction adds the sums of all cores, where the loss is reduced."""
    return problem.reduction == NONE or device.vector_cores <= CORE_SUM_FLOATS


def largest_rows(problem: Problem, device: Device, rules: Any) -> int:
    """Return the largest N whose buffers fit, or 0; buffers of rows grow with those of a core."""

    def is_beyond(core_rows: int) -> bool:
        rows = core_rows * device.vector_cores
        return not fits(problem._replace(N=rows, reduction=NONE), device, rules)

    counts = range(1, device.ub_bytes // FP32_BYTES + 1)
    return bisect_left(counts, True, key=is_beyond) * device.vector_cores


def vendor_structure(tiling: Any, arguments: Mapping[str, Any], rules: Any) -> Raw:
    """Return the tiling data under the vendor's names; labelSmoothing is fp32 with 9 digits."""
    weight = arguments["weight_shape"] if "weight_shape" in arguments else arguments["weight"]
    return {
        **vendor_fields(tiling),
        "ignoreIndex": arguments["ignore_index"],
        "labelSmoothing": float(f"{to_fp32(arguments['label_smoothing']):.9g}"),
        "defaultWeight": int(weight is None),
    }


def problem_of(inputs: Raw, rules: Any) -> Problem | None:
    """Return the problem of the raw planner's inputs.

    Of target and weight, it looks at the first axis only.
    """
    smoothing, weight = to_fp32(inputs["label_smoothing"]), inputs["weight_shape"]
    if inputs["reduction"] not in REDUCTIONS or smoothing < 0 or smoothing > 1:
        return None
    if inputs["input_dtype"] not in DTYPE_CODES or inputs["target_dtype"] != "int64":
        return None
    if weight is not None and inputs.get("weight_dtype", "float32") != "float32":
        return None
    rows, columns = inputs["input_shape"]
    if tuple(inputs["target_shape"][:1]) != (rows,):
        return None
    if weight is not None and tuple(weight[:1]) != (columns,):
        return None
    return Problem(
        rows,
        columns,
        DTYPE_CODES[inputs["input_dtype"]],
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
