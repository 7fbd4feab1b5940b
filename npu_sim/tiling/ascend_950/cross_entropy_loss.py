"""Tiling of CrossEntropyLoss on Ascend 950: pure integer functions.

Source: specification page ``cross_entropy_loss_950``, section "Tiling". Sizes are bytes unless the
name contains rows, columns, passes or blocks.
"""

from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

import numpy as np

from npu_sim.cores import Device
from npu_sim.tiling import cross_entropy_loss as common
from npu_sim.tiling.ascend_950.cross_entropy_loss_grad import (
    MASKED_STEP,
    SMOOTHED_STEP,
    TARGET_BYTES,
    WEIGHTED_STEP,
)
from npu_sim.tiling.ascend_950.cross_entropy_loss_grad import REDUCTION_STEP as REDUCTION_STEP
from npu_sim.tiling.ascend_950.cross_entropy_loss_grad import TARGET_DTYPES as TARGET_DTYPES
from npu_sim.tiling.common import (
    BLOCK_BYTES,
    FP32_BYTES,
    SUCCESS,
    SYSTEM_WORKSPACE_BYTES,
    Field,
    Part,
    Raw,
    align,
    align_down,
    bit_length,
    ceil_div,
    element_bytes,
    largest_power,
    nothing,
    raw_planner,
    to_fp32,
    vendor_fields,
)

CUT_COLUMNS, EMPTY, WHOLE_ROWS = 0, 1, 2
"""Lowest 8 bits of the tiling key (page, "sch")."""
CORE_SUM_BYTES = 96
"""Buffer of the three sums of a core, each a block."""
WORKSPACE_SUM_BYTES = 4 * CORE_SUM_BYTES
"""Workspace of a core of the SoC for its sums."""
PASS_ROWS = 64
"""Rows whose labels are in the Unified Buffer at a time, where columns are cut."""
LANES = 64
LABEL_WEIGHT_BYTES = FP32_BYTES * PASS_ROWS
"""Buffer of the weights of the labels of cut rows."""


class Problem(NamedTuple):
    """The axes of a call that the planner reads; input has shape (N, C) and dtype ``dtype``."""

    N: int
    C: int
    dtype: int
    target_dtype: int
    weighted: int
    label_smoothing: int
    reduction: int
    ignore_index: int


class Passes(NamedTuple):
    """Passes of a core over its rows; those of the first cores, then of the others."""

    rows: Annotated[int, Field("rows of a pass of the first cores", "N", "onceNSize")]
    rows_tail: Annotated[int, Field("rows of a pass of the others", "N", "onceNSizeT")]
    loops: Annotated[int, Field("passes of the first cores", "N", "nLoopTimesB")]
    loops_tail: Annotated[int, Field("passes of the others", "N", "nLoopTimesT")]
    last: Annotated[int, Field("rows of the last pass of the first cores", "N", "nTailNumB")]
    last_tail: Annotated[int, Field("rows of the last pass of the others", "N", "nTailNumT")]


class Blocks(NamedTuple):
    """Blocks of columns of a row."""

    columns: Annotated[int, Field("columns of a block", "C + 15", "cOnceNum")]
    number: Annotated[int, Field("blocks of a row", "C", "cLoopTimes")]
    last: Annotated[int, Field("columns of the last block", "C", "cOnceNumTail")]
    sums: Annotated[int, Field("blocks that are left after pairing", "C", "kTimes")]
    pairs: Annotated[int, Field("blocks that receive another one", "C", "kTimesTail")]
    levels: Annotated[int, Field("levels of the tree over blocks", "64", "cacheStart")]


