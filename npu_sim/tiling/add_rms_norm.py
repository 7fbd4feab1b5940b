"""Tiling of AddRmsNorm on Atlas A2, A3 and the Atlas inference series: pure integer functions.

First the conditions that select a template, then the planner, then the Unified Buffer of a core.

Source: specification page ``add_rms_norm``, sections "Tiling" and "Unified Buffer of a core". The
product's planner counts A3 as A2: they differ in the number of cores alone.
"""

from collections import namedtuple
from collections.abc import Mapping
from math import prod
from typing import Annotated, Any, NamedTuple

import numpy as np

from npu_sim.cores import NPU_ARCH_A2_A3, Device
from npu_sim.tiling.common import (
    BLOCK_BYTES,
    DTYPE_CODES,
    FP16,
    FP32,
    FP32_BYTES,
    FP32_PER_BLOCK,
    FP32_VALUE,
    MAX_RANK,
    SUCCESS,
    UINT32_MASK,
    VECTOR_LANES,
    Field,
    FieldRun,
    Part,
    Raw,
    Shape,
    Structure,
    align,
    alignment,
    ceil_div,
    element_bytes,
    equal_parts,
    nothing,
    raw_planner,
    to_fp32,
    vendor_fields,
)
from npu_sim.tiling.rms_norm import (
    MERGE_COLUMNS,
    MERGE_ROW_BYTES,
    PERFORMANCE_COLUMNS,
    PERFORMANCE_FIRST_AXIS,
    PERFORMANCE_SECOND_AXIS,
    RSTD_ROWS,
    WIDEST_16_BIT,
    WIDEST_FP32,
    WORKSPACE_BYTES,
    RowGroups,
    row_groups,
    usable_bytes,
    vendor_epsilon,
)

KEY_NORMAL, KEY_SPLIT_D, KEY_MERGE_N, KEY_SINGLE_ROW, KEY_MULTI_N = range(5)
"""Last digit of the tiling key: a row at a time; rows in pieces of columns; several rows at a time;
a row for every core; several fp16 rows without padding at a time (page, "m")."""
FULL, NO_RSTD, Y_ONLY = range(3)
"""Which outputs a call asks for: y, rstd and x; y and x; y alone (page, "Modes")."""
OUTPUTS = ("full", "no_rstd", "y_only")
"""The words of these codes."""
DTYPE_KEYS = (20, 10, 30)
OUTPUT_KEYS = (0, 100, 1000)
"""What dtype and outputs add to the last digit of the key."""

PIECE_FP32, PIECE_16_BIT = 9696, 12096
"""Most columns of a piece of a row (page, m 1)."""
MERGE_COLUMN_BYTES_FP32, MERGE_COLUMN_BYTES_16_BIT = 24, 18
"""Unified Buffer per column of a merged row (page, m 2)."""
MULTI_COLUMN_BYTES, MULTI_ROW_BYTES, MULTI_RESERVED_BYTES = 16, 64, 256
"""Unified Buffer per column and per row of several fp16 rows, and beside them (page, m 4)."""
SUMS_BYTES, REDUCTION_BYTES, SINGLE_ROW_BYTES = 2048, 256, 195584
"""Buffers that do not depend on the call: sums of the rows of a group, one vector register, and
the one block of a single row (page, "Unified Buffer of a core")."""
SYSTEM_UB_BYTES = 256
"""Unified Buffer of A2 and A3 that the profile leaves to the system; the longest pieces of fp32
reach into it (page, m 1)."""


class Problem(NamedTuple):
    """The axes of a call that the planner reads.

    Attributes
    ----------
    row, col
        x1 after folding: columns are the axes of gamma, rows the others.
    dtype
        Dtype code of all tensors but rstd.
    outputs
        ``FULL``, ``NO_RSTD`` or ``Y_ONLY``.
    folded_rows
        Product of x1's axes before as many as gamma has: ``row``, except that gamma has an axis of
        1 more if not all outputs are given. Ascend 950 alone reads it.
    last_axis
        x1.shape[-1].
    x_rank, gamma_rank, first_axis, second_axis
        Ranks of x1 and gamma, x1.shape[0] and x1.shape[1] (1 when there is none). Only
        is_performance depends on them.
    """

    row: int
    col: int
    dtype: int
    outputs: int
    folded_rows: int
    last_axis: int
    x_rank: int
    gamma_rank: int
    first_axis: int
    second_axis: int


def columns_aligned(problem: Problem) -> int:
    """Return the columns of a row padded to blocks (page, "col_align")."""
    return align(problem.col & UINT32_MASK, alignment(problem.dtype))


