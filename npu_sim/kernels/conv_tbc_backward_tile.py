"""ConvTbcBackward: the register tile, a small matrix product that stays in vector registers.

A tile is ``TILE_ROWS`` x ``TILE_COLUMNS`` sums. Every sum is one chain of fused multiply-adds over the reduction, in
ascending order, so its bits depend neither on the size of the tile nor on the processor nor on the number of threads.
The page leaves the order inside a block open; a fused multiply-add is what a BLAS uses there too.

The compiled twins are written as LLVM vectors: a compiler may not fuse a multiplication and an addition by itself
without ``fastmath``, and a loop that keeps 28 vectors in registers is not what its vectoriser makes.
"""

import platform
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from llvmlite import binding, ir
from numba import types
from numba.core import config
from numba.extending import intrinsic, overload
from numpy.typing import NDArray

from npu_sim.kernels.vectors.fused import fused_multiply_add

Floats = NDArray[np.float32]
Multiply = Callable[[Floats, int, Floats, int, Floats, int, int], None]


class RegisterTile(NamedTuple):
    """Rows, vectors in a row, and fp32 lanes of a vector."""

    rows: int
    vectors: int
    lanes: int


def register_tile() -> RegisterTile:
    """Return the tile that fills the vector registers of the processor the code is compiled for.

    Rows times vectors are accumulators; one row of the second operand and one element of the first need registers too.
    """
    features = config.CPU_FEATURES
    if features is None:
        features = binding.get_host_cpu_features().flatten()
    known = set(features.split(","))
    if "+avx512f" in known:
        return RegisterTile(14, 2, 16)  # 28 + 2 + 1 of 32
    if {"+avx2", "+fma"} <= known:
        return RegisterTile(6, 2, 8)  # 12 + 2 + 1 of 16
    if platform.machine().lower() in ("aarch64", "arm64"):
        return RegisterTile(8, 3, 4)  # 24 + 3 + 1 of 32
    return RegisterTile(4, 2, 4)  # no fused instruction either: llvm.fma calls the C library's fmaf


