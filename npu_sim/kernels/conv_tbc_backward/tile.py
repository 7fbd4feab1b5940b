"""ConvTbcBackward: the register tile, its packed operands, outer products, and gradBias.

A register tile is a small matrix product held in vector registers: ``TILE_ROWS`` x
``TILE_COLUMNS`` accumulators in fp32.

Order of accumulation: the reduction is divided into *blocks* of C0 channels (gradInput) or
TIME_BLOCK time steps (gradWeight). The products of a block are summed from 0, in one chain of fused
multiply-adds in ascending order. The sum is then added to the accumulator once, as a cube unit adds
the product of two blocks to L0C. So the bits depend neither on the size of the tile nor on the
processor nor on the number of threads. The specification leaves the order inside a block open.

Precision: the accumulator is rounded once per block, not once per product. The RMSE against float64
of fp32 gradients of standard normal data, relative to one chain of fused multiply-adds over all
products, is 0.38 (gradInput, median of 24 random shapes, 0.36 to 0.46) and 0.28 (gradWeight, 10
shapes, 0.27 to 0.33).

The compiled versions emit LLVM vector instructions. Without ``fastmath`` a compiler may not fuse
multiplications and additions by itself, and LLVM's vectoriser does not turn a loop into one that
holds 28 vectors in registers.

Operands are rounded to the compute dtype while they are packed, so no rounded copy of a tensor is
held.

gradBias is the sum of grad (the product's argument ``self``) over time and batch, in its dtype.
Order of accumulation: fp32, rows in groups of ROWS, added in order within a group, then the groups
in order; rounded once. Where several cores reduce the rows (Atlas training series, fp32), each core
adds its sum to the zeroed output atomically, in any order.

Slow reference with the order of additions: ``tests/reference/conv_tbc_backward.py``.

Sources: specification pages ``conv_tbc_backward``, "Execution", and ``numerics``.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numpy.typing import NDArray

from npu_sim.kernels.engine.compile import device_function, kernel, thread_scratch, threads_for
from npu_sim.kernels.shared.arrival_orders import SEQUENTIAL, arrivals
from npu_sim.kernels.shared.elementwise import narrow_array, widen_array
from npu_sim.kernels.vectors.lanes import (
    FLOAT,
    I64,
    Floats,
    Integers,
    Stored,
    always,
    element_address,
    emit_fma,
    fused_multiply_add,
    instruction,
    load_vector,
    require_elements,
    splat_numbers,
)
from npu_sim.kernels.vectors.row_sums import clear
from npu_sim.numbers.formats import FORMAT_OF_STORAGE
from npu_sim.numbers.scalars import (
    fp16_to_fp32,
    fp32_to_fp16,
    fp32_to_hf32,
    has_features,
    is_arm,
    widen,
)


class Walk(NamedTuple):
    """Blocks of the reduction, in order, and their distances in both operands.

    There are ``outer`` x ``inner`` blocks of ``length`` steps. ``a_outer``, ``b_outer`` and
    ``a_inner`` are the distances, in elements, of successive blocks in the first and second
    operand. Inner blocks are contiguous in the second operand.
    """

    outer: int
    a_outer: int
    b_outer: int
    inner: int
    a_inner: int
    length: int


Multiply = Callable[[Floats, int, Floats, int, Floats, int, Walk], None]


class RegisterTile(NamedTuple):
    """Shape of a tile: rows, vectors per row, and fp32 lanes per vector."""

    rows: int
    vectors: int
    lanes: int
    keeps_accumulators: bool = False
    """Whether the accumulators stay in registers from block to block, beside the sums of a block.
    In memory their additions wait for stores, which costs a quarter of the time of blocks of 8."""


def register_tile() -> RegisterTile:
    """Return the largest tile that fits the vector registers of the processor.

    Besides rows x vectors sums, and as many accumulators if they are kept, registers hold one row
    of the second operand and one element of the first.
    """
    if has_features("avx512f"):
        return RegisterTile(7, 2, 16, keeps_accumulators=True)  # 2 * 14 + 2 + 1 of 32
    if has_features("avx2", "fma"):
        return RegisterTile(6, 2, 8)  # 12 + 2 + 1 of 16
    if is_arm():
        return RegisterTile(8, 3, 4)  # 24 + 3 + 1 of 32
    return RegisterTile(4, 2, 4)  # without FMA instructions, llvm.fma calls fmaf


TILE = register_tile()
TILE_ROWS = TILE.rows
TILE_COLUMNS = TILE.vectors * TILE.lanes
TILE_SIZE = TILE_ROWS * TILE_COLUMNS
PANELS = 16
"""Tiles per block of columns."""
PACKED_STEPS = 256
"""Steps of the reduction that are packed at a time: a panel of the second operand then fits the L1
cache."""
CHANNEL_BLOCKS = (8, 16)
"""Values of C0: fp32 and hf32, 16-bit dtypes."""
TIME_BLOCK = 16
"""Time steps whose products are summed before they are added to the accumulator of gradWeight. It
is a multiple of C0 for every dtype, and divides every base_k of the published planner."""
ROW_CHANNELS = 128
"""Maximum output channels in a packed row of grad."""
ROW_STRIDE = ROW_CHANNELS + 16
"""Distance of packed rows: an odd number of cache lines, so that rows map to different cache
sets."""


def _reference(rows: int, row_stride: int, step_stride: int) -> Multiply:
    """Return the definition of `_tile_product` in NumPy, which `_emit_product` implements."""

    def multiply(
        a: Floats, a_start: int, b: Floats, b_start: int, c: Floats, c_start: int, walk: Walk
    ) -> None:
        tile = c[c_start : c_start + rows * TILE_COLUMNS].reshape(rows, TILE_COLUMNS)
        for outer in range(walk.outer):
            for inner in range(walk.inner):
                a_block = a_start + outer * walk.a_outer + inner * walk.a_inner
                b_block = b_start + outer * walk.b_outer + inner * walk.length * TILE_COLUMNS
                sums = np.zeros_like(tile)
                for step in range(walk.length):
                    left = a[a_block + row_stride * np.arange(rows) + step * step_stride]
                    right = b[b_block + step * TILE_COLUMNS :][:TILE_COLUMNS]
                    sums = fused_multiply_add(left[:, None], right[None, :], sums)
                tile += sums

    return multiply


class _Tile:
    """Emits the LLVM instructions of a tile product."""

    def __init__(
        self,
        builder: ir.IRBuilder,
        rows: int,
        row_stride: int,
        step_stride: int,
        lengths: tuple[int, ...],
    ) -> None:
        self.builder, self.rows, self.lengths = builder, rows, lengths
        self.row_stride, self.step_stride = row_stride, step_stride

    def load(self, base: ir.Value, offset: int) -> ir.Value:
        address = self.builder.gep(base, [I64(offset)])
        return load_vector(self.builder, address, FLOAT, TILE.lanes, 4)

    def step(
        self, a: ir.Value, b: ir.Value, number: ir.Value, sums: list[ir.Value] | None = None
    ) -> Iterator[ir.Value]:
        """Yield ``sums`` plus the products of one step, vector by vector; else the products."""
        builder, vectors = self.builder, TILE.vectors
        a, b = (
            builder.gep(base, [builder.mul(number, I64(stride))])
            for base, stride in ((a, self.step_stride), (b, TILE_COLUMNS))
        )
        right = [self.load(b, position * TILE.lanes) for position in range(vectors)]
        for row in range(self.rows):
            element = builder.load(builder.gep(a, [I64(row * self.row_stride)]))
            splat = splat_numbers(builder, element, TILE.lanes)
            for position in range(vectors):
                if sums is None:
                    yield builder.fmul(splat, right[position])
                else:
                    addend = sums[row * vectors + position]
                    yield emit_fma(builder, [splat, right[position], addend])

    def add_to(self, accumulators: list[ir.Value], sums: Iterable[ir.Value]) -> None:
        """Add sums to the accumulators, each as soon as it is computed."""
        if not TILE.keeps_accumulators:
            # The fence keeps the accumulators in memory; in registers they would spill the sums.
            self.builder.fence("acq_rel", "singlethread")
        for variable, value in zip(accumulators, sums, strict=True):
            total = self.builder.fadd(self.builder.load(variable, align=4), value)
            self.builder.store(total, variable, align=4)

    def straight(self, a: ir.Value, b: ir.Value, c: list[ir.Value], length: int) -> None:
        """Add a block of known length, without branches between steps."""
        # The chain starts with the first product instead of 0 plus the product. They differ only in
        # the sign of a zero, which the addition to the accumulator removes.
        sums = list(self.step(a, b, I64(0)))
        for number in range(1, length - 1):
            sums = list(self.step(a, b, I64(number), sums))
        self.add_to(c, self.step(a, b, I64(length - 1), sums))

    def looped(self, a: ir.Value, b: ir.Value, c: list[ir.Value], length: ir.Value) -> None:
        """Add a block of any length."""
        # LLVM promotes these stack variables to registers.
        zero = ir.Constant(ir.VectorType(FLOAT, TILE.lanes), [0.0] * TILE.lanes)
        sums = [
            cgutils.alloca_once_value(self.builder, zero) for _ in range(self.rows * TILE.vectors)
        ]
        for variable in sums:
            self.builder.store(zero, variable)
        with cgutils.for_range(self.builder, length, intp=I64) as loop:
            before = [self.builder.load(variable) for variable in sums]
            after = list(self.step(a, b, loop.index, before))
            for value, variable in zip(after, sums, strict=True):
                self.builder.store(value, variable)
        self.add_to(c, [self.builder.load(variable) for variable in sums])

    def block(self, a: ir.Value, b: ir.Value, c: list[ir.Value], length: ir.Value) -> None:
        """Add a block; lengths in ``self.lengths`` have straight-line code."""
        builder, done = self.builder, self.builder.append_basic_block("done")
        for known in self.lengths:
            with builder.if_then(builder.icmp_signed("==", length, I64(known))):
                self.straight(a, b, c, known)
                builder.branch(done)
        self.looped(a, b, c, length)
        builder.branch(done)
        builder.position_at_end(done)


def _reaches(
    builder: ir.IRBuilder, walk: Walk, rows: int, row_stride: int, step_stride: int
) -> Iterator[ir.Value]:
    """Emit the number of elements a walk reads of each operand."""
    last_outer, last_inner, last_step = (
        builder.sub(size, I64(1)) for size in (walk.outer, walk.inner, walk.length)
    )
    a_blocks = builder.add(
        builder.mul(last_outer, walk.a_outer), builder.mul(last_inner, walk.a_inner)
    )
    a = builder.add(
        a_blocks,
        builder.add(builder.mul(last_step, I64(step_stride)), I64((rows - 1) * row_stride + 1)),
    )
    b = builder.add(
        builder.mul(last_outer, walk.b_outer),
        builder.mul(builder.mul(walk.inner, walk.length), I64(TILE_COLUMNS)),
    )
    is_empty = builder.icmp_signed(
        "<", builder.or_(builder.or_(last_outer, last_inner), last_step), I64(0)
    )
    for reach in (a, b):
        yield builder.select(is_empty, I64(0), reach)


def _emit_product(
    rows: int,
    row_stride: int,
    step_stride: int,
    lengths: tuple[int, ...],
    context: Any,
    builder: ir.IRBuilder,
    kinds: Any,
    *arguments: Any,
) -> None:
    """Emit the instructions of `_tile_product`."""
    arrays = [
        context.make_array(kinds[at])(context, builder, arguments[at]).data for at in (0, 2, 4)
    ]
    a, b, c = (
        builder.gep(data, [arguments[at + 1]]) for data, at in zip(arrays, (0, 2, 4), strict=True)
    )
    walk = Walk(*cgutils.unpack_tuple(builder, arguments[6]))
    reaches = (*_reaches(builder, walk, rows, row_stride, step_stride), I64(rows * TILE_COLUMNS))
    for at, reach in zip((0, 2, 4), reaches, strict=True):
        require_elements(context, builder, kinds[at], reach, *arguments[at : at + 2])
    tile = _Tile(builder, rows, row_stride, step_stride, lengths)
    vector = ir.VectorType(FLOAT, TILE.lanes).as_pointer()
    in_memory = [
        builder.bitcast(builder.gep(c, [I64(position * TILE.lanes)]), vector)
        for position in range(rows * TILE.vectors)
    ]
    accumulators = in_memory
    if TILE.keeps_accumulators:
        # LLVM promotes these stack variables to registers.
        accumulators = [
            cgutils.alloca_once_value(builder, builder.load(place, align=4)) for place in in_memory
        ]
    block_size = builder.mul(walk.length, I64(TILE_COLUMNS))
    with cgutils.for_range(builder, walk.outer, intp=I64) as outer:
        a_outer = builder.gep(a, [builder.mul(outer.index, walk.a_outer)])
        b_outer = builder.gep(b, [builder.mul(outer.index, walk.b_outer)])
        with cgutils.for_range(builder, walk.inner, intp=I64) as inner:
            a_block = builder.gep(a_outer, [builder.mul(inner.index, walk.a_inner)])
            b_block = builder.gep(b_outer, [builder.mul(inner.index, block_size)])
            tile.block(a_block, b_block, accumulators, walk.length)
    if TILE.keeps_accumulators:
        for place, variable in zip(in_memory, accumulators, strict=True):
            builder.store(builder.load(variable), place, align=4)


def _tile_product(
    rows: int, row_stride: int, step_stride: int, lengths: tuple[int, ...]
) -> Multiply:
    """Return the function ``multiply(a, a_start, b, b_start, c, c_start, walk)``.

    It adds to the tile at ``c[c_start:]``, rows x TILE_COLUMNS without gaps, block after block, the
    sum of the products of ``a[a_start + block + row * row_stride + step * step_stride]`` and
    ``b[b_start + block + step * TILE_COLUMNS + column]``. Blocks of ``lengths`` have straight-line
    code.
    """
    emit = partial(_emit_product, rows, row_stride, step_stride, lengths)
    return instruction(always(types.void), emit)(_reference(rows, row_stride, step_stride))


multiply_rows = _tile_product(TILE_ROWS, ROW_STRIDE, 1, CHANNEL_BLOCKS)
"""gradInput: rows of grad; the reduction runs along the channels of a row."""
multiply_row = _tile_product(1, ROW_STRIDE, 1, CHANNEL_BLOCKS)
"""gradInput: a single row."""
multiply_channels = _tile_product(TILE_ROWS, 1, TILE_ROWS, (TIME_BLOCK,))
"""gradWeight: neighbouring channels of the input; the reduction runs along time."""


# --- Work queue ---


def _take(context: Any, builder: ir.IRBuilder, kinds: Any, queue: Any) -> ir.Value:
    first = element_address(context, builder, kinds[0], 1, queue, I64(0))
    return builder.atomic_rmw("add", first, I64(1), "monotonic")


@instruction(always(types.int64), _take)
def take(queue: NDArray[np.int64]) -> int:
    """Return ``queue[0]``, the number of the next block, and increment it atomically."""
    queue[0] += 1
    return int(queue[0]) - 1


SAMPLE, START, STOP = 0, 1, 2
"""Columns of a list of visits: sample, and half-open range of output time."""


EXACT = 0
"""No rounding: every value of the operand is exact in the compute dtype."""
TO_HF32 = 1
TO_FP16 = 2
TO_FP16_SATURATED = 3
"""Like TO_FP16, then inf becomes 65504 with its sign and nan becomes 0 (page ``numerics``,
"Overflow")."""

CHANNEL_BLOCK_BYTES = 32
"""Bytes of a block of the cube's layout: C0 channels, 16 in fp16 and 8 in fp32."""
FP16_LARGEST = np.float32(65504)
PIECE = 16
"""Rows of time that a thread packs at a time."""


