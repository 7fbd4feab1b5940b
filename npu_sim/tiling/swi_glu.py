"""Tiling of SwiGlu and SwiGluGrad on Atlas A2, A3 and the Atlas inference series.

Both operators have one planner, and SwiGlu on Ascend 950 too; only the bytes of a column differ
(:class:`Buffers`). x is ``row`` rows of ``2*col`` elements, a the first half of a row, b the
second. A tile is some columns of some rows, of a, of b and of the results alike.

Source: specification pages ``swi_glu`` and ``swi_glu_grad``, section "Tiling". The product computes
in 64 bits, where nothing wraps around.
"""

from math import prod
from typing import Annotated, Any, NamedTuple

from npu_sim.cores import NPU_ARCH_ATLAS_INFERENCE, Device
from npu_sim.tiling.common import (
    BF16,
    DTYPE_CODES,
    FP32,
    FP32_BYTES,
    SUCCESS,
    SYSTEM_WORKSPACE_BYTES,
    BlockDim,
    Field,
    FieldRun,
    Raw,
    Shape,
    Structure,
    WorkspaceBytes,
    align,
    align_down,
    alignment,
    ceil_div,
    element_bytes,
    nothing,
    raw_planner,
)

PACK_BYTES = 512
"""Widths are multiples of this many bytes where a row is cut (page, "pack")."""
MOST_GAP = 65535
"""Largest gap between two rows that a copy can skip: blocks if rows are aligned, else bytes; also
the widest tile, in elements or bytes (page, "far")."""
MOST_ROWS = 4095
"""Most rows of a tile."""
TILING_KEYS = (0, 1, 27)
"""By dtype code: fp32, fp16, bf16."""
INFERENCE_ROW_BYTES = 64
"""Half a row is a multiple of this on the Atlas inference series (page, "Contract" 8)."""


class Problem(NamedTuple):
    """The axes of a call that the planner reads: rows, columns of half a row, dtype code."""

    row: int
    col: int
    dtype: int


class Buffers(NamedTuple):
    """Names of the buffers of a tile in the Unified Buffer: of tensors, and of fp32 numbers."""

    tensors: tuple[str, ...]
    fp32: tuple[str, ...]
    """Of fp32 numbers where the tensors are fp32."""
    fp32_of_16_bits: tuple[str, ...]
    """Of fp32 numbers where the tensors have 16 bits."""


BUFFERS = Buffers(("a", "b", "out"), ("ones",), ("a_fp32", "out_fp32"))
"""Page ``swi_glu``, "Unified Buffer of a core"."""


class Block(NamedTuple):
    """Shape of a tile, its number, and the cores in use; ``rows`` is 0 where there is none."""

    rows: int
    columns: int
    tiles: int
    cores: int
    rank: tuple[int, int, int, int]
    """Cores, -tiles, size, and number of whole tiles; the tile of the highest rank is taken."""


class Tiling(NamedTuple):
    """Result of the planner."""

    status: int
    tiling_key: Annotated[int, Field("tiling key: 0 fp32, 1 fp16, 27 bf16", "27")]
    block_dim: BlockDim
    workspace_bytes: WorkspaceBytes
    is_aligned: Annotated[
        int, Field("1 where half a row is whole blocks of 32 bytes", "1", "is32BAligned")
    ]
    is_double_buffer: Annotated[
        int, Field("1 where every tensor has two buffers", "1", "isDoubleBuffer")
    ]
    rows: Annotated[int, Field("rows: product of the axes before dim", vendor="rowLen")]
    columns: Annotated[int, Field("columns of half a row", vendor="colLen")]
    tile_rows: Annotated[int, Field("rows of a tile", str(MOST_ROWS), "baseRowLen")]
    tile_columns: Annotated[int, Field("columns of a tile", "ub_bytes", "baseColLen")]
    always_0: Annotated[
        int,
        Field(
            "fields of another operator",
            vendor="activateLeft biasIsEmpty quantScaleIsEmpty activateScaleIsEmpty swiColLen"
            " perRowLen modRowLen usedCoreNum",
        ),
    ]


