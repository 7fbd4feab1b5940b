"""ConvTbcBackward: the register tile.

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
holds the tile in registers.

Slow reference with the order of additions: ``tests/reference/conv_tbc_backward.py``.

Source: specification page ``conv_tbc_backward``, "Execution".
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from npu_sim.kernels.vectors.lanes import (
    FLOAT,
    I64,
    Floats,
    always,
    emit_intrinsic,
    fused_multiply_add,
    instruction,
    load_vector,
    require_elements,
    splat_numbers,
)
from npu_sim.numbers.scalars import has_features, is_arm


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


class Form(NamedTuple):
    """What is known of a tile product when its code is emitted.

    ``row_stride`` and ``step_stride`` are the distances, in elements, of rows and of steps in the
    first operand. Blocks of ``lengths`` have straight-line code.
    """

    rows: int
    row_stride: int
    step_stride: int
    lengths: tuple[int, ...]


def _reference(form: Form) -> Multiply:
    """Return the definition of `_tile_product` in NumPy, which `_emit_product` implements."""

    def multiply(
        a: Floats, a_start: int, b: Floats, b_start: int, c: Floats, c_start: int, walk: Walk
    ) -> None:
        tile = c[c_start : c_start + form.rows * TILE_COLUMNS].reshape(-1, TILE_COLUMNS)
        row_starts = form.row_stride * np.arange(form.rows)
        for outer in range(walk.outer):
            for inner in range(walk.inner):
                a_block = a_start + outer * walk.a_outer + inner * walk.a_inner
                b_block = b_start + outer * walk.b_outer + inner * walk.length * TILE_COLUMNS
                sums = np.zeros_like(tile)
                for step in range(walk.length):
                    left = a[a_block + row_starts + step * form.step_stride]
                    right = b[b_block + step * TILE_COLUMNS :][:TILE_COLUMNS]
                    sums = fused_multiply_add(left[:, None], right[None, :], sums)
                tile += sums

    return multiply


class _Tile:
    """Emits the LLVM instructions of a tile product."""

    def __init__(self, builder: ir.IRBuilder, form: Form) -> None:
        self.builder, self.form = builder, form

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
            for base, stride in ((a, self.form.step_stride), (b, TILE_COLUMNS))
        )
        right = [self.load(b, position * TILE.lanes) for position in range(vectors)]
        for row in range(self.form.rows):
            element = builder.load(builder.gep(a, [I64(row * self.form.row_stride)]))
            splat = splat_numbers(builder, element, TILE.lanes)
            for position in range(vectors):
                if sums is None:
                    yield builder.fmul(splat, right[position])
                else:
                    addend = sums[row * vectors + position]
                    yield emit_intrinsic(builder, "fma", splat, right[position], addend)

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
            cgutils.alloca_once_value(self.builder, zero)
            for _ in range(self.form.rows * TILE.vectors)
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
        """Add a block; those of known length have straight-line code."""
        builder, done = self.builder, self.builder.append_basic_block("done")
        for known in self.form.lengths:
            with builder.if_then(builder.icmp_signed("==", length, I64(known))):
                self.straight(a, b, c, known)
                builder.branch(done)
        self.looped(a, b, c, length)
        builder.branch(done)
        builder.position_at_end(done)


def _reaches(builder: ir.IRBuilder, walk: Walk, form: Form) -> Iterator[ir.Value]:
    """Emit the number of elements a walk reads of each operand."""
    last_outer, last_inner, last_step = (
        builder.sub(size, I64(1)) for size in (walk.outer, walk.inner, walk.length)
    )
    a_blocks = builder.add(
        builder.mul(last_outer, walk.a_outer), builder.mul(last_inner, walk.a_inner)
    )
    a = builder.add(
        a_blocks,
        builder.add(
            builder.mul(last_step, I64(form.step_stride)),
            I64((form.rows - 1) * form.row_stride + 1),
        ),
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
    form: Form, context: Any, builder: ir.IRBuilder, kinds: Any, *arguments: Any
) -> None:
    """Emit the instructions of `_tile_product`."""
    arrays = [
        context.make_array(kinds[at])(context, builder, arguments[at]).data for at in (0, 2, 4)
    ]
    a, b, c = (
        builder.gep(data, [arguments[at + 1]]) for data, at in zip(arrays, (0, 2, 4), strict=True)
    )
    walk = Walk(*cgutils.unpack_tuple(builder, arguments[6]))
    reaches = (*_reaches(builder, walk, form), I64(form.rows * TILE_COLUMNS))
    for at, reach in zip((0, 2, 4), reaches, strict=True):
        require_elements(context, builder, kinds[at], reach, *arguments[at : at + 2])
    tile = _Tile(builder, form)
    vector = ir.VectorType(FLOAT, TILE.lanes).as_pointer()
    in_memory = [
        builder.bitcast(builder.gep(c, [I64(position * TILE.lanes)]), vector)
        for position in range(form.rows * TILE.vectors)
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


def _tile_product(form: Form) -> Multiply:
    """Return the function ``multiply(a, a_start, b, b_start, c, c_start, walk)``.

    It adds to the tile at ``c[c_start:]``, rows x TILE_COLUMNS without gaps, block after block, the
    sum of the products of ``a[a_start + block + row * row_stride + step * step_stride]`` and
    ``b[b_start + block + step * TILE_COLUMNS + column]``.
    """
    return instruction(always(types.void), partial(_emit_product, form))(_reference(form))


multiply_rows = _tile_product(Form(TILE_ROWS, ROW_STRIDE, 1, CHANNEL_BLOCKS))
"""gradInput: rows of grad; the reduction runs along the channels of a row."""
multiply_row = _tile_product(Form(1, ROW_STRIDE, 1, CHANNEL_BLOCKS))
"""gradInput: a single row."""
multiply_channels = _tile_product(Form(TILE_ROWS, 1, TILE_ROWS, (TIME_BLOCK,)))
"""gradWeight: neighbouring channels of the input; the reduction runs along time."""