@device_function
def round_row(source: Stored, target: Floats, rounding: int) -> None:
    """Write a row of stored values as float32, rounded to the compute dtype.

    Parameters
    ----------
    source, target : (C,), (at least C,)
        The rest of ``target`` is left as it is.
    rounding : int
        EXACT, TO_HF32, TO_FP16 or TO_FP16_SATURATED; the caller checks it.
    """
    if rounding == EXACT:
        for index in range(source.size):
            target[index] = widen(source[index])
    elif rounding == TO_HF32:
        for index in range(source.size):
            target[index] = fp32_to_hf32(widen(source[index]))
    elif rounding == TO_FP16:
        for index in range(source.size):
            target[index] = fp16_to_fp32(fp32_to_fp16(widen(source[index])))
    else:
        for index in range(source.size):
            value = fp16_to_fp32(fp32_to_fp16(widen(source[index])))
            if not value <= FP16_LARGEST:  # inf, or nan, which compares false
                value = FP16_LARGEST if value > FP16_LARGEST else np.float32(0)
            target[index] = value if value >= -FP16_LARGEST else -FP16_LARGEST


def channel_block(operand: Stored, rounding: int) -> int:
    """Return C0, the channels per 32-byte block, of the dtype an operand is rounded to."""
    is_fp16 = rounding in (TO_FP16, TO_FP16_SATURATED)
    return CHANNEL_BLOCK_BYTES // (2 if is_fp16 else operand.dtype.itemsize)


