"""Lanes: vectors of fp32 values, each a cache line of stored elements, for sums over rows.

LLVM vectorises plain loops as long as it can prove that arrays do not overlap, which it cannot for
sums of many rows, and Numba has no non-temporal stores. The operations that such kernels need are
therefore vector instructions here. A lane has the same bits as a scalar.

``+``, ``-``, ``*`` and ``/`` work on vectors of one length, and on a vector and a number: one
operation for every lane, in fp32, or in fp64 where exp needs it. `multiply_add` is the fused
multiply-add for kernels that request it; nothing else is ever fused. Its bits are the same on every
processor: one without the instruction calls ``fmaf`` in C.

``array`` and ``like`` have a storage type: float32, int16 (fp16) or uint16 (bf16), 1-D,
C-contiguous and aligned. ``kept``, a float32 array, holds lanes between two passes over a row.
Lanes of bf16 elements are not in the order of the elements, so `load_lanes` must have the same
``like`` as the lanes that were stored. Indices count elements; only NPU_SIM_CHECK=1 checks them.
With NUMBA_DISABLE_JIT=1 the operations are their reference implementations, on small fp32 arrays
and with the same bits; otherwise they are intrinsics for kernels.
"""

import operator
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from inspect import Parameter, Signature, signature
from typing import Any

import numpy as np
from llvmlite import ir
from llvmlite.ir import FunctionType
from numba import config, types
from numba.core.datamodel import models
from numba.extending import intrinsic, lower_builtin, register_model, type_callable
from numpy.typing import NDArray

from npu_sim.kernels.engine.compile import device_function
from npu_sim.kernels.engine.numba_inside import CHECKED
from npu_sim.numbers.arrays import LINE_BYTES as LINE_BYTES
from npu_sim.numbers.scalars import (
    BF16_NAN,
    BF16_SHIFT,
    FP32_SIGN,
    fp16_to_fp32,
    fp32_to_fp16,
    has_features,
    has_half_conversions,
    narrow,
    widen,
)

Stored = NDArray[Any]
"""Stored elements: fp32 as float32, fp16 as int16, bf16 as uint16."""
Floats = NDArray[np.float32]
Integers = NDArray[np.int64]
Lanes = Any
"""A vector of fp32 values in a kernel."""
ZERO, ONE = np.float32(0), np.float32(1)
NOTHING_YET = np.float32(-0.0)
"""Neutral element of addition: -0 + x is x for every x, with its sign."""
FLOAT, DOUBLE, I32, I64 = ir.FloatType(), ir.DoubleType(), ir.IntType(32), ir.IntType(64)


class LanesType(types.Type):  # type: ignore[misc]
    """Numba's type of a vector of fp32 values, or of fp64 values.

    Attributes
    ----------
    count
        Number of lanes: 16 for fp32 elements, 32 for 16-bit ones.
    number
        Type of a lane.
    """

    def __init__(self, count: int, number: Any = types.float32) -> None:
        self.count, self.number = count, number
        super().__init__(name=f"Lanes({count} x {number})")

    @property
    def vector(self) -> ir.VectorType:
        """The type in LLVM."""
        return ir.VectorType(DOUBLE if self.number == types.float64 else FLOAT, self.count)


@register_model(LanesType)
class _LanesModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, numba_type: LanesType) -> None:
        super().__init__(manager, numba_type, numba_type.vector)


def instruction(
    result_of: Callable[..., Any], emit: Callable[..., Any]
) -> Callable[[Callable[..., Any]], Any]:
    """Return the decorator of a reference implementation, which kernels see as an intrinsic.

    With NUMBA_DISABLE_JIT=1 the reference stays. ``emit(context, builder, kinds, *values)`` emits
    the instructions, where ``kinds`` are the Numba types of the arguments. ``result_of(*kinds)``
    returns the type of the result, or None when the arguments do not fit. Integers arrive with 64
    bits, numbers as fp32 unless the result is fp64. Numba would compile overloads as separate
    functions, which takes longer than the kernel.
    """

    def define(reference: Callable[..., Any]) -> Any:
        if config.DISABLE_JIT:
            return reference

        def choose(typing_context: Any, *kinds: Any) -> tuple[Any, Callable[..., Any]] | None:
            result = result_of(*kinds)
            if result is None:
                return None

            def generate(context: Any, builder: ir.IRBuilder, _: Any, values: Any) -> Any:
                value = emit(context, builder, kinds, *values)
                return context.get_dummy_value() if result == types.void else value

            wide = getattr(result, "number", result) == types.float64
            return result(*(kinds if wide else map(_argument, kinds))), generate

        choose.__name__ = reference.__name__
        first = Parameter("typing_context", Parameter.POSITIONAL_OR_KEYWORD)
        names = signature(reference).parameters.values()
        vars(choose)["__signature__"] = Signature([first, *names])
        return intrinsic(choose)

    return define


