"""Blocks of fp32 lanes, for kernels that compute much on every element: several cache lines at once, so that no instruction waits.

The compiler turns plain loops into vector instructions too, but it neither splits the words of two bf16 elements as cheaply nor uses
the widest registers for fp32. Lanes never mix: an operation on blocks is one fp32 operation for every lane. The Python definitions
(NUMBA_DISABLE_JIT=1) work on NumPy arrays and give the same bits.

Arrays are storage arrays, 1-D and C-contiguous: float32, int16 (fp16) or uint16 (bf16). Indices count elements.
"""

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import binding, ir
from numba import types
from numba.core import config
from numba.core.datamodel import models
from numba.extending import intrinsic, overload, register_model
from numpy.typing import NDArray

from npu_sim.rounding import BF16_SHIFT, FP32_MANTISSA_BITS
from npu_sim.scalars import narrow, widen

Stored = NDArray[Any]
Values = NDArray[np.float32]
Patterns = NDArray[np.signedinteger[Any]]

LINE_BYTES = 64
"""Bytes of a cache line."""
NO_BLOCK = 1 << 62
"""Length of a block where the processor cannot convert the elements: longer than any array."""


def _features() -> list[str]:
    """Return what the processor can do that code is compiled for."""
    named = config.CPU_FEATURES
    return (binding.get_host_cpu_features().flatten() if named is None else named).split(",")


_IS_ARM = binding.get_process_triple().startswith(("aarch64", "arm64"))
_CONVERTS_HALF = _IS_ARM or "+f16c" in _features()
BLOCK_BYTES = LINE_BYTES * (4 if "+avx512f" in _features() else 1)
"""Bytes of the stored elements of a block: as many as the registers hold on the way through a polynomial."""

_FLOAT, _HALF, _I16, _I32 = ir.FloatType(), ir.HalfType(), ir.IntType(16), ir.IntType(32)
_UPPER_HALF = 0xFFFF_0000


# --- what the functions mean --------------------------------------------------------------------------------


def block_length(array: Stored) -> int:
    """Return how many elements of an array a block has."""
    return BLOCK_BYTES // array.itemsize


def load_block(array: Stored, index: int) -> Values:
    """Return the block of elements from ``index`` on, widened to fp32."""
    return np.array([widen(element) for element in array[index : index + block_length(array)]], np.float32)


def store_numbers(array: Stored, index: int, values: Values) -> None:
    """Round a block once to the storage type and store it from ``index`` on; none of the values may be nan."""
    for lane, value in enumerate(values):
        array[index + lane] = narrow(value, array)


def power_of_two(shifted: Any) -> Any:
    """Return 2^n of a block, or of one fp32 number, with the value 1.5 * 2^23 + 127 + n; 2^n must be a normal number."""
    return (shifted.view(np.uint32) << np.uint32(FP32_MANTISSA_BITS)).view(np.float32)


def patterns_at(array: Stored, index: int) -> Patterns:
    """Return the bit patterns of the block of stored elements from ``index`` on, as signed integers."""
    signed = np.int32 if array.itemsize == 4 else np.int16
    return array[index : index + block_length(array)].view(signed)


def larger(a: Patterns, b: Patterns) -> Patterns:
    """Return the larger pattern of every lane."""
    return np.maximum(a, b)


def largest(patterns: Patterns) -> int:
    """Return the largest pattern of all lanes."""
    return int(patterns.max())


# --- compiled twins -----------------------------------------------------------------------------------------


class VectorType(types.Type):  # type: ignore[misc]
    """Numba's type of a vector: ``count`` lanes of an LLVM type."""

    def __init__(self, element: ir.Type, count: int) -> None:
        self.element, self.count = element, count
        super().__init__(name=f"Vector({count} x {element})")

    @property
    def llvm(self) -> ir.VectorType:
        """Return LLVM's type."""
        return ir.VectorType(self.element, self.count)


@register_model(VectorType)
class _VectorModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, numba_type: VectorType) -> None:
        super().__init__(manager, numba_type, numba_type.llvm)


Emitted = tuple[Any, Callable[..., Any]]


def _is_stored(array: Any) -> bool:
    """Whether a Numba type is that of a storage array."""
    if not isinstance(array, types.Array) or array.ndim != 1 or array.layout != "C":
        return False
    return array.dtype in (types.float32, types.int16, types.uint16)


