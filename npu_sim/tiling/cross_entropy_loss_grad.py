"""Tiling of CrossEntropyLossGrad on Atlas A2 and A3: pure integer functions.

Source: specification page ``cross_entropy_loss_grad``, sections "Tiling" and "The limit". The
product subtracts unsigned 64-bit sizes; the wrap-around is written out. Sizes are bytes unless the
name contains rows, columns or elements.
"""

from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

from npu_sim.cores import Device
from npu_sim.tiling.common import (
    BLOCK_BYTES,
    DTYPE_CODES,
    FP32,
    SUCCESS,
    Field,
    FieldRun,
    Part,
    Range,
    Raw,
    ScheduleMode,
    Structure,
    align,
    align_down,
    element_bytes,
    most_rows,
    nothing,
    raw_planner,
    split_longest_first,
    to_fp32,
    vendor_fields,
)

NONE, MEAN, SUM = 0, 1, 2
"""Reduction codes (page, "reduction code")."""
REDUCTIONS = ("none", "mean", "sum")
TARGET_DTYPES = ("int64", "int32")
"""Dtypes of labels; int32 on Ascend 950 only."""

KEYS = (30, 20, 10)
"""Tiling key of a call without weight, by dtype code; the product counts bf16, fp16, fp32 from 1
(page, "key")."""

COLUMN_UNIT_BYTES = 512
"""A piece of a row is a multiple of this, in the dtype of log_prob (page, "unit")."""
TAIL_COLUMNS = 64
"""The last piece of a row is padded to a multiple of this many columns (page, "Unified Buffer of a
core")."""

_QUOTIENT_BY_12, _QUOTIENT_BY_8 = 1537228672809129301, 2305843009213693952
"""(2^64 - 4) / 12 and 2^64 / 8."""

ALL_BUFFERS = -1
"""Instead of a number of columns: all buffers of the call."""

FrontCores = Annotated[
    int, Field("cores that take front_rows rows", "vector_cores", "frontCoreNum")
]
TailCores = Annotated[int, Field("cores that take tail_rows rows", "vector_cores", "tailCoreNum")]
ReductionCode = Annotated[int, Field("reduction code", vendor="reduction")]


class Problem(NamedTuple):
    """The axes of a call that the planner reads; log_prob has shape (N, C) and dtype ``dtype``."""

    N: int
    C: int
    dtype: int
    weighted: int
    reduction: int


class RowBuffers(NamedTuple):
    """Bytes of the buffers with an entry for every row of a core; 0 for those not in use."""

    target: Annotated[int, Field("labels", "ub_bytes", "target")]
    target_cast: Annotated[int, Field("labels as int32", "ub_bytes", "targetCast")]
    grad_loss: Annotated[int, Field("grad_loss", "ub_bytes", "gradLoss")]
    grad_loss_fp32: Annotated[int, Field("grad_loss in fp32", "ub_bytes", "gradLossFp32")]
    ignore: Annotated[int, Field("ignore_index as fp32", "ub_bytes", "ignore")]
    mask: Annotated[int, Field("mask", "ub_bytes", "mask")]
    target_weight: Annotated[int, Field("weights of the labels", "ub_bytes", "targetWeight")]
    buf2: Annotated[int, Field("sum over the rows", "ub_bytes", "tBuf2")]
    buf3: Annotated[int, Field("sums of the cores", "ub_bytes", "tBuf3")]


class Tiling(NamedTuple):
    """Result of the planner.

    A row is cut into ``column_loop`` pieces of ``align_columns`` columns and a last one of
    ``column_tail``. After an unsigned wrap-around ``column_budget`` is a huge number; the contract
    refuses such calls.
    """

    status: int
    block_dim: Annotated[int, Field("cores that work", "vector_cores", "usedCoreNum")]
    tiling_key: Annotated[int, Field("tiling key", "31")]
    schedule_mode: ScheduleMode
    workspace_bytes: Annotated[
        int, Field("workspace of the kernel", "system_workspace_bytes + 4 * vector_cores + 32")
    ]
    reduction: ReductionCode
    rows: Annotated[int, Field("rows", vendor="rowVal")]
    columns: Annotated[int, Field("columns", vendor="colVal")]
    front_cores: FrontCores
    tail_cores: TailCores
    front_rows: Annotated[int, Field("rows of the first cores", "N", "frontRowNum")]
    tail_rows: Annotated[int, Field("rows of the other cores", "N", "tailRowNum")]
    column_budget: Annotated[int, Field("columns that fit beside the row buffers", "ub_bytes")]
    wraps: Annotated[
        int,
        Field(
            "1 when the row buffers alone exceed the Unified Buffer,"
            " so that the subtraction wraps around"
        ),
    ]
    align_columns: Annotated[int, Field("columns of a piece of a row", "C", "alignColLoopNum")]
    column_loop: Annotated[int, Field("whole pieces of a row", "C", "colLoop")]
    column_tail: Annotated[int, Field("columns of the last piece", "C", "colLoopNumTail")]
    buffers: Annotated[RowBuffers, Part("{}Size", ": bytes of the buffer")]


