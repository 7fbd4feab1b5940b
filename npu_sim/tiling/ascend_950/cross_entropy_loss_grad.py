"""Tiling of CrossEntropyLossGrad on Ascend 950: pure integer functions.

Source: specification page ``cross_entropy_loss_grad_950``, section "Tiling". The contract refuses
label smoothing, which the raw planner takes. Sizes are bytes unless the name contains rows, columns
or elements.
"""

from collections import namedtuple
from typing import Annotated, Any, NamedTuple

import numpy as np

from npu_sim.cores import Device
from npu_sim.tiling.common import (
    BLOCK_BYTES,
    DTYPE_CODES,
    FP32_BYTES,
    SUCCESS,
    SYSTEM_WORKSPACE_BYTES,
    Field,
    Part,
    Raw,
    align,
    align_down,
    bit_length,
    element_bytes,
    largest_power,
    nothing,
    raw_planner,
    split_longest_first,
)
from npu_sim.tiling.cross_entropy_loss_grad import (
    MEAN,
    NONE,
    REDUCTIONS,
    TAIL_COLUMNS,
    TARGET_DTYPES,
    FrontCores,
    ReductionCode,
    TailCores,
    takes_attributes,
    vendor_structure,
)

TARGET_BYTES = (8, 4)
"""Bytes of a label, by the position of its dtype."""

WHOLE_ROWS, CUT_COLUMNS, EMPTY = 1, 0, 2
"""Lowest 8 bits of the tiling key (page, "sch")."""
REDUCTION_STEP, WEIGHTED_STEP, SMOOTHED_STEP, MASKED_STEP = 1 << 8, 1 << 16, 1 << 24, 1 << 32
"""Places of the other template values in the tiling key."""
LARGEST_KEY = EMPTY + 2 * REDUCTION_STEP + WEIGHTED_STEP + SMOOTHED_STEP + MASKED_STEP

LABEL_ROWS, PIECE_COLUMNS, LEAST_ROW_ELEMENTS = 256, 128, 256
"""Where columns are cut: most rows of a core whose labels are in the Unified Buffer at a time; a
piece of a row is a multiple of the second; fewest fp32 elements of its buffer (page, "b")."""
CORE_SUM_BYTES, ROW_LABEL_BYTES, MEAN_BYTES = 128, 8, 64
"""Workspace per core; bytes of a row for its label in 32 bits and its mask, where rows are whole;
those of the two buffers of the core's sum."""


class Problem(NamedTuple):
    """One call.

    Attributes
    ----------
    rows, columns
        Shape of log_prob.
    element_bytes, target_bytes
        Bytes of an element of log_prob and of a label.
    reduction
        Reduction code.
    weighted, smoothed, masked
        Whether there is a weight, whether label smoothing is above 0, whether ignore_index is 0 or
        more.
    """

    rows: int
    columns: int
    element_bytes: int
    target_bytes: int
    reduction: int
    weighted: bool
    smoothed: bool
    masked: bool


class LabelBuffers(NamedTuple):
    """Bytes of the buffers with an entry for every row; 0 for those not in use."""

    target: Annotated[int, Field("labels", "ub_bytes", "target")]
    target_cast: Annotated[int, Field("labels as int32", "ub_bytes", "targetCast")]
    smooth: Annotated[int, Field("smoothing factors", "ub_bytes", "smooth")]
    grad_loss: Annotated[int, Field("grad_loss", "ub_bytes", "gradLoss")]
    ignore: Annotated[int, Field("mask", "ub_bytes", "ignore")]
    target_weight: Annotated[int, Field("weights of the labels", "ub_bytes", "targetWeight")]
    buf2: Annotated[int, Field("sum over the rows", "ub_bytes", "tBuf2")]
    buf3: Annotated[int, Field("sums of the cores", "ub_bytes", "tBuf3")]


class WeightBlocks(NamedTuple):
    """Blocks of columns whose weights smoothing adds; all 0 without weight or smoothing."""

    times: Annotated[int, Field("blocks that are left after folding", "C", "kTimes")]
    columns: Annotated[int, Field("columns of a block", "C", "cOnceNum")]
    tail_columns: Annotated[int, Field("columns of the last block", "C", "cOnceNumTail")]
    tail_times: Annotated[int, Field("blocks that receive another one", "C", "kTimesTail")]
    tail_aligned: Annotated[
        int, Field("columns of the last block, padded", "C + 7", "cOnceNumTailAlign")
    ]
    cache_start: Annotated[int, Field("elements before the last level", "64 * 64", "cacheStart")]