class Packing(NamedTuple):
    """Layout of packed operands.

    A visit (see `weight`) is one sample on the time steps START..STOP. Its packed row r holds time
    ``START - shift + r``; the last one is before ``STOP - shift + halo``.
    """

    halo: int
    """Time steps packed in addition to those of the visit."""
    shift: int
    """Time steps by which the first packed row precedes START: the padding."""
    width: int
    """Channels of a tile."""
    rounding: int
    """EXACT, TO_HF32, TO_FP16 or TO_FP16_SATURATED."""


@kernel
def _pack_pieces(
    thread: int, values: Stored, visits: Integers, packing: Packing, rows: Floats, packed: Floats
) -> None:
    """Pack every len(rows)-th piece of PIECE rows of time, of all visits; ``rows`` is scratch."""
    width, channels = packing.width, values.shape[2]
    row = rows[thread]
    clear(row)
    for begin in range(thread * PIECE, len(values), len(rows) * PIECE):
        for number in range(len(visits)):
            first = visits[number, START] - packing.shift
            visit_stop = visits[number, STOP] - packing.shift + packing.halo
            for time in range(max(first, begin), min(visit_stop, begin + PIECE, len(values))):
                round_row(values[time, visits[number, SAMPLE]], row[:channels], packing.rounding)
                for tile in range(packed.shape[1]):
                    for column in range(width):
                        value = row[tile * width + column]
                        packed[number, tile, time - first, column] = value