NO_TILING = nothing(Tiling)


def unit_columns(dtype_code: int) -> int:
    """Return the columns of the smallest whole piece of a row."""
    return COLUMN_UNIT_BYTES // element_bytes(dtype_code)


def bytes_per_column(dtype_code: int) -> int:
    """Return the bytes of one column of a piece: log_prob, x_grad and the fp32 row."""
    return 2 * element_bytes(dtype_code) + 4


def row_buffers(problem: Problem, core_rows: int, cores: int) -> RowBuffers:
    """Return the buffers of a core that takes ``core_rows`` rows."""
    fp32_rows = align(4 * core_rows, BLOCK_BYTES)
    grad_loss = align(element_bytes(problem.dtype) * core_rows, BLOCK_BYTES)
    by_row = problem.reduction == NONE
    mean = problem.reduction == MEAN
    return RowBuffers(
        target=align(8 * core_rows, BLOCK_BYTES),
        target_cast=fp32_rows,
        grad_loss=grad_loss if by_row else 0,
        grad_loss_fp32=fp32_rows if by_row and problem.dtype != FP32 else 0,
        ignore=fp32_rows,
        mask=align(core_rows, BLOCK_BYTES),
        target_weight=fp32_rows if problem.weighted else 0,
        buf2=BLOCK_BYTES if mean else 0,
        buf3=align(4 * max(cores, core_rows), BLOCK_BYTES) if mean else 0,
    )


def column_budget(ub_bytes: int, used_bytes: int, dtype_code: int) -> int:
    """Return how many columns fit beside the row buffers, in unsigned 64-bit arithmetic.

    If the row buffers exceed the Unified Buffer, the product divides 2^64 minus the excess.
    """
    free = ub_bytes - used_bytes
    divisor = bytes_per_column(dtype_code)
    if free >= 0:
        return free // divisor
    if divisor == 8:
        return _QUOTIENT_BY_8 + free // 8
    return _QUOTIENT_BY_12 + (free + 4) // 12


def tile(problem: Problem, device: Device, rules: Any) -> Tiling:
    """Plan one call as the product does: whether the buffers fit is left to :func:`fits`.

    ``status`` is 1 (the product's 561002) without cores. Without columns the product plans too; the
    contract refuses such calls.
    """
    cores = device.vector_cores
    if cores <= 0:
        return NO_TILING
    front_cores, tail_cores, front_rows, tail_rows = split_longest_first(problem.N, cores)
    buffers = row_buffers(problem, front_rows, cores)
    used_bytes = sum(buffers)
    budget = column_budget(device.ub_bytes, used_bytes, problem.dtype)
    align_columns = align_down(min(budget, problem.C), unit_columns(problem.dtype))
    column_loop, column_tail = 0, problem.C
    if align_columns > 0:
        column_loop, column_tail = problem.C // align_columns, problem.C % align_columns
    tiling_key = KEYS[problem.dtype] + (1 if problem.weighted else 0)
    schedule_mode = rules.schedule_mode if problem.reduction == MEAN else -1
    return Tiling(
        status=SUCCESS,
        block_dim=front_cores + tail_cores,
        tiling_key=tiling_key,
        schedule_mode=schedule_mode,
        workspace_bytes=device.system_workspace_bytes + core_sum_bytes(cores),
        reduction=problem.reduction,
        rows=problem.N,
        columns=problem.C,
        front_cores=front_cores,
        tail_cores=tail_cores,
        front_rows=front_rows,
        tail_rows=tail_rows,
        column_budget=budget,
        wraps=int(used_bytes > device.ub_bytes),
        align_columns=align_columns,
        column_loop=column_loop,
        column_tail=column_tail,
        buffers=buffers,
    )


def core_sum_bytes(cores: int) -> int:
    """Return the bytes of workspace for the parts of the divisor of ``mean``, one per core."""
    return align(4 * cores, BLOCK_BYTES)


def row_range(tiling: Tiling, core: int) -> Range:
    """Return the half-open range of rows that a core takes."""
    if core < tiling.front_cores:
        return core * tiling.front_rows, (core + 1) * tiling.front_rows
    start = tiling.front_cores * (tiling.front_rows - tiling.tail_rows) + core * tiling.tail_rows
    return start, start + tiling.tail_rows


def piece_bytes(tiling: Tiling, dtype_code: int) -> int:
    """Return the bytes of the buffer of log_prob, or x_grad: the longest piece of a row."""
    return element_bytes(dtype_code) * max(
        tiling.align_columns, align(tiling.column_tail, TAIL_COLUMNS)
    )