class Tiling(NamedTuple):
    """Result of the planner; fields that its schedule never sets are 0."""

    status: int
    tiling_key: Annotated[
        int,
        Field(
            "tiling key: 2 whole rows, 0 cut rows, 1 empty; plus 2^8 times the reduction, 2^16 "
            "with weight, 2^24 with smoothing, 2^32 with an ignore_index of 0 or more",
            str(WHOLE_ROWS + 2 * REDUCTION_STEP + WEIGHTED_STEP + SMOOTHED_STEP + MASKED_STEP),
        ),
    ]
    workspace_bytes: Annotated[
        int,
        Field(
            "workspace of the kernel",
            f"{SYSTEM_WORKSPACE_BYTES} + {WORKSPACE_SUM_BYTES} * vector_cores",
        ),
    ]
    schedule_mode: Annotated[int, Field("1: all cores start together", "1", none=-1)]
    block_dim: Annotated[int, Field("cores that work", "vector_cores", "realCoreNum")]
    front_cores: Annotated[
        int, Field("cores that take a row more than the others", "vector_cores", "frontCoreNum")
    ]
    core_rows: Annotated[int, Field("rows of the other cores", "N", "frontCoreNSize")]
    classes: Annotated[int, Field("classes", vendor="C")]
    input_buffers: Annotated[int, Field("buffers of the input", "2", "db")]
    passes: Annotated[Passes, Part()]
    blocks: Annotated[Blocks, Part()]


NO_TILING: Tiling = nothing(Tiling)
UNSET = {
    WHOLE_ROWS: frozenset(
        ("onceNSizeT", "cLoopTimes", "cOnceNumTail", "kTimesTail", "kTimes", "cacheStart")
    ),
    CUT_COLUMNS: frozenset(("db",)),
    EMPTY: frozenset(
        (
            "onceNSize", "onceNSizeT", "nLoopTimesB", "nLoopTimesT", "nTailNumB", "nTailNumT",
            "cLoopTimes", "cOnceNum", "cOnceNumTail", "kTimesTail", "kTimes", "cacheStart",
        )
    ),
}  # fmt: skip
"""Fields of the vendor's structure that a schedule leaves as they were in memory (page)."""


def schedule_of(tiling: Tiling) -> int:
    """Return whether rows are whole (2), cut (0), or there is none (1)."""
    return tiling.tiling_key % REDUCTION_STEP


