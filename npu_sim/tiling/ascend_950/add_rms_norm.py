"""Tiling of AddRmsNorm on Ascend 950: pure integer functions.

Source: specification page ``add_rms_norm_950``, section "Tiling". Shapes and epsilon are checked as
on the other products (:mod:`npu_sim.tiling.add_rms_norm`).
"""

from collections import namedtuple
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

import numpy as np

from npu_sim.cores import Device
from npu_sim.tiling.add_rms_norm import Problem, problem_of
from npu_sim.tiling.ascend_950.rms_norm import (
    LEVEL_BYTES,
    PAIR_BYTES,
    RSTD_BYTES,
    SPLIT_ALIGNMENT_BYTES,
    SPLIT_RESERVED_BYTES,
    SPLIT_ROWS,
    WIDEST_FULL_LOAD,
    WORK_BYTES,
    fold_of,
    full_load_columns,
)
from npu_sim.tiling.common import (
    FP32,
    FP32_BYTES,
    FP32_VALUE,
    SUCCESS,
    VECTOR_LANES,
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
from npu_sim.tiling.rms_norm import WORKSPACE_BYTES, usable_bytes, vendor_epsilon

KEY_FULL_LOAD, KEY_SPLIT = 1000, 2000
"""Tiling keys: whole rows, several at a time; rows in pieces of columns."""
FULL_LOAD_RESERVED_BYTES = 1024
"""Unified Buffer of key 1000 beside gamma and the rows (page, "n")."""


class Tiling(NamedTuple):
    """Result of the planner."""

    status: int
    tiling_key: Annotated[int, Field("tiling key: 1000 full load, 2000 split", "2000")]
    block_dim: Annotated[int, Field("cores that work", "vector_cores")]
    workspace_bytes: Annotated[int, Field("workspace of the kernel", str(WORKSPACE_BYTES))]
    rows: Annotated[int, Field("rows")]
    columns: Annotated[int, Field("columns")]
    columns_aligned: Annotated[int, Field("columns of a padded row", "col + 255")]
    block_factor: Annotated[int, Field("rows of a core", "row")]
    row_factor: Annotated[int, Field("rows whose rstd is copied out together", "max(ub_bytes, 64)")]
    fold: Annotated[
        int,
        Field("elements that the first fold of a row leaves; 0 on key 2000", str(WIDEST_FULL_LOAD)),
    ]
    ub_factor: Annotated[int, Field("columns of a piece; 0 on key 1000", "ub_bytes")]
    ub_loop: Annotated[int, Field("pieces of the power of two below a row; 0 on key 1000", "col")]
    average_factor: Annotated[float, Field("1 / col in fp32", FP32_VALUE)]


NO_TILING: Tiling = nothing(Tiling)
"""Result of a planner that found no tiling."""


def rows_in_ub(problem: Problem, device: Device) -> int:
    """Return the rows that fit the Unified Buffer on key 1000 (page, "n"); may be negative."""
    size, columns = element_bytes(problem.dtype), full_load_columns(problem.col, problem.dtype)
    sums = FP32_BYTES * align(ceil_div(fold_of(columns), VECTOR_LANES), 8)
    left = usable_bytes(device) - FULL_LOAD_RESERVED_BYTES - columns * size
    rows: int = left // ((8 * size + FP32_BYTES) * columns + 12 + sums)
    return rows


def loads_whole_rows(problem: Problem, device: Device, rules: Any) -> bool:
    """Return whether a row is narrow enough and fits the Unified Buffer: key 1000."""
    columns = full_load_columns(problem.col, problem.dtype)
    return columns <= WIDEST_FULL_LOAD and rows_in_ub(problem, device) >= 1


def piece_columns(problem: Problem, device: Device) -> int:
    """Return the columns of a piece on key 2000 (page, "U")."""
    widened = 0 if problem.dtype == FP32 else 2 * FP32_BYTES
    room = usable_bytes(device) - SPLIT_RESERVED_BYTES
    return largest_power((room - 1) // (10 * element_bytes(problem.dtype) + widened))


def tile(problem: Problem, device: Device, rules: Any) -> Tiling:
    """Plan one call.

    ``status`` is 1 (the product's 561002) without rows, columns or cores, and on a chip whose
    Unified Buffer is too small for a piece of two whole vectors.
    """
    if problem.folded_rows <= 0 or problem.col <= 0 or device.vector_cores <= 0:
        return NO_TILING
    block_dim, rows_per_core, _ = equal_parts(problem.folded_rows, device.vector_cores)
    aligned = full_load_columns(problem.col, problem.dtype)
    key, factor, fold, piece, pieces = KEY_FULL_LOAD, 0, 0, 0, 0
    if loads_whole_rows(problem, device, rules):
        factor, fold = min(rows_in_ub(problem, device), rows_per_core), fold_of(aligned)
    else:
        piece, size = piece_columns(problem, device), element_bytes(problem.dtype)
        if piece < 4 * VECTOR_LANES:
            return NO_TILING
        aligned = align(problem.col * size, SPLIT_ALIGNMENT_BYTES) // size
        key, factor, pieces = KEY_SPLIT, SPLIT_ROWS, largest_power(problem.col // piece)
    return Tiling(
        status=SUCCESS,
        tiling_key=key,
        block_dim=block_dim,
        workspace_bytes=WORKSPACE_BYTES,
        rows=problem.folded_rows,
        columns=problem.col,
        columns_aligned=aligned,
        block_factor=rows_per_core,
        row_factor=factor,
        fold=fold,
        ub_factor=piece,
        ub_loop=pieces,
        average_factor=float(np.float32(1) / np.float32(problem.col)),
    )


def vendor_structure(tiling: Tiling, arguments: Mapping[str, Any], rules: Any) -> Raw:
    """Return the tiling data under the vendor's names: each key has a structure."""
    fields: Raw = {
        "numRow": tiling.rows,
        "numCol": tiling.columns,
        "numColAlign": tiling.columns_aligned,
        "blockFactor": tiling.block_factor,
        "rowFactor": tiling.row_factor,
        "epsilon": vendor_epsilon(arguments),
        "avgFactor": float(f"{tiling.average_factor:.9g}"),
    }
    if tiling.tiling_key == KEY_FULL_LOAD:
        return fields | {"binAddQuotient": tiling.fold}
    return fields | {
        "ubFactor": tiling.ub_factor,
        "ubLoop": tiling.ub_loop,
        "colBuferLength": tiling.ub_factor,  # the vendor's spelling
        "multiNNum": 0,
        "isNddma": int(tiling.columns < SPLIT_ALIGNMENT_BYTES),
    }


KERNELS = {"add_rms_norm": raw_planner(problem_of, tile, vendor_structure)}


Buffers = namedtuple("Buffers", "x1 x2 gamma y x rstd row_sums fp32 register_sums work levels pair")
"""Bytes in the Unified Buffer of one core; 0 for buffers not in use."""


def buffers(tiling: Tiling, problem: Problem) -> Buffers:
    """Return the bytes in the Unified Buffer of one core (page, "Unified Buffer")."""
    size = element_bytes(problem.dtype)
    if tiling.tiling_key == KEY_SPLIT:
        x, fp32 = 2 * size * tiling.ub_factor, FP32_BYTES * tiling.ub_factor
        fp32 = 0 if problem.dtype == FP32 else 2 * fp32
        return Buffers(
            x, x, x, x, x, 2 * RSTD_BYTES, 0, fp32, 0, WORK_BYTES, 3 * LEVEL_BYTES, PAIR_BYTES
        )
    rows, columns = tiling.row_factor, tiling.columns_aligned
    x, padded = 2 * size * columns * rows, FP32_BYTES * align(rows, VECTOR_LANES)
    registers = FP32_BYTES * rows * align(ceil_div(tiling.fold, VECTOR_LANES), 8)
    fp32 = FP32_BYTES * columns * rows
    return Buffers(x, x, size * columns, x, x, 2 * padded, padded, fp32, registers, 0, 0, 0)
