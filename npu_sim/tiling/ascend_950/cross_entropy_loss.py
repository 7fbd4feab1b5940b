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
    LARGEST_KEY,
    REDUCTION_STEP,
    TARGET_BYTES,
    key_of,
)
from npu_sim.tiling.common import (
    BLOCK_BYTES,
    FP32_BYTES,
    SUCCESS,
    SYSTEM_WORKSPACE_BYTES,
    VECTOR_LANES,
    Field,
    Range,
    Raw,
    align,
    align_down,
    alignment,
    bit_length,
    ceil_div,
    element_bytes,
    even_range,
    largest_power,
    nothing,
    raw_planner,
    to_fp32,
    vendor_fields,
)
from npu_sim.tiling.cross_entropy_loss_grad import NONE, TARGET_DTYPES

CUT_COLUMNS, EMPTY, WHOLE_ROWS = 0, 1, 2
"""Lowest 8 bits of the tiling key (page, "sch")."""
CORE_SUM_BYTES = 96
"""Buffer of the three sums of a core, each a block."""
WORKSPACE_SUM_BYTES = 4 * CORE_SUM_BYTES
"""Workspace of a core of the SoC for its sums."""
PASS_ROWS = 64
"""Rows whose labels are in the Unified Buffer at a time, where columns are cut."""
PASS_BYTES = FP32_BYTES * PASS_ROWS
"""Buffer with a number for each of these rows."""


class Problem(NamedTuple):
    """The axes of a call that the planner reads; input has shape (N, C) and dtype ``dtype``."""

    N: int
    C: int
    dtype: int
    weighted: int
    label_smoothing: int
    reduction: int
    target_dtype: int
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
            str(LARGEST_KEY),
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
    passes: Passes
    blocks: Blocks


NO_TILING = nothing(Tiling)
UNSET = {
    WHOLE_ROWS: "onceNSizeT cLoopTimes cOnceNumTail kTimesTail kTimes cacheStart",
    CUT_COLUMNS: "db",
    EMPTY: "onceNSize onceNSizeT nLoopTimesB nLoopTimesT nTailNumB nTailNumT cLoopTimes cOnceNum "
    "cOnceNumTail kTimesTail kTimes cacheStart",
}
"""Fields of the vendor's structure that a schedule leaves as they were in memory (page)."""


def schedule_of(plan: Any) -> int:
    """Return whether rows of a plan or tiling are whole (2), cut (0), or there is none (1)."""
    return int(plan.tiling_key % REDUCTION_STEP)


def sum_scratch(columns: int, rows: int) -> int:
    """Return the bytes that the library's sum needs beside its rows (page, "tmp")."""
    if columns <= VECTOR_LANES:
        return 0
    power = largest_power(columns)
    if power == columns and rows > 1:
        power //= 2
    return FP32_BYTES * power * rows