class Tiling(NamedTuple):
    """Result of the planner.

    Rows are whole (``column_loop`` and ``column_tail`` are 0), several at a time, or one row is cut
    into ``column_loop`` pieces of ``align_columns`` columns and a last one of ``column_tail``.
    """

    status: int
    tiling_key: Annotated[
        int,
        Field(
            "tiling key: 1 whole rows, 0 cut rows, 2 empty; plus 2^8 times the reduction, 2^16 "
            "with weight, 2^24 with smoothing, 2^32 with an ignore_index of 0 or more",
            str(LARGEST_KEY),
        ),
    ]
    block_dim: Annotated[int, Field("cores of the launch", "vector_cores")]
    workspace_bytes: Annotated[
        int,
        Field(
            "workspace of the kernel", f"{SYSTEM_WORKSPACE_BYTES} + {CORE_SUM_BYTES} * vector_cores"
        ),
    ]
    reduction: ReductionCode
    rows: Annotated[int, Field("rows; 0 for an empty call", "N", "rowVal")]
    columns: Annotated[int, Field("columns; 0 for an empty call", "C", "colVal")]
    used_cores: Annotated[int, Field("cores with rows", "vector_cores", "usedCoreNum")]
    front_cores: FrontCores
    tail_cores: TailCores
    front_rows: Annotated[int, Field("rows of the first cores", "N", "frontRowNum")]
    tail_rows: Annotated[int, Field("rows of the other cores", "N", "tailRowNum")]
    align_columns: Annotated[
        int, Field("columns of a padded row, or of a piece", "C + 15", "alignColLoopNum")
    ]
    column_loop: Annotated[int, Field("whole pieces of a row", "C", "colLoop")]
    column_tail: Annotated[int, Field("columns of the last piece", "C", "colLoopNumTail")]
    pass_elements: Annotated[
        int, Field("elements of log_prob at a time", "max(ub_bytes, C + 15)", "alignNCNum")
    ]
    buffers: Annotated[LabelBuffers, Part("{}Size", ": bytes of the buffer")]
    blocks: Annotated[WeightBlocks, Part("{}")]


NO_TILING = nothing(Tiling)
"""Result of a planner that found no tiling."""