def _argument(kind: Any) -> Any:
    """Return the type in which an argument arrives."""
    if isinstance(kind, types.Integer):
        return types.intp
    return types.float32 if isinstance(kind, types.Float) else kind


def lanes_of(array: Any) -> LanesType | None:
    """Return the type of the lanes of an array type; None when it is not a storage array."""
    is_flat = isinstance(array, types.Array) and array.ndim == 1 and array.layout == "C"
    if not is_flat or not array.aligned:
        return None
    if array.dtype not in (types.float32, types.int16, types.uint16):
        return None
    return LanesType(line_elements(array))


def line_elements(array: Any) -> int:
    """Return the number of elements of an array type in a cache line."""
    return int(LINE_BYTES * 8 // array.dtype.bitwidth)


def stored_lanes(array: Any, _index: Any, lanes: Any, *_others: Any) -> Any:
    """Return the result of an instruction that stores lanes of an array: nothing."""
    return types.void if lanes is not None and lanes == lanes_of(array) else None


def always(result: Any) -> Callable[..., Any]:
    """Return the function for the result of an instruction that takes any arguments."""

    def result_of(*_kinds: Any) -> Any:
        return result

    return result_of


def constant_vector(element: ir.Type, count: int, value: int) -> ir.Constant:
    """Return the vector with one value in all lanes."""
    return ir.Constant(ir.VectorType(element, count), [value] * count)


def undefined_vector(element: ir.Type, count: int) -> ir.Constant:
    """Return a vector of undefined lanes."""
    return ir.Constant(ir.VectorType(element, count), ir.Undefined)


def counting_vector(first: int, count: int) -> ir.Constant:
    """Return the vector first, first + 1, ..."""
    return ir.Constant(ir.VectorType(I32, count), list(range(first, first + count)))


def element_address(
    context: Any,
    builder: ir.IRBuilder,
    array_type: Any,
    count: int | ir.Value,
    array: ir.Value,
    index: ir.Value,
) -> ir.Value:
    """Emit the address of an element of a 1-D, C-contiguous array.

    ``count`` elements are read or written there; see :func:`require_elements`.
    """
    require_elements(context, builder, array_type, count, array, index)
    return builder.gep(context.make_array(array_type)(context, builder, array).data, [index])


def require_elements(
    context: Any,
    builder: ir.IRBuilder,
    array_type: Any,
    count: int | ir.Value,
    array: ir.Value,
    first: ir.Value,
) -> None:
    """In checked kernels, emit an IndexError unless ``count`` elements from ``first`` on exist."""
    if not CHECKED:
        return
    count = I64(count) if isinstance(count, int) else count
    size = context.make_array(array_type)(context, builder, array).nitems
    is_negative = builder.icmp_signed("<", builder.or_(first, count), I64(0))
    is_outside = builder.or_(is_negative, builder.icmp_signed(">", builder.add(first, count), size))
    with builder.if_then(
        builder.and_(builder.icmp_signed("!=", count, I64(0)), is_outside), likely=False
    ):
        context.call_conv.return_user_exc(builder, IndexError, ("a vector is out of bounds",))


def load_vector(
    builder: ir.IRBuilder, address: ir.Value, element: ir.Type, count: int, alignment: int
) -> ir.Value:
    """Emit the load of a vector; ``alignment`` in bytes."""
    vector = builder.load(builder.bitcast(address, ir.VectorType(element, count).as_pointer()))
    vector.align = alignment
    return vector


def splat_numbers(builder: ir.IRBuilder, value: ir.Value, count: int) -> ir.Value:
    """Emit a vector with one number in all lanes."""
    unused = undefined_vector(value.type, count)
    return builder.shuffle_vector(
        builder.insert_element(unused, value, I32(0)), unused, constant_vector(I32, count, 0)
    )


def common_lanes(kinds: tuple[Any, ...]) -> LanesType | None:
    """Return the lanes type of operands of one type of lanes and its numbers; None for others."""
    blocks = {kind for kind in kinds if isinstance(kind, LanesType)}
    others = {kind for kind in kinds if kind not in blocks}
    lanes = blocks.pop() if len(blocks) == 1 else None
    return lanes if lanes is not None and others <= {lanes.number} else None


def common_numbers(*kinds: Any) -> Any:
    """Return the type of operands: fp32 or fp64 numbers, or lanes and their numbers; or None."""
    is_number = len(set(kinds)) == 1 and kinds[0] in (types.float32, types.float64)
    return kinds[0] if is_number else common_lanes(kinds)


def as_lanes(builder: ir.IRBuilder, lanes: Any, kinds: Any, values: Any) -> list[ir.Value]:
    """Emit the operands of one operation as vectors."""
    pairs = zip(kinds, values, strict=True)
    return [
        value if kind == lanes else splat_numbers(builder, value, lanes.count)
        for kind, value in pairs
    ]


def _define_operator(function: Callable[..., Any], instruction: str) -> None:
    """Define an operator on two vectors of lanes, and on one and a number."""

    @type_callable(function)
    def choose(context):
        return lambda a, b: common_lanes((a, b))

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        return getattr(builder, instruction)(
            *as_lanes(builder, signature.return_type, signature.args, arguments)
        )

    for pair in ((LanesType, LanesType), (LanesType, types.Float), (types.Float, LanesType)):
        lower_builtin(function, *pair)(generate)


for _function, _instruction in (
    (operator.add, "fadd"),
    (operator.sub, "fsub"),
    (operator.mul, "fmul"),
    (operator.truediv, "fdiv"),
):
    _define_operator(_function, _instruction)


def emit_intrinsic(builder: ir.IRBuilder, name: str, *values: ir.Value) -> ir.Value:
    """Emit an operation of LLVM on numbers, integers or vectors of one type: "fma", "sqrt"."""
    kind = values[0].type
    is_vector = isinstance(kind, ir.VectorType)
    suffix = f"v{kind.count}{kind.element.intrinsic_name}" if is_vector else kind.intrinsic_name
    full, operands = f"llvm.{name}.{suffix}", [kind] * len(values)
    function = builder.module.globals.get(full) or ir.Function(
        builder.module, FunctionType(kind, operands), full
    )
    return builder.call(function, values)


def fused_multiply_add(a: Any, b: Any, c: Any) -> Any:
    """Return a * b + c of float32 or float64 numbers or arrays, with one rounding.

    The product of two fp32 numbers is exact in fp64. Its sum with c is rounded to odd there (Boldo
    and Melquiond, "Emulation of FMA and correctly rounded sums", 2008), so that the second
    rounding, to fp32, gives the correctly rounded result.
    """
    if np.result_type(a, b, c) == np.float64 and np.ndim(a) + np.ndim(b) + np.ndim(c):
        return np.vectorize(fused_multiply_add, otypes=[np.float64])(a, b, c)
    if isinstance(a, float):  # also a NumPy float64
        exact = Fraction(a) * Fraction(b) + Fraction(c) if np.isfinite([a, b, c]).all() else None
        return np.float64(a * b + c if exact is None else float(exact))
    with np.errstate(all="ignore"):
        product = np.multiply(a, b, dtype=np.float64)
        addend = np.broadcast_to(np.asarray(c, np.float64), product.shape)
        total = product + addend
        virtual = total - product
        error = (product - (total - virtual)) + (addend - virtual)
        even = (total.view(np.int64) & 1) == 0
        towards = np.nextafter(total, np.where(error > 0, np.inf, -np.inf))
        odd = np.where(np.isfinite(total) & (error != 0) & even, towards, total)
        return odd.astype(np.float32)[()]


def _multiply_add(context: Any, builder: ir.IRBuilder, kinds: Any, *values: ir.Value) -> ir.Value:
    return emit_intrinsic(builder, "fma", *as_lanes(builder, common_numbers(*kinds), kinds, values))


multiply_add = instruction(common_numbers, _multiply_add)(fused_multiply_add)
"""Fused multiply-add in kernels, of numbers and of lanes."""


STREAM_BYTES = 1 << 23
"""Larger results are written with non-temporal stores: a cached store reads every line first.
Smaller results stay in the cache for their reader."""
STREAM_ROW_BYTES = 3072
"""Shorter rows that begin or end within a cache line do not use non-temporal stores: a partial
store to a line delays the next ones. Rows of 2 KiB were 5 to 50 % slower that way, rows of 4 KB
10 % faster."""


# --- Operations: what emits the instructions, then the reference implementation ---

_HALF, _I8, _I16 = ir.HalfType(), ir.IntType(8), ir.IntType(16)
_UPPER_HALF = 0xFFFF_0000
Rounding = Callable[[ir.IRBuilder, ir.Value, int], ir.Value]
"""Function that emits the rounding of a vector and its number of lanes; the upper halves of the
result are the bf16 elements."""


def _lane_by_lane(
    context: Any,
    builder: ir.IRBuilder,
    function: Any,
    signature: Any,
    vector: ir.Value,
    result: ir.Type,
) -> ir.Value:
    """Emit a scalar function for every lane, for processors without an instruction for it."""
    count = vector.type.count
    lanes = undefined_vector(result, count)
    for lane in range(count):
        value = context.compile_internal(
            builder, function, signature, [builder.extract_element(vector, I32(lane))]
        )
        lanes = builder.insert_element(lanes, value, I32(lane))
    return lanes


def widen_half(context: Any, builder: ir.IRBuilder, address: ir.Value, count: int) -> ir.Value:
    """Emit the load of fp16 elements at an address, widened."""
    if has_half_conversions():
        halves = load_vector(builder, address, _HALF, count, 2)
        return builder.fpext(halves, ir.VectorType(FLOAT, count))
    bits = load_vector(builder, address, _I16, count, 2)
    return _lane_by_lane(
        context, builder, lambda bits: fp16_to_fp32(bits), types.float32(types.int16), bits, FLOAT
    )


def narrow_to_half(context: Any, builder: ir.IRBuilder, lanes: ir.Value, count: int) -> ir.Value:
    """Emit the rounding of lanes to fp16."""
    if has_half_conversions():
        return builder.fptrunc(lanes, ir.VectorType(_HALF, count))
    return _lane_by_lane(
        context, builder, lambda value: fp32_to_fp16(value), types.int16(types.float32), lanes, _I16
    )


def widen_bfloat(builder: ir.IRBuilder, address: ir.Value, count: int) -> ir.Value:
    """Emit the load of bf16 elements, widened: all even elements, then all odd ones.

    A word of two elements has the even one in its lower half and the odd one in its upper half.
    """
    half = count // 2
    words = load_vector(builder, address, I32, half, 2)
    even = builder.shl(words, constant_vector(I32, half, BF16_SHIFT))
    odd = builder.and_(words, constant_vector(I32, half, _UPPER_HALF))
    floats = ir.VectorType(FLOAT, half)
    return builder.shuffle_vector(
        builder.bitcast(even, floats), builder.bitcast(odd, floats), counting_vector(0, count)
    )


def round_to_bfloat(builder: ir.IRBuilder, lanes: ir.Value, count: int) -> ir.Value:
    """Emit the rounding to nearest even, a :data:`Rounding`."""
    bits = builder.bitcast(lanes, ir.VectorType(I32, count))
    last = builder.and_(
        builder.lshr(bits, constant_vector(I32, count, BF16_SHIFT)), constant_vector(I32, count, 1)
    )
    below_half = constant_vector(I32, count, (1 << (BF16_SHIFT - 1)) - 1)
    rounded = builder.add(bits, builder.add(last, below_half))
    return _unless_nan(builder, lanes, bits, rounded)


def _round_away_to_bfloat(builder: ir.IRBuilder, lanes: ir.Value, count: int) -> ir.Value:
    """Emit the rounding to nearest, ties away from zero, a :data:`Rounding`."""
    bits = builder.bitcast(lanes, ir.VectorType(I32, count))
    rounded = builder.add(bits, constant_vector(I32, count, 1 << (BF16_SHIFT - 1)))
    return _unless_nan(builder, lanes, bits, rounded)


def _unless_nan(
    builder: ir.IRBuilder, lanes: ir.Value, bits: ir.Value, rounded: ir.Value
) -> ir.Value:
    """Emit rounded bits, or those of nan where a lane is nan."""
    count = bits.type.count
    sign = builder.and_(bits, constant_vector(I32, count, FP32_SIGN))
    nan = builder.or_(sign, constant_vector(I32, count, BF16_NAN << BF16_SHIFT))
    return builder.select(builder.fcmp_unordered("uno", lanes, lanes), nan, rounded)


def narrow_to_bfloat(
    builder: ir.IRBuilder, lanes: ir.Value, count: int, round_to_bfloat: Rounding
) -> ir.Value:
    """Emit the rounding to bf16, in the order of elements again (see `widen_bfloat`)."""
    half, unused = count // 2, undefined_vector(FLOAT, count)
    even, odd = (
        round_to_bfloat(
            builder, builder.shuffle_vector(lanes, unused, counting_vector(at, half)), half
        )
        for at in (0, half)
    )
    lower = builder.lshr(even, constant_vector(I32, half, BF16_SHIFT))
    return builder.or_(lower, builder.and_(odd, constant_vector(I32, half, _UPPER_HALF)))


def emit_load(
    context: Any, builder: ir.IRBuilder, array_type: Any, address: ir.Value, count: int
) -> ir.Value:
    """Emit the load of some elements at an address, widened."""
    if array_type.dtype == types.int16:
        return widen_half(context, builder, address, count)
    if array_type.dtype == types.uint16:
        return widen_bfloat(builder, address, count)
    return load_vector(builder, address, FLOAT, count, 4)


CONVERTED_LANES = 16
"""Lanes that one instruction of AVX-512 rounds to fp16."""
_NEAREST_EVEN = 0


def _narrow_to_integers(builder: ir.IRBuilder, lanes: ir.Value) -> ir.Value:
    """Emit the rounding of lanes to fp16, as a vector of integers.

    LLVM has vectors of halves with avx512fp16, but no non-temporal stores of them: large calls of
    AddRmsNorm took 1.5 times as long.
    """
    part, halves = ir.VectorType(FLOAT, CONVERTED_LANES), ir.VectorType(_I16, CONVERTED_LANES)
    name, kinds = "llvm.x86.avx512.mask.vcvtps2ph.512", (part, I32, halves, _I16)
    convert = builder.module.globals.get(name) or ir.Function(
        builder.module, FunctionType(halves, kinds), name
    )
    unused, every = undefined_vector(FLOAT, lanes.type.count), _I16(-1)
    parts = []
    for at in range(0, lanes.type.count, CONVERTED_LANES):
        numbers = builder.shuffle_vector(lanes, unused, counting_vector(at, CONVERTED_LANES))
        arguments = numbers, I32(_NEAREST_EVEN), undefined_vector(_I16, CONVERTED_LANES), every
        parts.append(builder.call(convert, arguments))
    while len(parts) > 1:
        order = counting_vector(0, 2 * parts[0].type.count)
        parts = [
            builder.shuffle_vector(one, other, order)
            for one, other in zip(parts[::2], parts[1::2], strict=True)
        ]
    return parts[0]


def narrow_lanes(
    context: Any,
    builder: ir.IRBuilder,
    array_type: Any,
    lanes: ir.Value,
    rounding: Rounding = round_to_bfloat,
) -> ir.Value:
    """Emit the rounding of lanes to elements: fp32, fp16, or 32-bit words of two bf16 elements."""
    if array_type.dtype == types.float32:
        return lanes
    if array_type.dtype == types.int16:
        if has_features("avx512fp16") and lanes.type.count % CONVERTED_LANES == 0:
            return _narrow_to_integers(builder, lanes)
        return narrow_to_half(context, builder, lanes, lanes.type.count)
    return narrow_to_bfloat(builder, lanes, lanes.type.count, rounding)


def emit_store(
    round_to_bfloat: Rounding,
    streams: bool,
    context: Any,
    builder: ir.IRBuilder,
    kinds: Any,
    *values: Any,
) -> None:
    """Emit the store of lanes, rounded; with ``streams`` a non-temporal one to a cache line."""
    array, index, lanes = values
    bits = narrow_lanes(context, builder, kinds[0], lanes, round_to_bfloat)
    address = element_address(context, builder, kinds[0], lanes.type.count, array, index)
    _store_bits(streams, builder, kinds[0], lanes, address, bits)


def _store_bits(
    streams: bool,
    builder: ir.IRBuilder,
    array_type: Any,
    lanes: ir.Value,
    address: ir.Value,
    bits: ir.Value,
) -> None:
    """Emit the store of the elements of lanes; with ``streams`` a non-temporal one."""
    stored = builder.store(bits, builder.bitcast(address, bits.type.as_pointer()))
    stored.align = array_type.dtype.bitwidth // 8
    if streams:
        stored.align = min(LINE_BYTES, stored.align * lanes.type.count)
        stored.set_metadata("nontemporal", builder.module.add_metadata([I32(1)]))


def _splat(context: Any, builder: ir.IRBuilder, kinds: Any, value: Any, like: Any) -> ir.Value:
    return splat_numbers(builder, value, line_elements(kinds[1]))


@instruction(lambda value, like: lanes_of(like), _splat)
def splat(value: np.float32, like: Stored) -> Floats:
    """Return a value in as many lanes as a cache line of ``like`` has elements."""
    return np.full(LINE_BYTES // like.itemsize, value, np.float32)


def emit_load_at(
    count_of: Callable[..., int],
    context: Any,
    builder: ir.IRBuilder,
    kinds: Any,
    array: Any,
    index: Any,
    *_others: Any,
) -> ir.Value:
    """Emit the load of the elements from ``index`` on, widened: ``count_of(*kinds)`` of them."""
    count = count_of(*kinds)
    address = element_address(context, builder, kinds[0], count, array, index)
    return emit_load(context, builder, kinds[0], address, count)


@instruction(
    lambda array, index: lanes_of(array),
    partial(emit_load_at, lambda array, index: line_elements(array)),
)
def load(array: Stored, index: int) -> Floats:
    """Return the elements from ``index`` on, widened to fp32."""
    line = array[index : index + LINE_BYTES // array.itemsize]
    return np.array([widen(element) for element in line], np.float32)


def _rounds(lanes: Any, like: Any) -> LanesType | None:
    is_stored = lanes_of(like) is not None and isinstance(lanes, LanesType)
    return lanes if is_stored else None


def _rounded(context: Any, builder: ir.IRBuilder, kinds: Any, lanes: Any, like: Any) -> ir.Value:
    count, kind = kinds[0].count, kinds[1].dtype
    if kind == types.float32:
        return lanes
    if kind == types.uint16:
        bits = round_to_bfloat(builder, lanes, count)
        upper = builder.and_(bits, constant_vector(I32, count, _UPPER_HALF))
        return builder.bitcast(upper, kinds[0].vector)
    halves = narrow_to_half(context, builder, lanes, count)
    if has_half_conversions():
        return builder.fpext(halves, kinds[0].vector)
    widened = types.float32(types.int16)
    return _lane_by_lane(context, builder, lambda bits: fp16_to_fp32(bits), widened, halves, FLOAT)


@instruction(_rounds, _rounded)
def rounded(lanes: Floats, like: Stored) -> Floats:
    """Return lanes rounded once to the storage type of ``like``, and widened again."""
    return np.array([widen(narrow(value, like)) for value in lanes], np.float32)


def _saturated(
    context: Any, builder: ir.IRBuilder, kinds: Any, lanes: Any, largest: Any
) -> ir.Value:
    count, value = kinds[0].count, lanes
    high = splat_numbers(builder, largest, count)
    for comparison, bound in ((">", high), ("<", builder.fneg(high))):
        value = builder.select(builder.fcmp_ordered(comparison, value, bound), bound, value)
    is_nan = builder.fcmp_unordered("uno", lanes, lanes)
    return builder.select(is_nan, ir.Constant(kinds[0].vector, None), value)


@instruction(lambda lanes, largest: common_lanes((lanes, largest)), _saturated)
def saturated(lanes: Floats, largest: np.float32) -> Floats:
    """Return lanes within a largest magnitude, with 0 for nan."""
    clipped: Floats = np.clip(lanes, -largest, largest)
    return np.where(np.isnan(lanes), ZERO, clipped)


@instruction(stored_lanes, partial(emit_store, round_to_bfloat, False))
def store(array: Stored, index: int, lanes: Floats) -> None:
    """Round once to the storage type and store from ``index`` on."""
    for lane, value in enumerate(lanes):
        array[index + lane] = narrow(value, array)


@instruction(stored_lanes, partial(emit_store, round_to_bfloat, True))
def stream(array: Stored, index: int, lanes: Floats) -> None:
    """Like `store`, with non-temporal stores.

    ``index`` must start a cache line (`to_next_line`), and `end_streams` must follow.
    """
    store(array, index, lanes)


def _end_streams(context: Any, builder: ir.IRBuilder, kinds: Any) -> None:
    builder.fence("seq_cst")  # weaker fences do not wait for non-temporal stores on x86


@instruction(always(types.void), _end_streams)
def end_streams() -> None:
    """Make non-temporal stores visible to other threads."""


def _to_next_line(
    context: Any, builder: ir.IRBuilder, kinds: Any, array: Any, index: Any
) -> ir.Value:
    element = element_address(context, builder, kinds[0], 0, array, index)
    missing = builder.and_(builder.neg(builder.ptrtoint(element, I64)), I64(LINE_BYTES - 1))
    return builder.udiv(missing, I64(kinds[0].dtype.bitwidth // 8))


@instruction(lambda array, index: lanes_of(array) and types.intp, _to_next_line)
def to_next_line(array: Stored, index: int) -> int:
    """Return the number of elements from ``index`` to the next start of a cache line; 0 at one."""
    return int(-(array.ctypes.data + index * array.itemsize) % LINE_BYTES // array.itemsize)


def _prefetch(to_write: int, context: Any, builder: ir.IRBuilder, kinds: Any, *values: Any) -> None:
    element = element_address(context, builder, kinds[0], 0, *values)
    address = builder.bitcast(element, _I8.as_pointer())
    function_type = FunctionType(ir.VoidType(), [address.type, I32, I32, I32])
    function = builder.module.declare_intrinsic("llvm.prefetch", [address.type], function_type)
    keep_in_all_levels, data_cache = I32(3), I32(1)
    builder.call(function, [address, I32(to_write), keep_in_all_levels, data_cache])


@instruction(always(types.void), partial(_prefetch, 0))
def prefetch(array: Stored, index: int) -> None:
    """Prefetch the cache line of an element of any array; the element need not exist."""


@instruction(always(types.void), partial(_prefetch, 1))
def prefetch_to_write(array: Stored, index: int) -> None:
    """Prefetch the cache line of an element that will be written."""


def is_streamed(out: Stored, least_row_bytes: int = STREAM_ROW_BYTES) -> bool:
    """Return whether a result (rows, columns) is written with non-temporal stores."""
    return out.nbytes > STREAM_BYTES and out.shape[1] * out.itemsize >= least_row_bytes


@device_function
def prefetch_lines(array: Stored, index: int, count: int) -> None:
    """Prefetch the cache lines of ``count`` elements from ``index`` on, which need not exist."""
    for element in range(index, index + count, LINE_BYTES // array.itemsize):
        prefetch(array, element)


AHEAD_BYTES = 4096
"""Prefetch distance of arrays that are read in order. Where the processor does so alone, kernels of
two to four inputs waited for memory for 15 to 25 % of the time."""


@device_function
def prefetch_ahead(array: Stored, index: int, count: int) -> None:
    """Prefetch what is read `AHEAD_BYTES` after ``count`` elements from ``index`` on.

    Kernels that read a single line at a time call `prefetch`: with plain Numba, a loop for every
    line takes as long as the rest.
    """
    prefetch_lines(array, index + AHEAD_BYTES // array.itemsize, count)


ORDERED_LANES = 16
"""Lanes of a vector in the order of the elements: a cache line of fp32 numbers."""


GROUP_LANES = 64
"""Lanes of a longer vector in that order, for kernels with many operations per element."""


def _load_ordered(
    count: int, context: Any, builder: ir.IRBuilder, kinds: Any, array: Any, index: Any
) -> ir.Value:
    address = element_address(context, builder, kinds[0], count, array, index)
    if kinds[0].dtype != types.uint16:
        return emit_load(context, builder, kinds[0], address, count)
    elements = load_vector(builder, address, _I16, count, 2)
    words = builder.zext(elements, ir.VectorType(I32, count))
    bits = builder.shl(words, constant_vector(I32, count, BF16_SHIFT))
    return builder.bitcast(bits, ir.VectorType(FLOAT, count))


@instruction(
    lambda array, index: lanes_of(array) and LanesType(ORDERED_LANES),
    partial(_load_ordered, ORDERED_LANES),
)
def load_ordered(array: Stored, index: int) -> Floats:
    """Return `ORDERED_LANES` elements from ``index`` on, widened, in their order."""
    elements = array[index : index + ORDERED_LANES]
    return np.array([widen(element) for element in elements], np.float32)


def _ordered_lanes(array: Any, _index: Any, lanes: Any) -> Any:
    return types.void if lanes_of(array) and lanes == LanesType(ORDERED_LANES) else None


def _store_ordered(
    rounding: Rounding, streams: bool, context: Any, builder: ir.IRBuilder, kinds: Any, *values: Any
) -> None:
    array, index, lanes = values
    if kinds[0].dtype == types.uint16:
        words = rounding(builder, lanes, ORDERED_LANES)
        upper = builder.lshr(words, constant_vector(I32, ORDERED_LANES, BF16_SHIFT))
        bits = builder.trunc(upper, ir.VectorType(_I16, ORDERED_LANES))
    else:
        bits = narrow_lanes(context, builder, kinds[0], lanes)
    address = element_address(context, builder, kinds[0], ORDERED_LANES, array, index)
    _store_bits(streams, builder, kinds[0], lanes, address, bits)


@instruction(_ordered_lanes, partial(_store_ordered, round_to_bfloat, False))
def store_ordered(array: Stored, index: int, lanes: Floats) -> None:
    """Round lanes in the order of the elements once and store them from ``index`` on."""
    store(array, index, lanes)


@instruction(_ordered_lanes, partial(_store_ordered, round_to_bfloat, True))
def stream_ordered(array: Stored, index: int, lanes: Floats) -> None:
    """Like `store_ordered`, with non-temporal stores.

    The elements must be in one cache line, or its half if they have 16 bits, and `end_streams`
    must follow.
    """
    store(array, index, lanes)


@instruction(_ordered_lanes, partial(_store_ordered, _round_away_to_bfloat, False))
def store_away(array: Stored, index: int, lanes: Floats) -> None:
    """Like `store_ordered`, with ties of bf16 rounded away from zero."""
    store(array, index, ties_away(lanes) if array.dtype == np.uint16 else lanes)


@instruction(_ordered_lanes, partial(_store_ordered, _round_away_to_bfloat, True))
def stream_away(array: Stored, index: int, lanes: Floats) -> None:
    """Like `stream_ordered`, with ties of bf16 rounded away from zero."""
    store_away(array, index, lanes)


def _ties_away(context: Any, builder: ir.IRBuilder, kinds: Any, x: Any) -> ir.Value:
    bits = builder.bitcast(x, I32)
    half = builder.lshr(bits, I32(BF16_SHIFT - 1))
    return builder.bitcast(builder.or_(bits, builder.and_(half, I32(1))), x.type)


@instruction(lambda x: x if x == types.float32 else None, _ties_away)
def ties_away(x: Any) -> Any:
    """Return a number that rounds to nearest even in bf16 as ``x`` does with ties away from zero.

    Where the highest bit that is rounded off is set, so is the last one: above a tie, not at it.
    """
    bits = x.view(np.uint32)
    return (bits | (bits >> np.uint32(BF16_SHIFT - 1)) & np.uint32(1)).view(np.float32)


@instruction(
    lambda array, index: lanes_of(array) and LanesType(GROUP_LANES),
    partial(_load_ordered, GROUP_LANES),
)
def load_group(array: Stored, index: int) -> Floats:
    """Return `GROUP_LANES` elements from ``index`` on, widened, in their order."""
    elements = array[index : index + GROUP_LANES]
    return np.array([widen(element) for element in elements], np.float32)


def _is_kept(kept: Any) -> bool:
    return lanes_of(kept) is not None and kept.dtype == types.float32


def _kept_lanes(kept: Any, _index: Any, lanes: Any) -> Any:
    return types.void if _is_kept(kept) and isinstance(lanes, LanesType) else None


@instruction(_kept_lanes, partial(emit_store, round_to_bfloat, False))
def store_lanes(kept: Floats, index: int, lanes: Floats) -> None:
    """Write lanes to ``kept`` from ``index`` on."""
    kept[index : index + lanes.size] = lanes


@instruction(
    lambda kept, index, like: lanes_of(like) if _is_kept(kept) else None,
    partial(emit_load_at, lambda kept, index, like: line_elements(like)),
)
def load_lanes(kept: Floats, index: int, like: Stored) -> Floats:
    """Return the lanes of ``like`` that `store_lanes` wrote from ``index`` on."""
    return kept[index : index + LINE_BYTES // like.itemsize].copy()


def _half_of(lanes: Any, like: Any) -> LanesType | None:
    fits = lanes is not None and lanes == lanes_of(like)
    return LanesType(lanes.count // 2) if fits else None


def _add_neighbours(
    context: Any, builder: ir.IRBuilder, kinds: Any, lanes: Any, like: Any
) -> ir.Value:
    count = kinds[0].count // 2
    if kinds[1].dtype == types.uint16:  # widening has split even and odd elements
        places = [range(count), range(count, 2 * count)]
    else:
        places = [range(side, 2 * count, 2) for side in (0, 1)]
    unused, kind = undefined_vector(FLOAT, 2 * count), ir.VectorType(I32, count)
    even, odd = (
        builder.shuffle_vector(lanes, unused, ir.Constant(kind, list(side))) for side in places
    )
    return builder.fadd(even, odd)


@instruction(_half_of, _add_neighbours)
def add_neighbours(lanes: Floats, like: Stored) -> Floats:
    """Return the sums of neighbouring pairs of elements, in their order, of lanes of ``like``."""
    return np.asarray(lanes[0::2] + lanes[1::2])