def padded_columns(problem: Problem) -> int:
    """Return the columns of a row in whole blocks (page, "a")."""
    return align(problem.C, BLOCK_BYTES // element_bytes(problem.dtype))


def sum_scratch(columns: int, rows: int) -> int:
    """Return the bytes that the library's sum needs beside its rows (page, "tmp")."""
    if columns <= LANES:
        return 0
    power = largest_power(columns)
    if power == columns and rows > 1:
        power //= 2
    return FP32_BYTES * power * rows


def whole_rows(problem: Problem, input_buffers: int, device: Device) -> int:
    """Return the rows that the Unified Buffer holds at a time; 0 where none is kept whole."""
    columns, size = padded_columns(problem), element_bytes(problem.dtype)
    row = 2 * input_buffers * columns * size + 8 * columns + size
    row += TARGET_BYTES[problem.target_dtype] + 24
    room = device.ub_bytes - FP32_BYTES * columns - 2 * CORE_SUM_BYTES
    if room < 0:
        return 0
    most = (room - sum_scratch(columns, room // row)) // row
    return most if most >= BLOCK_BYTES // size else 0


def key_of(problem: Problem, schedule: int) -> int:
    """Return the tiling key; that of an empty call has the reduction alone."""
    key = schedule + REDUCTION_STEP * problem.reduction
    if schedule == EMPTY:
        return key
    masked = 1 if problem.ignore_index >= 0 else 0
    attributes = WEIGHTED_STEP * problem.weighted + SMOOTHED_STEP * problem.label_smoothing
    return key + attributes + MASKED_STEP * masked


def workspace_of(problem: Problem, device: Device) -> int:
    """Return the bytes of workspace."""
    sums = 0 if problem.reduction == common.NONE else WORKSPACE_SUM_BYTES * device.vector_cores
    return SYSTEM_WORKSPACE_BYTES + sums


def tile(problem: Problem, device: Device, rules: Any) -> Tiling:
    """Plan one call.

    ``status`` is 1 (the product's 561002) without cores, without columns, and on a chip whose
    Unified Buffer does not hold a block of columns.
    """
    cores = device.vector_cores
    if cores <= 0 or (problem.C == 0 and problem.N > 0):
        return NO_TILING
    used, input_buffers = max(min(problem.N, cores), 1), 1
    schedule, passes, blocks = EMPTY, NO_TILING.passes, NO_TILING.blocks
    core_rows = problem.N // used
    if problem.N > 0:
        input_buffers, most = 2, whole_rows(problem, 2, device)
        if most == 0:
            input_buffers, most = 1, whole_rows(problem, 1, device)
        if most > 0:
            schedule, passes = WHOLE_ROWS, whole_passes(problem.N, used, most)
            blocks = Blocks(padded_columns(problem), 0, 0, 0, 0, 0)
        else:
            schedule, passes = CUT_COLUMNS, cut_passes(core_rows)
            blocks, input_buffers = cut_blocks(problem, device), 0
            if blocks.columns == 0:
                return NO_TILING
    return Tiling(
        status=SUCCESS,
        tiling_key=key_of(problem, schedule),
        workspace_bytes=workspace_of(problem, device),
        schedule_mode=1,
        block_dim=used,
        front_cores=problem.N % used,
        core_rows=core_rows,
        classes=problem.C,
        input_buffers=input_buffers,
        passes=passes,
        blocks=blocks,
    )


def whole_passes(rows: int, used: int, most: int) -> Passes:
    """Return the passes over whole rows; the last one is not counted."""
    core_rows, longest = rows // used, ceil_div(rows, used)
    step = min(most, longest)
    count, count_tail = ceil_div(longest, step) - 1, ceil_div(core_rows, step) - 1
    last, last_tail = longest - step * count, core_rows - step * count_tail
    return Passes(step, 0, count, count_tail, last, last_tail)


def cut_passes(core_rows: int) -> Passes:
    """Return the passes over cut rows; a last one that is not shorter has 0 rows."""
    longest = core_rows + 1
    step, step_tail = min(longest, PASS_ROWS), min(core_rows, PASS_ROWS)
    return Passes(
        step,
        step_tail,
        ceil_div(longest, step),
        ceil_div(core_rows, step_tail),
        longest % step,
        core_rows % step_tail,
    )


def cut_buffers(problem: Problem) -> tuple[int, int]:
    """Return the bytes of the buffers beside the blocks of a cut row, and those of a column."""
    size, smooths = element_bytes(problem.dtype), problem.label_smoothing
    fixed = 2 * BLOCK_BYTES + PASS_ROWS * (FP32_BYTES + TARGET_BYTES[problem.target_dtype])
    fixed += (smooths + problem.weighted) * FP32_BYTES * PASS_ROWS
    if problem.reduction != common.NONE:
        fixed += CORE_SUM_BYTES
    return fixed, 2 * size + 8 + FP32_BYTES * smooths * (1 + problem.weighted)


def cut_blocks(problem: Problem, device: Device) -> Blocks:
    """Return the blocks of a cut row, of which the tree over them must fit too; 0 columns: none."""
    fixed, column = cut_buffers(problem)
    free, step = device.ub_bytes - fixed, BLOCK_BYTES // element_bytes(problem.dtype)
    columns = align_down(max(free, 0) // column, step)
    while columns > 0:
        count = ceil_div(problem.C, columns)
        sums = largest_power(count)
        levels = bit_length(sums) - 1
        if BLOCK_BYTES * (levels + 1) <= free - column * columns:
            return Blocks(columns, count, problem.C % columns, sums, count - sums, levels)
        columns -= step
    return NO_TILING.blocks


def whole_buffers(row: Any, tiling: Tiling) -> dict[str, int]:
    """Return the bytes of the buffers of whole rows by name, in their order."""
    size, columns, rows = element_bytes(row.dtype), tiling.blocks.columns, tiling.passes.rows
    numbers = align(FP32_BYTES * rows, BLOCK_BYTES)
    elements = columns * rows
    reduces = row.reduction != common.NONE
    return {
        "sum of a core": CORE_SUM_BYTES if reduces else 0,
        "sums of the cores": CORE_SUM_BYTES if reduces else 0,
        "input": tiling.input_buffers * elements * size,
        "target": align(TARGET_BYTES[row.target_dtype] * rows, BLOCK_BYTES),
        "log_prob": elements * size,
        "loss": 0 if reduces else align(size * rows, BLOCK_BYTES),
        "class weights": FP32_BYTES * columns * row.weighted,
        "label weights": numbers,
        "maximum": numbers,
        "sum": numbers,
        "x - maximum": FP32_BYTES * elements,
        "exp": FP32_BYTES * elements,
        "smoothing": numbers,
        "row losses": numbers,
        "library": sum_scratch(columns, rows),
    }


def cut_row_buffers(row: Any, tiling: Tiling) -> dict[str, int]:
    """Return the bytes of the buffers of cut rows by name, in their order, as the planner counts.

    With ``mean`` and no weight, the kernel has `LABEL_WEIGHT_BYTES` more.
    """
    columns, reduces = tiling.blocks.columns, row.reduction != common.NONE
    block, numbers = FP32_BYTES * columns, FP32_BYTES * PASS_ROWS
    return {
        "input": 2 * element_bytes(row.dtype) * columns,
        "log_prob": block,
        "target": PASS_ROWS * TARGET_BYTES[row.target_dtype],
        "class weights": block * row.weighted * row.label_smoothing,
        "label weights": LABEL_WEIGHT_BYTES * row.weighted,
        "maximum": BLOCK_BYTES,
        "block": block,
        "sum": BLOCK_BYTES,
        "sums of blocks": BLOCK_BYTES * (tiling.blocks.levels + 1),
        "row losses": numbers,
        "smoothing": numbers * row.label_smoothing,
        "second block": block * row.label_smoothing,
        "sum of a core": CORE_SUM_BYTES if reduces else 0,
    }


def buffers(row: Any, tiling: Tiling) -> dict[str, int]:
    """Return the bytes of the buffers of a core by name (page, "Unified Buffer of a core")."""
    schedule = schedule_of(tiling)
    if schedule == EMPTY:
        return {}
    return whole_buffers(row, tiling) if schedule == WHOLE_ROWS else cut_row_buffers(row, tiling)


def low_bits(label: int) -> int:
    """Return a label in its low 32 bits, with their sign."""
    return (label + (1 << 31)) % (1 << 32) - (1 << 31)


def row_range(tiling: Tiling, core: int) -> tuple[int, int]:
    """Return the half-open range of rows that a core takes."""
    start = core * tiling.core_rows + min(core, tiling.front_cores)
    return start, start + tiling.core_rows + int(core < tiling.front_cores)


def factors(label_smoothing: float, columns: int) -> tuple[np.float32, np.float32]:
    """Return labelSmooth1 and labelSmoothC, which multiply the loss and the smoothing."""
    smoothing = to_fp32(label_smoothing)
    by_class = smoothing / np.float32(columns) if columns else np.float32(0)
    return np.float32(1) - smoothing, np.float32(by_class)


def vendor_structure(tiling: Any, arguments: Mapping[str, Any], rules: Any) -> Raw:
    """Return the tiling data under the vendor's names; None for what the planner never sets."""
    whole, by_class = factors(arguments["label_smoothing"], tiling.classes)
    unset = UNSET[schedule_of(tiling)]
    fields = {
        name: None if name in unset else value for name, value in vendor_fields(tiling).items()
    }
    return {
        **fields,
        "ignoreIndex": arguments["ignore_index"],
        "labelSmooth1": float(f"{whole:.9g}"),
        "labelSmoothC": float(f"{by_class:.9g}"),
    }


def problem_of(inputs: Raw, rules: Any) -> Problem | None:
    """Return the problem of the raw planner's inputs; of weight, its first axis alone matters."""
    if inputs["target_dtype"] not in TARGET_DTYPES or len(inputs["input_shape"]) != 2:
        return None
    if len(inputs["target_shape"]) != 1:
        return None
    found = common.problem_of({**inputs, "target_dtype": "int64"}, rules)
    if found is None:
        return None
    target_dtype = TARGET_DTYPES.index(inputs["target_dtype"])
    ignored = inputs["ignore_index"]
    return Problem(*found[:3], target_dtype, *found[3:], ignored)


KERNELS = {"cross_entropy_loss": raw_planner(problem_of, tile, vendor_structure)}