def widest_row(problem: Problem) -> int:
    """Return the widest row that is not cut (page, "widest")."""
    return WIDEST_FP32 if problem.dtype == FP32 else WIDEST_16_BIT


def splits_rows(problem: Problem, device: Device, rules: Any) -> bool:
    """Return whether a row is cut into pieces of columns: m 1."""
    return (problem.col & UINT32_MASK) > widest_row(problem)


def is_row_per_core(problem: Problem, device: Device, rules: Any) -> bool:
    """Return whether no core has more than one row: m 3 on A2 and A3."""
    return device.npu_arch == NPU_ARCH_A2_A3 and (problem.row & UINT32_MASK) <= device.vector_cores


def merges_rows(problem: Problem, device: Device, rules: Any) -> bool:
    """Return whether rows are narrow enough to buffer several at a time: m 2."""
    return device.npu_arch == NPU_ARCH_A2_A3 and columns_aligned(problem) <= MERGE_COLUMNS


def rows_of_group(problem: Problem, device: Device) -> int:
    """Return the fp16 rows without padding that fit at a time (page, "q"); may be negative."""
    wide = columns_aligned(problem)
    left = usable_bytes(device) - MULTI_RESERVED_BYTES - 2 * wide
    rows: int = left // (MULTI_COLUMN_BYTES * wide + MULTI_ROW_BYTES)
    return rows


def groups_rows(problem: Problem, device: Device, rules: Any) -> bool:
    """Return whether fp16 rows need no padding and fit the buffer: m 4."""
    is_whole = columns_aligned(problem) == problem.col & UINT32_MASK
    return problem.dtype == FP16 and is_whole and rows_of_group(problem, device) >= 1


def template(problem: Problem, device: Device, rules: Any) -> int:
    """Return the last digit of the key: the first whose condition holds, normal when none does."""
    if splits_rows(problem, device, rules):
        return KEY_SPLIT_D
    if is_row_per_core(problem, device, rules):
        return KEY_SINGLE_ROW
    if merges_rows(problem, device, rules):
        return KEY_MERGE_N
    return KEY_MULTI_N if groups_rows(problem, device, rules) else KEY_NORMAL


def buffer_shape(problem: Problem, device: Device, key: int) -> tuple[int, int]:
    """Return rows and elements that are buffered at a time; no rows if nothing fits."""
    wide = columns_aligned(problem)
    if key == KEY_SPLIT_D:
        col, unit = problem.col & UINT32_MASK, alignment(problem.dtype)
        pieces = ceil_div(col, PIECE_FP32 if problem.dtype == FP32 else PIECE_16_BIT)
        return RSTD_ROWS, ceil_div(col, pieces * unit) * unit
    if key == KEY_MERGE_N:
        column_bytes = (
            MERGE_COLUMN_BYTES_FP32 if problem.dtype == FP32 else MERGE_COLUMN_BYTES_16_BIT
        )
        rows = usable_bytes(device) // (wide * column_bytes + MERGE_ROW_BYTES)
        return rows, rows * wide
    if key == KEY_MULTI_N:
        rows = rows_of_group(problem, device)
        return rows, rows * wide
    return RSTD_ROWS, widest_row(problem)


def spares_broadcasts(problem: Problem) -> bool:
    """is_performance, which no kernel reads."""
    few = problem.first_axis <= PERFORMANCE_FIRST_AXIS
    three = problem.x_rank == 3 and problem.second_axis <= PERFORMANCE_SECOND_AXIS
    is_narrow = (problem.col & UINT32_MASK) <= PERFORMANCE_COLUMNS
    is_plain = problem.dtype != FP32 and problem.gamma_rank == 1
    return is_plain and is_narrow and few and (problem.x_rank == 2 or three)


def _later(help: str, bound: str, vendor: str) -> Field:
    """Return a field that the first release does not have."""
    return Field(help, bound, vendor, switch="later_fields")


