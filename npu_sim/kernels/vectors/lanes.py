"""Lanes: vectors of fp32 values, each a cache line of stored elements, for sums over rows.

LLVM vectorises plain loops as long as it can prove that arrays do not overlap, which it cannot for
sums of many rows, and Numba has no non-temporal stores. The operations that such kernels need are
therefore vector instructions here; `npu_sim.kernels.vectors.lane_type` has arithmetic on lanes. A
lane has the same bits as a scalar.

``array`` and ``like`` have a storage type: float32, int16 (fp16) or uint16 (bf16), 1-D,
C-contiguous and aligned. ``kept``, a float32 array, holds lanes between two passes over a row.
Lanes of bf16 elements are not in the order of the elements, so `load_lanes` must have the same
``like`` as the lanes that were stored. Indices count elements; only NPU_SIM_CHECK=1 checks them.
With NUMBA_DISABLE_JIT=1 the operations are their reference implementations, on small fp32 arrays
and with the same bits; otherwise they are intrinsics for kernels.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from llvmlite import ir
from llvmlite.ir import FunctionType as Signature
from numba import types

from npu_sim.kernels.engine.compile import device_function
from npu_sim.kernels.vectors.lane_type import (
    FLOAT,
    I32,
    I64,
    LINE_BYTES,
    Floats,
    LanesType,
    Stored,
    always,
    constant_vector,
    counting_vector,
    element_address,
    instruction,
    lanes_of,
    line_elements,
    load_vector,
    loaded_lanes,
    splat_numbers,
    stored_lanes,
    undefined_vector,
)
from npu_sim.numbers import rounding
from npu_sim.numbers.rounding import BF16_SHIFT
from npu_sim.numbers.scalars import fp16_to_fp32, fp32_to_fp16, has_half_conversions, narrow, widen

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
    lower = builder.lshr(even, constant_vector(I32, half, rounding.BF16_SHIFT))
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


def narrow_lanes(
    context: Any,
    builder: ir.IRBuilder,
    array_type: Any,
    lanes: ir.Value,
    round_to_bfloat: Rounding = _round_to_bfloat,
) -> ir.Value:
    """Emit the rounding of lanes to elements: fp32, fp16, or words of two bf16 elements."""
    if array_type.dtype == types.float32:
        return lanes
    if array_type.dtype == types.int16:
        return narrow_to_half(context, builder, lanes, lanes.type.count)
    return narrow_to_bfloat(builder, lanes, lanes.type.count, round_to_bfloat)


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
    stored = builder.store(bits, builder.bitcast(address, bits.type.as_pointer()))
    stored.align = kinds[0].dtype.bitwidth // 8
    if streams:
        stored.align = LINE_BYTES
        stored.set_metadata("nontemporal", builder.module.add_metadata([I32(1)]))


def _like(_value: Any, like: Any) -> LanesType | None:
    return lanes_of(like)


def _splat(context: Any, builder: ir.IRBuilder, kinds: Any, value: Any, like: Any) -> ir.Value:
    return splat_numbers(builder, value, line_elements(kinds[1]))


@instruction(_like, _splat)
def splat(value: np.float32, like: Stored) -> Floats:
    """Return a value in as many lanes as a cache line of ``like`` has elements."""
    return np.full(LINE_BYTES // like.itemsize, value, np.float32)


def _load(context: Any, builder: ir.IRBuilder, kinds: Any, array: Any, index: Any) -> ir.Value:
    count = line_elements(kinds[0])
    address = element_address(context, builder, kinds[0], count, array, index)
    return emit_load(context, builder, kinds[0], address, count)


@instruction(loaded_lanes, _load)
def load(array: Stored, index: int) -> Floats:
    """Return the elements from ``index`` on, widened to fp32."""
    line = array[index : index + LINE_BYTES // array.itemsize]
    return np.array([widen(element) for element in line], np.float32)


@instruction(stored_lanes, partial(emit_store, _round_to_bfloat, False))
def store(array: Stored, index: int, lanes: Floats) -> None:
    """Round once to the storage type and store from ``index`` on."""
    for lane, value in enumerate(lanes):
        array[index + lane] = narrow(value, array)


@instruction(stored_lanes, partial(emit_store, _round_to_bfloat, True))
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


def _count_type(array: Any, _index: Any) -> Any:
    return None if lanes_of(array) is None else types.intp


def _to_next_line(
    context: Any, builder: ir.IRBuilder, kinds: Any, array: Any, index: Any
) -> ir.Value:
    element = element_address(context, builder, kinds[0], 0, array, index)
    missing = builder.and_(builder.neg(builder.ptrtoint(element, I64)), I64(LINE_BYTES - 1))
    return builder.udiv(missing, I64(kinds[0].dtype.bitwidth // 8))


@instruction(_count_type, _to_next_line)
def to_next_line(array: Stored, index: int) -> int:
    """Return the number of elements from ``index`` to the next start of a cache line; 0 at one."""
    return int(-(array.ctypes.data + index * array.itemsize) % LINE_BYTES // array.itemsize)


def _prefetch(to_write: int, context: Any, builder: ir.IRBuilder, kinds: Any, *values: Any) -> None:
    element = element_address(context, builder, kinds[0], 0, *values)
    address = builder.bitcast(element, _I8.as_pointer())
    function_type = Signature(ir.VoidType(), [address.type, I32, I32, I32])
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


ORDERED_LANES = 16
"""Lanes of a vector in the order of the elements: a cache line of fp32 numbers."""


def _ordered(array: Any, _index: Any) -> LanesType | None:
    return None if lanes_of(array) is None else LanesType(ORDERED_LANES)


def _load_ordered(
    context: Any, builder: ir.IRBuilder, kinds: Any, array: Any, index: Any
) -> ir.Value:
    dtype, count = kinds[0].dtype, ORDERED_LANES
    address = element_address(context, builder, kinds[0], count, array, index)
    if dtype == types.float32:
        return load_vector(builder, address, FLOAT, count, 4)
    if dtype == types.int16:
        return widen_half(context, builder, address, count)
    elements = load_vector(builder, address, _I16, count, 2)
    words = builder.zext(elements, ir.VectorType(I32, count))
    bits = builder.shl(words, constant_vector(I32, count, BF16_SHIFT))
    return builder.bitcast(bits, ir.VectorType(FLOAT, count))


@instruction(_ordered, _load_ordered)
def load_ordered(array: Stored, index: int) -> Floats:
    """Return `ORDERED_LANES` elements from ``index`` on, widened, in their order."""
    elements = array[index : index + ORDERED_LANES]
    return np.array([widen(element) for element in elements], np.float32)


def _is_kept(kept: Any) -> bool:
    return lanes_of(kept) is not None and kept.dtype == types.float32


def _kept_lanes(kept: Any, _index: Any, lanes: Any) -> Any:
    return types.void if _is_kept(kept) and isinstance(lanes, LanesType) else None


def _store_lanes(
    context: Any, builder: ir.IRBuilder, kinds: Any, kept: Any, index: Any, lanes: Any
) -> None:
    address = element_address(context, builder, kinds[0], kinds[2].count, kept, index)
    builder.store(lanes, builder.bitcast(address, lanes.type.as_pointer())).align = 4


@instruction(_kept_lanes, _store_lanes)
def store_lanes(kept: Floats, index: int, lanes: Floats) -> None:
    """Write lanes to ``kept`` from ``index`` on."""
    kept[index : index + lanes.size] = lanes


def _lanes_kept(kept: Any, _index: Any, like: Any) -> LanesType | None:
    return lanes_of(like) if _is_kept(kept) else None


def _load_lanes(
    context: Any, builder: ir.IRBuilder, kinds: Any, kept: Any, index: Any, like: Any
) -> ir.Value:
    count = line_elements(kinds[2])
    address = element_address(context, builder, kinds[0], count, kept, index)
    return load_vector(builder, address, FLOAT, count, 4)


@instruction(_lanes_kept, _load_lanes)
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