def buffers(tiling: Tiling, dtype_code: int) -> dict[str, int]:
    """Return the bytes of the buffers of a core by name (page, "Unified Buffer of a core").

    Those of ``tiling.buffers`` have one entry for every row of a core.
    """
    piece = piece_bytes(tiling, dtype_code)
    pieces = {"log_prob in": piece, "x_grad out": piece, "fp32 row": 4 * tiling.align_columns}
    return {**pieces, **tiling.buffers._asdict()}


def used_bytes(tiling: Tiling, dtype_code: int) -> int:
    """Return the bytes of all buffers of a core."""
    return sum(tiling.buffers) + 2 * piece_bytes(tiling, dtype_code) + 4 * tiling.align_columns


def fits(problem: Problem, device: Device, rules: Any) -> bool:
    """Return whether the buffers of a core fit its Unified Buffer (page, "The limit")."""
    tiling = tile(problem, device, rules)
    if tiling.status != SUCCESS or tiling.wraps == 1:
        return False
    if tiling.align_columns == 0 and tiling.column_budget < problem.C:
        return False
    return used_bytes(tiling, problem.dtype) <= device.ub_bytes


def attribute_fields(arguments: Mapping[str, Any]) -> Raw:
    """Return attributes under the vendor's names; labelSmoothing is fp32 with 9 digits."""
    smoothing = float(f"{to_fp32(arguments['label_smoothing']):.9g}")
    return {"ignoreIndex": arguments["ignore_index"], "labelSmoothing": smoothing}


def vendor_structure(tiling: Any, arguments: Mapping[str, Any], rules: Any) -> Raw:
    """Return the tiling data under the vendor's names."""
    return {**vendor_fields(tiling), **attribute_fields(arguments)}


def takes_attributes(inputs: Raw, dtype: str, target_dtypes: tuple[str, ...]) -> bool:
    """Return whether a raw planner takes the reduction and dtypes; weight is fp32 by default."""
    weight_dtype = inputs.get("weight_dtype", "float32")
    return (
        inputs["reduction"] in REDUCTIONS
        and dtype in DTYPE_CODES
        and inputs["target_dtype"] in target_dtypes
        and (inputs["weight_shape"] is None or weight_dtype == "float32")
    )


def problem_of(inputs: Raw, rules: Any) -> Problem | None:
    """Return the problem of the raw planner's inputs.

    Like the product's planner, it ignores ``grad_loss_shape``, which the contract checks.
    """
    shape, weight = tuple(inputs["log_prob_shape"]), inputs["weight_shape"]
    if (
        len(shape) != 2
        or tuple(inputs["target_shape"]) != shape[:1]
        or (weight is not None and tuple(weight) != shape[1:])
    ):
        return None
    dtype = DTYPE_CODES[inputs["log_prob_dtype"]]
    return Problem(*shape, dtype, int(weight is not None), REDUCTIONS.index(inputs["reduction"]))


KERNELS = {"cross_entropy_loss_grad": raw_planner(problem_of, tile, vendor_structure)}


def leaves_room(problem: Problem, columns: int, device: Device, rules: Any) -> bool:
    """Return whether ``columns`` fit beside the row buffers."""
    tiling = tile(problem, device, rules)
    return tiling.wraps == 0 and tiling.column_budget >= columns


def largest_rows(problem: Any, device: Device, rules: Any, columns: int = ALL_BUFFERS) -> int:
    """Return the largest N whose buffers fit; with ``columns``, beside which these fit; or 0.

    For 0 columns the row buffers alone fit; beyond, the product accepts any row.
    """

    def holds(rows: int) -> bool:
        tried = problem._replace(N=rows)
        if columns == ALL_BUFFERS:
            return fits(tried, device, rules)
        return leaves_room(tried, columns, device, rules)

    return most_rows(holds, device)


def largest_short_row(problem: Any, device: Device, rules: Any) -> int:
    """Return the largest C below one unit that fits with these rows, or 0."""
    columns = unit_columns(problem.dtype) - 1
    while columns > 0 and not fits(problem._replace(C=columns), device, rules):
        columns -= 1
    return columns


STRUCTURES = (
    Structure(
        "CrossEntropyLossGrad",
        "8.3",
        (
            FieldRun("int64_t", "reduction ignoreIndex"),
            FieldRun("float", "labelSmoothing"),
            FieldRun(
                "int64_t",
                "rowVal colVal frontCoreNum tailCoreNum usedCoreNum frontRowNum tailRowNum "
                "alignColLoopNum colLoop colLoopNumTail targetSize targetCastSize gradLossSize "
                "gradLossFp32Size ignoreSize maskSize targetWeightSize tBuf2Size tBuf3Size",
            ),
        ),
    ),
)
"""Tiling structure of the kernel as bytes (page ``tiling_bytes``)."""
