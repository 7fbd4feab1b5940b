"""Blocks of fp32 lanes, for kernels with many operations per element.

With AVX-512 a block has four cache lines, which hides the latency of instructions; otherwise it has
one. The compiler vectorises plain loops too, but it neither splits the words of two bf16 elements
as cheaply nor uses the widest registers for fp32.

Lanes are independent: an operation on blocks (``+``, ``-`` and ``*``
with blocks and fp32 numbers, and the functions below) is one fp32 operation for every lane. The
reference implementations (NUMBA_DISABLE_JIT=1) work on NumPy arrays and give the same bits.

Arrays are storage arrays, 1-D and C-contiguous: float32, int16 (fp16) or uint16 (bf16). Indices
count elements.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from llvmlite.ir import FunctionType as Signature
from numba import types
from numba.core import config
from numba.core.datamodel import models
from numba.extending import intrinsic, register_model
from numpy.typing import NDArray

from npu_sim.kernels.vectors.lane_type import (
    FLOAT,
    I32,
    I64,
    LINE_BYTES,
    Emitted,
    LanesType,
    constant_vector,
    element_address,
    lanes_of,
    load_vector,
    undefined_vector,
)
from npu_sim.kernels.vectors.lanes import (
    mark_streamed,
    narrow_lanes,
    narrow_to_bfloat,
    widen_bfloat,
)
from npu_sim.numbers.rounding import BF16_SHIFT, FP32_MANTISSA_BITS
from npu_sim.numbers.scalars import has_features, has_half_conversions, narrow, widen

Stored = NDArray[Any]
Values = NDArray[np.float32]
Patterns = NDArray[np.signedinteger[Any]]

FP64_MANTISSA_BITS = 52

NO_BLOCK = 1 << 62
"""Length of a block, longer than any array, where the processor cannot convert the elements."""


BLOCK_BYTES = LINE_BYTES * (4 if has_features("avx512f") else 1)
"""Bytes of the stored elements of a block: as many as fit the registers during a polynomial."""

_HALF = ir.HalfType()


# --- Reference implementations ---


def block_length(array: Stored) -> int:
    """Return the number of elements of a block of an array."""
    return BLOCK_BYTES // array.itemsize


def load_block(array: Stored, index: int) -> Values:
    """Return the block of elements from ``index`` on, widened to fp32."""
    block = array[index : index + block_length(array)]
    return np.array([widen(element) for element in block], np.float32)


def store_numbers(array: Stored, index: int, values: Values) -> None:
    """Round a block, or the lanes of a line, to the storage type and store it; nan not allowed."""
    for lane, value in enumerate(values):
        array[index + lane] = narrow(value, array)


def stream_numbers(array: Stored, index: int, values: Values) -> None:
    """Like `store_numbers`, with non-temporal stores.

    ``index`` must start a cache line, and `npu_sim.kernels.vectors.lanes.end_streams` must follow.
    """
    store_numbers(array, index, values)


def power_of_two(shifted: Any) -> Any:
    """Return 2^n, a normal number, from 1.5 * 2^23 + 127 + n, of a block or of one fp32 number.

    Of a fp64 number from 1.5 * 2^52 + 1023 + n.
    """
    if shifted.dtype == np.float64:
        return (shifted.view(np.uint64) << np.uint64(FP64_MANTISSA_BITS)).view(np.float64)
    return (shifted.view(np.uint32) << np.uint32(FP32_MANTISSA_BITS)).view(np.float32)


def patterns_at(array: Stored, index: int) -> Patterns:
    """Return the bit patterns of the block from ``index`` on, as signed integers."""
    signed = np.int32 if array.itemsize == 4 else np.int16
    return array[index : index + block_length(array)].view(signed)


def larger(a: Patterns, b: Patterns) -> Patterns:
    """Return the larger pattern of every lane."""
    return np.maximum(a, b)


def largest(patterns: Patterns) -> int:
    """Return the largest pattern of all lanes."""
    return int(patterns.max())


# --- Compiled versions ---


class PatternsType(types.Type):  # type: ignore[misc]
    """Numba's type of a vector of ``count`` bit patterns of ``width`` bits."""

    def __init__(self, width: int, count: int) -> None:
        self.width, self.count = width, count
        super().__init__(name=f"Patterns({count} x {width})")


@register_model(PatternsType)
class _PatternsModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, numba_type: PatternsType) -> None:
        super().__init__(
            manager, numba_type, ir.VectorType(ir.IntType(numba_type.width), numba_type.count)
        )