def _is_block(value: Any) -> bool:
    return isinstance(value, VectorType) and value.element == _FLOAT


def _values_of(array: Any) -> VectorType:
    return VectorType(_FLOAT, 8 * BLOCK_BYTES // array.dtype.bitwidth)


def _patterns_of(array: Any) -> VectorType:
    return VectorType(ir.IntType(array.dtype.bitwidth), 8 * BLOCK_BYTES // array.dtype.bitwidth)


def _constant(element: ir.Type, count: int, value: int) -> ir.Constant:
    return ir.Constant(ir.VectorType(element, count), [value] * count)


def _undefined(count: int) -> ir.Constant:
    return ir.Constant(ir.VectorType(_FLOAT, count), ir.Undefined)


def _numbers(first: int, count: int) -> ir.Constant:
    return ir.Constant(ir.VectorType(_I32, count), list(range(first, first + count)))


def _splat(builder: ir.IRBuilder, value: ir.Value, count: int) -> ir.Value:
    first = builder.insert_element(_undefined(count), value, _I32(0))
    return builder.shuffle_vector(first, _undefined(count), _constant(_I32, count, 0))


def _address(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any, vector: ir.VectorType) -> ir.Value:
    """Return the address of an array's element as that of a vector; the arguments start with array and index."""
    data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
    return builder.bitcast(builder.gep(data, [arguments[1]]), vector.as_pointer())


def _load(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any, vector: ir.VectorType) -> ir.Value:
    loaded = builder.load(_address(context, builder, signature, arguments, vector))
    loaded.align = signature.args[0].dtype.bitwidth // 8
    return loaded


def _widened_bfloat(builder: ir.IRBuilder, words: ir.Value, count: int) -> ir.Value:
    """Two elements make a word, the even one its lower half: the even elements come first, then the odd ones."""
    half = count // 2
    even = builder.shl(words, _constant(_I32, half, BF16_SHIFT))
    odd = builder.and_(words, _constant(_I32, half, _UPPER_HALF))
    floats = ir.VectorType(_FLOAT, half)
    return builder.shuffle_vector(builder.bitcast(even, floats), builder.bitcast(odd, floats), _numbers(0, count))


def _rounded_to_bfloat(builder: ir.IRBuilder, values: ir.Value, count: int) -> ir.Value:
    """Add half a step, less one where the kept part is even: the upper halves are then rounded to nearest even."""
    bits = builder.bitcast(values, ir.VectorType(_I32, count))
    last = builder.and_(bits, _constant(_I32, count, 1 << BF16_SHIFT))
    is_odd = builder.icmp_unsigned("!=", last, _constant(_I32, count, 0))
    half = 1 << (BF16_SHIFT - 1)
    return builder.add(bits, builder.select(is_odd, _constant(_I32, count, half), _constant(_I32, count, half - 1)))


def _narrowed_bfloat(builder: ir.IRBuilder, values: ir.Value, count: int) -> ir.Value:
    """Round, and undo the order of :func:`_widened_bfloat`."""
    half = count // 2
    even, odd = (
        _rounded_to_bfloat(builder, builder.shuffle_vector(values, _undefined(count), _numbers(first, half)), half) for first in (0, half)
    )
    lower = builder.lshr(even, _constant(_I32, half, BF16_SHIFT))
    return builder.or_(lower, builder.and_(odd, _constant(_I32, half, _UPPER_HALF)))


@intrinsic
def _load_block(typing_context: Any, array: Any, index: Any) -> Emitted:
    result = _values_of(array)

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        if array.dtype == types.uint16:
            words = _load(context, builder, signature, arguments, ir.VectorType(_I32, result.count // 2))
            return _widened_bfloat(builder, words, result.count)
        if array.dtype == types.float32:
            return _load(context, builder, signature, arguments, result.llvm)
        if not _CONVERTS_HALF:
            return _undefined(result.count)  # never reached: there is no block of these elements
        halves = _load(context, builder, signature, arguments, ir.VectorType(_HALF, result.count))
        return builder.fpext(halves, result.llvm)

    return result(array, types.intp), generate


@intrinsic
def _store_numbers(typing_context: Any, array: Any, index: Any, values: Any) -> Emitted:
    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        bits = arguments[2]
        if array.dtype == types.uint16:
            bits = _narrowed_bfloat(builder, bits, values.count)
        elif array.dtype == types.int16 and _CONVERTS_HALF:
            bits = builder.fptrunc(bits, ir.VectorType(_HALF, values.count))
        builder.store(bits, _address(context, builder, signature, arguments, bits.type)).align = array.dtype.bitwidth // 8
        return context.get_dummy_value()

    return types.void(array, types.intp, values), generate


@intrinsic
def _power_of_two(typing_context: Any, shifted: Any) -> Emitted:
    vector = isinstance(shifted, VectorType)
    whole = ir.VectorType(_I32, shifted.count) if vector else _I32
    places = _constant(_I32, shifted.count, FP32_MANTISSA_BITS) if vector else _I32(FP32_MANTISSA_BITS)

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        return builder.bitcast(builder.shl(builder.bitcast(arguments[0], whole), places), arguments[0].type)

    return shifted(shifted), generate


@intrinsic
def _patterns_at(typing_context: Any, array: Any, index: Any) -> Emitted:
    result = _patterns_of(array)

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        return _load(context, builder, signature, arguments, result.llvm)

    return result(array, types.intp), generate


@intrinsic
def _larger(typing_context: Any, a: Any, b: Any) -> Emitted:
    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        return builder.select(builder.icmp_signed(">", *arguments), *arguments)

    return a(a, b), generate


@intrinsic
def _largest(typing_context: Any, patterns: Any) -> Emitted:
    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        name = f"llvm.vector.reduce.smax.v{patterns.count}{patterns.element}"
        reduce = builder.module.declare_intrinsic(name, (), ir.FunctionType(patterns.element, [patterns.llvm]))
        return builder.call(reduce, arguments)

    return types.Integer.from_bitwidth(patterns.element.width)(patterns), generate


def _overload_operator(function: Callable[..., Any], instruction: str) -> None:
    """Let ``function`` work on two blocks, or on one and a fp32 number."""

    @intrinsic
    def combine(typing_context: Any, a: Any, b: Any) -> Emitted:
        result = a if _is_block(a) else b

        def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
            pairs = zip(signature.args, arguments, strict=True)
            values = [value if _is_block(one) else _splat(builder, value, result.count) for one, value in pairs]
            return getattr(builder, instruction)(*values)

        return result(a, b), generate

    @overload(function)
    def choose(a, b):  # type: ignore[no-untyped-def]
        blocks = {one for one in (a, b) if _is_block(one)}
        numbers = [one for one in (a, b) if not _is_block(one)]
        return (lambda a, b: combine(a, b)) if len(blocks) == 1 and numbers in ([], [types.float32]) else None


for _function, _instruction in ((operator.add, "fadd"), (operator.sub, "fsub"), (operator.mul, "fmul")):
    _overload_operator(_function, _instruction)


@overload(block_length)
def _choose_block_length(array):  # type: ignore[no-untyped-def]
    if not _is_stored(array):
        return None
    converts = _CONVERTS_HALF or array.dtype != types.int16
    length = _values_of(array).count if converts else NO_BLOCK
    return lambda array: length


@overload(load_block)
def _choose_load_block(array, index):  # type: ignore[no-untyped-def]
    return (lambda array, index: _load_block(array, index)) if _is_stored(array) else None


@overload(store_numbers)
def _choose_store_numbers(array, index, values):  # type: ignore[no-untyped-def]
    legal = _is_stored(array) and values == _values_of(array)
    return (lambda array, index, values: _store_numbers(array, index, values)) if legal else None


@overload(power_of_two)
def _choose_power_of_two(shifted):  # type: ignore[no-untyped-def]
    return (lambda shifted: _power_of_two(shifted)) if _is_block(shifted) or shifted == types.float32 else None


@overload(patterns_at)
def _choose_patterns_at(array, index):  # type: ignore[no-untyped-def]
    return (lambda array, index: _patterns_at(array, index)) if _is_stored(array) else None


@overload(larger)
def _choose_larger(a, b):  # type: ignore[no-untyped-def]
    return (lambda a, b: _larger(a, b)) if isinstance(a, VectorType) and a == b else None


@overload(largest)
def _choose_largest(patterns):  # type: ignore[no-untyped-def]
    return (lambda patterns: _largest(patterns)) if isinstance(patterns, VectorType) else None
