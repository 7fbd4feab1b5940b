"""Vectors of fp32 values for kernels that sum rows element by element: a cache line of stored elements at a time.

Numba vectorises plain loops well as long as it can prove that arrays do not overlap; a sum of many rows is beyond that, and it has
no way to ask for stores past the cache. So the few operations such kernels need are given here as vector instructions. Lanes never
mix: ``add`` is one fp32 addition for every lane, and a lane holds the same bits as a scalar would.

``array`` and ``like`` name the storage type: float32, int16 (fp16) or uint16 (bf16), 1-D, C-contiguous and aligned. Indices count elements;
nothing checks them. While NUMBA_DISABLE_JIT=1, the names are the Python definitions below, which work on small fp32 arrays and give
the same bits; otherwise they are intrinsics, to be called by kernels only.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import config, types
from numba.core.datamodel import models
from numba.extending import intrinsic, register_model
from numpy.typing import NDArray

from npu_sim import rounding
from npu_sim.scalars import _has_half_conversions, fp16_to_fp32, fp32_to_fp16, narrow, widen

Stored = NDArray[Any]
Values = NDArray[np.float32]
"""What lanes are when kernels are not compiled."""

LINE_BYTES = 64
"""Bytes of a cache line, and of the stored elements of one vector."""


# --- what the functions mean --------------------------------------------------------------------------------


def splat(value: np.float32, like: Stored) -> Values:
    """Return a value in as many lanes as a cache line of ``like`` has elements."""
    return np.full(LINE_BYTES // like.itemsize, value, np.float32)


def add(a: Values, b: Values) -> Values:
    """Return the sums, lane by lane."""
    return a + b


def load(array: Stored, index: int) -> Values:
    """Return the elements from ``index`` on, widened to fp32."""
    return np.array([widen(element) for element in array[index : index + LINE_BYTES // array.itemsize]], np.float32)


def store(array: Stored, index: int, lanes: Values) -> None:
    """Round once to the storage type and store from ``index`` on."""
    for lane, value in enumerate(lanes):
        array[index + lane] = narrow(value, array)


def stream(array: Stored, index: int, lanes: Values) -> None:
    """Store past the cache; ``index`` must start a cache line (`to_next_line`), and `end_streams` must follow."""
    for lane, value in enumerate(lanes):
        array[index + lane] = narrow(value, array)


def end_streams() -> None:
    """Make what was streamed visible to other threads."""


def to_next_line(array: Stored, index: int) -> int:
    """Return how many elements lie between ``index`` and the next start of a cache line; 0 when it is one."""
    return int(-(array.ctypes.data + index * array.itemsize) % LINE_BYTES // array.itemsize)


def prefetch(array: Stored, index: int) -> None:
    """Ask for the cache line of an element, which need not exist; changes nothing."""


# --- compiled twins -----------------------------------------------------------------------------------------

_FLOAT, _HALF, _I8, _I16, _I32, _I64 = ir.FloatType(), ir.HalfType(), ir.IntType(8), ir.IntType(16), ir.IntType(32), ir.IntType(64)
_UPPER_HALF = 0xFFFF_0000
Emitted = tuple[Any, Callable[..., Any]]


class LanesType(types.Type):  # type: ignore[misc]
    """Numba's type of a vector of fp32 values.

    Attributes
    ----------
    count
        Number of lanes: 16 for fp32 elements, 32 for 16-bit ones.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        super().__init__(name=f"Lanes({count})")


@register_model(LanesType)
class _LanesModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, numba_type: LanesType) -> None:
        super().__init__(manager, numba_type, ir.VectorType(_FLOAT, numba_type.count))


