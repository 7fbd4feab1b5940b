"""Tiling of RmsNorm on Ascend 950: pure integer functions.

Source: specification page ``rms_norm_950``, section "Tiling". Shapes, dtypes and epsilon are
checked as on the other products (:mod:`npu_sim.tiling.rms_norm`).
"""

from collections import namedtuple
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

import numpy as np

from npu_sim.cores import Device
from npu_sim.tiling.common import (
    FP32,
    FP32_BYTES,
    FP32_VALUE,
    SUCCESS,
    UINT32_MASK,
    VECTOR_LANES,
    BlockDim,
    Field,
    Raw,
    align,
    ceil_div,
    element_bytes,
    equal_parts,
    largest_power,
    nothing,
    raw_planner,
)
from npu_sim.tiling.rms_norm import (
    WORKSPACE_BYTES,
    Problem,
    problem_of,
    usable_bytes,
    vendor_epsilon,
)

KEY_SPLIT, KEY_FULL_LOAD = 2001, 5000
"""Tiling keys: rows in pieces of columns; whole rows, several at a time."""

WIDEST_FULL_LOAD = 16384
"""Widest aligned row of key 5000 (page, "full load")."""
FULL_LOAD_RESERVED_BYTES, SPLIT_RESERVED_BYTES = 2048, 5632
"""Unified Buffer of key 5000 beside gamma and the rows, and of key 2001 beside the pieces."""
SPLIT_ROW_BYTES, SPLIT_ALIGNMENT_BYTES = 3072, 512
"""Key 2001: bytes of a row beside its columns in the count that decides ``multi_n_num``; a padded
row is a multiple of the second."""
SPLIT_ROWS = 64
"""``row_factor`` of key 2001: rows whose rstd is copied out together."""
LEVEL_BYTES, PAIR_BYTES, WORK_BYTES, RSTD_BYTES = 1024, 256, 1024, 256
"""Buffers of key 2001 that do not depend on the call: each of three level lists, the pair, the
work area, and each of two buffers of rstd (page, "Unified Buffer of a core")."""
ZERO_FIELDS = (
    "row_loop",
    "last_block_row_loop",
    "row_tail",
    "last_block_row_tail",
    "mul_loop",
    "mul_tail",
    "dst_rep_stride",
    "is_performance",
    "reduce_mask",
    "left_num",
    "last_reduce_mask",
    "last_left_num",
    "rstd_size",
    "is_gemma",
    "normal_flag",
    "is_nddma",
    "avg_factor",
    "last_block_factor",
)
"""Fields of key 2001 that are 0; its kernel computes the last two itself."""


class Tiling(NamedTuple):
    """Result of the planner."""

    status: int
    tiling_key: Annotated[int, Field("tiling key: 5000 full load, 2001 split", "5000")]
    block_dim: BlockDim
    workspace_bytes: Annotated[int, Field("workspace of the kernel", str(WORKSPACE_BYTES))]
    rows: Annotated[int, Field("rows", vendor="num_row")]
    columns: Annotated[int, Field("columns", vendor="num_col")]
    columns_aligned: Annotated[int, Field("columns of a padded row", "col + 255", "num_col_align")]
    block_factor: Annotated[int, Field("rows of a core", "row", "block_factor")]
    last_block_factor: Annotated[int, Field("rows of the last core", "row", "last_block_factor")]
    fold: Annotated[
        int,
        Field(
            "elements that the first fold of a row leaves; 0 on key 2001",
            str(WIDEST_FULL_LOAD),
            "col_flod_factor",
        ),
    ]
    ub_factor: Annotated[
        int,
        Field(
            "rows (key 5000) or columns (key 2001) in the Unified Buffer at a time",
            "ub_bytes",
            "ub_factor",
        ),
    ]
    ub_loop: Annotated[
        int, Field("pieces of the power of two below a row; 0 on key 5000", "col", "ub_loop")
    ]
    multi_n_num: Annotated[
        int, Field("a field that the kernel does not read", "ub_bytes", "multi_n_num")
    ]
    average_factor: Annotated[float, Field("1 / col in fp32", FP32_VALUE, "avg_factor")]


NO_TILING = nothing(Tiling)
"""Result of a planner that found no tiling."""


def full_load_columns(columns: int, dtype: int) -> int:
    """Return the columns of a row padded to blocks of x (page, "a")."""
    size = element_bytes(dtype)
    return align(columns * size, 32) // size


def fold_of(columns_aligned: int) -> int:
    """Return the largest power of two below a padded row (page, "fold")."""
    return largest_power(columns_aligned - 1)


def rows_in_ub(problem: Problem, device: Device) -> int:
    """Return the rows that fit the Unified Buffer on key 5000 (page, "n"); may be negative."""
    size, gamma_size = element_bytes(problem.dtype), element_bytes(problem.gamma_dtype)
    columns = full_load_columns(problem.col, problem.dtype)
    # The planner counts a number of floats as bytes.
    sums = align(ceil_div(fold_of(columns), VECTOR_LANES), 32)
    left = usable_bytes(device) - FULL_LOAD_RESERVED_BYTES - columns * gamma_size
    rows: int = left // (4 * columns * size + 12 + sums)
    return rows


def loads_whole_rows(problem: Problem, device: Device, rules: Any) -> bool:
    """Return whether a row is narrow enough and fits the Unified Buffer: key 5000."""
    columns = full_load_columns(problem.col, problem.dtype)
    return columns <= WIDEST_FULL_LOAD and rows_in_ub(problem, device) >= 1