class Tiling(NamedTuple):
    """Result of the planner."""

    status: int
    tiling_key: Annotated[
        int,
        Field(
            "tiling key: 10 fp16, 20 fp32, 30 bf16; plus 0 normal, 1 split D, 2 merge N, 3 single "
            "row, 4 multi N; plus 100 without rstd, 1000 y alone",
            "1033",
        ),
    ]
    block_dim: Annotated[int, Field("cores that work", "vector_cores")]
    workspace_bytes: Annotated[
        int, Field("workspace of the kernel", f"{WORKSPACE_BYTES} + 4 * {UINT32_MASK}")
    ]
    rows: Annotated[int, Field("rows", vendor="num_row")]
    columns: Annotated[int, Field("columns", vendor="num_col")]
    block_factor: Annotated[int, Field("rows of a core", "row", "block_factor")]
    row_factor: Annotated[
        int, Field("rows whose rstd is copied out together", "max(ub_bytes, 64)", "row_factor")
    ]
    ub_factor: Annotated[
        int,
        Field(
            "elements of x in the Unified Buffer at a time",
            f"max(ub_bytes, {WIDEST_16_BIT})",
            "ub_factor",
        ),
    ]
    average_factor: Annotated[float, Field("1 / col in fp32", FP32_VALUE, "avg_factor")]
    columns_aligned: Annotated[int, _later("columns of a padded row", "col + 15", "num_col_align")]
    groups: Annotated[RowGroups, Part(prefix="", switch="later_fields")]
    fp32_repeats: Annotated[
        int, _later("whole fp32 instructions in a merged row", "col", "mul_loop_fp32")
    ]
    fp32_tail: Annotated[int, _later("elements that are left of them", "64", "mul_tail_fp32")]
    fp32_stride: Annotated[
        int, _later("fp32 blocks of a merged row, modulo 256", "255", "dst_rep_stride_fp32")
    ]
    fp16_repeats: Annotated[
        int, _later("whole 16-bit instructions in a merged row", "col", "mul_loop_fp16")
    ]
    fp16_tail: Annotated[int, _later("elements that are left of them", "128", "mul_tail_fp16")]
    fp16_stride: Annotated[
        int, _later("16-bit blocks of a merged row, modulo 256", "255", "dst_rep_stride_fp16")
    ]
    is_performance: Annotated[int, _later("a field that no kernel reads", "1", "is_performance")]


NO_TILING: Tiling = nothing(Tiling)
"""Result of a planner that found no tiling."""


def workspace_bytes(problem: Problem, rules: Any) -> int:
    """Return the workspace of the kernel; a release counts a missing x too (page, "Releases")."""
    if problem.outputs == Y_ONLY and rules.counts_missing_x:
        return WORKSPACE_BYTES + FP32_BYTES * (problem.row * problem.last_axis & UINT32_MASK)
    return WORKSPACE_BYTES


def tile(problem: Problem, device: Device, rules: Any) -> Tiling:
    """Plan one call.

    ``status`` is 1 (the product's 561002) without cores, without rows or columns in the low 32
    bits, and where the buffers of a row, or of a piece of it, exceed the Unified Buffer.
    """
    row, col, cores = problem.row & UINT32_MASK, problem.col & UINT32_MASK, device.vector_cores
    if row == 0 or col == 0 or cores <= 0:
        return NO_TILING
    key = template(problem, device, rules)
    factor, ub_factor = buffer_shape(problem, device, key)
    there = device.ub_bytes + (SYSTEM_UB_BYTES if device.npu_arch == NPU_ARCH_A2_A3 else 0)
    # The product divides by 0 rows, and does not look whether its buffers fit; a model.
    if factor <= 0 or sum(buffers_of(key, factor, ub_factor, problem)) > there:
        return NO_TILING
    block_dim, rows_per_core, last = equal_parts(row, cores)
    # These fields are 0 on other templates.
    wide = columns_aligned(problem)
    merged = wide if key == KEY_MERGE_N else 0
    is_performance = merged > 0 and spares_broadcasts(problem)
    return Tiling(
        status=SUCCESS,
        tiling_key=DTYPE_KEYS[problem.dtype] + OUTPUT_KEYS[problem.outputs] + key,
        block_dim=block_dim,
        workspace_bytes=workspace_bytes(problem, rules),
        rows=row,
        columns=col,
        block_factor=rows_per_core,
        row_factor=factor,
        ub_factor=ub_factor,
        average_factor=float(np.float32(1) / np.float32(col)),
        columns_aligned=wide,
        groups=row_groups(rows_per_core, last, factor),
        fp32_repeats=merged // VECTOR_LANES,
        fp32_tail=merged % VECTOR_LANES,
        fp32_stride=merged // FP32_PER_BLOCK % 256,
        fp16_repeats=merged // (2 * VECTOR_LANES),
        fp16_tail=merged % (2 * VECTOR_LANES),
        fp16_stride=merged // (2 * FP32_PER_BLOCK) % 256,
        is_performance=int(is_performance),
    )


def vendor_structure(tiling: Tiling, arguments: Mapping[str, Any], rules: Any) -> Raw:
    """Return the tiling data of the release under the vendor's names."""
    return {**vendor_fields(tiling, rules), "epsilon": vendor_epsilon(arguments)}