def _lanes_of(array: Any) -> LanesType | None:
    """Return the type of the lanes of an array type; None when it is no storage array."""
    fits = isinstance(array, types.Array) and array.ndim == 1 and array.layout == "C" and array.aligned
    stored = fits and array.dtype in (types.float32, types.int16, types.uint16)
    return LanesType(LINE_BYTES * 8 // array.dtype.bitwidth) if stored else None


def _constant(element: ir.Type, count: int, value: int) -> ir.Constant:
    return ir.Constant(ir.VectorType(element, count), [value] * count)


def _undefined(element: ir.Type, count: int) -> ir.Constant:
    return ir.Constant(ir.VectorType(element, count), ir.Undefined)


def _numbers(first: int, count: int) -> ir.Constant:
    return ir.Constant(ir.VectorType(_I32, count), list(range(first, first + count)))


def _address(context: Any, builder: ir.IRBuilder, array_type: Any, array: ir.Value, index: ir.Value) -> ir.Value:
    return builder.gep(context.make_array(array_type)(context, builder, array).data, [index])


def _load_vector(builder: ir.IRBuilder, address: ir.Value, element: ir.Type, count: int, alignment: int) -> ir.Value:
    vector = builder.load(builder.bitcast(address, ir.VectorType(element, count).as_pointer()))
    vector.align = alignment
    return vector


def _lane_by_lane(context: Any, builder: ir.IRBuilder, function: Any, signature: Any, vector: ir.Value, result: ir.Type) -> ir.Value:
    """Apply a Python function to every lane: for processors that have no instruction for it."""
    count = vector.type.count
    lanes = _undefined(result, count)
    for lane in range(count):
        value = context.compile_internal(builder, function, signature, [builder.extract_element(vector, _I32(lane))])
        lanes = builder.insert_element(lanes, value, _I32(lane))
    return lanes


def _widen_half(context: Any, builder: ir.IRBuilder, address: ir.Value, count: int) -> ir.Value:
    if _has_half_conversions():
        return builder.fpext(_load_vector(builder, address, _HALF, count, 2), ir.VectorType(_FLOAT, count))
    bits = _load_vector(builder, address, _I16, count, 2)
    return _lane_by_lane(context, builder, lambda bits: fp16_to_fp32(bits), types.float32(types.int16), bits, _FLOAT)


def _narrow_to_half(context: Any, builder: ir.IRBuilder, lanes: ir.Value, count: int) -> ir.Value:
    if _has_half_conversions():
        return builder.fptrunc(lanes, ir.VectorType(_HALF, count))
    return _lane_by_lane(context, builder, lambda value: fp32_to_fp16(value), types.int16(types.float32), lanes, _I16)


def _widen_bfloat(builder: ir.IRBuilder, address: ir.Value, count: int) -> ir.Value:
    """Take two elements as a word: its lower half is the even one, its upper half the odd one. All even ones come first."""
    half = count // 2
    words = _load_vector(builder, address, _I32, half, 2)
    even = builder.shl(words, _constant(_I32, half, rounding.BF16_SHIFT))
    odd = builder.and_(words, _constant(_I32, half, _UPPER_HALF))
    floats = ir.VectorType(_FLOAT, half)
    return builder.shuffle_vector(builder.bitcast(even, floats), builder.bitcast(odd, floats), _numbers(0, count))


def _narrow_to_bfloat(builder: ir.IRBuilder, lanes: ir.Value, count: int) -> ir.Value:
    """Undo the order of `_widen_bfloat`."""
    half, unused = count // 2, _undefined(_FLOAT, count)
    even, odd = (_round_to_bfloat(builder, builder.shuffle_vector(lanes, unused, _numbers(at, half)), half) for at in (0, half))
    lower = builder.lshr(even, _constant(_I32, half, rounding.BF16_SHIFT))
    return builder.or_(lower, builder.and_(odd, _constant(_I32, half, _UPPER_HALF)))


def _round_to_bfloat(builder: ir.IRBuilder, lanes: ir.Value, count: int) -> ir.Value:
    """Round to nearest even; the upper halves of the result are the bf16 elements. See `npu_sim.rounding` for nan."""
    bits = builder.bitcast(lanes, ir.VectorType(_I32, count))
    last = builder.and_(builder.lshr(bits, _constant(_I32, count, rounding.BF16_SHIFT)), _constant(_I32, count, 1))
    below_half = _constant(_I32, count, (1 << (rounding.BF16_SHIFT - 1)) - 1)
    rounded = builder.add(bits, builder.add(last, below_half))
    sign = builder.and_(bits, _constant(_I32, count, rounding.FP32_SIGN))
    nan = builder.or_(sign, _constant(_I32, count, rounding.BF16_NAN << rounding.BF16_SHIFT))
    return builder.select(builder.fcmp_unordered("uno", lanes, lanes), nan, rounded)


def _emit_store(context: Any, builder: ir.IRBuilder, array_type: Any, arguments: Any) -> Any:
    array, index, lanes = arguments
    count = lanes.type.count
    if array_type.dtype == types.float32:
        bits = lanes
    elif array_type.dtype == types.int16:
        bits = _narrow_to_half(context, builder, lanes, count)
    else:
        bits = _narrow_to_bfloat(builder, lanes, count)
    address = _address(context, builder, array_type, array, index)
    return builder.store(bits, builder.bitcast(address, bits.type.as_pointer()))


@intrinsic
def _splat(typing_context: Any, value: Any, like: Any) -> Emitted | None:
    lanes = _lanes_of(like)
    if lanes is None:
        return None

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        unused = _undefined(_FLOAT, lanes.count)
        first = builder.insert_element(unused, arguments[0], _I32(0))
        return builder.shuffle_vector(first, unused, _constant(_I32, lanes.count, 0))

    return lanes(types.float32, like), generate


@intrinsic
def _add(typing_context: Any, a: Any, b: Any) -> Emitted | None:
    if not isinstance(a, LanesType) or a != b:
        return None
    return a(a, b), lambda context, builder, signature, arguments: builder.fadd(*arguments)


@intrinsic
def _load(typing_context: Any, array: Any, index: Any) -> Emitted | None:
    lanes = _lanes_of(array)
    if lanes is None:
        return None

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        address = _address(context, builder, array, *arguments)
        if array.dtype == types.int16:
            return _widen_half(context, builder, address, lanes.count)
        if array.dtype == types.uint16:
            return _widen_bfloat(builder, address, lanes.count)
        return _load_vector(builder, address, _FLOAT, lanes.count, 4)

    return lanes(array, types.intp), generate


@intrinsic
def _store(typing_context: Any, array: Any, index: Any, lanes: Any) -> Emitted | None:
    if lanes is None or lanes != _lanes_of(array):
        return None

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        _emit_store(context, builder, array, arguments).align = array.dtype.bitwidth // 8
        return context.get_dummy_value()

    return types.void(array, types.intp, lanes), generate


@intrinsic
def _stream(typing_context: Any, array: Any, index: Any, lanes: Any) -> Emitted | None:
    if lanes is None or lanes != _lanes_of(array):
        return None

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        stored = _emit_store(context, builder, array, arguments)
        stored.align = LINE_BYTES
        stored.set_metadata("nontemporal", builder.module.add_metadata([_I32(1)]))
        return context.get_dummy_value()

    return types.void(array, types.intp, lanes), generate


@intrinsic
def _end_streams(typing_context: Any) -> Emitted:
    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        builder.fence("seq_cst")  # weaker fences do not wait for nontemporal stores on x86
        return context.get_dummy_value()

    return types.void(), generate


@intrinsic
def _to_next_line(typing_context: Any, array: Any, index: Any) -> Emitted | None:
    if _lanes_of(array) is None:
        return None

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        address = builder.ptrtoint(_address(context, builder, array, *arguments), _I64)
        missing = builder.and_(builder.neg(address), _I64(LINE_BYTES - 1))
        return builder.udiv(missing, _I64(array.dtype.bitwidth // 8))

    return types.intp(array, types.intp), generate


@intrinsic
def _prefetch(typing_context: Any, array: Any, index: Any) -> Emitted | None:
    if _lanes_of(array) is None:
        return None

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        address = builder.bitcast(_address(context, builder, array, *arguments), _I8.as_pointer())
        function_type = ir.FunctionType(ir.VoidType(), [address.type, _I32, _I32, _I32])
        function = builder.module.declare_intrinsic("llvm.prefetch", [address.type], function_type)
        read, keep_in_all_levels, data_cache = _I32(0), _I32(3), _I32(1)
        builder.call(function, [address, read, keep_in_all_levels, data_cache])
        return context.get_dummy_value()

    return types.void(array, types.intp), generate


if not config.DISABLE_JIT:
    # Overloads would do as well, but Numba compiles each of them as a function of its own, which takes longer than the kernel.
    splat, add, load, store, stream = _splat, _add, _load, _store, _stream
    end_streams, to_next_line, prefetch = _end_streams, _to_next_line, _prefetch
