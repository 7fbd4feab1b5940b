"""Tiling of RmsNormGrad on Atlas A2, A3 and the Atlas inference series.

Pure functions of integers; two of them use floating point, as the product does. First the shape
checks, which the product's raw planner makes too, then the planner, then the Unified Buffer of a
core.

Source: specification page ``rms_norm_grad``, sections "Contract" 3, "Tiling" and "Unified Buffer of
a core". The product computes with unsigned 32-bit sizes; wrap-arounds are written out. Sizes are
elements unless the name contains bytes. A *piece* is a part of a row, a *batch* what a core
processes at a time (rows, or pieces of all its rows), a *chunk* the columns of dgamma that are
reduced at a time.
"""

import math
from collections import namedtuple
from math import prod
from typing import Annotated, Any, NamedTuple

import numpy as np

from npu_sim.cores import NPU_ARCH_A2_A3, NPU_ARCH_ATLAS_INFERENCE, NPU_ARCH_ATLAS_TRAIN, Device
from npu_sim.language import Text
from npu_sim.numbers.formats import ORDERED_ADDITIONS, shape_text
from npu_sim.tiling.common import (
    BLOCK_BYTES,
    DTYPE_CODES,
    FP32_BYTES,
    MAX_RANK,
    SUCCESS,
    SYSTEM_WORKSPACE_BYTES,
    UINT32_MASK,
    VECTOR_LANES,
    Field,
    FieldRun,
    Part,
    Range,
    Raw,
    ScheduleMode,
    Shape,
    Structure,
    align,
    align_down,
    alignment,
    ceil_div,
    element_bytes,
    nothing,
    raw_planner,
)

SPLIT_N, SPLIT_D = 1, 2
"""Tiling keys: whole rows in the Unified Buffer; rows in pieces of columns. The vendor's N are
rows, its D columns."""

SPLIT_N_COLUMNS = 6080
"""Widest row that is not cut into pieces, also the elements of a buffer (page, key 1)."""
LANE_COLUMNS = 640
"""Widest aligned row that A2 and A3 sum in 64 lane accumulators (page, key 1)."""
PIECE_COLUMNS = 4096
"""Columns of a piece (page, key 2)."""
SPLIT_D_RSTD_BYTES = 128
"""Buffer of rstd with rows in pieces; that of the means is twice as long (page, key 2)."""
GROUP_ROWS = 32
"""Rows whose part of dgamma is written together (page, "key 2")."""
ASSUMED_UB_BYTES = 195584
"""Unified Buffer that the product assumes on every SoC (page, key 1)."""
ASCEND_910_COLUMNS = 64
"""Ascend 910 chips accept multiples of this only (page, "Contract" 3)."""
SYNC_WORDS = 8
"""32-bit words of synchronisation area per core (page, "Workspace")."""
CHUNK_FRACTION = 0.05
"""Fraction of the input size above which the cores' dgamma vectors are chunked (page,
"Chunking")."""
CHUNK_TOTAL_BYTES = 524288000
"""500 MiB: smaller inputs are never chunked (page, "Chunking")."""

ROWS_OR_COLUMNS = f"max(row, col, {PIECE_COLUMNS})"
"""Bound of a number that counts rows on one key and columns on the other."""
WORKSPACE_BOUND = (
    f"max(system_workspace_bytes, {SYSTEM_WORKSPACE_BYTES})"
    f" + 4 * vector_cores * (col + {PIECE_COLUMNS} + 64 + row)"
)


class Shapes(NamedTuple):
    """Shapes of all six tensors."""

    dy: Shape
    x: Shape
    rstd: Shape
    gamma: Shape
    dx: Shape
    dgamma: Shape

    @property
    def leading(self) -> Shape:
        """Axes of x that gamma does not have."""
        return self.x[: len(self.x) - len(self.gamma)]

    @property
    def rows(self) -> int:
        """Rows of x after folding."""
        return prod(self.leading)

    @property
    def columns(self) -> int:
        """Columns of x after folding."""
        return prod(self.gamma)


class ShapeError(NamedTuple):
    """A shape that violates the contract: the argument, the error, and the legal shape."""

    argument: str
    message: str
    hint: str


