"""Tiling of RotaryPositionEmbeddingGrad on Atlas A2 and A3.

Axes are named as for RotaryPositionEmbedding, dy in place of x. Half and interleave have planners
of their own.

Source: specification page ``rotary_position_embedding_grad``, sections "Contract" and "Tiling".
"""

from math import gcd
from typing import Annotated, Any, NamedTuple

from npu_sim.cores import Device
from npu_sim.tiling.common import (
    DTYPE_CODES,
    FP16,
    FP32,
    FP32_BYTES,
    SUCCESS,
    SYSTEM_WORKSPACE_BYTES,
    VECTOR_LANES,
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
from npu_sim.tiling.rotary_position_embedding import (
    HALF,
    INTERLEAVE,
    MOST_COLUMNS,
    NO_PIECES,
    Pieces,
    as_32_bits,
    axes_of,
    is_broadcast,
    pieces_of,
)
from npu_sim.tiling.rotary_position_embedding import MODES as KNOWN_MODES

BSND, BNSD, SBND, NO_LAYOUT = 0, 10, 20, -1
"""layout of half: the order of the axes that cos repeats."""
UB_RESERVED, INTERLEAVE_RESERVED = 20480, 32
MOST_GROUPS = 1000
"""Interleave takes fewer batches times heads."""
LARGE = 100
"""Part of the key of interleave whose tiles have some heads, or some batches and heads."""

REFUSALS = (
    "",
    "mode",
    "broadcast",
    "rank",
    "cos_sin_differ",
    "d_differ",
    "d_limit",
    "d_odd",
    "x_differs",
    "layout",
    "bn_limit",
    "ub",
)
"""What the planner refuses; codes are positions (page, "Contract" 4)."""
LAYOUT, BN_LIMIT, UB = 9, 10, 11


class Problem(NamedTuple):
    """The axes of a call that the planner reads; ``has_x`` is 1 where x is given."""

    x0: int
    x1: int
    x2: int
    dim: int
    cos0: int
    cos1: int
    cos2: int
    mode: int
    dtype: int
    has_x: int


class Layout(NamedTuple):
    """Axes of dy as batches, positions and heads, and the axes of cos in the places of B and N.

    ``layout`` is `NO_LAYOUT` where the planner takes no such shape.
    """

    layout: int
    batches: int
    positions: int
    heads: int
    cos_batches: int
    cos_heads: int


class Room(NamedTuple):
    """Elements of a buffer of half, and of dy, cos or sin that it takes."""

    padded: int
    elements: int


class Half(NamedTuple):
    """Fields of half."""

    layout: Annotated[int, Field("0 BSND, 10 BNSD, 20 SBND", "20", "layout")]
    dy_elements: Annotated[int, Field("elements of dy", vendor="xShapeSize")]
    cos_elements: Annotated[int, Field("elements of cos", vendor="cosShapeSize")]
    batches: Annotated[int, Field("axis B", vendor="dimB")]
    positions: Annotated[int, Field("axis S", vendor="dimS")]
    heads: Annotated[int, Field("axis N", vendor="dimN")]
    columns: Annotated[int, Field("axis D", vendor="dimD")]
    cos_batches: Annotated[int, Field("axis of cos in the place of B", vendor="cosDimB")]
    cos_heads: Annotated[int, Field("axis of cos in the place of N", vendor="cosDimN")]
    half_padded: Annotated[int, Field("half of D in whole blocks", vendor="halfDimDAlignNum")]
    core: Annotated[int, Field("elements of cos of a core", vendor="coreData")]
    last_core: Annotated[int, Field("elements of the last core", vendor="coreLast")]
    loops: Annotated[int, Field("full tiles of a core", vendor="copyLoop")]
    last: Annotated[int, Field("elements of its last tile", vendor="copyTail")]
    last_core_loops: Annotated[int, Field("full tiles of the last core", vendor="lastCopyLoop")]
    last_core_last: Annotated[int, Field("elements of its last tile", vendor="lastCopyTail")]
    buffer: Annotated[int, Field("elements of a buffer", "ub_bytes", "alignUbSize")]
    tile: Annotated[int, Field("elements of a tile", "ub_bytes", "calcUbSize")]
    used_cores: Annotated[int, Field("cores that work", vendor="coreUsed")]
    cores: Annotated[int, Field("vector cores of the chip", vendor="coreNum")]
    first: Annotated[int, Field("first factor that is summed", vendor="firstReduce")]
    second: Annotated[int, Field("second factor that is summed", vendor="secondReduce")]
    gap: Annotated[int, Field("elements between first pieces", vendor="ubLoopGap")]
    block_length: Annotated[int, Field("blocks of a copied row", vendor="blockLenInner")]
    stride: Annotated[int, Field("blocks between copied rows", vendor="strideInner")]
    block_length_padded: Annotated[int, Field("bytes of half a row", vendor="blockLenPadInner")]
    stride_padded: Annotated[int, Field("bytes between half rows", vendor="stridePadInner")]


class Interleaved(NamedTuple):
    """Fields of interleave."""

    batches: Annotated[int, Field("axis B", vendor="batchSize")]
    positions: Annotated[int, Field("axis S, split over cores", vendor="seqLen")]
    heads: Annotated[int, Field("axis N", vendor="numHeads")]
    columns: Annotated[int, Field("axis D", vendor="headDim")]
    padded: Annotated[int, Field("D in whole blocks", vendor="alignHeadDim")]
    pad: Annotated[int, Field("columns of padding", vendor="padHeadDim")]
    front: Annotated[int, Field("cores with one more position", "vector_cores", "frontCoreNum")]
    tail: Annotated[int, Field("the other cores", "vector_cores", "tailCoreNum")]
    front_positions: Annotated[int, Field("positions of a front core", vendor="seqFrontLen")]
    tail_positions: Annotated[int, Field("positions of a tail core", vendor="seqTailLen")]
    front_number: Annotated[int, Field("positions of its tile", vendor="seqFrontCalcNum")]
    front_loops: Annotated[int, Field("tiles of a front core", vendor="seqFrontCalcLoop")]
    front_last: Annotated[int, Field("positions of a cut tile", vendor="seqFrontCalcTail")]
    tail_number: Annotated[int, Field("positions of its tile", vendor="seqTailCalcNum")]
    tail_loops: Annotated[int, Field("tiles of a tail core", vendor="seqTailCalcLoop")]
    tail_last: Annotated[int, Field("positions of a cut tile", vendor="seqTailCalcTail")]
    head_number: Annotated[int, Field("heads of a tile", vendor="numHeadsLength")]
    head_loops: Annotated[int, Field("tiles of all heads", vendor="numHeadsLoop")]
    head_last: Annotated[int, Field("heads of a cut tile", vendor="numHeadsTail")]
    group_number: Annotated[int, Field("groups of a tile", vendor="batchNumHeadsLength")]
    group_loops: Annotated[int, Field("tiles of all groups", vendor="batchNumHeadsLoop")]
    group_last: Annotated[int, Field("groups of a cut tile", vendor="batchNumHeadsTail")]
    layout: Annotated[int, Field("0 BSND, 1 BNSD, 2 SBND", "2", "layout")]


class Tiling(NamedTuple):
    """Result of the planner; the fields of the other mode are 0."""

    status: int
    tiling_key: Annotated[
        int, Field("tiling key: 0 to 1122 half, from 20000 on interleave", "21120")
    ]
    block_dim: BlockDim
    workspace_bytes: WorkspaceBytes
    half: Annotated[Half, Part()]
    interleaved: Annotated[Interleaved, Part()]


NO_HALF = nothing(Half)
NO_INTERLEAVED = nothing(Interleaved)
NO_TILING = nothing(Tiling)
"""Result of a planner that found no tiling."""


def shape_refusal(dy: Shape, cos: Shape, sin: Shape, x: Shape | None, mode: int) -> str:
    """Return why the planner refuses mode and shapes before it plans; empty if it does not."""
    mode = as_32_bits(mode)
    ranks = {len(dy), len(cos)} if mode == HALF else {len(dy), len(cos), len(sin)}
    is_broken = not is_broadcast(dy, cos)
    modes = KNOWN_MODES if is_broken else INTERLEAVE + 1
    refusals = {
        "mode": not 0 <= mode < modes,
        "broadcast": is_broken,
        "rank": ranks not in ({3}, {4}),
        "cos_sin_differ": cos != sin,
        "d_differ": dy[-1:] != cos[-1:],
        "d_limit": mode == HALF and dy[-1:] > (MOST_COLUMNS,),
        "d_odd": mode == HALF and dy[-1:] != () and dy[-1] % 2 != 0,
        "x_differs": x not in (None, dy),
    }
    return next((name for name, refused in refusals.items() if refused), "")


def half_layout(p: Problem) -> Layout:
    """Return how half sees dy (page, "Half"); the first form that fits."""
    same = p.cos0 == p.x0 and p.cos1 == p.x1 and p.cos2 == p.x2
    if (
        same
        or (p.x0 != 1 and p.cos0 == 1 and p.cos1 == p.x1 and p.cos2 == 1)
        or (p.cos0 == p.x0 and p.cos1 == p.x1 and p.cos2 == 1 and p.x0 < p.x1)
    ):
        return Layout(BSND, p.x0, p.x1, p.x2, p.cos0, p.cos2)
    if (p.x0 != 1 and p.cos0 == 1 and p.cos1 == 1 and p.cos2 == p.x2) or (
        p.cos0 == p.x0 and p.cos1 == 1 and p.cos2 == p.x2 and p.x0 < p.x2
    ):
        return Layout(BNSD, p.x0, p.x2, p.x1, p.cos0, p.cos1)
    if (p.x1 != 1 and p.cos0 == p.x0 and p.cos1 == 1 and p.cos2 == 1) or (
        p.cos0 == p.x0 and p.cos1 == p.x1 and p.cos2 == 1
    ):
        return Layout(SBND, p.x1, p.x0, p.x2, p.cos1, p.cos2)
    return Layout(NO_LAYOUT, 0, 0, 0, 1, 1)


def interleaved_layout(p: Problem) -> Layout:
    """Return how interleave sees dy; layout 0, 1 or 2."""
    if p.cos0 == 1 and p.cos1 == p.x1 and p.cos2 == 1:
        return Layout(0, p.x0, p.x1, p.x2, 1, 1)
    if p.cos0 == 1 and p.cos1 == 1 and p.cos2 == p.x2:
        return Layout(1, p.x0, p.x2, p.x1, 1, 1)
    if p.cos0 == p.x0 and p.cos1 == 1 and p.cos2 == 1:
        return Layout(2, p.x1, p.x0, p.x2, 1, 1)
    return Layout(NO_LAYOUT, 0, 0, 0, 1, 1)


def layout_of(p: Problem) -> Layout:
    """Return how the planner sees dy."""
    return interleaved_layout(p) if p.mode == INTERLEAVE else half_layout(p)


def room_of(p: Problem, device: Device) -> Room:
    """Return the buffer of half; no elements where not even one row fits."""
    of_fp32, of_16_bit = (48, 50) if p.has_x != 0 else (28, 36)
    room = (device.ub_bytes - UB_RESERVED) // (of_fp32 if p.dtype == FP32 else of_16_bit)
    padded, rows = 2 * align(p.dim // 2, alignment(p.dtype)), 1
    big = p.dim
    if p.dim % VECTOR_LANES != 0:
        big = padded // gcd(padded, VECTOR_LANES) * VECTOR_LANES
        rows = big // padded
    if big <= 0:
        return Room(0, 0)
    size, elements = room // big * big, room // big * rows * p.dim
    return Room(size, elements) if padded <= size else Room(0, 0)


def refusal(p: Problem, device: Device) -> int:
    """Return the code of what the planner refuses among shapes that it looks at; 0: nothing."""
    layout = layout_of(p)
    if layout.layout == NO_LAYOUT:
        return LAYOUT
    if p.mode == INTERLEAVE:
        return BN_LIMIT if layout.batches * layout.heads >= MOST_GROUPS else 0
    return UB if room_of(p, device).elements == 0 else 0


def half_of(p: Problem, device: Device) -> Tiling:
    """Plan half."""
    layout, batches, positions, heads, cos_batches, cos_heads = half_layout(p)
    room, unit, size = room_of(p, device), alignment(p.dtype), element_bytes(p.dtype)
    cores, dim = device.vector_cores, p.dim
    cos_elements = p.cos0 * p.cos1 * p.cos2 * dim
    task = positions * dim if layout == BNSD and cos_batches != 1 else cos_elements
    core = align(ceil_div(task, cores), dim)
    used = ceil_div(task, core)
    last_core = task % core if task % core > 0 else core
    of_batches, of_heads = batches // cos_batches, heads // cos_heads
    groups = of_batches * of_heads
    first, second, gap = of_batches, of_heads, cos_batches * positions * heads * dim
    row = of_heads * dim
    if layout == BNSD:
        first, second, gap = groups, 1, cos_batches * cos_heads * positions * dim
    elif layout == SBND:
        first, second, gap, row = 1, groups, 1, groups * dim
    is_row, half_bytes = layout != BNSD, dim // 2 * size
    block_length = ceil_div(dim, unit) if is_row else 1
    stride = ceil_div(row - dim, unit) if is_row else 0
    stride_padded = row * size - half_bytes if is_row else half_bytes
    half = Half(
        layout=layout,
        dy_elements=p.x0 * p.x1 * p.x2 * dim,
        cos_elements=cos_elements,
        batches=batches,
        positions=positions,
        heads=heads,
        columns=dim,
        cos_batches=cos_batches,
        cos_heads=cos_heads,
        half_padded=align(dim // 2, unit),
        core=core,
        last_core=last_core,
        loops=core // room.elements,
        last=core % room.elements,
        last_core_loops=last_core // room.elements,
        last_core_last=last_core % room.elements,
        buffer=room.padded,
        tile=room.elements,
        used_cores=used,
        cores=cores,
        first=first,
        second=second,
        gap=gap,
        block_length=block_length,
        stride=stride,
        block_length_padded=half_bytes,
        stride_padded=stride_padded,
    )
    key = layout + (100 if dim % VECTOR_LANES != 0 else 0) + (0 if p.has_x != 0 else 1000)
    if p.dtype != FP16:
        key += 1 if p.dtype == FP32 else 2
    return Tiling(SUCCESS, key, used, SYSTEM_WORKSPACE_BYTES, half, NO_INTERLEAVED)


def tile_elements(p: Problem, layout: int, device: Device) -> int:
    """Return the elements of dy of the largest interleaved tile."""
    elements = 17 if p.dtype == FP32 else 36
    if layout != 1:
        elements += 1 if p.dtype == FP32 else 2
    return (device.ub_bytes - INTERLEAVE_RESERVED) // (elements * element_bytes(p.dtype))


def positions_of(count: int, line: int, most: int) -> Pieces:
    """Return the positions of a tile of a core that has ``count`` of them."""
    if count * line <= most:
        return (count, min(count, 1), 0)
    return pieces_of(count, most // line) if line <= most else NO_PIECES


def interleaved_of(p: Problem, device: Device) -> Tiling:
    """Plan interleave; all pieces are 0 where not even one head fits, as in the product."""
    layout, batches, positions, heads, _, _ = interleaved_layout(p)
    cores, padded = device.vector_cores, align(p.dim, alignment(p.dtype))
    front = positions % cores if positions % cores > 0 else cores
    tail = 0 if positions < cores else cores - front
    front_positions, tail_positions = ceil_div(positions, cores), positions // cores
    most, line = tile_elements(p, layout, device), batches * heads * padded
    of_heads, of_groups, large = NO_PIECES, NO_PIECES, 0
    if line > most >= padded:
        large = LARGE
        if layout == 0:
            of_heads = pieces_of(heads, most // padded)
        else:
            of_groups = pieces_of(batches * heads, most // padded)
    fields = Interleaved(
        *(batches, positions, heads, p.dim, padded, padded - p.dim),
        *(front, tail, front_positions, tail_positions),
        *positions_of(front_positions, line, most),
        *positions_of(tail_positions, line, most),
        *of_heads,
        *of_groups,
        layout,
    )
    key = 20000 + large + (1000 if p.has_x != 0 else 0)
    if p.dtype != FP16:
        key += 20 if p.dtype == FP32 else 10
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
    dy, cos = tuple(inputs["dy_shape"]), tuple(inputs["cos_shape"])
    x = None if inputs["x_shape"] is None else tuple(inputs["x_shape"])
    if shape_refusal(dy, cos, tuple(inputs["sin_shape"]), x, inputs["mode"]):
        return None
    (x0, x1, x2), (cos0, cos1, cos2) = axes_of(dy, cos)
    mode, dtype = as_32_bits(inputs["mode"]), DTYPE_CODES[inputs["dtype"]]
    return Problem(x0, x1, x2, dy[-1], cos0, cos1, cos2, mode, dtype, int(x is not None))


def fields_of_mode(tiling: Tiling, rules: Any = None) -> dict[str, int | float]:
    """Return the fields of the mode's own structure under the vendor's names."""
    return vendor_fields(tiling.half if tiling.half.cores else tiling.interleaved, rules)


KERNELS = {
    "rotary_position_embedding_grad": raw_planner(
        problem_of, tile, lambda tiling, inputs, rules: fields_of_mode(tiling, rules)
    )
}


def buffers(tiling: Tiling, dtype: int, has_x: bool) -> dict[str, int]:
    """Return the bytes in the Unified Buffer of one core, in the order of allocation.

    Of half the page has the order; of interleave, the sizes.
    """
    if tiling.half.cores:
        return half_buffers(tiling.half, dtype, has_x)
    return interleaved_buffers(tiling.interleaved, dtype, has_x)


def half_buffers(half: Half, dtype: int, has_x: bool) -> dict[str, int]:
    """Return the buffers of half."""
    size, wide = element_bytes(dtype) * half.buffer, FP32_BYTES * half.buffer
    found = dict.fromkeys(("dy", "cos", "sin", "dx"), size)
    found |= dict.fromkeys(("a", "b", "c"), wide)
    if has_x:
        found |= dict.fromkeys(("x", "dcos", "dsin"), size)
        found |= dict.fromkeys(("dcos_fp32", "dsin_fp32"), wide)
    if dtype != FP32:
        found |= dict.fromkeys(("dy_fp32", "cos_fp32", "sin_fp32", "sum_fp32"), wide)
    return found


def interleaved_buffers(fields: Interleaved, dtype: int, has_x: bool) -> dict[str, int]:
    """Return the buffers of interleave (page, "Interleave", "UB")."""
    size, line = element_bytes(dtype), fields.batches * fields.heads * fields.padded
    most = fields.head_number + fields.group_number
    is_large = most > 0
    length = most * fields.padded if is_large else fields.front_number * line
    row = fields.padded if is_large else fields.front_number * fields.padded
    sums, rows = 2 * size * row, 2 * FP32_BYTES * row
    found = dict.fromkeys(("dy", "x", "dx"), 2 * size * length)
    found["cos_sin"] = 2 * 2 * size * length
    found["dcos_dsin"] = 2 * (2 * sums if is_large and dtype != FP32 else sums)
    found |= {"signs": 32, "offsets": 32}
    wide = FP32_BYTES * length
    names = ["gather", "work", "product"]
    if dtype != FP32:
        names += ["dy_fp32", "x_fp32", "dx_fp32"]
        found |= {"cos_sin_fp32": 2 * wide, "dcos_dsin_fp32": rows}
        if is_large:
            found["sum_fp32"] = FP32_BYTES * row
    found |= dict.fromkeys(names, wide)
    return found | ({} if fields.layout == 1 else {"reduced": wide})


FIELD_RUNS = (
    FieldRun("uint64_t", fields_of(Half).names),
    FieldRun("uint64_t", fields_of(Interleaved).names, "interleaved"),
)
"""Tiling structure as bytes; the order within is a model (page, "Tiling bytes")."""
STRUCTURES = (Structure("RotaryPositionEmbeddingGrad", "8.5", FIELD_RUNS),)
