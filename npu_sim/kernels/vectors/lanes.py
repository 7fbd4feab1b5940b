"""Lanes: vectors of fp32 values, each a cache line of stored elements, for sums over rows.

LLVM vectorises plain loops as long as it can prove that arrays do not overlap, which it cannot for
sums of many rows, and Numba has no non-temporal stores. The operations that such kernels need are
therefore vector instructions here; `npu_sim.kernels.vectors.lane_type` has arithmetic on lanes. A
lane has the same bits as a scalar.

``array`` and ``like`` have a storage type: float32, int16 (fp16) or uint16 (bf16), 1-D,
C-contiguous and aligned. ``kept``, a float32 array, holds lanes between two passes over a row.
Lanes of bf16 elements are not in the order of the elements, so `load_lanes` must have the same
``like`` as the lanes that were stored. Indices count elements; only NPU_SIM_CHECK=1 checks them.
With NUMBA_DISABLE_JIT=1 the names are the reference implementations below, on small fp32 arrays and
with the same bits; otherwise they are intrinsics for kernels.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from llvmlite.ir import FunctionType as Signature
from numba import config, types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from npu_sim.kernels.engine.compile import device_function
from npu_sim.kernels.vectors.lane_type import (
    FLOAT,
    I32,
    I64,
    LINE_BYTES,
    Emitted,
    LanesType,
    constant_vector,
    counting_vector,
    element_address,
    lanes_of,
    load_vector,
    splat_numbers,
    undefined_vector,
)
from npu_sim.numbers import rounding
from npu_sim.numbers.rounding import BF16_SHIFT
from npu_sim.numbers.scalars import fp16_to_fp32, fp32_to_fp16, has_half_conversions, narrow, widen

Stored = NDArray[Any]
Values = NDArray[np.float32]
"""Lanes of the reference implementations."""

STREAM_BYTES = 1 << 23
"""Larger results are written with non-temporal stores: a cached store reads every line first.
Smaller results stay in the cache for their reader."""
STREAM_ROW_BYTES = 3072
"""Shorter rows that begin or end within a cache line do not use non-temporal stores: a partial
store to a line delays the next ones. Rows of 2 KiB were 5 to 50 % slower that way, rows of 4 KB
10 % faster."""


# --- Reference implementations ---


def splat(value: np.float32, like: Stored) -> Values:
    """Return a value in as many lanes as a cache line of ``like`` has elements."""
    return np.full(LINE_BYTES // like.itemsize, value, np.float32)


def load(array: Stored, index: int) -> Values:
    """Return the elements from ``index`` on, widened to fp32."""
    line = array[index : index + LINE_BYTES // array.itemsize]
    return np.array([widen(element) for element in line], np.float32)


def store(array: Stored, index: int, lanes: Values) -> None:
    """Round once to the storage type and store from ``index`` on."""
    for lane, value in enumerate(lanes):
        array[index + lane] = narrow(value, array)


def stream(array: Stored, index: int, lanes: Values) -> None:
    """Like `store`, with non-temporal stores.

    ``index`` must start a cache line (`to_next_line`), and `end_streams` must follow.
    """
    for lane, value in enumerate(lanes):
        array[index + lane] = narrow(value, array)


def end_streams() -> None:
    """Make non-temporal stores visible to other threads."""


def to_next_line(array: Stored, index: int) -> int:
    """Return the number of elements from ``index`` to the next start of a cache line; 0 at one."""
    return int(-(array.ctypes.data + index * array.itemsize) % LINE_BYTES // array.itemsize)


def prefetch(array: Stored, index: int) -> None:
    """Prefetch the cache line of an element of any array; the element need not exist."""


def prefetch_to_write(array: Stored, index: int) -> None:
    """Prefetch the cache line of an element that will be written."""


# --- Compiled versions ---

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
    even = builder.shl(words, constant_vector(I32, half, rounding.BF16_SHIFT))
    odd = builder.and_(words, constant_vector(I32, half, _UPPER_HALF))
    floats = ir.VectorType(FLOAT, half)
    return builder.shuffle_vector(
        builder.bitcast(even, floats), builder.bitcast(odd, floats), counting_vector(0, count)
    )


def _round_to_bfloat(builder: ir.IRBuilder, lanes: ir.Value, count: int) -> ir.Value:
    """Emit the rounding to nearest even, a :data:`Rounding`."""
    bits = builder.bitcast(lanes, ir.VectorType(I32, count))
    last = builder.and_(
        builder.lshr(bits, constant_vector(I32, count, rounding.BF16_SHIFT)),
        constant_vector(I32, count, 1),
    )
    below_half = constant_vector(I32, count, (1 << (rounding.BF16_SHIFT - 1)) - 1)
    rounded = builder.add(bits, builder.add(last, below_half))
    sign = builder.and_(bits, constant_vector(I32, count, rounding.FP32_SIGN))
    nan = builder.or_(sign, constant_vector(I32, count, rounding.BF16_NAN << rounding.BF16_SHIFT))
    return builder.select(builder.fcmp_unordered("uno", lanes, lanes), nan, rounded)


def narrow_to_bfloat(
    builder: ir.IRBuilder, lanes: ir.Value, count: int, round_to_bfloat: Rounding = _round_to_bfloat
) -> ir.Value:
    """Emit the rounding to bf16, in the order of elements again (see `widen_bfloat`)."""
    half, unused = count // 2, undefined_vector(FLOAT, count)
    even, odd = (
        round_to_bfloat(
            builder, builder.shuffle_vector(lanes, unused, counting_vector(at, half)), half
        )
        for at in (0, half)
    )
    lower = builder.lshr(even, constant_vector(I32, half, rounding.BF16_SHIFT))
    return builder.or_(lower, builder.and_(odd, constant_vector(I32, half, _UPPER_HALF)))


def emit_load(context: Any, builder: ir.IRBuilder, array_type: Any, address: ir.Value) -> ir.Value:
    """Emit the load of a cache line of elements at an address, widened."""
    count = LINE_BYTES * 8 // array_type.dtype.bitwidth
    if array_type.dtype == types.int16:
        return widen_half(context, builder, address, count)
    if array_type.dtype == types.uint16:
        return widen_bfloat(builder, address, count)
    return load_vector(builder, address, FLOAT, count, 4)


def narrow_lanes(context: Any, builder: ir.IRBuilder, array_type: Any, lanes: ir.Value) -> ir.Value:
    """Emit the rounding of lanes to elements: fp32, fp16, or words of two bf16 elements."""
    if array_type.dtype == types.float32:
        return lanes
    if array_type.dtype == types.int16:
        return narrow_to_half(context, builder, lanes, lanes.type.count)
    return narrow_to_bfloat(builder, lanes, lanes.type.count)


def mark_streamed(builder: ir.IRBuilder, stored: Any) -> None:
    """Make a store to the start of a cache line non-temporal."""
    stored.align = LINE_BYTES
    stored.set_metadata("nontemporal", builder.module.add_metadata([I32(1)]))


def _emit_store(context: Any, builder: ir.IRBuilder, array_type: Any, arguments: Any) -> Any:
    array, index, lanes = arguments
    bits = narrow_lanes(context, builder, array_type, lanes)
    address = element_address(context, builder, array_type, lanes.type.count, array, index)
    return builder.store(bits, builder.bitcast(address, bits.type.as_pointer()))


@intrinsic
def _splat(typing_context: Any, value: Any, like: Any) -> Emitted | None:
    lanes = lanes_of(like)
    if lanes is None:
        return None

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        return splat_numbers(builder, arguments[0], lanes.count)

    return lanes(types.float32, like), generate


@intrinsic
def _load(typing_context: Any, array: Any, index: Any) -> Emitted | None:
    lanes = lanes_of(array)
    if lanes is None:
        return None

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        address = element_address(context, builder, array, lanes.count, *arguments)
        return emit_load(context, builder, array, address)

    return lanes(array, types.intp), generate


@intrinsic
def _store(typing_context: Any, array: Any, index: Any, lanes: Any) -> Emitted | None:
    if lanes is None or lanes != lanes_of(array):
        return None

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        _emit_store(context, builder, array, arguments).align = array.dtype.bitwidth // 8
        return context.get_dummy_value()

    return types.void(array, types.intp, lanes), generate


@intrinsic
def _stream(typing_context: Any, array: Any, index: Any, lanes: Any) -> Emitted | None:
    if lanes is None or lanes != lanes_of(array):
        return None

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        mark_streamed(builder, _emit_store(context, builder, array, arguments))
        return context.get_dummy_value()

    return types.void(array, types.intp, lanes), generate


@intrinsic
def _end_streams(typing_context: Any) -> Emitted:
    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        builder.fence("seq_cst")  # weaker fences do not wait for non-temporal stores on x86
        return context.get_dummy_value()

    return types.void(), generate


@intrinsic
def _to_next_line(typing_context: Any, array: Any, index: Any) -> Emitted | None:
    if lanes_of(array) is None:
        return None

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        address = builder.ptrtoint(element_address(context, builder, array, 0, *arguments), I64)
        missing = builder.and_(builder.neg(address), I64(LINE_BYTES - 1))
        return builder.udiv(missing, I64(array.dtype.bitwidth // 8))

    return types.intp(array, types.intp), generate


def _emit_prefetch(builder: ir.IRBuilder, element: ir.Value, to_write: int) -> None:
    address = builder.bitcast(element, _I8.as_pointer())
    function_type = Signature(ir.VoidType(), [address.type, I32, I32, I32])
    function = builder.module.declare_intrinsic("llvm.prefetch", [address.type], function_type)
    keep_in_all_levels, data_cache = I32(3), I32(1)
    builder.call(function, [address, I32(to_write), keep_in_all_levels, data_cache])


@intrinsic
def _prefetch(typing_context: Any, array: Any, index: Any) -> Emitted:
    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        _emit_prefetch(builder, element_address(context, builder, array, 0, *arguments), to_write=0)
        return context.get_dummy_value()

    return types.void(array, types.intp), generate


@intrinsic
def _prefetch_to_write(typing_context: Any, array: Any, index: Any) -> Emitted:
    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        _emit_prefetch(builder, element_address(context, builder, array, 0, *arguments), to_write=1)
        return context.get_dummy_value()

    return types.void(array, types.intp), generate


if not config.DISABLE_JIT:
    # Numba would compile overloads as separate functions, which takes longer than the kernel.
    splat, load, store, stream = _splat, _load, _store, _stream
    end_streams, to_next_line, prefetch = _end_streams, _to_next_line, _prefetch
    prefetch_to_write = _prefetch_to_write


def is_streamed(out: Stored, least_row_bytes: int = STREAM_ROW_BYTES) -> bool:
    """Return whether a result (rows, columns) is written with non-temporal stores."""
    return out.nbytes > STREAM_BYTES and out.shape[1] * out.itemsize >= least_row_bytes


@device_function
def prefetch_lines(array: Stored, index: int, count: int) -> None:
    """Prefetch the cache lines of ``count`` elements from ``index`` on, which need not exist."""
    for element in range(index, index + count, LINE_BYTES // array.itemsize):
        prefetch(array, element)


Kept = NDArray[np.float32]
ORDERED_LANES = 16
"""Lanes of a vector in the order of the elements: a cache line of fp32 numbers."""


def store_lanes(kept: Kept, index: int, lanes: Values) -> None:
    """Write lanes to ``kept`` from ``index`` on."""
    kept[index : index + lanes.size] = lanes


def load_lanes(kept: Kept, index: int, like: Stored) -> Values:
    """Return the lanes of ``like`` that `store_lanes` wrote from ``index`` on."""
    return kept[index : index + LINE_BYTES // like.itemsize].copy()


def load_ordered(array: Stored, index: int) -> Values:
    """Return `ORDERED_LANES` elements from ``index`` on, widened, in their order."""
    elements = array[index : index + ORDERED_LANES]
    return np.array([widen(element) for element in elements], np.float32)


def add_neighbours(lanes: Values, like: Stored) -> Values:
    """Return the sums of neighbouring pairs of elements, in their order, of lanes of ``like``."""
    return np.asarray(lanes[0::2] + lanes[1::2])


@intrinsic
def _load_ordered(typing_context: Any, array: Any, index: Any) -> Emitted | None:
    lanes = LanesType(ORDERED_LANES)

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        address = element_address(context, builder, array, lanes.count, *arguments)
        if array.dtype == types.float32:
            return load_vector(builder, address, FLOAT, lanes.count, 4)
        if array.dtype == types.int16:
            return widen_half(context, builder, address, lanes.count)
        elements = load_vector(builder, address, ir.IntType(16), lanes.count, 2)
        words = builder.zext(elements, ir.VectorType(I32, lanes.count))
        bits = builder.shl(words, constant_vector(I32, lanes.count, BF16_SHIFT))
        return builder.bitcast(bits, ir.VectorType(FLOAT, lanes.count))

    return None if lanes_of(array) is None else (lanes(array, types.intp), generate)


@intrinsic
def _store_lanes(typing_context: Any, kept: Any, index: Any, lanes: Any) -> Emitted | None:
    if lanes_of(kept) is None or kept.dtype != types.float32 or not isinstance(lanes, LanesType):
        return None

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        address = element_address(context, builder, kept, lanes.count, *arguments[:2])
        target = builder.bitcast(address, arguments[2].type.as_pointer())
        builder.store(arguments[2], target).align = 4
        return context.get_dummy_value()

    return types.void(kept, types.intp, lanes), generate


@intrinsic
def _load_lanes(typing_context: Any, kept: Any, index: Any, like: Any) -> Emitted | None:
    lanes = lanes_of(like)
    if lanes_of(kept) is None or kept.dtype != types.float32 or lanes is None:
        return None

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        address = element_address(context, builder, kept, lanes.count, *arguments[:2])
        return load_vector(builder, address, FLOAT, lanes.count, 4)

    return lanes(kept, types.intp, like), generate


@intrinsic
def _add_neighbours(typing_context: Any, lanes: Any, like: Any) -> Emitted | None:
    if lanes is None or lanes != lanes_of(like):
        return None
    count = lanes.count // 2
    if like.dtype == types.uint16:  # widening has split even and odd elements
        places = [range(count), range(count, 2 * count)]
    else:
        places = [range(side, 2 * count, 2) for side in (0, 1)]

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        unused, kind = undefined_vector(FLOAT, 2 * count), ir.VectorType(I32, count)
        even, odd = (
            builder.shuffle_vector(arguments[0], unused, ir.Constant(kind, list(side)))
            for side in places
        )
        return builder.fadd(even, odd)

    return LanesType(count)(lanes, like), generate


if not config.DISABLE_JIT:
    store_lanes, load_lanes = _store_lanes, _load_lanes
    load_ordered, add_neighbours = _load_ordered, _add_neighbours


Words = NDArray[np.uint16]
WORD_BYTES = 2
LINE_WORDS = LINE_BYTES // WORD_BYTES


def copy_words(source: Words, at: int, target: Words, to: int, count: int) -> None:
    """Copy ``count`` words from ``source[at:]`` to ``target[to:]``."""
    target[to : to + count] = source[at : at + count]


def stream_line(source: Words, at: int, target: Words, to: int) -> None:
    """Copy a cache line of words with non-temporal stores.

    ``to`` must start a line (`to_next_line`), and `end_streams` must follow.
    """
    target[to : to + LINE_WORDS] = source[at : at + LINE_WORDS]


def _are_words(*arrays: Any) -> bool:
    return all(
        isinstance(kind, types.Array)
        and (kind.dtype, kind.ndim, kind.layout, kind.aligned) == (types.uint16, 1, "C", True)
        for kind in arrays
    )


@intrinsic
def _copy_words(
    typing_context: Any, source: Any, at: Any, target: Any, to: Any, count: Any
) -> Emitted | None:
    if not _are_words(source, target):
        return None

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        origin = element_address(context, builder, source, arguments[4], *arguments[:2])
        goal = element_address(context, builder, target, arguments[4], *arguments[2:4])
        cgutils.raw_memcpy(builder, goal, origin, arguments[4], WORD_BYTES)
        return context.get_dummy_value()

    return types.void(source, types.intp, target, types.intp, types.intp), generate


@intrinsic
def _stream_line(typing_context: Any, source: Any, at: Any, target: Any, to: Any) -> Emitted | None:
    if not _are_words(source, target):
        return None

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        origin = element_address(context, builder, source, LINE_WORDS, *arguments[:2])
        line = load_vector(builder, origin, ir.IntType(8 * WORD_BYTES), LINE_WORDS, WORD_BYTES)
        goal = element_address(context, builder, target, LINE_WORDS, *arguments[2:])
        mark_streamed(builder, builder.store(line, builder.bitcast(goal, line.type.as_pointer())))
        return context.get_dummy_value()

    return types.void(source, types.intp, target, types.intp), generate


if not config.DISABLE_JIT:
    copy_words, stream_line = _copy_words, _stream_line