def padded_columns(problem: Problem) -> int:
    """Return the columns of a row in whole blocks (page, "a" of sch 1)."""
    return align(problem.columns, BLOCK_BYTES // problem.element_bytes)


def whole_rows(problem: Problem, device: Device) -> int:
    """Return how many whole rows the Unified Buffer holds at a time, below 1 when none (page, "R").

    The number depends neither on the rows of the call nor on those of a core.
    """
    columns, step = padded_columns(problem), BLOCK_BYTES // problem.element_bytes
    fp32_row = FP32_BYTES * columns
    room, row = device.ub_bytes - fp32_row, 2 * problem.element_bytes * columns + fp32_row
    label = ROW_LABEL_BYTES + problem.target_bytes
    if problem.reduction == NONE:
        label += problem.element_bytes
    if problem.reduction == MEAN:
        room -= MEAN_BYTES + align(FP32_BYTES * device.vector_cores, BLOCK_BYTES)
    if problem.weighted:
        room -= fp32_row
        label += FP32_BYTES
    if problem.smoothed:
        label += FP32_BYTES
    if problem.weighted and problem.smoothed:
        row += fp32_row
        label += FP32_BYTES
    most = room // row
    return min(most, (room - label * align(most, step)) // row)


def label_buffers(problem: Problem, rows: int, buf3: int, smooths: bool) -> LabelBuffers:
    """Return the buffers for the labels of some rows, each a multiple of a block."""
    fp32_rows = align(FP32_BYTES * rows, BLOCK_BYTES)
    grad_loss = align(problem.element_bytes * rows, BLOCK_BYTES)
    mean = problem.reduction == MEAN
    return LabelBuffers(
        target=align(problem.target_bytes * rows, BLOCK_BYTES),
        target_cast=fp32_rows,
        smooth=fp32_rows if smooths else 0,
        grad_loss=grad_loss if problem.reduction == NONE else 0,
        ignore=fp32_rows,
        target_weight=fp32_rows if problem.weighted else 0,
        buf2=BLOCK_BYTES if mean else 0,
        buf3=align(FP32_BYTES * buf3, BLOCK_BYTES) if mean else 0,
    )


def weight_blocks(problem: Problem, piece: int) -> WeightBlocks:
    """Return the blocks of columns over which smoothing adds weights, where columns are cut."""
    times = largest_power(problem.columns // piece if piece else 0)
    rest = problem.columns - times * piece
    tail_times, tail = 0, rest
    if piece:
        tail_times, tail = (rest + piece - 1) // piece, rest % piece
    return WeightBlocks(times, piece, tail, tail_times, align(tail, 8), 64 * bit_length(times - 1))


def key_of(schedule: int, reduction: int, weighted: int, smoothed: int, masked: int) -> int:
    """Return the tiling key of a call, whose attributes are 0 or 1."""
    attributes = WEIGHTED_STEP * weighted + SMOOTHED_STEP * smoothed + MASKED_STEP * masked
    return schedule + REDUCTION_STEP * reduction + attributes


def tile(problem: Problem, device: Device, rules: Any) -> Tiling:
    """Plan one call.

    ``status`` is 1 (the product's 561002) without cores, and on a chip whose Unified Buffer does
    not hold the labels.
    """
    cores = device.vector_cores
    if cores <= 0:
        return NO_TILING
    if problem.rows == 0 or problem.columns == 0:
        return empty(problem.reduction)
    front_cores, tail_cores, front_rows, tail_rows = split_longest_first(problem.rows, cores)
    used_cores = front_cores + tail_cores
    columns, held, blocks = padded_columns(problem), whole_rows(problem, device), NO_TILING.blocks
    loop = tail = 0
    if held >= 1:
        schedule, pass_elements = WHOLE_ROWS, held * columns
        padded = align(held, BLOCK_BYTES // problem.element_bytes)
        buffers = label_buffers(problem, padded, cores, problem.smoothed)
    else:
        schedule, rows = CUT_COLUMNS, min(front_rows, LABEL_ROWS)
        buffers = label_buffers(problem, rows, max(cores, rows), True)
        column = 3 * FP32_BYTES
        if problem.weighted:
            column += FP32_BYTES
            if problem.smoothed:
                column += buffers.target
        free = device.ub_bytes - sum(buffers)
        if free < 0:
            return NO_TILING
        columns = align_down(min(free // column, problem.columns), PIECE_COLUMNS)
        tail = problem.columns
        if columns:
            loop, tail = problem.columns // columns, problem.columns % columns
        pass_elements = columns
        if problem.weighted and problem.smoothed:
            blocks = weight_blocks(problem, columns)
    weighted, smoothed, masked = problem.weighted, problem.smoothed, problem.masked
    return Tiling(
        status=SUCCESS,
        tiling_key=key_of(schedule, problem.reduction, weighted, smoothed, masked),
        block_dim=used_cores,
        workspace_bytes=SYSTEM_WORKSPACE_BYTES + CORE_SUM_BYTES * cores,
        reduction=problem.reduction,
        rows=problem.rows,
        columns=problem.columns,
        used_cores=used_cores,
        front_cores=front_cores,
        tail_cores=tail_cores,
        front_rows=front_rows,
        tail_rows=tail_rows,
        align_columns=columns,
        column_loop=loop,
        column_tail=tail,
        pass_elements=pass_elements,
        buffers=buffers,
        blocks=blocks,
    )


def empty(reduction: int) -> Tiling:
    """Return the tiling of a call without elements: one core that returns at once."""
    none = NO_TILING
    return Tiling(
        status=SUCCESS,
        tiling_key=EMPTY,
        block_dim=1,
        workspace_bytes=SYSTEM_WORKSPACE_BYTES,
        reduction=reduction,
        rows=0,
        columns=0,
        used_cores=0,
        front_cores=0,
        tail_cores=0,
        front_rows=0,
        tail_rows=0,
        align_columns=0,
        column_loop=0,
        column_tail=0,
        pass_elements=0,
        buffers=none.buffers,
        blocks=none.blocks,
    )


def problem_of_row(row: Any) -> Problem:
    """Return the problem of a call given as integers."""
    return Problem(
        row.N,
        row.C,
        element_bytes(row.dtype),
        TARGET_BYTES[row.target_dtype],
        row.reduction,
        row.weighted == 1,
        False,
        row.ignore_index >= 0,
    )


def tile_row(row: Any, device: Device, rules: Any) -> Tiling:
    """Plan a call given as integers."""
    return tile(problem_of_row(row), device, rules)


def schedule_of(tiling: Tiling) -> int:
    """Return whether rows are whole (1), cut (0), or there is none (2)."""
    return tiling.tiling_key % REDUCTION_STEP


def rows_at_once(tiling: Tiling) -> int:
    """Return the rows of a pass over whole rows."""
    return tiling.pass_elements // tiling.align_columns


RowBuffers = namedtuple("RowBuffers", ("log_prob", "x_grad", "fp32_rows", "weight", "second_sum"))
"""Bytes of the buffers for pieces of rows in the Unified Buffer of a core."""


def row_buffers(tiling: Tiling, size: int, weighted: bool) -> RowBuffers:
    """Return the buffers of the rows of a call without smoothing (page, "Unified Buffer")."""
    if schedule_of(tiling) == EMPTY:
        return RowBuffers(0, 0, 0, 0, 0)
    elements = max(tiling.pass_elements, align(tiling.column_tail, TAIL_COLUMNS))
    aligned = align(size * elements, BLOCK_BYTES)
    fp32_rows = weight = FP32_BYTES * max(LEAST_ROW_ELEMENTS, elements)
    if schedule_of(tiling) == WHOLE_ROWS:
        fp32_rows = FP32_BYTES * tiling.pass_elements
        weight = FP32_BYTES * tiling.align_columns
    return RowBuffers(aligned, aligned, fp32_rows, weight if weighted else 0, tiling.buffers.buf2)


def used_bytes(row: Any, tiling: Tiling, device: Device, rules: Any) -> int:
    """Return the Unified Buffer in use on a core; smoothing factors have none without smoothing."""
    rows = row_buffers(tiling, element_bytes(row.dtype), row.weighted == 1)
    used: int = sum(rows) + sum(tiling.buffers) - tiling.buffers.smooth
    return used


def problem_of(inputs: Raw, rules: Any) -> Problem | None:
    """Return the problem of the raw planner's inputs.

    Where the dtypes of grad_loss and weight are not given, they are those that the planner takes.
    """
    smoothing = np.float32(inputs["label_smoothing"])
    if not _takes(inputs, smoothing):
        return None
    rows, columns = inputs["log_prob_shape"]
    return Problem(
        rows,
        columns,
        element_bytes(DTYPE_CODES[inputs["log_prob_dtype"]]),
        TARGET_BYTES[TARGET_DTYPES.index(inputs["target_dtype"])],
        REDUCTIONS.index(inputs["reduction"]),
        inputs["weight_shape"] is not None,
        bool(smoothing > 0),
        inputs["ignore_index"] >= 0,
    )


def _takes(inputs: dict[str, Any], smoothing: np.float32) -> bool:
    """Return whether the raw planner accepts the attributes, shapes and dtypes."""
    shape, target = tuple(inputs["log_prob_shape"]), tuple(inputs["target_shape"]) or (1,)
    loss, weight = tuple(inputs["grad_loss_shape"]), inputs["weight_shape"]
    dtype = inputs["log_prob_dtype"]
    if not takes_attributes(inputs, dtype, TARGET_DTYPES):
        return False
    if not 0 <= smoothing <= 1 or len(shape) != 2:
        return False
    losses = (shape[:1],) if inputs["reduction"] == "none" else ((), (1,))
    if loss not in losses or target != shape[:1]:
        return False
    if weight is not None and (tuple(weight) or (1,)) != shape[1:]:
        return False
    return bool(inputs.get("grad_loss_dtype", dtype) == dtype)


KERNELS = {"cross_entropy_loss_grad": raw_planner(problem_of, tile, vendor_structure)}
