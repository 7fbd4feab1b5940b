"""Tiling of RmsNorm on Atlas A2, A3 and the Atlas inference series: pure integer functions.

First the conditions that select a tiling key, then the planner, then the Unified Buffer of a core.

Source: specification page ``rms_norm``, sections "Tiling" and "Unified Buffer of a core". The
product computes in 64 bits, where nothing wraps around. Sizes are elements unless the name contains
bytes. The product's planner counts A3 as A2: they differ in the number of cores alone.
"""

from collections import namedtuple
from collections.abc import Mapping
from math import prod
from typing import Annotated, Any, NamedTuple

import numpy as np

from npu_sim.cores import NPU_ARCH_A2_A3, NPU_ARCH_ATLAS_INFERENCE, NPU_ARCH_ATLAS_TRAIN, Device
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
    SYSTEM_WORKSPACE_BYTES,
    VECTOR_LANES,
    BlockDim,
    Field,
    FieldRun,
    Part,
    Range,
    Raw,
    Shape,
    Structure,
    align,
    align_down,
    alignment,
    ceil_div,
    chunk_range,
    element_bytes,
    nothing,
    raw_planner,
    to_fp32,
    vendor_fields,
)

KEY_NORMAL = 0
"""Tiling key: a row at a time, whole, in the Unified Buffer."""
KEY_SPLIT_D = 1
"""Tiling key: rows in pieces of columns."""
KEY_MERGE_N = 2
"""Tiling key: several whole rows at a time."""
KEY_SINGLE_ROW = 3
"""Tiling key: a row at a time, x and its squares in one buffer; fp32 gamma of a 16-bit x only."""

RESERVED_BYTES = 1024
"""Unified Buffer that the planner reserves in addition to the profile (page, "ub")."""
WIDEST_FP32, WIDEST_16_BIT = 10240, 12288
"""Widest aligned row of fp32 and of 16-bit x that is neither merged nor cut, also the elements of
its buffer (page, key 0)."""
RSTD_ROWS = 64
"""Rows whose rstd is written together if rows are not merged (page, "row_factor")."""
PIECE_STEP = 16
"""A piece of a row is a multiple of this and not empty (page, key 1)."""

MERGE_COLUMNS = 2000
"""Widest aligned row that A2 and A3 merge with others (page, key 2)."""
MERGE_COLUMN_BYTES = 16
"""Unified Buffer per column of a merged row (page, key 2); a release may count fewer bytes for
16-bit x and gamma of one dtype."""
MERGE_ROW_BYTES, MIXED_MERGE_ROW_BYTES = 260, 288
"""Unified Buffer per merged row beside its columns; the second with 16-bit x and fp32 gamma (page,
key 2)."""
INFERENCE_MERGE_COLUMNS, INFERENCE_MERGE_ROWS = 128, 16
"""The Atlas inference series merges fp16 rows of exactly this many columns if the number of rows is
a multiple of the second (page, key 2)."""
INFERENCE_RESERVED_BYTES = 8192
"""Unified Buffer that stays free in this case (page, key 2)."""
INFERENCE_ROW_STEP = 8
"""In this case rows of a core and of a buffer are a multiple of 8: 32 bytes of rstd (page, key
2)."""

MIXED_NORMAL_COLUMN_BYTES, MIXED_SINGLE_COLUMN_BYTES, MIXED_ROW_BYTES = 16, 14, 512
"""Unified Buffer per column on keys 0 and 3 with 16-bit x and fp32 gamma, and beside the columns
(page, "Mixed")."""
MIXED_PIECE_COLUMN_BYTES, MIXED_PIECE_RESERVED_BYTES = 16, 2560
"""Unified Buffer per column of a piece with 16-bit x and fp32 gamma, and beside the piece (page,
key 1)."""

PERFORMANCE_COLUMNS, PERFORMANCE_FIRST_AXIS, PERFORMANCE_SECOND_AXIS = 5120, 512, 8
"""Largest col, x.shape[0] and, of three axes, x.shape[1] for which A2 and A3 set is_performance
(page, "is_performance")."""

