"""The first and the last cache line of a row, which it shares with its neighbours.

A line that is stored past the cache should be stored once and whole (`npu_sim.kernels.vectors.lanes.stream`); a row that does not
start or end with a line stores only its own elements of those, through the cache.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import config, types
from numba.core import cgutils
from numba.extending import intrinsic

from npu_sim.kernels.vectors.lane_type import (
    FLOAT,
    I32,
    I64,
    LINE_BYTES,
    Emitted,
    LanesType,
    counting_vector,
    element_address,
    lanes_of,
    load_vector,
    require_elements,
    splat_numbers,
)
from npu_sim.kernels.vectors.lanes import Stored, Values, emit_load, narrow_lanes
from npu_sim.numbers.processor import has_features
from npu_sim.numbers.scalars import narrow, widen


def load_like(array: Stored, index: int, like: Stored) -> Values:
    """Return the elements from ``index`` on, widened, as lanes of ``like``, which has elements of the same type or smaller ones."""
    return np.array(
        [widen(element) for element in array[index : index + LINE_BYTES // like.itemsize]],
        np.float32,
    )


def load_some(array: Stored, index: int, first: int, stop: int, like: Stored) -> Values:
    """Return the elements ``index + first`` to ``index + stop``, widened, in the lanes first..stop of ``like``, and 0 in the others."""
    lanes = np.zeros(LINE_BYTES // like.itemsize, np.float32)
    for lane in range(first, stop):
        lanes[lane] = widen(array[index + lane])
    return lanes


def store_some(array: Stored, index: int, lanes: Values, first: int, stop: int) -> None:
    """Round once and store the lanes first..stop to the elements from ``index + first`` on.

    ``index`` had better start a line, even one that starts before the array: else the processor fetches the neighbouring line too.
    """
    for lane in range(first, stop):
        array[index + lane] = narrow(lanes[lane], array)


def merge(before: Values, after: Values, place: int, like: Stored) -> Values:
    """Return the lanes of the elements below ``place`` of ``before`` and the others of ``after``."""
    return np.where(np.arange(after.size) < place, before, after)


def _has_masks(width: int) -> bool:
    """Whether one instruction reads or writes some elements of so many bits; elsewhere LLVM's masked access is a branch for each."""
    return has_features("avx" if width == I32.width else "avx512bw")