def shape_error(shapes: Shapes, takes_no_rows: bool = False) -> ShapeError | None:
    """Return the first shape that violates the contract, or None.

    ``takes_no_rows`` is for products whose planner accepts tensors without rows.
    """
    return (
        _rank_error(shapes)
        or _equality_error(shapes)
        or _rstd_error(shapes)
        or _empty_error(shapes, takes_no_rows)
    )


def _rank_error(shapes: Shapes) -> ShapeError | None:
    for name in ("x", "gamma"):
        rank = len(getattr(shapes, name))
        if not 1 <= rank <= MAX_RANK:
            return ShapeError(
                name,
                Text("{name} has rank {rank}", name=name, rank=rank),
                Text("rank 1 to {max_rank}", max_rank=MAX_RANK),
            )
    if len(shapes.gamma) > len(shapes.x):
        return ShapeError(
            "gamma",
            Text(
                "gamma has rank {gamma_count}, more than x, which has rank {x_count}",
                gamma_count=len(shapes.gamma),
                x_count=len(shapes.x),
            ),
            Text(
                "gamma must be the last axes of x, {shape}: its rank is at most {x_count}",
                shape=shape_text(shapes.x),
                x_count=len(shapes.x),
            ),
        )
    return None


def _equality_error(shapes: Shapes) -> ShapeError | None:
    for name, like in (("x", "dy"), ("dx", "dy"), ("dgamma", "gamma")):
        given, right = getattr(shapes, name), getattr(shapes, like)
        if given != right:
            message = Text(
                "{name} is {given}, {like} is {right}: they must have the same shape",
                name=name,
                given=shape_text(given),
                like=like,
                right=shape_text(right),
            )
            return ShapeError(
                name, message, Text("{name}: {shape}", name=name, shape=shape_text(right))
            )
    right = shapes.x[-len(shapes.gamma) :]
    if shapes.gamma != right:
        message = Text(
            "gamma is {given}, but x is {x}: gamma must be its last axes",
            given=shape_text(shapes.gamma),
            x=shape_text(shapes.x),
        )
        return ShapeError("gamma", message, Text("gamma: {shape}", shape=shape_text(right)))
    return None


def _rstd_error(shapes: Shapes) -> ShapeError | None:
    leading, rstd = shapes.leading, shapes.rstd
    common = min(len(leading), len(rstd))
    if rstd[:common] == leading[:common] and prod(rstd) == prod(leading):
        return None
    return ShapeError(
        "rstd",
        Text(
            "rstd is {given}, but x without the axes of gamma is {x}",
            given=shape_text(rstd),
            x=shape_text(leading),
        ),
        Text("rstd: {shape}, axes of size 1 may follow", shape=shape_text(leading)),
    )


def _empty_error(shapes: Shapes, takes_no_rows: bool) -> ShapeError | None:
    if 0 not in (shapes.gamma if takes_no_rows else shapes.dy):
        return None
    return ShapeError(
        "dy",
        Text("dy is {shape}: empty tensors are not supported", shape=shape_text(shapes.dy)),
        "every axis at least 1",
    )


class Problem(NamedTuple):
    """The axes of a call that the planner reads: x folded to rows and columns, and its dtype."""

    row: int
    col: int
    dtype: int
    deterministic: int


class RowBatches(NamedTuple):
    """Batches of a core's rows (key 1) or columns (key 2).

    ``loop`` batches of ``num``; the last one has ``tail``, or ``num`` if ``tail`` is 0.
    """

    num: Annotated[int, Field("rows or columns of a batch", ROWS_OR_COLUMNS, "num")]
    tail: Annotated[int, Field("rows or columns of the last batch", ROWS_OR_COLUMNS, "tail")]
    loop: Annotated[int, Field("batches", ROWS_OR_COLUMNS, "loop")]


class ReductionChunks(NamedTuple):
    """Columns of dgamma reduced at a time; ``need`` is 0 if all are reduced at once."""

    size: Annotated[
        int, Field("columns of dgamma that are reduced at a time", "4294967296", "chunk_size")
    ]
    num: Annotated[int, Field("chunks", "col", "chunk_num")]
    tail: Annotated[int, Field("columns of the last chunk", "col", "chunk_tail")]
    need: Annotated[int, Field("whether dgamma is reduced in chunks", "1", "need_chunk")]