TILE = register_tile()
TILE_ROWS = TILE.rows
TILE_COLUMNS = TILE.vectors * TILE.lanes
TILE_SIZE = TILE_ROWS * TILE_COLUMNS
PANELS = 16
"""Tiles side by side in one block of rows."""
CHUNK = 256
"""Length of the reduction that lies packed at a time: a panel of the second operand then fits the first-level cache."""
CHUNK_STRIDE = CHUNK + 16
"""Distance of the rows of a packed chunk; not a power of two, so that rows do not compete for the same cache sets."""
TILE_STRIDE = -(-TILE_ROWS // 16) * 16
"""Distance of the time steps of a packed tile of input: whole cache lines."""


def _definition(rows: int, row_stride: int, step_stride: int) -> Multiply:
    def multiply(a: Floats, a_start: int, b: Floats, b_start: int, c: Floats, c_start: int, length: int) -> None:
        tile = c[c_start : c_start + rows * TILE_COLUMNS].reshape(rows, TILE_COLUMNS)
        first = a_start + row_stride * np.arange(rows)
        for step in range(length):
            left = a[first + step * step_stride]
            right = b[b_start + step * TILE_COLUMNS :][:TILE_COLUMNS]
            tile[...] = fused_multiply_add(left[:, None], right[None, :], tile)

    return multiply


def _emitted(rows: int, row_stride: int, step_stride: int) -> Any:
    """Return the intrinsic: load the tile, run over the reduction with the tile in registers, store it."""
    lanes, vectors, columns = TILE.lanes, TILE.vectors, TILE_COLUMNS
    word, single = ir.IntType(64), ir.FloatType()
    vector = ir.VectorType(single, lanes)
    undefined = ir.Constant(vector, ir.Undefined)
    splat_mask = ir.Constant(ir.VectorType(ir.IntType(32), lanes), None)

    def vector_at(builder: ir.IRBuilder, base: ir.Value, offset: int) -> ir.Value:
        return builder.bitcast(builder.gep(base, [word(offset)]), vector.as_pointer())

    def load(builder: ir.IRBuilder, base: ir.Value, offset: int) -> ir.Value:
        loaded = builder.load(vector_at(builder, base, offset))
        loaded.align = 4
        return loaded

    def step(builder: ir.IRBuilder, fma: ir.Function, a: ir.Value, b: ir.Value, sums: list[ir.Value]) -> list[ir.Value]:
        right = [load(builder, b, one * lanes) for one in range(vectors)]
        result = []
        for row in range(rows):
            element = builder.load(builder.gep(a, [word(row * row_stride)]))
            splat = builder.shuffle_vector(builder.insert_element(undefined, element, ir.IntType(32)(0)), undefined, splat_mask)
            result += [builder.call(fma, [splat, right[one], sums[row * vectors + one]]) for one in range(vectors)]
        return result

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        a, b, c = (
            builder.gep(context.make_array(signature.args[at])(context, builder, arguments[at]).data, [arguments[at + 1]])
            for at in (0, 2, 4)
        )
        length = arguments[6]
        name = f"llvm.fma.v{lanes}f32"
        fma = builder.module.globals.get(name) or ir.Function(builder.module, ir.FunctionType(vector, [vector] * 3), name)
        before = [load(builder, c, row * columns + one * lanes) for row in range(rows) for one in range(vectors)]
        head, body, done = builder.block, builder.append_basic_block("steps"), builder.append_basic_block("done")
        builder.cbranch(builder.icmp_signed(">", length, word(0)), body, done)
        builder.position_at_end(body)
        count = builder.phi(word)
        sums = [builder.phi(vector) for _ in before]
        a_step = builder.gep(a, [builder.mul(count, word(step_stride))])
        b_step = builder.gep(b, [builder.mul(count, word(columns))])
        after = step(builder, fma, a_step, b_step, sums)
        following = builder.add(count, word(1))
        for phi, first, further in zip([count, *sums], [word(0), *before], [following, *after], strict=True):
            phi.add_incoming(first, head)
            phi.add_incoming(further, body)
        builder.cbranch(builder.icmp_signed("<", following, length), body, done)
        builder.position_at_end(done)
        results = [builder.phi(vector) for _ in before]
        for phi, untouched, summed in zip(results, before, after, strict=True):
            phi.add_incoming(untouched, head)
            phi.add_incoming(summed, body)
        for place, value in enumerate(results):
            stored = builder.store(value, vector_at(builder, c, place * lanes))
            stored.align = 4
        return context.get_dummy_value()

    def multiply(typing_context, a, a_start, b, b_start, c, c_start, length):  # type: ignore[no-untyped-def]
        return types.void(a, types.intp, b, types.intp, c, types.intp, types.intp), generate

    return intrinsic(multiply)


def _tile_product(rows: int, row_stride: int, step_stride: int) -> Multiply:
    """Make ``multiply(a, a_start, b, b_start, c, c_start, length)``.

    It adds to the tile at ``c[c_start:]``, rows x TILE_COLUMNS without gaps, the products over ``length`` steps of
    ``a[a_start + row * row_stride + step * step_stride]`` and ``b[b_start + step * TILE_COLUMNS + column]``.
    """
    definition, emitted = _definition(rows, row_stride, step_stride), _emitted(rows, row_stride, step_stride)

    @overload(definition)
    def choose(a, a_start, b, b_start, c, c_start, length):  # type: ignore[no-untyped-def]
        return lambda a, a_start, b, b_start, c, c_start, length: emitted(a, a_start, b, b_start, c, c_start, length)

    return definition


multiply_rows = _tile_product(TILE_ROWS, CHUNK_STRIDE, 1)
"""gradInput: rows of self, the reduction runs along the channels of a row."""
multiply_row = _tile_product(1, CHUNK_STRIDE, 1)
"""gradInput: a single row."""
multiply_channels = _tile_product(TILE_ROWS, 1, TILE_STRIDE)
"""gradWeight: neighbouring channels of input, the reduction runs along time."""