def _lane_count(array: Any) -> int:
    """Return the number of lanes of a block of an array type; 0 when it is not a storage array."""
    is_flat = isinstance(array, types.Array) and array.ndim == 1 and array.layout == "C"
    if not is_flat or array.dtype not in (types.float32, types.int16, types.uint16):
        return 0
    return int(8 * BLOCK_BYTES // array.dtype.bitwidth)


def _rounded_to_bfloat(builder: ir.IRBuilder, values: ir.Value, count: int) -> ir.Value:
    """Emit the addition after which the upper halves are rounded to nearest even.

    It adds half a step, less one where the upper half is even.
    """
    bits = builder.bitcast(values, ir.VectorType(I32, count))
    last = builder.and_(bits, constant_vector(I32, count, 1 << BF16_SHIFT))
    is_odd = builder.icmp_unsigned("!=", last, constant_vector(I32, count, 0))
    half = 1 << (BF16_SHIFT - 1)
    halves = (constant_vector(I32, count, value) for value in (half, half - 1))
    return builder.add(bits, builder.select(is_odd, *halves))


@intrinsic
def _block_length(typing_context: Any, array: Any) -> Emitted | None:
    can_convert = has_half_conversions() or array.dtype != types.int16
    length = _lane_count(array) if can_convert else NO_BLOCK
    return types.intp(array), lambda context, builder, signature, arguments: ir.IntType(64)(length)


@intrinsic
def _load_block(typing_context: Any, array: Any, index: Any) -> Emitted | None:
    count = _lane_count(array)

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        address = element_address(context, builder, array, count, *arguments)
        if array.dtype == types.uint16:
            return widen_bfloat(builder, address, count)
        if array.dtype == types.float32:
            return load_vector(builder, address, FLOAT, count, 4)
        if not has_half_conversions():
            return undefined_vector(FLOAT, count)  # never reached: see `NO_BLOCK`
        halves = load_vector(builder, address, _HALF, count, 2)
        return builder.fpext(halves, ir.VectorType(FLOAT, count))

    return (LanesType(count)(array, types.intp), generate) if count else None


def _emit_numbers(context: Any, builder: ir.IRBuilder, array_type: Any, arguments: Any) -> Any:
    array, index, bits = arguments
    count = bits.type.count
    if array_type.dtype == types.uint16:
        bits = narrow_to_bfloat(builder, bits, count, _rounded_to_bfloat)
    else:
        bits = narrow_lanes(context, builder, array_type, bits)
    address = element_address(context, builder, array_type, count, array, index)
    return builder.store(bits, builder.bitcast(address, bits.type.as_pointer()))


@intrinsic
def _store_numbers(typing_context: Any, array: Any, index: Any, values: Any) -> Emitted | None:
    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        _emit_numbers(context, builder, array, arguments).align = array.dtype.bitwidth // 8
        return context.get_dummy_value()

    fits = values in (LanesType(_lane_count(array)), lanes_of(array))
    return (types.void(array, types.intp, values), generate) if fits else None


@intrinsic
def _stream_numbers(typing_context: Any, array: Any, index: Any, values: Any) -> Emitted | None:
    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        mark_streamed(builder, _emit_numbers(context, builder, array, arguments))
        return context.get_dummy_value()

    fits = values in (LanesType(_lane_count(array)), lanes_of(array))
    return (types.void(array, types.intp, values), generate) if fits else None


@intrinsic
def _power_of_two(typing_context: Any, shifted: Any) -> Emitted | None:
    vector = isinstance(shifted, LanesType)
    integer, places = I32, I32(FP32_MANTISSA_BITS)
    if shifted == types.float64:
        integer, places = I64, I64(FP64_MANTISSA_BITS)
    if vector:
        integer = ir.VectorType(I32, shifted.count)
        places = constant_vector(I32, shifted.count, FP32_MANTISSA_BITS)

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        bits = builder.shl(builder.bitcast(arguments[0], integer), places)
        return builder.bitcast(bits, arguments[0].type)

    known = vector or shifted in (types.float32, types.float64)
    return (shifted(shifted), generate) if known else None


@intrinsic
def _patterns_at(typing_context: Any, array: Any, index: Any) -> Emitted | None:
    count = _lane_count(array)
    width = array.dtype.bitwidth

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        address = element_address(context, builder, array, count, *arguments)
        return load_vector(builder, address, ir.IntType(width), count, width // 8)

    return (PatternsType(width, count)(array, types.intp), generate) if count else None


@intrinsic
def _larger(typing_context: Any, a: Any, b: Any) -> Emitted | None:
    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        return builder.select(builder.icmp_signed(">", *arguments), *arguments)

    return (a(a, b), generate) if isinstance(a, PatternsType) and a == b else None


@intrinsic
def _largest(typing_context: Any, patterns: Any) -> Emitted | None:
    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        element = ir.IntType(patterns.width)
        name = f"llvm.vector.reduce.smax.v{patterns.count}{element}"
        reduce_type = Signature(element, [ir.VectorType(element, patterns.count)])
        reduce = builder.module.declare_intrinsic(name, (), reduce_type)
        return builder.call(reduce, arguments)

    if not isinstance(patterns, PatternsType):
        return None
    return types.Integer.from_bitwidth(patterns.width)(patterns), generate


if not config.DISABLE_JIT:
    block_length, load_block = _block_length, _load_block
    store_numbers, stream_numbers = _store_numbers, _stream_numbers
    power_of_two, patterns_at, larger, largest = _power_of_two, _patterns_at, _larger, _largest