UNTOUCHED_BYTES = 256
"""Workspace in addition to the system's, which no kernel uses (page, "Workspace")."""
WORKSPACE_BYTES = SYSTEM_WORKSPACE_BYTES + UNTOUCHED_BYTES
"""Workspace of the kernel, on every SoC and key."""


class Problem(NamedTuple):
    """The axes of a call that the planner reads.

    Attributes
    ----------
    row, col
        x after folding: columns are the axes of gamma, rows the others.
    dtype, gamma_dtype
        Dtype codes of x and of gamma.
    x_rank, gamma_rank
        Ranks of x and gamma. Only is_performance depends on them, and on the next two.
    first_axis, second_axis
        x.shape[0] and x.shape[1]; the second is 1 when there is none.
    """

    row: int
    col: int
    dtype: int
    gamma_dtype: int
    x_rank: int
    gamma_rank: int
    first_axis: int
    second_axis: int


def usable_bytes(device: Device) -> int:
    """Return the Unified Buffer that the planner distributes (page, "ub")."""
    return device.ub_bytes - RESERVED_BYTES


def columns_aligned(problem: Problem) -> int:
    """Return the columns of a row padded to blocks of x, not of gamma (page, "col_align")."""
    return align(problem.col, alignment(problem.dtype))


def widest_row(problem: Problem) -> int:
    """Return the widest aligned row that is not cut if gamma has the dtype of x."""
    return WIDEST_FP32 if problem.dtype == FP32 else WIDEST_16_BIT


def mixed_row_bytes(problem: Problem, column_bytes: int) -> int:
    """Return the Unified Buffer of a whole row with 16-bit x and fp32 gamma."""
    return column_bytes * columns_aligned(problem) + MIXED_ROW_BYTES


def is_mixed(problem: Problem) -> bool:
    """Return whether x has 16 bits and gamma is fp32."""
    return problem.gamma_dtype != problem.dtype


def merges_rows(problem: Problem, device: Device, rules: Any) -> bool:
    """Return whether rows are narrow enough to buffer several at a time: key 2."""
    narrow = device.npu_arch == NPU_ARCH_A2_A3 and columns_aligned(problem) <= MERGE_COLUMNS
    return narrow or merges_inference_rows(problem, device, rules)


def merges_inference_rows(problem: Problem, device: Device, rules: Any) -> bool:
    """Return whether the release merges rows of this shape: key 2 on the Atlas inference series."""
    if rules.inference_series_merges == 0:
        return False
    fits = problem.col == INFERENCE_MERGE_COLUMNS and problem.row % INFERENCE_MERGE_ROWS == 0
    return (
        device.npu_arch == NPU_ARCH_ATLAS_INFERENCE
        and problem.dtype == FP16
        and not is_mixed(problem)
        and fits
    )


def fits_normal_row(problem: Problem, device: Device, rules: Any) -> bool:
    """Return whether a whole row fits beside its fp32 copy, its squares, gamma and y: key 0."""
    if is_mixed(problem):
        return mixed_row_bytes(problem, MIXED_NORMAL_COLUMN_BYTES) < usable_bytes(device)
    return columns_aligned(problem) <= widest_row(problem)


def fits_single_row(problem: Problem, device: Device, rules: Any) -> bool:
    """Return whether a row fits with its squares in the buffer of x: key 3, fp32 gamma."""
    row_bytes = mixed_row_bytes(problem, MIXED_SINGLE_COLUMN_BYTES)
    return is_mixed(problem) and row_bytes < usable_bytes(device)


def spares_broadcasts(problem: Problem, device: Device, rules: Any) -> bool:
    """is_performance: whether merged rows are multiplied without broadcasting rstd and gamma."""
    if merges_inference_rows(problem, device, rules):
        return True
    if (
        rules.performance_fields == 0
        or device.npu_arch != NPU_ARCH_A2_A3
        or is_mixed(problem)
        or problem.dtype == FP32
        or problem.gamma_rank != 1
    ):
        return False
    two = problem.x_rank == 2
    three = problem.x_rank == 3 and problem.second_axis <= PERFORMANCE_SECOND_AXIS
    return (
        problem.col <= PERFORMANCE_COLUMNS
        and problem.first_axis <= PERFORMANCE_FIRST_AXIS
        and (two or three)
    )