def problem_of(inputs: Raw, rules: Any) -> Problem | None:
    """Return the problem of the raw planner's inputs."""
    x1, x2, gamma, y, rstd, x = (
        tuple(inputs[f"{name}_shape"]) for name in ("x1", "x2", "gamma", "y", "rstd", "x")
    )
    # A missing tensor is given with the shape (0,).
    outputs = FULL
    if 0 in rstd:
        outputs = Y_ONLY if 0 in x else NO_RSTD
    is_like = x2 == y == x1 and (outputs == Y_ONLY or x == x1)
    if not is_like or not 1 <= len(x1) <= MAX_RANK or 0 in x1 or to_fp32(inputs["epsilon"]) < 0:
        return None
    takes = takes_shapes(x1, gamma, rstd) if outputs == FULL else takes_short(x1, gamma, rules)
    if not takes:
        return None
    return Problem(
        row=prod(x1[: -len(gamma)] if outputs == FULL else x1[:-1]),
        col=prod(gamma),
        dtype=DTYPE_CODES[inputs["x_dtype"]],
        outputs=outputs,
        folded_rows=prod(x1[: -len(gamma)]),
        last_axis=x1[-1],
        x_rank=len(x1),
        gamma_rank=len(gamma),
        first_axis=x1[0],
        second_axis=x1[1] if len(x1) > 1 else 1,
    )


def takes_shapes(x1: Shape, gamma: Shape, rstd: Shape) -> bool:
    """Return whether the raw planner takes these shapes with all outputs."""
    leading = len(x1) - len(gamma)
    return (
        1 <= len(gamma) <= len(x1)
        and gamma == x1[leading:]
        and rstd == x1[:leading] + (1,) * len(gamma)
    )


def takes_short(x1: Shape, gamma: Shape, rules: Any) -> bool:
    """Return whether the raw planner takes these shapes with fewer outputs."""
    if not rules.short_modes or len(gamma) != 2 or gamma[0] != 1:
        return False
    return not rules.checks_gamma_columns or gamma[1] == x1[-1]


KERNELS = {"add_rms_norm": raw_planner(problem_of, tile, vendor_structure)}


Buffers = namedtuple("Buffers", "x x2 gamma y rstd x_fp32 squares sums reduction offsets unused")
"""Bytes in the Unified Buffer of one core; 0 for buffers not in use."""


def buffers_of(key: int, row_factor: int, elements: int, problem: Problem) -> Buffers:
    """Return the bytes of a template with so many rows and elements at a time."""
    wide, narrow = FP32_BYTES * elements, element_bytes(problem.dtype) * elements
    x, x2, gamma, y, reduction = narrow, 0, narrow, narrow, REDUCTION_BYTES
    rstd, sums, offsets, unused = FP32_BYTES * RSTD_ROWS, 0, 0, 0
    x_fp32 = 0 if problem.dtype == FP32 else wide
    if key == KEY_SPLIT_D:
        x2, sums = narrow, SUMS_BYTES
    elif key == KEY_SINGLE_ROW:  # one block; y takes the place of x, gamma that of x2
        x2, gamma, y, rstd = narrow, 0, 0, 0
        unused = SINGLE_ROW_BYTES - (2 * narrow + x_fp32 + wide + reduction)
    elif key == KEY_MERGE_N:
        x2, y, rstd = narrow, 2 * narrow, align(FP32_BYTES * row_factor, BLOCK_BYTES)
        reduction = REDUCTION_BYTES * row_factor
    elif key == KEY_MULTI_N:
        x2, gamma, y = narrow, 2 * (elements // row_factor), 2 * narrow
        rstd = offsets = BLOCK_BYTES * row_factor
    return Buffers(x, x2, gamma, y, rstd, x_fp32, wide, sums, reduction, offsets, unused)


FIELD_RUNS = (
    FieldRun("uint32_t", "num_row num_col block_factor row_factor ub_factor"),
    FieldRun("float", "epsilon avg_factor"),
    FieldRun(
        "uint32_t",
        "num_col_align last_block_factor row_loop last_block_row_loop row_tail last_block_row_tail"
        " mul_loop_fp32 mul_tail_fp32 dst_rep_stride_fp32 mul_loop_fp16 mul_tail_fp16"
        " dst_rep_stride_fp16 is_performance",
        since="8.5",
    ),
)
STRUCTURES = tuple(
    Structure(kernel, "8.3", FIELD_RUNS) for kernel in ("AddRmsNorm", "InplaceAddRmsNorm")
)
"""Tiling structure of both kernels as bytes (page ``tiling_bytes``)."""