def pack_tiles(values: Stored, visits: Integers, packing: Packing, packed: Floats) -> None:
    """Round the rows of each visit's sample and arrange them in tiles of ``width`` channels.

    Parameters
    ----------
    values : (time, B, C)
        As stored.
    visits : int64 (visits, 3)
        Columns SAMPLE, START and STOP.
    packing : Packing
        Layout.
    packed : float32 (visits, tiles, rows, stride)
        Stride is at least ``width``. Rows whose time is outside ``values`` and columns beyond
        ``width`` are not written.
    """
    threads = threads_for(values.nbytes)
    rows = thread_scratch(threads, packed.shape[1] * packing.width)
    _pack_pieces.over(threads, values, visits, packing, rows, packed)


# --- Outer products: the vendor runs its plain Mul for them, on the vector unit ---

PRODUCTS_AT_A_TIME = 1 << 20
"""Elements of an outer product computed at a time; limits the memory for them in fp32."""


def multiply_elements(rows: Stored, columns: Stored, rounding: int, out: Stored) -> None:
    """Compute the outer product out[r, c] = rows[r] * columns[c].

    Parameters
    ----------
    rows, columns, out : (R,), (C,), (R, C)
        As stored: float32, int16 (fp16 bits) or uint16 (bf16 bits).
    rounding : int
        With TO_FP16 and TO_FP16_SATURATED, operands and products are rounded to fp16; then the
        result is rounded once more, to the dtype of ``out``. Other codes multiply in fp32 and round
        once, to the dtype of ``out``: the vector unit has no hf32.
    """
    row_values, column_values = (
        _rounded(widen_array(operand), rounding) for operand in (rows, columns)
    )
    step = max(PRODUCTS_AT_A_TIME // max(column_values.size, 1), 1)
    for first in range(0, row_values.size, step):
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            products = np.multiply.outer(row_values[first : first + step], column_values)
        target = out[first : first + step]
        narrow_array(_rounded(products, rounding), FORMAT_OF_STORAGE[out.dtype], out=target)


def _rounded(values: np.ndarray, rounding: int) -> np.ndarray:
    if rounding not in (TO_FP16, TO_FP16_SATURATED):
        return values
    return widen_array(narrow_array(values, "float16", saturate=rounding == TO_FP16_SATURATED))


ROWS = 256
"""Rows of a group (evidence: model)."""


@kernel
def _add_group(group: int, grad: Stored, groups: Floats) -> None:
    """Add the rows of one group."""
    sums = groups[group]
    clear(sums)
    for number in range(group * ROWS, min((group + 1) * ROWS, len(grad))):
        row = grad[number]
        for column in range(row.size):
            sums[column] = sums[column] + widen(row[column])


def core_sums(grad: Stored, core_rows: int) -> Floats:
    """Return each core's sum (cores, Cout) of ``core_rows`` rows of grad (To, B, Cout)."""
    rows = grad.reshape(-1, grad.shape[2])
    sums = np.empty((-(-len(rows) // core_rows), rows.shape[1]), np.float32)
    for core, total in enumerate(sums):
        rows_of_core = rows[core * core_rows : (core + 1) * core_rows]
        groups = np.empty((-(-len(rows_of_core) // ROWS), rows.shape[1]), np.float32)
        _add_group.over(len(groups), rows_of_core, groups)
        _add_in_order(groups, total)
    return sums


def _add_in_order(parts: Floats, total: Floats) -> None:
    # Few rows are left, so NumPy is fast enough; it adds them in this order.
    total[...] = parts[0]
    with np.errstate(over="ignore", invalid="ignore"):
        for part in parts[1:]:
            np.add(total, part, out=total)


def grad_bias(
    grad: Stored, out: Stored, core_rows: int = 0, core_order: int = SEQUENTIAL, seed: int = 0
) -> None:
    """Sum grad over its first two axes: in fp32, rounded once.

    Parameters
    ----------
    grad, out : (To, B, Cout), (Cout,)
        As stored: float32, int16 (fp16 bits) or uint16 (bf16 bits), both the same. ``grad``, the
        product's argument ``self``, is C-contiguous; no axis is empty.
    core_rows : int
        Rows (time and batch) of each core; 0 if one core adds all.
    core_order, seed : int
        Code and seed of the order in which the sums of the cores arrive.
    """
    sums = core_sums(grad, core_rows or grad.shape[0] * grad.shape[1])
    total = sums[0]
    if len(sums) > 1:
        order = arrivals(np.ones(len(sums), np.int64), core_order, seed, 1)[0]
        total = np.empty(sums.shape[1], np.float32)
        _add_in_order(sums[order], total)
    narrow_array(total, FORMAT_OF_STORAGE[out.dtype], out=out)