NO_TILING = nothing(Tiling)
"""Result of a planner that found no tiling."""


def column_bytes(dtype: int, names: Buffers, copies: int) -> int:
    """Return the Unified Buffer per column with so many buffers of every tensor."""
    fp32 = len(names.fp32) if dtype == FP32 else len(names.fp32_of_16_bits)
    return copies * len(names.tensors) * element_bytes(dtype) + FP32_BYTES * fp32


def is_aligned(problem: Problem) -> bool:
    """Return whether half a row is whole blocks."""
    return problem.col % alignment(problem.dtype) == 0


def gap_is_far(problem: Problem, columns: int) -> bool:
    """Return whether the gap between two rows of a piece of columns exceeds 16 bits."""
    gap = 2 * problem.col - columns
    if is_aligned(problem):
        return gap > MOST_GAP * alignment(problem.dtype)
    return gap * element_bytes(problem.dtype) > MOST_GAP


def inference_takes(problem: Problem, device: Device, rules: Any) -> bool:
    """Return whether the Atlas inference series takes these sizes; others take all."""
    if device.npu_arch != NPU_ARCH_ATLAS_INFERENCE:
        return True
    half = problem.col * element_bytes(problem.dtype)
    return problem.row * half > 0 and half % INFERENCE_ROW_BYTES == 0


def widest(problem: Problem, most: int) -> int:
    """Return the first width that is tried, for at most ``most`` columns in the buffer."""
    size = element_bytes(problem.dtype)
    pack = PACK_BYTES // size
    cap = MOST_GAP if is_aligned(problem) else MOST_GAP // size
    columns = min(problem.col, most, cap)
    return align_down(columns, pack) if pack < columns < problem.col else columns


def block_of(problem: Problem, cores: int, rows: int, columns: int) -> Block:
    """Return a tile of this shape with the number of tiles and of cores in use."""
    tiles = ceil_div(problem.row, rows) * ceil_div(problem.col, columns)
    used, whole = min(tiles, cores), problem.row // rows * (problem.col // columns)
    return Block(rows, columns, tiles, used, (used, -tiles, rows * columns, whole))