def tiling_key(problem: Problem, device: Device, rules: Any) -> int:
    """Return the first key whose condition holds; split D when none does."""
    if merges_rows(problem, device, rules):
        return KEY_MERGE_N
    if fits_normal_row(problem, device, rules):
        return KEY_NORMAL
    return KEY_SINGLE_ROW if fits_single_row(problem, device, rules) else KEY_SPLIT_D


def merged_rows(problem: Problem, device: Device, rules: Any) -> int:
    """Return the rows buffered at a time on key 2."""
    if merges_inference_rows(problem, device, rules):
        row_bytes = MERGE_COLUMN_BYTES * INFERENCE_MERGE_COLUMNS + MERGE_ROW_BYTES
        return align_down(
            (usable_bytes(device) - INFERENCE_RESERVED_BYTES) // row_bytes, INFERENCE_ROW_STEP
        )
    beside = MIXED_MERGE_ROW_BYTES if is_mixed(problem) else MERGE_ROW_BYTES
    plain_16_bit = problem.dtype != FP32 and not is_mixed(problem)
    column_bytes = rules.merge_column_bytes if plain_16_bit else MERGE_COLUMN_BYTES
    rows: int = usable_bytes(device) // (column_bytes * columns_aligned(problem) + beside)
    return rows


def piece_length(problem: Problem, device: Device) -> int:
    """Return the columns of a piece on key 1: nearly even pieces; if mixed, as many as fit."""
    if is_mixed(problem):
        return align_down(
            (usable_bytes(device) - MIXED_PIECE_RESERVED_BYTES) // MIXED_PIECE_COLUMN_BYTES,
            PIECE_STEP,
        )
    pieces = ceil_div(problem.col, widest_row(problem))
    length = ceil_div(problem.col, PIECE_STEP * pieces) * PIECE_STEP
    while 0 < problem.col % length < PIECE_STEP:
        length -= PIECE_STEP
    return length


def buffer_shape(problem: Problem, device: Device, rules: Any, key: int) -> tuple[int, int]:
    """Return what is buffered at a time on a key; not above 0 if nothing fits.

    These are the rows whose rstd is written together, and the elements of x.
    """
    if key == KEY_MERGE_N:
        rows = merged_rows(problem, device, rules)
        return rows, rows * columns_aligned(problem)
    if key == KEY_SPLIT_D:
        return RSTD_ROWS, piece_length(problem, device)
    return RSTD_ROWS, columns_aligned(problem) if is_mixed(problem) else widest_row(problem)


class RowGroups(NamedTuple):
    """Groups of rows of a core and of the last one."""

    last_block_factor: Annotated[int, Field("rows of the last core", "row", "last_block_factor")]
    row_loop: Annotated[int, Field("groups of rows of a core", "row", "row_loop")]
    last_block_row_loop: Annotated[
        int, Field("groups of rows of the last core", "row", "last_block_row_loop")
    ]
    row_tail: Annotated[int, Field("rows of the last group of a core", "row", "row_tail")]
    last_block_row_tail: Annotated[
        int, Field("rows of the last group of the last core", "row", "last_block_row_tail")
    ]


def row_groups(rows: int, last: int, factor: int) -> RowGroups:
    """Return the groups of ``factor`` rows of cores that take ``rows``, the last one ``last``."""
    loop, last_loop = ceil_div(rows, factor), ceil_div(last, factor)
    return RowGroups(
        last_block_factor=last,
        row_loop=loop,
        last_block_row_loop=last_loop,
        row_tail=rows - (loop - 1) * factor,
        last_block_row_tail=last - (last_loop - 1) * factor,
    )


def _added(help: str, bound: str, vendor: str) -> Field:
    """Return a field that the release adds with is_performance."""
    return Field(help, bound, vendor, switch="performance_fields")