def _copy_some(builder: ir.IRBuilder, target: ir.Value, source: ir.Value, bounds: Any) -> None:
    """Emit the copy of the elements first..stop of a line."""
    kind = target.type.pointee
    first, count = _elements_between(builder, bounds, kind.count)
    elements = (
        builder.gep(builder.bitcast(line, kind.element.as_pointer()), [first])
        for line in (target, source)
    )
    cgutils.raw_memcpy(builder, *elements, count, kind.element.width // 8)


def _mask(builder: ir.IRBuilder, count: int, bounds: Any) -> ir.Value:
    """Emit which elements of a line lie in first..stop."""
    element, (first, stop) = (
        counting_vector(0, count),
        (splat_numbers(builder, builder.trunc(bound, I32), count) for bound in bounds),
    )
    return builder.and_(
        builder.icmp_signed(">=", element, first), builder.icmp_signed("<", element, stop)
    )


def _line_address(
    context: Any,
    builder: ir.IRBuilder,
    array_type: Any,
    place: Any,
    bounds: Any,
    bits: ir.VectorType,
) -> ir.Value:
    """Emit the address of a line, of which the elements first..stop are read or written."""
    array, index = place
    first, count = _elements_between(builder, bounds, bits.count)
    require_elements(context, builder, array_type, count, array, builder.add(index, first))
    return builder.bitcast(
        element_address(context, builder, array_type, 0, array, index), bits.as_pointer()
    )


def _elements_between(builder: ir.IRBuilder, bounds: Any, count: int) -> tuple[ir.Value, ir.Value]:
    """Emit the first of the elements of a line within bounds, and how many they are."""
    first, stop = (_within_line(builder, bound, count) for bound in bounds)
    return first, builder.select(
        builder.icmp_signed("<", first, stop), builder.sub(stop, first), I64(0)
    )


def _within_line(builder: ir.IRBuilder, bound: ir.Value, count: int) -> ir.Value:
    """Emit the element of a line that a bound stands for: its first for one before it, its end for one behind it."""
    low = builder.select(builder.icmp_signed("<", bound, I64(0)), I64(0), bound)
    return builder.select(builder.icmp_signed(">", low, I64(count)), I64(count), low)


def _call_masked(
    builder: ir.IRBuilder,
    operation: str,
    bits: ir.VectorType,
    result: Any,
    arguments: list[ir.Value],
) -> ir.Value:
    name = f"llvm.masked.{operation}.v{bits.count}{bits.element}.p0"
    kind = ir.FunctionType(result, [argument.type for argument in arguments])
    return builder.call(
        builder.module.globals.get(name) or ir.Function(builder.module, kind, name), arguments
    )


@intrinsic
def _merge(typing_context: Any, before: Any, after: Any, place: Any, like: Any) -> Emitted | None:
    if not isinstance(before, LanesType) or not before == after == lanes_of(like):
        return None

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        elements = ir.Constant(ir.VectorType(I32, before.count), _element_order(like, before.count))
        bound = splat_numbers(builder, builder.trunc(arguments[2], I32), before.count)
        return builder.select(builder.icmp_signed("<", elements, bound), *arguments[:2])

    return before(before, after, types.intp, like), generate


def _element_order(array: Any, count: int) -> list[int]:
    """Return which element every lane holds: `npu_sim.kernels.vectors.lanes` widens all even elements of bf16 before the odd ones."""
    return (
        [*range(0, count, 2), *range(1, count, 2)]
        if array.dtype == types.uint16
        else list(range(count))
    )


def _lanes_as(array: Any, like: Any) -> LanesType | None:
    """Return the type of the lanes of ``like`` when elements of ``array`` can be loaded as such."""
    fits = lanes_of(array) is not None and array.dtype in (
        getattr(like, "dtype", None),
        types.float32,
    )
    return lanes_of(like) if fits else None


def _load_as(
    context: Any, builder: ir.IRBuilder, array: Any, like: Any, address: ir.Value
) -> ir.Value:
    """Emit the load of elements at an address as lanes of ``like``."""
    if array.dtype == like.dtype:
        return emit_load(context, builder, array, address)
    count = LINE_BYTES * 8 // like.dtype.bitwidth
    numbers = load_vector(builder, address, FLOAT, count, 4)
    return builder.shuffle_vector(
        numbers, numbers, ir.Constant(ir.VectorType(I32, count), _element_order(like, count))
    )


@intrinsic
def _load_like(typing_context: Any, array: Any, index: Any, like: Any) -> Emitted | None:
    lanes = _lanes_as(array, like)
    if lanes is None:
        return None

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        return _load_as(
            context,
            builder,
            array,
            like,
            element_address(context, builder, array, lanes.count, *arguments[:2]),
        )

    return lanes(array, types.intp, like), generate


@intrinsic
def _load_some(
    typing_context: Any, array: Any, index: Any, first: Any, stop: Any, like: Any
) -> Emitted | None:
    lanes = _lanes_as(array, like)
    if lanes is None:
        return None

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        count, width = lanes.count, array.dtype.bitwidth
        bits = ir.VectorType(ir.IntType(width), count)
        address = _line_address(context, builder, array, arguments[:2], arguments[2:4], bits)
        room = cgutils.alloca_once(builder, bits)
        if _has_masks(width):
            operands = [
                address,
                I32(width // 8),
                _mask(builder, count, arguments[2:4]),
                ir.Constant(bits, None),
            ]
            builder.store(_call_masked(builder, "load", bits, bits, operands), room)
        else:
            builder.store(ir.Constant(bits, None), room)
            _copy_some(builder, room, address, arguments[2:4])
        return _load_as(context, builder, array, like, room)

    return lanes(array, types.intp, types.intp, types.intp, like), generate


@intrinsic
def _store_some(
    typing_context: Any, array: Any, index: Any, lanes: Any, first: Any, stop: Any
) -> Emitted | None:
    if lanes is None or lanes != lanes_of(array):
        return None

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        count, width = lanes.count, array.dtype.bitwidth
        bits = builder.bitcast(
            narrow_lanes(context, builder, array, arguments[2]),
            ir.VectorType(ir.IntType(width), count),
        )
        address = _line_address(context, builder, array, arguments[:2], arguments[3:], bits.type)
        if _has_masks(width):
            operands = [bits, address, I32(width // 8), _mask(builder, count, arguments[3:])]
            _call_masked(builder, "store", bits.type, ir.VoidType(), operands)
        else:
            room = cgutils.alloca_once(builder, bits.type)
            builder.store(bits, room)
            _copy_some(builder, address, room, arguments[3:])
        return context.get_dummy_value()

    return types.void(array, types.intp, lanes, types.intp, types.intp), generate


if not config.DISABLE_JIT:
    load_like, load_some, store_some, merge = (
        _load_like,
        _load_some,
        _store_some,
        _merge,
    )  # see `npu_sim.kernels.vectors.lanes`
