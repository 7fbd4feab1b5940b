"""Tiling of CrossEntropyLossGrad (Atlas A2, A3): pure integer functions.

Source: specification page ``cross_entropy_loss_grad``, sections "Tiling" and "The limit". The product subtracts unsigned 64-bit
sizes; the wrap-around is written out. All sizes are bytes unless the name says rows, columns or elements.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from npu_sim.tiling.integers import align, align_down, ceil_div

if TYPE_CHECKING:
    from npu_sim.cores import Device

SUCCESS = 0
FAILED = 1

NONE, MEAN, SUM = 0, 1, 2
"""Reduction codes (page, "reduction code")."""
REDUCTIONS = ("none", "mean", "sum")

BF16, FP16, FP32 = 1, 2, 3
"""Dtype codes of log_prob, the tens of the tiling key (page, "key")."""
DTYPE_CODES = {"bfloat16": BF16, "float16": FP16, "float32": FP32}

BLOCK_BYTES = 32
"""Smallest piece of the Unified Buffer."""
COLUMN_UNIT_BYTES = 512
"""A piece of a row is a multiple of this, in the dtype of log_prob (page, "unit")."""
TAIL_COLUMNS = 64
"""The last piece of a row is padded to a multiple of this many columns (page, "Unified Buffer of a core")."""

_QUOTIENT_BY_12 = 1537228672809129301
"""(2^64 - 4) / 12."""
_QUOTIENT_BY_8 = 2305843009213693952
"""2^64 / 8."""


class Problem(NamedTuple):
    """What the kernel sees: log_prob (rows, columns), its dtype code, whether there is a weight, and the reduction code."""

    rows: int
    columns: int
    dtype_code: int
    weighted: bool
    reduction: int


class RowBuffers(NamedTuple):
    """Bytes of the buffers that hold something for every row of a core; 0 for what the call does not have."""

    target: int
    target_cast: int
    grad_loss: int
    grad_loss_fp32: int
    ignore: int
    mask: int
    target_weight: int
    buf2: int
    buf3: int


class Tiling(NamedTuple):
    """Result of the planner.

    Attributes
    ----------
    column_budget
        Columns that would fit beside the row buffers; after the unsigned wrap-around a huge number.
    wraps
        1 when the row buffers alone exceed the Unified Buffer, so that the unsigned subtraction wraps around.
    align_columns, column_loop, column_tail
        A row goes in ``column_loop`` pieces of ``align_columns`` columns and a last one of ``column_tail``.
    """

    status: int
    tiling_key: int
    block_dim: int
    schedule_mode: int
    workspace_bytes: int
    rows: int
    columns: int
    reduction: int
    front_cores: int
    tail_cores: int
    front_rows: int
    tail_rows: int
    column_budget: int
    wraps: int
    align_columns: int
    column_loop: int
    column_tail: int
    buffers: RowBuffers


def element_bytes(dtype_code: int) -> int:
    """Bytes of an element of log_prob."""
    return 4 if dtype_code == FP32 else 2


def unit_columns(dtype_code: int) -> int:
    """Columns of the smallest whole piece of a row."""
    return COLUMN_UNIT_BYTES // element_bytes(dtype_code)


def bytes_per_column(dtype_code: int) -> int:
    """Bytes that every column of a piece takes: log_prob, x_grad and the fp32 row."""
    return 2 * element_bytes(dtype_code) + 4


def row_buffers(problem: Problem, core_rows: int, cores: int) -> RowBuffers:
    """Return the buffers of a core that takes ``core_rows`` rows."""
    fp32_rows = align(4 * core_rows, BLOCK_BYTES)
    grad_loss = align(element_bytes(problem.dtype_code) * core_rows, BLOCK_BYTES)
    by_row = problem.reduction == NONE
    mean = problem.reduction == MEAN
    return RowBuffers(
        align(8 * core_rows, BLOCK_BYTES),
        fp32_rows,
        grad_loss if by_row else 0,
        fp32_rows if by_row and problem.dtype_code != FP32 else 0,
        fp32_rows,
        align(core_rows, BLOCK_BYTES),
        fp32_rows if problem.weighted else 0,
        BLOCK_BYTES if mean else 0,
        align(4 * max(cores, core_rows), BLOCK_BYTES) if mean else 0,
    )


def row_buffer_bytes(buffers: RowBuffers) -> int:
    """Return the sum of the row buffers."""
    labels = buffers.target + buffers.target_cast + buffers.ignore + buffers.mask + buffers.target_weight
    return labels + buffers.grad_loss + buffers.grad_loss_fp32 + buffers.buf2 + buffers.buf3


def column_budget(ub_bytes: int, used_bytes: int, dtype_code: int) -> int:
    """Return how many columns fit into what is left, in the product's unsigned 64-bit arithmetic.

    The row buffers may exceed the Unified Buffer: the difference is then 2^64 minus the excess, and so is its quotient.
    """
    free = ub_bytes - used_bytes
    divisor = bytes_per_column(dtype_code)
    if free >= 0:
        return free // divisor
    if divisor == 8:
        return _QUOTIENT_BY_8 + free // 8
    return _QUOTIENT_BY_12 + (free + 4) // 12


def failed_tiling() -> Tiling:
    """The result of a planner that found no tiling."""
    return Tiling(FAILED, 0, 0, -1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, RowBuffers(0, 0, 0, 0, 0, 0, 0, 0, 0))


def tile(problem: Problem, device: "Device") -> Tiling:
    """Plan one call as the product does, without asking whether the buffers fit; see :func:`fits`.

    Parameters
    ----------
    problem
        What the kernel sees.
    device
        The SoC.

    Returns
    -------
    Tiling
        With ``status`` 1 (the product's 561002) for no columns, or no core.
    """
    cores = device.vector_cores
    if problem.columns <= 0 or cores <= 0:
        return failed_tiling()
    rest = problem.rows % cores
    front_cores = rest if rest != 0 else cores
    tail_cores = 0 if problem.rows <= cores else cores - front_cores
    front_rows = ceil_div(problem.rows, cores)
    buffers = row_buffers(problem, front_rows, cores)
    used_bytes = row_buffer_bytes(buffers)
    budget = column_budget(device.ub_bytes, used_bytes, problem.dtype_code)
    align_columns = align_down(min(budget, problem.columns), unit_columns(problem.dtype_code))
    column_loop, column_tail = 0, problem.columns
    if align_columns > 0:
        column_loop, column_tail = problem.columns // align_columns, problem.columns % align_columns
    return Tiling(
        SUCCESS,
        10 * problem.dtype_code + (1 if problem.weighted else 0),
        front_cores + tail_cores,
        1 if problem.reduction == MEAN else -1,
        device.system_workspace_bytes + core_sum_bytes(cores),
        problem.rows,
        problem.columns,
        problem.reduction,
        front_cores,
        tail_cores,
        front_rows,
        problem.rows // cores,
        budget,
        1 if used_bytes > device.ub_bytes else 0,
        align_columns,
        column_loop,
        column_tail,
        buffers,
    )


def core_sum_bytes(cores: int) -> int:
    """Bytes of workspace in which every core leaves its share of the divisor of ``mean``."""
    return align(4 * cores, BLOCK_BYTES)


def row_range(tiling: Tiling, core: int) -> tuple[int, int]:
    """Return the half-open range of rows that a core takes."""
    if core < tiling.front_cores:
        start = core * tiling.front_rows
        return start, start + tiling.front_rows
    start = tiling.front_cores * tiling.front_rows + (core - tiling.front_cores) * tiling.tail_rows
    return start, start + tiling.tail_rows


def piece_bytes(tiling: Tiling, dtype_code: int) -> int:
    """Return the bytes of log_prob in, and of x_grad out: room for the longest piece of a row."""
    return element_bytes(dtype_code) * max(tiling.align_columns, align(tiling.column_tail, TAIL_COLUMNS))


def used_bytes(tiling: Tiling, dtype_code: int) -> int:
    """Return the bytes of all buffers of a core."""
    return row_buffer_bytes(tiling.buffers) + 2 * piece_bytes(tiling, dtype_code) + 4 * tiling.align_columns


def fits(problem: Problem, device: "Device") -> bool:
    """Whether the buffers of a core really fit its Unified Buffer (page, "The limit")."""
    tiling = tile(problem, device)
    if tiling.status != SUCCESS or tiling.wraps == 1:
        return False
    if tiling.align_columns == 0 and problem.columns > tiling.column_budget:
        return False
    return used_bytes(tiling, problem.dtype_code) <= device.ub_bytes


def largest_rows(problem: Problem, device: "Device") -> int:
    """Return the largest N whose buffers fit, everything else as in the problem; 0 when none does.

    Only the rows of the fullest core count, and the buffers never shrink when these grow: they are bisected.
    """
    low, high = 0, device.ub_bytes
    while low < high:
        middle = (low + high + 1) // 2
        if fits(with_rows(problem, middle * device.vector_cores), device):
            low = middle
        else:
            high = middle - 1
    return low * device.vector_cores


def largest_rows_with_columns(problem: Problem, columns: int, device: "Device") -> int:
    """Return the largest N that leaves room for so many columns beside the row buffers; 0 when none does."""
    low, high = 0, device.ub_bytes
    while low < high:
        middle = (low + high + 1) // 2
        tiling = tile(with_rows(problem, middle * device.vector_cores), device)
        if tiling.wraps == 0 and tiling.column_budget >= columns:
            low = middle
        else:
            high = middle - 1
    return low * device.vector_cores


def largest_rows_before_wrap(problem: Problem, device: "Device") -> int:
    """Return the largest N whose row buffers alone do not exceed the Unified Buffer: beyond, the product claims that any row fits."""
    return largest_rows_with_columns(problem, 0, device)


def largest_short_row(problem: Problem, device: "Device") -> int:
    """Return the largest C below one unit that fits with these rows; 0 when none does."""
    columns = unit_columns(problem.dtype_code) - 1
    while columns > 0 and not fits(with_columns(problem, columns), device):
        columns -= 1
    return columns


def with_rows(problem: Problem, rows: int) -> Problem:
    """Return the problem with another N."""
    return Problem(rows, problem.columns, problem.dtype_code, problem.weighted, problem.reduction)


def with_columns(problem: Problem, columns: int) -> Problem:
    """Return the problem with another C."""
    return Problem(problem.rows, columns, problem.dtype_code, problem.weighted, problem.reduction)


def vendor_fields(tiling: Tiling, ignore_index: int, label_smoothing: float) -> dict[str, int | float]:
    """Return the tiling data under the vendor's names; labelSmoothing is fp32, shown with 9 significant digits."""
    buffers = tiling.buffers
    return {
        "reduction": tiling.reduction,
        "ignoreIndex": ignore_index,
        "labelSmoothing": float(f"{np.float32(label_smoothing):.9g}"),
        "rowVal": tiling.rows,
        "colVal": tiling.columns,
        "frontCoreNum": tiling.front_cores,
        "tailCoreNum": tiling.tail_cores,
        "usedCoreNum": tiling.block_dim,
        "frontRowNum": tiling.front_rows,
        "tailRowNum": tiling.tail_rows,
        "alignColLoopNum": tiling.align_columns,
        "colLoop": tiling.column_loop,
        "colLoopNumTail": tiling.column_tail,
        "targetSize": buffers.target,
        "targetCastSize": buffers.target_cast,
        "gradLossSize": buffers.grad_loss,
        "gradLossFp32Size": buffers.grad_loss_fp32,
        "ignoreSize": buffers.ignore,
        "maskSize": buffers.mask,
        "targetWeightSize": buffers.target_weight,
        "tBuf2Size": buffers.buf2,
        "tBuf3Size": buffers.buf3,
    }


def plan_kernel(kernel: str, inputs: dict[str, Any], device: "Device", deterministic: bool) -> dict[str, Any]:
    """Run the raw planner on one golden line's inputs; return its ``expect`` structure (see :mod:`npu_sim.tiling`)."""
    shape, weight = tuple(inputs["log_prob_shape"]), inputs["weight_shape"]
    reduction = inputs["reduction"]
    if len(shape) != 2 or tuple(inputs["target_shape"]) != shape[:1] or (weight is not None and tuple(weight) != shape[1:]):
        return {"status": "failed"}
    if tuple(inputs["grad_loss_shape"]) != (shape[:1] if reduction == "none" else ()):
        return {"status": "failed"}
    code = DTYPE_CODES[inputs["log_prob_dtype"]]
    tiling = tile(Problem(*shape, code, weight is not None, REDUCTIONS.index(reduction)), device)
    if tiling.status != SUCCESS:
        return {"status": "failed"}
    return {
        "status": "success",
        "block_dim": tiling.block_dim,
        "tiling_key": tiling.tiling_key,
        "workspace_bytes": tiling.workspace_bytes,
        "schedule_mode": 1 if tiling.schedule_mode == 1 else None,
        "tiling": vendor_fields(tiling, inputs["ignore_index"], inputs["label_smoothing"]),
    }