def piece_columns(problem: Problem, device: Device) -> int:
    """Return the columns of a piece on key 2001 (page, "f"): 8192 on every published SoC."""
    size, gamma_size = element_bytes(problem.dtype), element_bytes(problem.gamma_dtype)
    room = usable_bytes(device) - SPLIT_RESERVED_BYTES
    return largest_power((room - 1) // (4 * size + 2 * gamma_size + 4))


def tile(problem: Problem, device: Device, rules: Any) -> Tiling:
    """Plan one call.

    ``status`` is 1 (the product's 561002) without rows, columns or cores, on a chip whose Unified
    Buffer is too small for a piece of two whole vectors, and where the planner divides by a number
    of bytes that is 0 modulo 2^32.
    """
    if problem.row <= 0 or problem.col <= 0 or device.vector_cores <= 0:
        return NO_TILING
    block_dim, rows_per_core, last = equal_parts(problem.row, device.vector_cores)
    average = float(np.float32(1) / np.float32(problem.col))
    if loads_whole_rows(problem, device, rules):
        aligned = full_load_columns(problem.col, problem.dtype)
        return Tiling(
            status=SUCCESS,
            tiling_key=KEY_FULL_LOAD,
            block_dim=block_dim,
            workspace_bytes=WORKSPACE_BYTES,
            rows=problem.row,
            columns=problem.col,
            columns_aligned=aligned,
            block_factor=rows_per_core,
            last_block_factor=last,
            fold=fold_of(aligned),
            ub_factor=min(rows_in_ub(problem, device), rows_per_core),
            ub_loop=0,
            multi_n_num=0,
            average_factor=average,
        )
    size, gamma_size = element_bytes(problem.dtype), element_bytes(problem.gamma_dtype)
    widest, widened = max(size, gamma_size), 0 if problem.dtype == FP32 else 4
    padded = align(problem.col * widest, SPLIT_ALIGNMENT_BYTES) // widest
    # The bytes of a row in unsigned 32 bits (page, "total").
    row_bytes = padded * (4 * size + 2 * gamma_size + widened) + SPLIT_ROW_BYTES
    piece, total = piece_columns(problem, device), (row_bytes + SPLIT_ALIGNMENT_BYTES) & UINT32_MASK
    if piece < 4 * VECTOR_LANES or total == 0:
        return NO_TILING
    return Tiling(
        status=SUCCESS,
        tiling_key=KEY_SPLIT,
        block_dim=block_dim,
        workspace_bytes=WORKSPACE_BYTES,
        rows=problem.row,
        columns=problem.col,
        columns_aligned=padded,
        block_factor=rows_per_core,
        last_block_factor=last,
        fold=0,
        ub_factor=piece,
        ub_loop=largest_power(problem.col // piece) & UINT32_MASK,
        multi_n_num=usable_bytes(device) // total,
        average_factor=average,
    )


def vendor_structure(tiling: Tiling, arguments: Mapping[str, Any], rules: Any) -> Raw:
    """Return the tiling data under the vendor's names: each key has its parts structure."""
    fields: Raw = {
        "num_row": tiling.rows,
        "num_col": tiling.columns,
        "num_col_align": tiling.columns_aligned,
        "block_factor": tiling.block_factor,
        "ub_factor": tiling.ub_factor,
        "epsilon": vendor_epsilon(arguments),
    }
    if tiling.tiling_key == KEY_FULL_LOAD:
        return fields | {
            "col_flod_factor": tiling.fold,
            "avg_factor": float(f"{tiling.average_factor:.9g}"),
            "last_block_factor": tiling.last_block_factor,
        }
    return (
        dict.fromkeys(ZERO_FIELDS, 0)
        | fields
        | {
            "row_factor": SPLIT_ROWS,
            "ub_loop": tiling.ub_loop,
            "col_buffer_length": tiling.ub_factor,
            "multi_n_num": tiling.multi_n_num,
        }
    )


KERNELS = {"rms_norm": raw_planner(problem_of, tile, vendor_structure)}


Buffers = namedtuple(
    "Buffers",
    ("gamma", "x", "y", "rstd", "register_sums", "row_sums", "fp32", "work", "levels", "pair"),
)
"""Bytes in the Unified Buffer of one core; 0 for buffers not in use."""


def buffers(tiling: Tiling, problem: Problem) -> Buffers:
    """Return the bytes in the Unified Buffer of one core (page, "Unified Buffer of a core")."""
    size, gamma_size = element_bytes(problem.dtype), element_bytes(problem.gamma_dtype)
    factor = tiling.ub_factor
    if tiling.tiling_key == KEY_FULL_LOAD:
        columns, rows = tiling.columns_aligned, align(factor, 8)
        x = 2 * size * factor * columns
        sums = FP32_BYTES * factor * align(ceil_div(tiling.fold, VECTOR_LANES), 8)
        return Buffers(
            gamma_size * columns, x, x, 2 * FP32_BYTES * rows, sums, FP32_BYTES * rows, 0, 0, 0, 0
        )
    x = 2 * size * factor
    return Buffers(
        2 * gamma_size * factor,
        x,
        x,
        2 * RSTD_BYTES,
        0,
        0,
        FP32_BYTES * factor,
        WORK_BYTES,
        3 * LEVEL_BYTES,
        PAIR_BYTES,
    )


def used_bytes(row: Any, tiling: Tiling, device: Device, rules: Any) -> int:
    """Return the Unified Buffer in use on a core."""
    return sum(buffers(tiling, row))
