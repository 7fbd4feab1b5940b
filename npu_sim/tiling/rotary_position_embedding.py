"""Tiling of RotaryPositionEmbedding on Atlas A2 and A3.

x has the axes ``x0 x1 x2 dim``, cos and sin ``cos0 cos1 cos2 dim``; a 3-D tensor has a first axis
of 1. Half and interleave have planners of their own, which have nothing in common.

Source: specification page ``rotary_position_embedding``, sections "Contract" and "Tiling".
"""

from typing import Annotated, Any, NamedTuple

from npu_sim.cores import Device
from npu_sim.tiling.common import (
    DTYPE_CODES,
    FP16,
    FP32,
    FP32_BYTES,
    SUCCESS,
    SYSTEM_WORKSPACE_BYTES,
    BlockDim,
    Field,
    FieldRun,
    Part,
    Raw,
    Shape,
    Structure,
    WorkspaceBytes,
    align,
    alignment,
    ceil_div,
    element_bytes,
    fields_of,
    nothing,
    raw_planner,
    vendor_fields,
)

HALF, INTERLEAVE, MODES = 0, 1, 4
"""Modes, and the number that the planner takes; 2 and 3 are computed as half."""
MOST_COLUMNS = 896
"""Most columns of half."""
NO_LAYOUT, BNSD, BSND, SBND, NO_BROADCAST, ONE_ROW, B1SD = 0, 1, 2, 3, 4, 5, 6
"""tilingMode: which axes of x cos is repeated along (page, "Half")."""
UB_RESERVED = 2048
SHARES_OF_FP32, SHARES_OF_16_BIT = 8, 24
"""Parts of the Unified Buffer that one buffer of half has, divided by the bytes of an element."""
BNSD_ROWS, BNSD_COLUMNS = 8, 80
"""Limits of the BNSD refusal: B*N to S where D is aligned, and D where it is not."""
WHOLE, BATCHES, HEADS = 0, 100, 200
"""Keys of interleave: a tile has whole positions, some batches of one, or some heads of one."""

REFUSALS = (
    "",
    "mode",
    "broadcast",
    "rank",
    "d_limit",
    "d_odd",
    "cos_sin_differ",
    "d_differ",
    "dtype_differ",
    "dtype",
    "layout",
    "bnsd_aligned",
    "bnsd_unaligned",
    "ub",
)
"""What the planner refuses, in its order; codes are positions (page, "Contract" 4 and 5)."""
LAYOUT, BNSD_ALIGNED, BNSD_UNALIGNED, UB = 10, 11, 12, 13


Pieces = tuple[int, int, int]
"""Items in pieces: the items of a piece, the pieces, and the items of a cut one."""
NO_PIECES = (0, 0, 0)


class Problem(NamedTuple):
    """The axes of a call that the planner reads."""

    x0: int
    x1: int
    x2: int
    dim: int
    cos0: int
    cos1: int
    cos2: int
    mode: int
    dtype: int


class Layout(NamedTuple):
    """How half walks over x: the factors that repeat a line of cos, and the lines of cos."""

    mode: int
    first: int
    second: int
    lines: int


class Heads(NamedTuple):
    """The axes of x as interleave sees them; no ``batches`` if it takes no such shape."""

    batches: int
    positions: int
    heads: int