class Tiling(NamedTuple):
    """Result of the planner."""

    status: int
    block_dim: Annotated[int, Field("cores that work", "vector_cores", "block_dim")]
    tiling_key: Annotated[int, Field("tiling key: 1 whole rows, 2 rows in pieces", "2")]
    schedule_mode: ScheduleMode
    workspace_bytes: Annotated[int, Field("workspace of the kernel", WORKSPACE_BOUND)]
    rows: Annotated[int, Field("rows", vendor="row")]
    columns: Annotated[int, Field("columns", vendor="col")]
    columns_aligned: Annotated[int, Field("columns of a padded row", "col + 15")]
    average_factor: Annotated[float, Field("1 / col in fp32", "fp32", "avg_factor")]
    dtype_code: Annotated[int, Field("dtype code of x and dy", "3", "data_type")]
    block_factor: Annotated[int, Field("rows of a core", "row", "block_factor core_calc_num")]
    core_tail: Annotated[
        int, Field("rows of the last core, when it takes fewer", "row", "core_calc_tail")
    ]
    ub_factor: Annotated[
        int,
        Field(
            "rows (key 1) or columns (key 2) in the Unified Buffer at a time",
            ROWS_OR_COLUMNS,
            "ub_factor",
        ),
    ]
    batches: Annotated[RowBatches, Part("ub_calc_{}", " of a core")]
    tail_batches: Annotated[RowBatches, Part("ub_calc_tail_{}", " of the last core")]
    fixed_output: Annotated[
        int, Field("1 when the order of additions is fixed", "1", "fixed_output")
    ]
    chunks: Annotated[ReductionChunks, Part(switch="reduces_in_chunks")]
    splits_columns: Annotated[int, Field("1 on key 2", vendor="ub_split_dim")]


NO_TILING = nothing(Tiling)


def multiply_uint32(a: int, b: int) -> int:
    """Return the low 32 bits of a product of two uint32, without overflow of compiled int64."""
    return (a * (b & 0xFFFF) + ((a * (b >> 16) & 0xFFFF) << 16)) & UINT32_MASK


def total_input_bytes(rows: int, columns: int, size: int) -> int:
    """Return the bytes of all inputs in uint32, as in the product (page, "Chunking")."""
    matrix = multiply_uint32(rows, multiply_uint32(columns, 2 * size))
    return (matrix + 4 * rows + columns * size) & UINT32_MASK


def is_width_accepted(columns: int, npu_arch: int) -> bool:
    """Return whether the chip accepts rows of this width: Ascend 910 requires multiples of 64."""
    return npu_arch != NPU_ARCH_ATLAS_TRAIN or columns % ASCEND_910_COLUMNS == 0


def uses_lane_sums(columns_aligned: int, npu_arch: int) -> bool:
    """Return whether a row is summed in 64 lane accumulators."""
    return npu_arch == NPU_ARCH_A2_A3 and columns_aligned <= LANE_COLUMNS


def split_batches(total: int, factor: int) -> RowBatches:
    """Split rows or columns into batches; all 0 when there are none."""
    if total == 0:
        return RowBatches(0, 0, 0)
    loop = ceil_div(total, factor)
    return RowBatches(factor, 0 if total % factor == 0 else total - (loop - 1) * factor, loop)


def rows_in_ub(columns_aligned: int) -> int:
    """Return the most rows buffered at a time on key 1, whatever the rows of the core."""
    if columns_aligned > LANE_COLUMNS:
        return SPLIT_N_COLUMNS // columns_aligned
    # The numbers are those of the product's planner (page, key 1).
    return (ASSUMED_UB_BYTES - 10 * columns_aligned) // (24 * columns_aligned + 268)


def widest_whole_row(tiling: Tiling, ub_bytes: int) -> int:
    """Return the widest row, in whole vectors, that fits on key 1.

    Our explanation of the product's ``SPLIT_N_COLUMNS``, which plans show: eight fp32 buffers of a
    row, and twice the rstd of a block (page, "Unified Buffer of a core").
    """
    columns: int = align_down(
        (ub_bytes - 2 * 4 * alignment(tiling.dtype_code)) // (8 * 4), VECTOR_LANES
    )
    return columns


def may_chunk(problem: Problem, npu_arch: int, rules: Any) -> bool:
    """Return whether dgamma may be reduced in chunks; :func:`split_chunks` decides their size."""
    enabled: bool = rules.reduces_in_chunks == 1 and problem.deterministic == 1
    return enabled and problem.col > SPLIT_N_COLUMNS and npu_arch == NPU_ARCH_A2_A3


