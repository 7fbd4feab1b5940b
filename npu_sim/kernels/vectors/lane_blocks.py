"""Blocks of fp32 lanes, for kernels with many operations per element, and exp.

With AVX-512 a block has four cache lines, which hides the latency of instructions; otherwise it has
one. The compiler vectorises plain loops too, but it neither splits 32-bit words of two bf16
elements as cheaply nor uses the widest registers for fp32.

Lanes are independent: an operation on blocks (``+``, ``-``, ``*`` and ``/``
with blocks and numbers, and the functions below) is one operation for every lane. The
reference implementations (NUMBA_DISABLE_JIT=1) work on NumPy arrays and give the same bits.

Arrays are storage arrays, 1-D and C-contiguous: float32, int16 (fp16) or uint16 (bf16). Indices
count elements.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core.datamodel import models
from numba.extending import register_model
from numpy.typing import NDArray

from npu_sim.kernels.engine.compile import device_function
from npu_sim.kernels.vectors.lanes import (
    FLOAT,
    I32,
    I64,
    LINE_BYTES,
    ONE,
    ZERO,
    Floats,
    Lanes,
    LanesType,
    Stored,
    always,
    as_lanes,
    common_lanes,
    common_numbers,
    constant_vector,
    element_address,
    emit_intrinsic,
    emit_load_at,
    emit_store,
    instruction,
    lanes_of,
    load_vector,
    multiply_add,
    prefetch_ahead,
    round_to_bfloat,
    splat_numbers,
    to_next_line,
)
from npu_sim.kernels.vectors.lanes_edges import element_order
from npu_sim.numbers.scalars import (
    BF16_SHIFT,
    FP32_MAGNITUDE,
    FP32_MANTISSA_BITS,
    has_features,
    narrow,
    widen,
)

Patterns = NDArray[np.signedinteger[Any]]

FP64_MANTISSA_BITS = 52


BLOCK_BYTES = LINE_BYTES * (4 if has_features("avx512f") else 1)
"""Bytes of the stored elements of a block: as many as fit the registers during a polynomial."""


# --- Operations: what emits the instructions, then the reference implementation ---


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


def _block_of(array: Any, *_others: Any) -> LanesType | None:
    """Return the type of a block of an array type; None when it is not a storage array."""
    count = _lane_count(array)
    return LanesType(count) if count else None


def _block_length(context: Any, builder: ir.IRBuilder, kinds: Any, array: Any) -> ir.Value:
    return I64(_lane_count(kinds[0]))


@instruction(always(types.intp), _block_length)
def block_length(array: Stored) -> int:
    """Return the number of elements of a block of an array."""
    return BLOCK_BYTES // array.itemsize


@instruction(_block_of, partial(emit_load_at, lambda array, index: _lane_count(array)))
def load_block(array: Stored, index: int) -> Floats:
    """Return the block of elements from ``index`` on, widened to fp32."""
    block = array[index : index + block_length(array)]
    return np.array([widen(element) for element in block], np.float32)


@device_function
def load_from_memory(array: Stored, index: int, ahead: bool) -> Lanes:
    """Return a block as `load_block` does; with ``ahead``, prefetch a later one."""
    if ahead:
        prefetch_ahead(array, index, block_length(array))
    return load_block(array, index)


def _zeros(context: Any, builder: ir.IRBuilder, kinds: Any, like: Any) -> ir.Value:
    return ir.Constant(LanesType(_lane_count(kinds[0])).vector, None)


@instruction(_block_of, _zeros)
def zero_block(like: Stored) -> Floats:
    """Return a block of zeros."""
    return np.zeros(block_length(like), np.float32)


@instruction(
    lambda kept, index, like: _block_of(like),
    partial(emit_load_at, lambda kept, index, like: _lane_count(like)),
)
def load_lane_block(kept: Floats, index: int, like: Stored) -> Floats:
    """Return a block of lanes of ``like`` that `store_lanes` wrote from ``index`` on."""
    return kept[index : index + block_length(like)].copy()


def _block_like(context: Any, builder: ir.IRBuilder, kinds: Any, *values: Any) -> ir.Value:
    numbers, index, _ = values
    count = _lane_count(kinds[2])
    address = element_address(context, builder, kinds[0], count, numbers, index)
    lanes = load_vector(builder, address, FLOAT, count, 4)
    order = ir.Constant(ir.VectorType(I32, count), element_order(kinds[2], count))
    return builder.shuffle_vector(lanes, lanes, order)


@instruction(lambda numbers, index, like: _block_of(like), _block_like)
def load_block_like(numbers: Floats, index: int, like: Stored) -> Floats:
    """Return fp32 numbers from ``index`` on as a block of ``like``."""
    return numbers[index : index + block_length(like)].copy()


def _stored_block(array: Any, _index: Any, values: Any) -> Any:
    return types.void if values in (LanesType(_lane_count(array)), lanes_of(array)) else None


@instruction(_stored_block, partial(emit_store, round_to_bfloat, False))
def store_block(array: Stored, index: int, values: Floats) -> None:
    """Round a block, or the lanes of a line, to the storage type and store it."""
    for lane, value in enumerate(values):
        array[index + lane] = narrow(value, array)


@instruction(_stored_block, partial(emit_store, round_to_bfloat, True))
def stream_block(array: Stored, index: int, values: Floats) -> None:
    """Like `store_block`, with non-temporal stores, see `stream_numbers`."""
    store_block(array, index, values)


@device_function
def put_block(array: Stored, index: int, values: Any, streams: bool) -> None:
    """Store a block, non-temporally with ``streams``."""
    if streams:
        stream_block(array, index, values)
    else:
        store_block(array, index, values)


@device_function
def over_row(inputs: Any, out: Stored, streams: bool, block_at: Any, part_at: Any) -> None:
    """Compute a row by blocks, ``block_at(inputs, column, streams)``; the last ones may overlap.

    With ``streams``, blocks with whole cache lines of ``out`` are to be written with non-temporal
    stores. Shorter rows are computed by lines, ``part_at(inputs, column, size)``. Both are
    constants of a kernel.
    """
    step, line = block_length(out), LINE_BYTES // out.itemsize
    if out.size < step:
        for column in range(0, out.size, line):
            part_at(inputs, column, min(line, out.size - column))
        return
    first = to_next_line(out, 0) if streams else 0
    end = first + (out.size - first) // step * step
    if first > 0:
        block_at(inputs, 0, False)
    for column in range(first, end, step):
        block_at(inputs, column, streams)
    if end < out.size:
        block_at(inputs, out.size - step, False)


@instruction(_stored_block, partial(emit_store, _rounded_to_bfloat, False))
def store_numbers(array: Stored, index: int, values: Floats) -> None:
    """Round a block, or the lanes of a line, to the storage type and store it; nan not allowed."""
    for lane, value in enumerate(values):
        array[index + lane] = narrow(value, array)


@instruction(_stored_block, partial(emit_store, _rounded_to_bfloat, True))
def stream_numbers(array: Stored, index: int, values: Floats) -> None:
    """Like `store_numbers`, with non-temporal stores.

    ``index`` must start a cache line, and `npu_sim.kernels.vectors.lanes.end_streams` must follow.
    """
    store_numbers(array, index, values)


def _same_type(shifted: Any) -> Any:
    is_known = isinstance(shifted, LanesType) or shifted == types.float32
    return shifted if is_known else None


def _power_of_two(context: Any, builder: ir.IRBuilder, kinds: Any, shifted: Any) -> ir.Value:
    integer, places = I32, I32(FP32_MANTISSA_BITS)
    if isinstance(kinds[0], LanesType):
        integer = ir.VectorType(I32, kinds[0].count)
        places = constant_vector(I32, kinds[0].count, FP32_MANTISSA_BITS)
    return builder.bitcast(builder.shl(builder.bitcast(shifted, integer), places), shifted.type)


@instruction(_same_type, _power_of_two)
def power_of_two(shifted: Any) -> Any:
    """Return 2^n, a normal number, from 1.5 * 2^23 + 127 + n, of a block or of one fp32 number."""
    return (shifted.view(np.uint32) << np.uint32(FP32_MANTISSA_BITS)).view(np.float32)


def _patterns_of(array: Any, _index: Any) -> PatternsType | None:
    count = _lane_count(array)
    return PatternsType(array.dtype.bitwidth, count) if count else None


def _patterns_at(context: Any, builder: ir.IRBuilder, kinds: Any, *values: Any) -> ir.Value:
    count, width = _lane_count(kinds[0]), kinds[0].dtype.bitwidth
    address = element_address(context, builder, kinds[0], count, *values)
    return load_vector(builder, address, ir.IntType(width), count, width // 8)


@instruction(_patterns_of, _patterns_at)
def patterns_at(array: Stored, index: int) -> Patterns:
    """Return the bit patterns of the block from ``index`` on, as signed integers."""
    signed = np.int32 if array.itemsize == 4 else np.int16
    return array[index : index + block_length(array)].view(signed)


def _compared(a: Any, b: Any) -> Any:
    return a if isinstance(a, PatternsType) and a == b else common_lanes((a, b))


def _larger(context: Any, builder: ir.IRBuilder, kinds: Any, *values: Any) -> ir.Value:
    return _emit_larger(builder, *as_lanes(builder, _compared(*kinds), kinds, values))


def _emit_larger(builder: ir.IRBuilder, a: ir.Value, b: ir.Value) -> ir.Value:
    is_pattern = isinstance(a.type.element, ir.IntType)
    compare = builder.icmp_signed if is_pattern else builder.fcmp_ordered
    return builder.select(compare(">", a, b), a, b)


@instruction(_compared, _larger)
def larger(a: Any, b: Any) -> Any:
    """Return the larger pattern, or number, of every lane; b where one of them is nan."""
    return np.where(a > b, a, b)


def _element_type(lanes: Any) -> Any:
    if isinstance(lanes, PatternsType):
        return types.Integer.from_bitwidth(lanes.width)
    return types.float32 if isinstance(lanes, LanesType) else None


def _largest(context: Any, builder: ir.IRBuilder, kinds: Any, lanes: Any) -> ir.Value:
    count = kinds[0].count
    while count > 1:
        count //= 2
        halves = (
            ir.Constant(ir.VectorType(I32, count), list(range(first, first + count)))
            for first in (0, count)
        )
        parts = (builder.shuffle_vector(lanes, lanes, half) for half in halves)
        lanes = _emit_larger(builder, *parts)
    return builder.extract_element(lanes, I32(0))


@instruction(_element_type, _largest)
def largest(lanes: Any) -> Any:
    """Return the largest pattern, or number, of all lanes; numbers without nan."""
    return lanes.max()


# --- exp ---
#
# In fp32, at most 1 ulp from the exact value, in a form that compilers vectorise.
#
# x = k*ln2 + r with an integer k and |r| <= ln2/2, then exp(x) = 2^k * exp(r) with a polynomial of
# degree 6. Here, unlike everywhere else, multiplications and additions are fused, with the same
# bits on every processor (`multiply_add`): the device's exp is only known to 1 ulp, and fused it
# takes three fifths of the instructions. No library function is called. Largest error over all fp32
# numbers: 0.891 ulp, at 5.199101 and -5.848642 (``benchmarks/exponential.py`` tries all of them,
# ``tests/kernels/test_exponential.py`` a sample).

LOWEST_MODERATE = -87.0
"""Lowest argument of :func:`exp_moderate`: 2^k stays a normal number."""

# Beyond these the result is 0 or inf; between them k is bounded.
_LOWEST = np.float32(-104.0)
_HIGHEST = np.float32(89.0)

_LOG2_E = np.float32(1.44269504)
# ln2 in two parts (the fdlibm split): the first has 15 bits, so that its product with k, of at most
# 8 bits, is exact.
_MINUS_LN2_HIGH = np.float32(-0.693145751953125)
_MINUS_LN2_LOW = np.float32(-1.4286067653e-06)

# exp(r) = 1 + r + r^2 * (C2 + r*C3 + ...): minimax in ulps of the result. The coefficients were
# rounded to fp32 one by one, and the others fitted again each time; largest error before rounding
# 0.037 ulp.
_C2 = np.float32(0.49999991)
_C3 = np.float32(0.16666521)
_C4 = np.float32(0.041668896)
_C5 = np.float32(0.008368689)
_C6 = np.float32(0.0013789239)

# Adding 1.5 * 2^23 to a number below 2^22 in magnitude rounds it to an integer, in the low bits of
# the pattern. With the exponent bias 127 added, these bits shifted into the exponent field are a
# power of two.
_MODERATE_POWER = np.float32(1.5 * 2.0**23 + 127)

# 2^k leaves the range of normal numbers at both ends; 2^(k + 63) * 2^-63 and 2^(k - 63) * 2^63 do
# not, and round once.
_NEGATIVE_POWER = np.float32(1.5 * 2.0**23 + 127 + 63)
_POSITIVE_POWER = np.float32(1.5 * 2.0**23 + 127 - 63)
_TWO_TO_MINUS_63 = np.float32(2.0**-63)
_TWO_TO_63 = np.float32(2.0**63)


@device_function
def _polynomial(x: Any, k: Any) -> Any:
    """Return exp(x - k*ln2), of numbers or of lanes."""
    r = multiply_add(k, _MINUS_LN2_LOW, multiply_add(k, _MINUS_LN2_HIGH, x))
    tail = multiply_add(multiply_add(multiply_add(_C6, r, _C5), r, _C4), r, _C3)
    return multiply_add(multiply_add(multiply_add(tail, r, _C2), r, ONE), r, ONE)


@device_function
def exp_fp32(x: np.float32) -> np.float32:
    """Return exp(x) for any fp32 number; results may be 0, subnormal, inf or nan."""
    x = _LOWEST if x < _LOWEST else x
    x = _HIGHEST if x > _HIGHEST else x
    power = _NEGATIVE_POWER if x < ZERO else _POSITIVE_POWER
    rest = _TWO_TO_MINUS_63 if x < ZERO else _TWO_TO_63
    shifted = multiply_add(x, _LOG2_E, power)
    return (_polynomial(x, shifted - power) * power_of_two(shifted)) * rest


@device_function
def exp_moderate(x: Any) -> Any:
    """Return exp(x) for -87 <= x <= -0, in two thirds of the instructions of :func:`exp_fp32`.

    The bits are the same. ``x`` is a fp32 number or a block of lanes
    (see `load_block`).
    """
    shifted = multiply_add(x, _LOG2_E, _MODERATE_POWER)
    return _polynomial(x, shifted - _MODERATE_POWER) * power_of_two(shifted)


# --- exp in fp64, for SwiGlu and CrossEntropyLoss ---

_LOG2_E_FP64 = 1.4426950408889634
_MINUS_LN2_HIGH_FP64, _MINUS_LN2_LOW_FP64 = -0.6931471805599453, -2.3190468138462996e-17
_FP64_POWER = 1.5 * 2.0**52
"""Adding it to a number below 2^51 in magnitude rounds it to an integer, in the low bits of the
pattern."""
_HIGHEST_FP64, _LOWEST_BESIDE_ONE = np.float32(89), np.float32(-40)
_LOWEST_FP64 = np.float32(-110)
"""e^89 is inf in fp32; e^-40 is lost when 1 is added in fp32, and e^-110 is 0."""


def _wide(lanes: Any, *_others: Any) -> LanesType:
    return LanesType(lanes.count, types.float64)


def _extended(context: Any, builder: ir.IRBuilder, kinds: Any, lanes: Any) -> ir.Value:
    return builder.fpext(lanes, _wide(*kinds).vector)


@instruction(_wide, _extended)
def _in_fp64(lanes: Floats) -> Any:
    """Return fp32 lanes as fp64 lanes."""
    return lanes.astype(np.float64)


def _rounded(context: Any, builder: ir.IRBuilder, kinds: Any, lanes: Any) -> ir.Value:
    return builder.fptrunc(lanes, LanesType(kinds[0].count).vector)


@instruction(lambda lanes: LanesType(lanes.count), _rounded)
def _in_fp32(lanes: Any) -> Floats:
    """Return fp64 lanes rounded to fp32."""
    return np.asarray(lanes.astype(np.float32))


def _bounded(context: Any, builder: ir.IRBuilder, kinds: Any, *values: Any) -> ir.Value:
    lanes, low, high = as_lanes(builder, kinds[0], kinds, values)
    lanes = builder.select(builder.fcmp_ordered(">", lanes, high), high, lanes)
    return builder.select(builder.fcmp_ordered("<", lanes, low), low, lanes)


@instruction(lambda lanes, low, high: lanes, _bounded)
def _within(lanes: Any, low: Any, high: Any) -> Any:
    """Return lanes limited to low..high; nan stays."""
    return np.clip(lanes, low, high)


def _scaled(context: Any, builder: ir.IRBuilder, kinds: Any, lanes: Any, shifted: Any) -> ir.Value:
    integers = ir.VectorType(I64, kinds[0].count)
    places = constant_vector(I64, kinds[0].count, FP64_MANTISSA_BITS)
    exponents = builder.shl(builder.bitcast(shifted, integers), places)
    return builder.bitcast(builder.add(builder.bitcast(lanes, integers), exponents), lanes.type)


@instruction(_wide, _scaled)
def _times_power(lanes: Any, shifted: Any) -> Any:
    """Return fp64 lanes times 2^n, normal numbers, from `_FP64_POWER` + n."""
    exponents = shifted.view(np.uint64) << np.uint64(FP64_MANTISSA_BITS)
    return (lanes.view(np.uint64) + exponents).view(np.float64)


@device_function
def _exp_fp64(x: Any) -> Any:
    """Return e^x of fp64 lanes of limited magnitude, within 2e-15 of the exact value.

    The polynomial interpolates (e^r - 1 - r) / r^2 in the Chebyshev nodes of |r| <= ln2/2. One
    alone is a chain of about 95 cycles; a block interleaves those of its lanes.
    """
    shifted = multiply_add(x, _LOG2_E_FP64, _FP64_POWER)
    k = shifted - _FP64_POWER
    r = multiply_add(k, _MINUS_LN2_LOW_FP64, multiply_add(k, _MINUS_LN2_HIGH_FP64, x))
    square = r * r
    even = multiply_add(square, 2.7613810696022455e-07, 2.4801536381780756e-05)
    odd = multiply_add(square, 2.762512018118723e-06, 0.0001984120872424167)
    even = multiply_add(even, square, 0.0013888888905885)
    odd = multiply_add(odd, square, 0.00833333335373355)
    even = multiply_add(even, square, 0.04166666666665135)
    odd = multiply_add(odd, square, 0.16666666666648283)
    even = multiply_add(even, square, 0.5)
    tail = multiply_add(odd, r, even)
    return _times_power(multiply_add(square, tail, r + 1.0), shifted)


@device_function
def exp_nearest(x: Any) -> Any:
    """Return e^x of fp32 lanes of at most 89, rounded once; subnormal results stay, nan stays.

    It is the nearest number but for a few arguments in 10^8.
    """
    return _in_fp32(_exp_fp64(_in_fp64(larger(_LOWEST_FP64, x))))


@device_function
def one_plus_exp_of_opposite(x: Any) -> Any:
    """Return fp32(e^-x) + 1 in fp32 of a block of lanes, with e^-x as in `exp_nearest`.

    The sum is the rounded one for every fp32 number (``benchmarks/exponential.py`` tries all).
    """
    opposite = _within(x * -ONE, _LOWEST_BESIDE_ONE, _HIGHEST_FP64)
    return _in_fp32(_exp_fp64(_in_fp64(opposite))) + ONE


# --- Operations of numbers and of lanes: roots, ranges, bits ---


def _zeroed(context: Any, builder: ir.IRBuilder, kinds: Any, *values: Any) -> ir.Value:
    lanes, least = as_lanes(builder, kinds[0], kinds, values)
    is_below = builder.fcmp_ordered("<", lanes, least)
    is_small = builder.and_(is_below, builder.fcmp_ordered(">", lanes, builder.fneg(least)))
    return builder.select(is_small, builder.fmul(lanes, lanes.type(None)), lanes)


@instruction(common_numbers, _zeroed)
def zero_below(x: Any, least: np.float32) -> Any:
    """Return numbers with a zero of their sign where the magnitude is below ``least``."""
    return np.where(abs(x) < least, x * ZERO, x)[()]


def _llvm(name: str) -> Callable[..., ir.Value]:
    def emit(context: Any, builder: ir.IRBuilder, kinds: Any, *values: Any) -> ir.Value:
        return emit_intrinsic(builder, name, *values)

    return emit


@instruction(common_numbers, _llvm("sqrt"))
def square_root(x: Any) -> Any:
    """Return the rounded square root."""
    return np.sqrt(x)


@instruction(common_numbers, _llvm("maximum"))
def maximum(a: Any, b: Any) -> Any:
    """Return the larger number of each pair: nan stays, and of zeros +0."""
    return np.where((a == 0) & (b == 0), a + b, np.maximum(a, b))[()]


def _counted(context: Any, builder: ir.IRBuilder, kinds: Any, *values: Any) -> ir.Value:
    x, *limits = values
    first, count = (builder.trunc(value, I32) for value in limits)
    integer, mask, is_vector = I32, I32(FP32_MAGNITUDE), isinstance(kinds[0], LanesType)
    if is_vector:
        lanes = kinds[0].count
        integer = ir.VectorType(I32, lanes)
        first, count, mask = (splat_numbers(builder, one, lanes) for one in (first, count, mask))
    magnitude = builder.and_(builder.bitcast(x, integer), mask)
    found = builder.icmp_unsigned("<", builder.sub(magnitude, first), count)
    if is_vector:
        found = emit_intrinsic(builder, "ctpop", builder.bitcast(found, ir.IntType(lanes)))
    return builder.zext(found, I64)


@instruction(lambda x, first, count: common_numbers(x) and types.int64, _counted)
def count_magnitudes(x: Any, first: int, count: int) -> int:
    """Return how many numbers have a magnitude whose pattern is in first..first + count."""
    magnitudes = (x.view(np.uint32) & FP32_MAGNITUDE).astype(np.int64)
    return int(np.sum((magnitudes >= first) & (magnitudes - first < count)))


@device_function
def exp_rounded(x: np.float32) -> np.float32:
    """Return exp(x) computed in fp64, where cancellation would turn 1 ulp into many."""
    if _LOWEST < x < _HIGHEST:
        return np.float32(math.exp(np.float64(x)))
    return exp_fp32(x)