class Half(NamedTuple):
    """Fields of half; lines are rows of cos."""

    tiling_mode: Annotated[int, Field("which axes are broadcast, 1 to 6", "6", "tilingMode")]
    elements: Annotated[int, Field("elements of x", vendor="gmLength")]
    first: Annotated[int, Field("first factor of a line", vendor="broadcastFirstDim")]
    second: Annotated[int, Field("second factor of a line", vendor="broadcastSecondDim")]
    columns: Annotated[int, Field("columns D", vendor="dLength")]
    half: Annotated[int, Field("half of D", vendor="halfDLength")]
    half_padded: Annotated[int, Field("half of D in whole blocks", vendor="halfDPadLength")]
    padded: Annotated[int, Field("both padded halves", vendor="dPadLength")]
    is_aligned: Annotated[int, Field("1 where half of D is whole blocks", "1", "isAligned")]
    lines: Annotated[int, Field("lines of cos", vendor="totalSLines")]
    tile_lines: Annotated[int, Field("lines of a tile", "ub_bytes", "storeSLines")]
    tile_length: Annotated[int, Field("elements of a tile", vendor="storeDataLength")]
    tile_padded: Annotated[int, Field("elements of a buffer", vendor="storePadDataLength")]
    former: Annotated[int, Field("cores with one more line", "vector_cores", "formerCoreNum")]
    former_lines: Annotated[int, Field("lines of a former core", vendor="formerSLines")]
    former_loops: Annotated[int, Field("full tiles of a former core", vendor="formerUbLoop")]
    former_last: Annotated[int, Field("lines of its last tile", vendor="formerUbLast")]
    former_x: Annotated[int, Field("elements of x of a former core", vendor="formerXDataLength")]
    former_cos: Annotated[int, Field("elements of its cos", vendor="formerRDataLength")]
    former_x_offset: Annotated[int, Field("x of all former cores", vendor="formerXCoreOffset")]
    former_cos_offset: Annotated[int, Field("cos of all former cores", vendor="formerRCoreOffset")]
    former_last_length: Annotated[int, Field("its last tile", vendor="formerUbLastDataLength")]
    former_last_padded: Annotated[int, Field("padded", vendor="formerUbLastPadDataLength")]
    tail: Annotated[int, Field("the other cores", "vector_cores", "tailCoreNum")]
    tail_lines: Annotated[int, Field("lines of a tail core", vendor="tailSLines")]
    tail_loops: Annotated[int, Field("full tiles of a tail core", vendor="tailUbLoop")]
    tail_last: Annotated[int, Field("lines of its last tile", vendor="tailUbLast")]
    tail_x: Annotated[int, Field("elements of x of a tail core", vendor="tailXDataLength")]
    tail_cos: Annotated[int, Field("elements of its cos", vendor="tailRDataLength")]
    tail_last_length: Annotated[int, Field("its last tile", vendor="tailUbLastDataLength")]
    tail_last_padded: Annotated[int, Field("padded", vendor="tailUbLastPadDataLength")]


class Interleaved(NamedTuple):
    """Fields of interleave."""

    batches: Annotated[int, Field("batches", vendor="batchSize")]
    positions: Annotated[int, Field("positions, split over cores", vendor="seqLen")]
    heads: Annotated[int, Field("heads", vendor="numHeads")]
    columns: Annotated[int, Field("columns D", vendor="headDim")]
    front: Annotated[int, Field("cores with one more position", "vector_cores", "frontCoreNum")]
    tail: Annotated[int, Field("the other cores", "vector_cores", "tailCoreNum")]
    front_positions: Annotated[int, Field("positions of a front core", vendor="coreCalcNum")]
    tail_positions: Annotated[int, Field("positions of a tail core", vendor="coreCalcTail")]
    front_number: Annotated[int, Field("positions of its tile", vendor="ubCalcNum")]
    front_loops: Annotated[int, Field("tiles of a front core", vendor="ubCalcLoop")]
    front_last: Annotated[int, Field("positions of a cut tile", vendor="ubCalcTail")]
    tail_number: Annotated[int, Field("positions of its tile", vendor="ubCalcTailNum")]
    tail_loops: Annotated[int, Field("tiles of a tail core", vendor="ubCalcTailLoop")]
    tail_last: Annotated[int, Field("positions of a cut tile", vendor="ubCalcTailTail")]
    batch_number: Annotated[int, Field("batches of a tile", vendor="ubCalcBNum")]
    batch_loops: Annotated[int, Field("tiles of all batches", vendor="ubCalcBLoop")]
    batch_last: Annotated[int, Field("batches of a cut tile", vendor="ubCalcBTail")]
    head_number: Annotated[int, Field("heads of a tile", vendor="ubCalcNNum")]
    head_loops: Annotated[int, Field("tiles of all heads", vendor="ubCalcNLoop")]
    head_last: Annotated[int, Field("heads of a cut tile", vendor="ubCalcNTail")]