def split_chunks(
    problem: Problem,
    columns_aligned: int,
    block_factor: int,
    block_dim: int,
    npu_arch: int,
    rules: Any,
) -> ReductionChunks:
    """Return the chunks of columns in which the deterministic reduction of dgamma runs."""
    whole = ReductionChunks(columns_aligned, 1, 0, 0)
    if not may_chunk(problem, npu_arch, rules):
        return whole
    total = total_input_bytes(problem.row, problem.col, element_bytes(problem.dtype))
    enable = math.floor(total * CHUNK_FRACTION)
    current = multiply_uint32(columns_aligned, 4 * block_dim)
    if current <= enable or total < CHUNK_TOTAL_BYTES:
        return whole
    free = (enable - 4 * block_factor) & UINT32_MASK
    size = max(align_down(free // (4 * block_dim), PIECE_COLUMNS), PIECE_COLUMNS)
    num = ceil_div(problem.col, size)
    return ReductionChunks(size, num, problem.col - (num - 1) * size, 1)


def workspace_words(
    problem: Problem, columns_aligned: int, block_factor: int, chunks: ReductionChunks
) -> int:
    """Return the 32-bit words of workspace per core."""
    if problem.deterministic == 0:
        return SYNC_WORDS
    if chunks.need == 1:
        return chunks.size + SYNC_WORDS + block_factor
    return columns_aligned + SYNC_WORDS


def tile(problem: Problem, device: Device, rules: Any) -> Tiling:
    """Plan one call; rows and columns are taken modulo 2^32 as the product does.

    As in the product, the Unified Buffer of the device is ignored. ``status`` is 1 (the product's
    561002) without rows, columns or cores, and on Ascend 910 chips for columns that are not a
    multiple of 64.
    """
    rows, columns = problem.row & UINT32_MASK, problem.col & UINT32_MASK
    accepted = is_width_accepted(columns, device.npu_arch)
    if rows == 0 or columns == 0 or device.vector_cores <= 0 or not accepted:
        return NO_TILING
    wrapped = Problem(rows, columns, problem.dtype, problem.deterministic)
    columns_aligned = align(columns, alignment(problem.dtype)) & UINT32_MASK
    block_factor = ceil_div(rows, device.vector_cores)
    block_dim = ceil_div(rows, block_factor)
    core_tail = 0 if rows % block_factor == 0 else rows - (block_dim - 1) * block_factor
    if columns <= SPLIT_N_COLUMNS:
        key = SPLIT_N
        ub_factor = min(rows_in_ub(columns_aligned), block_factor)
        batches = split_batches(block_factor, ub_factor)
        tail_batches = split_batches(core_tail, ub_factor)
    else:
        key = SPLIT_D
        ub_factor = PIECE_COLUMNS
        batches = split_batches(columns, ub_factor)
        tail_batches = split_batches(columns if core_tail > 0 else 0, ub_factor)
    chunks = split_chunks(wrapped, columns_aligned, block_factor, block_dim, device.npu_arch, rules)
    return Tiling(
        status=SUCCESS,
        block_dim=block_dim,
        tiling_key=key,
        schedule_mode=rules.schedule_mode,
        workspace_bytes=SYSTEM_WORKSPACE_BYTES
        + 4 * block_dim * workspace_words(wrapped, columns_aligned, block_factor, chunks),
        rows=rows,
        columns=columns,
        columns_aligned=columns_aligned,
        average_factor=float(np.float32(1) / np.float32(columns)),
        dtype_code=problem.dtype,
        block_factor=block_factor,
        core_tail=core_tail,
        ub_factor=ub_factor,
        batches=batches,
        tail_batches=tail_batches,
        fixed_output=int(problem.deterministic),
        chunks=chunks,
        splits_columns=key - SPLIT_N,
    )


def accepts_row(row: Any, device: Device, rules: Any) -> bool:
    """Return whether the chip accepts rows of this width."""
    return is_width_accepted(row.col, device.npu_arch)


def row_range(tiling: Tiling, core: int) -> Range:
    """Return the half-open range of rows of a core below ``block_dim``."""
    start = core * tiling.block_factor
    return start, min(start + tiling.block_factor, tiling.rows)


def atomic_additions(tiling: Tiling) -> int:
    """Return the number of atomic additions to every element of dgamma in default mode.

    A core adds its sum once (key 1), or once for each group of its rows (key 2).
    """
    if tiling.tiling_key == SPLIT_N:
        return tiling.block_dim
    others = tiling.block_dim - 1
    last_rows = tiling.rows - others * tiling.block_factor
    return others * ceil_div(tiling.block_factor, GROUP_ROWS) + ceil_div(last_rows, GROUP_ROWS)


def depends_on_arrival(tiling: Tiling) -> bool:
    """Return whether the bits of dgamma depend on the order of the cores' additions."""
    if tiling.fixed_output == 1 or tiling.block_dim == 1:
        return False
    return atomic_additions(tiling) >= ORDERED_ADDITIONS


def problem_of(inputs: Raw, rules: Any) -> Problem | None:
    """Return the problem of the raw planner's inputs."""
    shapes = Shapes(*(tuple(inputs[f"{name}_shape"]) for name in Shapes._fields))
    if shape_error(shapes) is not None:
        return None
    return Problem(
        shapes.rows, shapes.columns, DTYPE_CODES[inputs["dtype"]], inputs["deterministic"]
    )


KERNELS = {"rms_norm_grad": raw_planner(problem_of, tile)}


Buffers = namedtuple(
    "Buffers",
    ("dy", "x", "dx", "gamma", "dgamma", "rstd", "means", "scratch", "zeros", "synchronisation"),
)
"""Bytes in the Unified Buffer of one core; 0 for buffers not in use."""


def merged_elements(tiling: Tiling) -> int:
    """Return the elements a core reads to merge dgamma: 64 columns from each core."""
    return VECTOR_LANES * tiling.block_dim


def buffers(tiling: Tiling, npu_arch: int, rules: Any) -> Buffers:
    """Return the bytes in the Unified Buffer of one core (page, "Unified Buffer of a core")."""
    inference = npu_arch == NPU_ARCH_ATLAS_INFERENCE
    synchronisation = BLOCK_BYTES * tiling.block_dim if inference else 0
    if tiling.tiling_key == SPLIT_D:
        row_bytes = rows_bytes = FP32_BYTES * PIECE_COLUMNS
        rstd, means, scratch = SPLIT_D_RSTD_BYTES, 2 * SPLIT_D_RSTD_BYTES, 0
    else:
        row_bytes = FP32_BYTES * tiling.columns_aligned
        rows_bytes = FP32_BYTES * max(
            tiling.ub_factor * tiling.columns_aligned,
            merged_elements(tiling) if rules.queue_holds_merge else 0,
        )
        rstd = 2 * FP32_BYTES * align(tiling.ub_factor, alignment(tiling.dtype_code))
        lanes = uses_lane_sums(tiling.columns_aligned, npu_arch)
        means = FP32_BYTES * tiling.ub_factor if lanes else 0
        scratch = FP32_BYTES * VECTOR_LANES * tiling.ub_factor if lanes else 0
    return Buffers(
        dy=2 * rows_bytes,
        x=2 * rows_bytes,
        dx=2 * rows_bytes,
        gamma=row_bytes,
        dgamma=row_bytes,
        rstd=rstd,
        means=means,
        scratch=scratch,
        zeros=row_bytes if inference else 0,
        synchronisation=synchronisation,
    )


def used_bytes(row: Any, tiling: Tiling, device: Device, rules: Any) -> int:
    """Return the Unified Buffer in use on a core; the planner does not check its size."""
    return sum(buffers(tiling, device.npu_arch, rules))


STRUCTURES = (
    Structure(
        "RmsNormGrad",
        "8.3",
        (
            FieldRun("uint32_t", "row col"),
            FieldRun("float", "avg_factor"),
            FieldRun(
                "uint32_t",
                "data_type block_factor ub_split_dim ub_factor core_calc_num core_calc_tail "
                "block_dim ub_calc_num ub_calc_tail ub_calc_loop ub_calc_tail_num "
                "ub_calc_tail_tail ub_calc_tail_loop fixed_output",
            ),
            FieldRun("uint32_t", "chunk_size chunk_num chunk_tail need_chunk", since="9.1"),
        ),
    ),
)
"""Tiling structure of the kernel as bytes (page ``tiling_bytes``)."""