class Tiling(NamedTuple):
    """Result of the planner."""

    status: int
    tiling_key: Annotated[
        int, Field("tiling key: 0 normal, 1 split D, 2 merge N, 3 single row", "3")
    ]
    block_dim: BlockDim
    workspace_bytes: Annotated[int, Field("workspace of the kernel", str(WORKSPACE_BYTES))]
    rows: Annotated[int, Field("rows", vendor="num_row")]
    columns: Annotated[int, Field("columns", vendor="num_col")]
    columns_aligned: Annotated[int, Field("columns of a padded row", "col + 15", "num_col_align")]
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
    groups: Annotated[RowGroups, Part(prefix="", switch="performance_fields")]
    whole_repeats: Annotated[
        int, _added("whole vector instructions in a padded row", "col", "mul_loop")
    ]
    repeat_tail: Annotated[
        int, _added("elements of a padded row that are left for a last one", "64", "mul_tail")
    ]
    repeat_stride: Annotated[
        int,
        _added(
            "blocks from one row of the buffer to the next, modulo 256", "255", "dst_rep_stride"
        ),
    ]
    is_performance: Annotated[
        int,
        _added(
            "1 where merged rows are multiplied without broadcasting first", "1", "is_performance"
        ),
    ]
    always_1: Annotated[int, Field("a field that is 1 on these products", vendor="is_nddma")]
    always_0: Annotated[
        int,
        Field(
            "fields that are 0 on these products",
            vendor="reduce_mask left_num last_reduce_mask last_left_num rstd_size ub_loop"
            " col_buffer_length multi_n_num is_gemma",
        ),
    ]
    normal_flag: Annotated[int, _added("0 on these products", "", "normal_flag")]


NO_TILING = nothing(Tiling)
"""Result of a planner that found no tiling."""


def tile(problem: Problem, device: Device, rules: Any) -> Tiling:
    """Plan one call.

    ``status`` is 1 (the product's 561002) without rows, columns or cores, if the Unified Buffer is
    too small for one row or piece, and on the Atlas training series, whose planner is not
    described.
    """
    cores = device.vector_cores
    if (
        problem.row <= 0
        or problem.col <= 0
        or cores <= 0
        or device.npu_arch == NPU_ARCH_ATLAS_TRAIN
    ):
        return NO_TILING
    key = tiling_key(problem, device, rules)
    wide = columns_aligned(problem)
    factor, ub_factor = buffer_shape(problem, device, rules, key)
    if factor <= 0 or ub_factor <= 0:
        return NO_TILING
    rows_per_core = ceil_div(problem.row, cores)
    if merges_inference_rows(problem, device, rules):
        rows_per_core = align(rows_per_core, INFERENCE_ROW_STEP)
    block_dim = ceil_div(problem.row, rows_per_core)
    last = problem.row - (block_dim - 1) * rows_per_core
    return Tiling(
        status=SUCCESS,
        tiling_key=key,
        block_dim=block_dim,
        workspace_bytes=WORKSPACE_BYTES,
        rows=problem.row,
        columns=problem.col,
        columns_aligned=wide,
        block_factor=rows_per_core,
        row_factor=factor,
        ub_factor=ub_factor,
        average_factor=float(np.float32(1) / np.float32(problem.col)),
        groups=row_groups(rows_per_core, last, factor),
        whole_repeats=wide // VECTOR_LANES,
        repeat_tail=wide % VECTOR_LANES,
        # 8 bits: it wraps around from 2048 columns on, where it is not used (page, "Fields").
        repeat_stride=wide // FP32_PER_BLOCK % 256,
        is_performance=int(spares_broadcasts(problem, device, rules)),
        always_1=1,
        always_0=0,
        normal_flag=0,
    )


def row_range(tiling: Any, core: int) -> Range:
    """Return the half-open range of rows that a core takes, on Ascend 950 too."""
    return chunk_range(core, tiling.block_factor, tiling.rows)


def vendor_structure(tiling: Tiling, arguments: Mapping[str, Any], rules: Any) -> Raw:
    """Return the tiling data of the release under the vendor's names."""
    return {**vendor_fields(tiling, rules), "epsilon": vendor_epsilon(arguments)}


def vendor_epsilon(arguments: Mapping[str, Any]) -> float:
    """Return epsilon in fp32 with 9 digits, as the tiling has it."""
    return float(f"{to_fp32(arguments['epsilon']):.9g}")