class Tiling(NamedTuple):
    """Result of the planner; the fields of the other mode are 0."""

    status: int
    tiling_key: Annotated[int, Field("tiling key: 1011 to 1063 half, 2000 to 2221", "2221")]
    block_dim: BlockDim
    workspace_bytes: WorkspaceBytes
    half: Annotated[Half, Part()]
    interleaved: Annotated[Interleaved, Part()]


NO_HALF = nothing(Half)
NO_INTERLEAVED = nothing(Interleaved)
NO_TILING = nothing(Tiling)
"""Result of a planner that found no tiling."""


def axes_of(x: Shape, cos: Shape) -> tuple[Shape, Shape]:
    """Return the three axes of both that the planner compares; a missing axis counts as 0."""
    if len(x) == 3:
        return (1, *x[:2]), (1, *(*cos, 0, 0)[:2])
    return (*x, 0, 0, 0)[:3], (*cos, 0, 0, 0)[:3]


def as_32_bits(number: int) -> int:
    """Return an integer truncated to 32 bits with sign."""
    return (number + 2**31) % 2**32 - 2**31


def is_broadcast(x: Shape, cos: Shape) -> bool:
    """Return whether each of the first three axes of cos is 1 or that of x."""
    return all(cos_axis in (1, axis) for axis, cos_axis in zip(*axes_of(x, cos), strict=True))


def shape_refusal(x: Shape, cos: Shape, sin: Shape, mode: int) -> str:
    """Return why the planner refuses mode and shapes before it plans; empty if it does not."""
    mode = as_32_bits(mode)
    refusals = {
        "mode": not 0 <= mode < MODES,
        "broadcast": not is_broadcast(x, cos),
        "rank": {len(x), len(cos), len(sin)} not in ({3}, {4}),
        "d_limit": mode != INTERLEAVE and x[-1:] > (MOST_COLUMNS,),
        "d_odd": mode != INTERLEAVE and x[-1:] != () and x[-1] % 2 != 0,
        "cos_sin_differ": cos != sin,
        "d_differ": x[-1:] != cos[-1:],
    }
    return next((name for name, refused in refusals.items() if refused), "")


def is_repeated(p: Problem) -> bool:
    """Return whether each axis of cos is 1 or that of x."""
    return p.cos0 in (1, p.x0) and p.cos1 in (1, p.x1) and p.cos2 in (1, p.x2)


def half_layout(p: Problem) -> Layout:
    """Return how half walks over x (page, "Half"); mode `NO_LAYOUT` if it takes no such shape."""
    one0, one1, one2 = p.x0 != p.cos0, p.x1 != p.cos1, p.x2 != p.cos2
    if not (one0 or one1 or one2):
        return Layout(NO_BROADCAST, 1, 1, p.x0 * p.x1 * p.x2)
    if p.cos0 == p.cos1 == p.cos2 == 1:
        lines = p.x0 * p.x1 * p.x2 if p.x0 == 1 or p.x1 == 1 or p.x2 == 1 else 0
        return Layout(ONE_ROW, 1, 1, lines)
    if one0 and one1:
        return Layout(BNSD, p.x0, p.x1, p.x2)
    if one0 and one2:
        return Layout(BSND, p.x0, p.x2, p.x1)
    if one1 and one2:
        return Layout(SBND, p.x1, p.x2, p.x0)
    if one0:
        if p.x1 == 1 or p.x2 == 1:
            return Layout(BSND, p.x0, 1, p.x1 * p.x2)
        return Layout(NO_LAYOUT, 1, 1, 0)
    if one1:
        return Layout(SBND, p.x1, 1, p.x0) if p.x2 == 1 else Layout(B1SD, p.x0, p.x1, p.x2)
    return Layout(SBND, 1, p.x2, p.x0 * p.x1)