def search(problem: Problem, cores: int, most: int, checks_tail: int) -> Block:
    """Return the best tile of at most ``most`` columns in the buffer; no rows if there is none.

    ``checks_tail`` is 0 at the release whose planner overlooks the gap of the last piece.
    """
    columns, block = widest(problem, most), alignment(problem.dtype)
    best = Block(0, 0, 0, 0, (0, 0, 0, 0))
    if columns <= 0:
        return best
    if gap_is_far(problem, columns):
        return block_of(problem, cores, 1, columns)
    pack = PACK_BYTES // element_bytes(problem.dtype)
    whole = min(problem.row, MOST_ROWS)
    while columns > 0:
        rows = min(most // align(columns, block), whole)
        if rows > 1 and gap_is_far(problem, columns):
            break
        wraps = rows > 1 and checks_tail != 0 and gap_is_far(problem, problem.col % columns)
        if rows > 0 and not wraps:
            found = block_of(problem, cores, rows, columns)
            if found.rank > best.rank:
                best = found
        if rows == whole:
            break
        columns = (columns - 1) // pack * pack
    return best


def tile_of(problem: Problem, device: Device, rules: Any, names: Buffers) -> Tiling:
    """Plan one call of either operator.

    ``status`` is 1 (the product's 561002) without columns or cores, where nothing fits, and for
    sizes and dtypes that the Atlas inference series does not take.
    """
    cores, block = device.vector_cores, alignment(problem.dtype)
    no_bf16 = device.npu_arch == NPU_ARCH_ATLAS_INFERENCE and problem.dtype == BF16
    if problem.col <= 0 or cores <= 0 or no_bf16 or not inference_takes(problem, device, rules):
        return NO_TILING
    two = align_down(device.ub_bytes // column_bytes(problem.dtype, names, 2), block)
    single_length = align_down(device.ub_bytes // column_bytes(problem.dtype, names, 1), block)
    best, is_double = search(problem, cores, two, rules.checks_last_gap), 1
    if best.rows == 0:
        return NO_TILING
    if best.cores > 0 and ceil_div(best.tiles, best.cores) == 2:
        single = search(problem, cores, single_length, rules.checks_last_gap)
        if single.tiles == single.cores >= best.cores:
            best, is_double = single, 0
    return Tiling(
        status=SUCCESS,
        tiling_key=TILING_KEYS[problem.dtype],
        block_dim=best.cores,
        workspace_bytes=SYSTEM_WORKSPACE_BYTES,
        is_aligned=int(is_aligned(problem)),
        is_double_buffer=is_double,
        rows=problem.row,
        columns=problem.col,
        tile_rows=best.rows,
        tile_columns=best.columns,
        always_0=0,
    )


def tile(problem: Problem, device: Device, rules: Any) -> Tiling:
    """Plan one call of SwiGlu; see :func:`tile_of`."""
    return tile_of(problem, device, rules, BUFFERS)


def problem_of(inputs: Raw, rules: Any) -> Problem | None:
    """Return the problem of the raw planner's inputs; it keeps dim in 32 bits."""
    x, dim = tuple(inputs["x_shape"]), (inputs["dim"] + 2**31) % 2**32 - 2**31
    return split_at(x, dim, inputs["dtype"])


def split_at(x: Shape, dim: int, dtype: str) -> Problem | None:
    """Return the problem of a shape that is split along ``dim``; None if the planner fails."""
    if not -len(x) <= dim < len(x):
        return None
    row = prod(x[dim:])
    return None if row % 2 else Problem(prod(x[:dim]), row // 2, DTYPE_CODES[dtype])


KERNELS = {"swi_glu": raw_planner(problem_of, tile)}


def wraps_last_gap(tiling: Tiling, problem: Problem) -> bool:
    """Return whether the gap of the last piece of columns loses its upper bits (release 8.3)."""
    last = tiling.columns % tiling.tile_columns
    return tiling.tile_rows > 1 and last > 0 and gap_is_far(problem, last)


def tiles_of_core(tiling: Any, core: int) -> range:
    """Return the numbers of a core's tiles, counted along the columns first."""
    rows = ceil_div(tiling.rows, tiling.tile_rows)
    return range(core, rows * ceil_div(tiling.columns, tiling.tile_columns), tiling.block_dim)


def tile_count(tiling: Any, core: int) -> int:
    """Return the number of a core's tiles; a range of more than 2^63 has no length."""
    tiles = tiles_of_core(tiling, core)
    return max(0, ceil_div(tiles.stop - tiles.start, tiles.step))


def buffers(tiling: Any, dtype: int, names: Buffers) -> dict[str, int]:
    """Return the bytes in the Unified Buffer of one core, in the order of allocation.

    A buffer has the elements of a tile with padded rows.
    """
    elements = int(tiling.tile_rows * align(tiling.tile_columns, alignment(dtype)))
    size = (1 + tiling.is_double_buffer) * elements * element_bytes(dtype)
    fp32 = names.fp32 if dtype == FP32 else names.fp32_of_16_bits
    return dict.fromkeys(names.tensors, size) | dict.fromkeys(fp32, FP32_BYTES * elements)


FIELD_RUNS = (
    FieldRun("uint32_t", "is32BAligned isDoubleBuffer"),
    FieldRun("uint64_t", "rowLen colLen"),
    FieldRun(
        "uint32_t",
        "baseRowLen baseColLen activateLeft biasIsEmpty quantScaleIsEmpty activateScaleIsEmpty",
    ),
    FieldRun("uint64_t", "swiColLen perRowLen modRowLen"),
    FieldRun("uint32_t", "usedCoreNum"),
)
"""Tiling structure of both kernels as bytes (page ``swi_glu``)."""
STRUCTURES = (Structure("SwiGlu", "8.3", FIELD_RUNS),)