def whole_rows(problem: Any, device: Device) -> tuple[int, int]:
    """Return the rows that the Unified Buffer holds at a time, and the buffers of the input.

    Both are 0 where no row is kept whole.
    """
    size, columns = element_bytes(problem.dtype), align(problem.C, alignment(problem.dtype))
    room = max(device.ub_bytes - FP32_BYTES * columns - 2 * CORE_SUM_BYTES, 0)
    for input_buffers in (2, 1):
        row = 2 * input_buffers * columns * size + 8 * columns + size
        row += TARGET_BYTES[problem.target_dtype] + 24
        most = (room - sum_scratch(columns, room // row)) // row
        if most >= alignment(problem.dtype):
            return most, input_buffers
    return 0, 0


def tile(problem: Problem, device: Device, rules: Any) -> Tiling:
    """Plan one call.

    ``status`` is 1 (the product's 561002) without cores, without columns, and on a chip whose
    Unified Buffer does not hold a block of columns.
    """
    cores, reduction = device.vector_cores, problem.reduction
    if cores <= 0 or (problem.C == 0 and problem.N > 0):
        return NO_TILING
    used, input_buffers = max(min(problem.N, cores), 1), 1
    key, passes, blocks = key_of(EMPTY, reduction, 0, 0, 0), NO_TILING.passes, NO_TILING.blocks
    core_rows = problem.N // used
    if problem.N > 0:
        schedule = CUT_COLUMNS
        most, input_buffers = whole_rows(problem, device)
        if most > 0:
            schedule, passes = WHOLE_ROWS, whole_passes(problem.N, used, most)
            blocks = Blocks(align(problem.C, alignment(problem.dtype)), 0, 0, 0, 0, 0)
        else:
            passes, blocks = cut_passes(core_rows), cut_blocks(problem, device)
            if blocks.columns == 0:
                return NO_TILING
        masked = problem.ignore_index >= 0
        key = key_of(schedule, reduction, problem.weighted, problem.label_smoothing, masked)
    sums = 0 if reduction == NONE else WORKSPACE_SUM_BYTES * cores
    return Tiling(
        status=SUCCESS,
        tiling_key=key,
        workspace_bytes=SYSTEM_WORKSPACE_BYTES + sums,
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
    loops, loops_tail = (longest - 1) // step, (core_rows - 1) // step
    last, last_tail = longest - step * loops, core_rows - step * loops_tail
    return Passes(step, 0, loops, loops_tail, last, last_tail)


def cut_passes(core_rows: int) -> Passes:
    """Return the passes over cut rows; a last one that is not shorter has 0 rows."""
    longest = core_rows + 1
    step, step_tail = min(longest, PASS_ROWS), min(core_rows, PASS_ROWS)
    loops, loops_tail = ceil_div(longest, step), ceil_div(core_rows, step_tail)
    return Passes(step, step_tail, loops, loops_tail, longest % step, core_rows % step_tail)


def cut_blocks(problem: Problem, device: Device) -> Blocks:
    """Return the blocks of a cut row, of which the tree over them must fit too; 0 columns: none."""
    smooths, step = problem.label_smoothing, alignment(problem.dtype)
    label = FP32_BYTES * (1 + smooths + problem.weighted) + TARGET_BYTES[problem.target_dtype]
    free = device.ub_bytes - 2 * BLOCK_BYTES - PASS_ROWS * label
    if problem.reduction != NONE:
        free -= CORE_SUM_BYTES
    column = 2 * element_bytes(problem.dtype) + 8 + FP32_BYTES * smooths * (1 + problem.weighted)
    for columns in range(align_down(max(free, 0) // column, step), 0, -step):
        count = ceil_div(problem.C, columns)
        sums = largest_power(count)
        levels = bit_length(sums) - 1
        if BLOCK_BYTES * (levels + 1) <= free - column * columns:
            return Blocks(columns, count, problem.C % columns, sums, count - sums, levels)
    return NO_TILING.blocks


def whole_buffers(row: Any, tiling: Tiling) -> dict[str, int]:
    """Return the bytes of the buffers of whole rows by name, in their order."""
    size, columns, rows = element_bytes(row.dtype), tiling.blocks.columns, tiling.passes.rows
    numbers = align(FP32_BYTES * rows, BLOCK_BYTES)
    elements = columns * rows
    reduces = row.reduction != NONE
    return {
        "sum of a core": CORE_SUM_BYTES * reduces,
        "sums of the cores": CORE_SUM_BYTES * reduces,
        "input": tiling.input_buffers * elements * size,
        "target": align(TARGET_BYTES[row.target_dtype] * rows, BLOCK_BYTES),
        "log_prob": elements * size,
        "loss": align(size * rows, BLOCK_BYTES) * (not reduces),
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

    With ``mean`` and no weight, the kernel has `PASS_BYTES` more.
    """
    columns, reduces = tiling.blocks.columns, row.reduction != NONE
    block = FP32_BYTES * columns
    return {
        "input": 2 * element_bytes(row.dtype) * columns,
        "log_prob": block,
        "target": PASS_ROWS * TARGET_BYTES[row.target_dtype],
        "class weights": block * row.weighted * row.label_smoothing,
        "label weights": PASS_BYTES * row.weighted,
        "maximum": BLOCK_BYTES,
        "block": block,
        "sum": BLOCK_BYTES,
        "sums of blocks": BLOCK_BYTES * (tiling.blocks.levels + 1),
        "row losses": PASS_BYTES,
        "smoothing": PASS_BYTES * row.label_smoothing,
        "second block": block * row.label_smoothing,
        "sum of a core": CORE_SUM_BYTES * reduces,
    }


def buffers(row: Any, tiling: Tiling) -> dict[str, int]:
    """Return the bytes of the buffers of a core by name (page, "Unified Buffer of a core")."""
    schedule = schedule_of(tiling)
    if schedule == EMPTY:
        return {}
    return whole_buffers(row, tiling) if schedule == WHOLE_ROWS else cut_row_buffers(row, tiling)


def low_bits(label: int) -> int:
    """Return a label in its low 32 bits, with their sign."""
    return int(np.int64(label).astype(np.int32))


def row_range(tiling: Tiling, core: int) -> Range:
    """Return the half-open range of rows that a core takes."""
    return even_range(core, tiling.core_rows, tiling.front_cores)


def factors(label_smoothing: float, columns: int) -> tuple[np.float32, np.float32]:
    """Return labelSmooth1 and labelSmoothC, which multiply the loss and the smoothing."""
    smoothing = to_fp32(label_smoothing)
    by_class = smoothing / np.float32(columns) if columns else np.float32(0)
    return 1 - smoothing, by_class


def vendor_structure(tiling: Any, arguments: Mapping[str, Any], rules: Any) -> Raw:
    """Return the tiling data under the vendor's names; None for what the planner never sets."""
    whole, by_class = factors(arguments["label_smoothing"], tiling.classes)
    return {
        **vendor_fields(tiling),
        **dict.fromkeys(UNSET[schedule_of(tiling)].split()),
        "ignoreIndex": arguments["ignore_index"],
        "labelSmooth1": float(f"{whole:.9g}"),
        "labelSmoothC": float(f"{by_class:.9g}"),
    }


def problem_of(inputs: Raw, rules: Any) -> Problem | None:
    """Return the problem of the raw planner's inputs; of weight, its first axis alone matters."""
    if len(inputs["input_shape"]) != 2 or len(inputs["target_shape"]) != 1:
        return None
    found = common.problem_of(inputs, rules, TARGET_DTYPES)
    if found is None:
        return None
    return Problem(*found, TARGET_DTYPES.index(inputs["target_dtype"]), inputs["ignore_index"])


KERNELS = {"cross_entropy_loss": raw_planner(problem_of, tile, vendor_structure)}