def problem_of(inputs: Raw, rules: Any) -> Problem | None:
    """Return the problem of the raw planner's inputs."""
    x, gamma, y, rstd = (tuple(inputs[f"{name}_shape"]) for name in ("x", "gamma", "y", "rstd"))
    if not takes_shapes(x, gamma, y, rstd) or to_fp32(inputs["epsilon"]) < 0:
        return None
    return Problem(
        row=prod(x[: len(x) - len(gamma)]),
        col=prod(gamma),
        dtype=DTYPE_CODES[inputs["x_dtype"]],
        gamma_dtype=DTYPE_CODES[inputs["gamma_dtype"]],
        x_rank=len(x),
        gamma_rank=len(gamma),
        first_axis=x[0],
        second_axis=x[1] if len(x) > 1 else 1,
    )


def takes_shapes(x: Shape, gamma: Shape, y: Shape, rstd: Shape) -> bool:
    """Return whether the raw planner accepts these shapes.

    It is less strict than the contract: every axis of rstd may be 1 (page, "Contract" 3).
    """
    if not 1 <= len(gamma) <= len(x) <= MAX_RANK or gamma != x[len(x) - len(gamma) :] or y != x:
        return False
    if 0 in x or 0 in rstd:
        return False
    longest = x + (1,) * len(rstd)
    return all(given in (1, most) for given, most in zip(rstd, longest, strict=False))


KERNELS = {"rms_norm": raw_planner(problem_of, tile, vendor_structure)}


Buffers = namedtuple(
    "Buffers", ("x", "gamma", "y", "rstd", "x_fp32", "squares", "reduction", "sums", "zeros")
)
"""Bytes in the Unified Buffer of one core; 0 for buffers not in use."""


def buffers(tiling: Tiling, problem: Problem, device: Device, rules: Any) -> Buffers:
    """Return the bytes in the Unified Buffer of one core."""
    key, elements = tiling.tiling_key, tiling.ub_factor
    wide, narrow = FP32_BYTES * elements, element_bytes(problem.dtype) * elements
    x, squares, group = narrow, wide, FP32_BYTES * RSTD_ROWS
    rstd, lanes, sums, zeros = group, FP32_BYTES * VECTOR_LANES, 0, 0
    gamma = element_bytes(problem.gamma_dtype) * elements
    if key == KEY_MERGE_N:
        rstd, lanes = align(FP32_BYTES * tiling.row_factor, BLOCK_BYTES), lanes * tiling.row_factor
        gamma = wide if rules.widens_gamma else gamma
    elif key == KEY_SINGLE_ROW:  # the squares reuse the buffer of x, which is sized for them
        x, gamma, squares = wide, wide, 0
    else:
        sums = BLOCK_BYTES * RSTD_ROWS if key == KEY_SPLIT_D else 0
        zeros = group if device.npu_arch == NPU_ARCH_ATLAS_INFERENCE else 0
    x_fp32 = 0 if problem.dtype == FP32 else wide
    return Buffers(x, gamma, narrow, rstd, x_fp32, squares, lanes, sums, zeros)


def used_bytes(row: Any, tiling: Tiling, device: Device, rules: Any) -> int:
    """Return the Unified Buffer in use on a core; the planner's fixed sizes may exceed it."""
    return sum(buffers(tiling, row, device, rules))


STRUCTURES = (
    Structure(
        "RmsNorm",
        "8.3",
        (
            FieldRun("uint64_t", "num_row num_col num_col_align block_factor"),
            FieldRun(
                "uint32_t",
                "row_factor ub_factor reduce_mask left_num last_reduce_mask last_left_num "
                "rstd_size ub_loop col_buffer_length multi_n_num is_nddma",
            ),
            FieldRun("float", "epsilon avg_factor"),
            FieldRun("uint8_t", "is_gemma"),
            FieldRun(
                "uint64_t",
                "last_block_factor row_loop last_block_row_loop row_tail last_block_row_tail",
                since="8.5",
            ),
            FieldRun("uint32_t", "mul_loop mul_tail", since="8.5"),
            FieldRun("uint8_t", "dst_rep_stride is_performance normal_flag", since="8.5"),
        ),
    ),
)
"""Tiling structure of the kernel as bytes (page ``tiling_bytes``)."""