def half_is_aligned(p: Problem) -> bool:
    """Return whether half a row is whole blocks."""
    return p.dim // 2 % alignment(p.dtype) == 0


def padded_columns(p: Problem) -> int:
    """Return the columns of both padded halves of a row."""
    return 2 * align(p.dim // 2, alignment(p.dtype))


def tile_lines(p: Problem, device: Device) -> int:
    """Return the lines of a tile of half."""
    shares = SHARES_OF_FP32 if p.dtype == FP32 else SHARES_OF_16_BIT
    size = element_bytes(p.dtype) * padded_columns(p)
    return (device.ub_bytes - UB_RESERVED) // shares // size if size > 0 else 0


def half_refusal(p: Problem, device: Device) -> int:
    """Return the code of what half refuses; 0 for nothing."""
    layout, cores = half_layout(p), device.vector_cores
    if layout.mode == NO_LAYOUT:
        return LAYOUT
    if layout.mode == BNSD:
        rows = p.x0 * p.x1
        if half_is_aligned(p):
            if rows > BNSD_ROWS * p.x2:
                return BNSD_ALIGNED
        elif p.dim < BNSD_COLUMNS and 2 * rows > ceil_div(p.x2, cores):
            return BNSD_UNALIGNED
    return UB if tile_lines(p, device) == 0 else 0


def heads_of(p: Problem) -> Heads:
    """Return the axes as interleave sees them; none if cos has no such form."""
    if p.cos0 == p.x0 and p.cos1 == 1 and p.cos2 == 1:
        return Heads(1, p.x0, p.x1 * p.x2)
    if p.cos0 == 1 and p.cos1 == p.x1 and p.cos2 == 1:
        return Heads(p.x0, p.x1, p.x2)
    if p.cos0 == 1 and p.cos1 == 1 and p.cos2 == p.x2:
        return Heads(p.x0 * p.x1, p.x2, 1)
    return Heads(0, 0, 0)


def work_bytes(p: Problem) -> int:
    """Return the bytes of the Unified Buffer per element of an interleaved tile."""
    return 12 if p.dtype == FP32 else 18


def most_heads(p: Problem, device: Device) -> int:
    """Return the heads of a tile on the key that splits heads."""
    padded = align(p.dim, alignment(p.dtype))
    return device.ub_bytes // (padded * (work_bytes(p) + FP32_BYTES)) if padded > 0 else 0


def path_of(p: Problem, heads: Heads, device: Device) -> int:
    """Return which axes an interleaved tile splits: `WHOLE`, `BATCHES` or `HEADS`."""
    table = heads.heads * align(p.dim, alignment(p.dtype))
    room, batch_bytes = device.ub_bytes - FP32_BYTES * table, table * work_bytes(p)
    if room > 0 and heads.batches * batch_bytes <= room:
        return WHOLE
    return BATCHES if room > 0 and batch_bytes <= room else HEADS


def refusal(p: Problem, device: Device) -> int:
    """Return the code of what the planner refuses among shapes that it looks at; 0: nothing."""
    if p.mode != INTERLEAVE:
        return half_refusal(p, device)
    heads = heads_of(p)
    if heads.batches == 0:
        return LAYOUT
    too_wide = path_of(p, heads, device) == HEADS and most_heads(p, device) == 0
    return UB if too_wide else 0


def half_of(p: Problem, device: Device) -> Tiling:
    """Plan half."""
    layout, cores = half_layout(p), device.vector_cores
    lines, padded, unit = layout.lines, padded_columns(p), alignment(p.dtype)
    tile, is_one_row = tile_lines(p, device), layout.mode == ONE_ROW
    block_dim = min(lines, cores)
    former = lines % cores if lines > cores else block_dim
    tail = block_dim - former
    former_lines = ceil_div(lines, block_dim) if block_dim > 0 else 0
    tail_lines = lines // block_dim if block_dim > 0 else 0
    factor = 1 if is_one_row else layout.first * layout.second
    batches = layout.first if layout.mode == B1SD else 1
    offset_factor = 1
    if layout.mode == BSND:
        offset_factor = layout.second
    elif layout.mode == SBND:
        offset_factor = layout.first * layout.second
    former_elements = former * former_lines * p.dim
    former_cos = p.dim if is_one_row else former_lines * batches * p.dim
    tail_cos = p.dim if is_one_row else tail_lines * batches * p.dim
    former_cos_offset = 0 if is_one_row else former_elements
    half = Half(
        tiling_mode=layout.mode,
        elements=p.x0 * p.x1 * p.x2 * p.dim,
        first=layout.first,
        second=layout.second,
        columns=p.dim,
        half=p.dim // 2,
        half_padded=align(p.dim // 2, unit),
        padded=padded,
        is_aligned=int(half_is_aligned(p)),
        lines=lines,
        tile_lines=tile,
        tile_length=tile * p.dim,
        tile_padded=tile * padded,
        former=former,
        former_lines=former_lines,
        former_loops=former_lines // tile,
        former_last=former_lines % tile,
        former_x=former_lines * factor * p.dim,
        former_cos=former_cos,
        former_x_offset=former_elements * offset_factor,
        former_cos_offset=former_cos_offset,
        former_last_length=former_lines % tile * p.dim,
        former_last_padded=former_lines % tile * padded,
        tail=tail,
        tail_lines=tail_lines,
        tail_loops=tail_lines // tile,
        tail_last=tail_lines % tile,
        tail_x=tail_lines * factor * p.dim,
        tail_cos=tail_cos,
        tail_last_length=tail_lines % tile * p.dim,
        tail_last_padded=tail_lines % tile * padded,
    )
    key = 1000 + 10 * layout.mode + 1 + p.dtype
    return Tiling(SUCCESS, key, block_dim, SYSTEM_WORKSPACE_BYTES, half, NO_INTERLEAVED)


def pieces_of(items: int, most: int) -> Pieces:
    """Return pieces of at most ``most`` items."""
    return (most, ceil_div(items, most), items % most)


def interleaved_of(p: Problem, device: Device) -> Tiling:
    """Plan interleave."""
    batches, positions, heads = heads_of(p)
    cores, padded = device.vector_cores, align(p.dim, alignment(p.dtype))
    front = positions % cores if positions % cores > 0 else cores
    tail = 0 if positions <= cores else cores - front
    most, least = ceil_div(positions, cores), positions // cores
    path, work = path_of(p, Heads(batches, positions, heads), device), work_bytes(p)
    table = heads * padded
    room, position_bytes = device.ub_bytes - FP32_BYTES * table, batches * table * work
    of_front, of_tail, of_batches, of_heads = NO_PIECES, NO_PIECES, NO_PIECES, NO_PIECES
    if path == WHOLE:
        of_front = (
            (most, 1, 0)
            if most * position_bytes <= room
            else pieces_of(most, room // position_bytes)
        )
        size = (
            least * position_bytes if p.dtype == FP32 else batches * table * (least * 6 + most * 12)
        )
        if least > 0:
            of_tail = (least, 1, 0) if size <= room else pieces_of(least, room // position_bytes)
    elif path == BATCHES:
        of_batches = pieces_of(batches, room // (table * work))
    else:
        of_heads = pieces_of(heads, most_heads(p, device))
    fields = Interleaved(
        *(batches, positions, heads, p.dim, front, tail, most, least),
        *of_front,
        *of_tail,
        *of_batches,
        *of_heads,
    )
    code = 20
    if p.dtype != FP32:
        code = 0 if p.dtype == FP16 else 10
    key = 2000 + code + int(padded != p.dim) + path
    return Tiling(SUCCESS, key, front + tail, SYSTEM_WORKSPACE_BYTES, NO_HALF, fields)


def tile(problem: Problem, device: Device, rules: Any) -> Tiling:
    """Plan one call; ``status`` is 1 for shapes that the planner refuses."""
    if refusal(problem, device) != 0:
        return NO_TILING
    if problem.mode == INTERLEAVE:
        return interleaved_of(problem, device)
    return half_of(problem, device)


def problem_of(inputs: Raw, rules: Any) -> Problem | None:
    """Return the problem of the raw planner's inputs; None if it refuses them before it plans."""
    x, cos = tuple(inputs["x_shape"]), tuple(inputs["cos_shape"])
    dtypes = {inputs[name] for name in ("x_dtype", "cos_dtype", "sin_dtype")}
    if shape_refusal(x, cos, tuple(inputs["sin_shape"]), inputs["mode"]) or len(dtypes) > 1:
        return None
    (x0, x1, x2), (cos0, cos1, cos2) = axes_of(x, cos)
    mode, dtype = as_32_bits(inputs["mode"]), DTYPE_CODES[dtypes.pop()]
    return Problem(x0, x1, x2, x[-1], cos0, cos1, cos2, mode, dtype)


def fields_of_mode(tiling: Tiling, rules: Any = None) -> dict[str, int | float]:
    """Return the fields of the mode's own structure under the vendor's names."""
    return vendor_fields(tiling.half if tiling.half.tiling_mode else tiling.interleaved, rules)


KERNELS = {
    "rotary_position_embedding": raw_planner(
        problem_of, tile, lambda tiling, inputs, rules: fields_of_mode(tiling, rules)
    )
}


def buffers(tiling: Tiling, dtype: int) -> dict[str, int]:
    """Return the bytes in the Unified Buffer of one core, in the order of allocation."""
    size, half, interleaved = element_bytes(dtype), tiling.half, tiling.interleaved
    if half.tiling_mode:
        queue, wide = 2 * size * half.tile_padded, FP32_BYTES * half.tile_padded
        queues = dict.fromkeys(("x", "y", "cos", "sin"), queue)
        if dtype == FP32:
            return queues
        return queues | dict.fromkeys(("x_fp32", "cos_fp32", "sin_fp32", "rotated_fp32"), wide)
    padded = align(interleaved.columns, alignment(dtype))
    table = interleaved.heads * padded
    if interleaved.head_number:
        table = length = interleaved.head_number * padded
    elif interleaved.batch_number:
        length = interleaved.batch_number * table
    else:
        length = interleaved.batches * interleaved.front_number * table
    names = () if dtype == FP32 else ("x_fp32", "cos_fp32", "y_fp32")
    tensors = dict.fromkeys(("x", "cos_sin", "y"), size * length)
    return tensors | dict.fromkeys(names, FP32_BYTES * length) | {"table": FP32_BYTES * table}


ROTATE_FIELDS, MATRIX_WORDS = 21, 25
"""64-bit words of the path with ``rotate`` and of its matrix tiling, which are 0 here."""
FIELD_RUNS = (
    FieldRun(
        "uint64_t", " ".join(f"rotate{number}" for number in range(MATRIX_WORDS + ROTATE_FIELDS))
    ),
    FieldRun("uint64_t", fields_of(Half).names),
    FieldRun("uint64_t", fields_of(Interleaved).names),
)
"""Tiling structure as bytes; the order within is a model (page, "Tiling bytes")."""
STRUCTURES = (Structure("RotaryPositionEmbedding", "8.5", FIELD_RUNS),)
