"""First and last cache line of a row, in which its neighbours also lie.

A non-temporal store (`npu_sim.kernels.vectors.lanes.stream`) should write a line once and as a
whole. A row that does not start or end with a line writes its elements of that line with cached
stores.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from llvmlite.ir import FunctionType as Signature
from numba import types
from numba.core import cgutils

from npu_sim.kernels.engine.compile import device_function
from npu_sim.kernels.vectors.lanes import (
    I32,
    I64,
    LINE_BYTES,
    STREAM_ROW_BYTES,
    Floats,
    LanesType,
    Stored,
    counting_vector,
    element_address,
    emit_load,
    instruction,
    is_streamed,
    lanes_of,
    line_elements,
    narrow_lanes,
    require_elements,
    splat_numbers,
    store,
    stored_lanes,
    stream,
    to_next_line,
)
from npu_sim.numbers.arrays import address_of
from npu_sim.numbers.scalars import has_features, narrow, widen


def _has_masks(width: int) -> bool:
    """Return whether the processor has masked loads and stores of elements of ``width`` bits.

    Without them, LLVM emits a branch for every element.
    """
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
    """Emit the mask of the elements first..stop of a line."""
    element = counting_vector(0, count)
    first, stop = (splat_numbers(builder, builder.trunc(bound, I32), count) for bound in bounds)
    is_below = builder.icmp_signed("<", element, stop)
    return builder.and_(builder.icmp_signed(">=", element, first), is_below)


def _line_address(
    context: Any,
    builder: ir.IRBuilder,
    array_type: Any,
    place: Any,
    bounds: Any,
    bits: ir.VectorType,
) -> ir.Value:
    """Emit the address of a line whose elements first..stop are read or written."""
    array, index = place
    first, count = _elements_between(builder, bounds, bits.count)
    require_elements(context, builder, array_type, count, array, builder.add(index, first))
    address = element_address(context, builder, array_type, 0, array, index)
    return builder.bitcast(address, bits.as_pointer())


def _elements_between(builder: ir.IRBuilder, bounds: Any, count: int) -> tuple[ir.Value, ir.Value]:
    """Emit the first element of a line within bounds, and the number of such elements."""
    first, stop = (_within_line(builder, bound, count) for bound in bounds)
    is_any = builder.icmp_signed("<", first, stop)
    return first, builder.select(is_any, builder.sub(stop, first), I64(0))


def _within_line(builder: ir.IRBuilder, bound: ir.Value, count: int) -> ir.Value:
    """Emit a bound clamped to 0..count, the elements of a line."""
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
    kind = Signature(result, [argument.type for argument in arguments])
    return builder.call(
        builder.module.globals.get(name) or ir.Function(builder.module, kind, name), arguments
    )


def element_order(array: Any, count: int) -> list[int]:
    """Return the element in every lane: in lanes of bf16 even elements precede odd ones."""
    if array.dtype == types.uint16:
        return [*range(0, count, 2), *range(1, count, 2)]
    return list(range(count))


def _lanes_as(array: Any, *others: Any) -> LanesType | None:
    """Return the lanes type of ``like``, if elements of ``array`` can be loaded as such.

    ``like`` is the last of ``others``.
    """
    like = others[-1]
    loadable = getattr(like, "dtype", None), types.float32
    fits = lanes_of(array) is not None and array.dtype in loadable
    return lanes_of(like) if fits else None


def _load_as(
    context: Any, builder: ir.IRBuilder, array: Any, like: Any, address: ir.Value
) -> ir.Value:
    """Emit the load of elements at an address as lanes of ``like``."""
    count = line_elements(like)
    lanes = emit_load(context, builder, array, address, count)
    if array.dtype == like.dtype:
        return lanes
    order = ir.Constant(ir.VectorType(I32, count), element_order(like, count))
    return builder.shuffle_vector(lanes, lanes, order)


def _load_like(
    context: Any, builder: ir.IRBuilder, kinds: Any, array: Any, index: Any, like: Any
) -> ir.Value:
    count = line_elements(kinds[2])
    address = element_address(context, builder, kinds[0], count, array, index)
    return _load_as(context, builder, kinds[0], kinds[2], address)


@instruction(_lanes_as, _load_like)
def load_like(array: Stored, index: int, like: Stored) -> Floats:
    """Return the elements from ``index`` on, widened, as lanes of ``like``.

    The elements of ``like`` have the same type, or ``array`` is fp32.
    """
    line = array[index : index + LINE_BYTES // like.itemsize]
    return np.array([widen(element) for element in line], np.float32)


def _load_some(context: Any, builder: ir.IRBuilder, kinds: Any, *values: Any) -> ir.Value:
    array, place, bounds = kinds[0], values[:2], values[2:4]
    count, width = line_elements(kinds[4]), array.dtype.bitwidth
    bits = ir.VectorType(ir.IntType(width), count)
    address = _line_address(context, builder, array, place, bounds, bits)
    slot = cgutils.alloca_once(builder, bits)
    if _has_masks(width):
        operands = [
            address,
            I32(width // 8),
            _mask(builder, count, bounds),
            ir.Constant(bits, None),
        ]
        builder.store(_call_masked(builder, "load", bits, bits, operands), slot)
    else:
        builder.store(ir.Constant(bits, None), slot)
        _copy_some(builder, slot, address, bounds)
    return _load_as(context, builder, array, kinds[4], slot)


@instruction(_lanes_as, _load_some)
def load_some(array: Stored, index: int, first: int, stop: int, like: Stored) -> Floats:
    """Return the elements from ``index + first`` on in the lanes first..stop of ``like``.

    They are widened; the other lanes are 0.
    """
    lanes = np.zeros(LINE_BYTES // like.itemsize, np.float32)
    for lane in range(first, stop):
        lanes[lane] = widen(array[index + lane])
    return lanes


def _store_some(context: Any, builder: ir.IRBuilder, kinds: Any, *values: Any) -> None:
    place, lanes, bounds = values[:2], values[2], values[3:]
    count, width = kinds[2].count, kinds[0].dtype.bitwidth
    kind = ir.VectorType(ir.IntType(width), count)
    bits = builder.bitcast(narrow_lanes(context, builder, kinds[0], lanes), kind)
    address = _line_address(context, builder, kinds[0], place, bounds, kind)
    if _has_masks(width):
        operands = [bits, address, I32(width // 8), _mask(builder, count, bounds)]
        _call_masked(builder, "store", kind, ir.VoidType(), operands)
    else:
        slot = cgutils.alloca_once(builder, kind)
        builder.store(bits, slot)
        _copy_some(builder, address, slot, bounds)


@instruction(stored_lanes, _store_some)
def store_some(array: Stored, index: int, lanes: Floats, first: int, stop: int) -> None:
    """Round once and store the lanes first..stop to the elements from ``index + first`` on.

    ``index`` should start a line, even one that starts before the array: otherwise the processor
    also reads the neighbouring line.
    """
    for lane in range(first, stop):
        array[index + lane] = narrow(lanes[lane], array)


@device_function
def write_ends(inputs: Any, out: Stored, first: int, end: int, part_of: Any) -> None:
    """Write the partial cache lines of a row, in which the neighbouring rows also lie.

    These are the elements below ``first`` and from ``end`` on. ``part_of(inputs, column, begin,
    stop)``, a constant of a kernel, returns the elements begin..stop of the line at ``column``.
    """
    line = LINE_BYTES // out.itemsize
    for side in range(2):
        column, begin, stop = end, 0, out.size - end
        if side == 0:
            column, begin, stop = first - line, line - first, line
        if begin < stop:
            store_some(out, column, part_of(inputs, column, begin, stop), begin, stop)


@device_function
def write_row(inputs: Any, out: Stored, streams: bool, line_of: Any, part_of: Any) -> None:
    """Write a row; with ``streams``, whole cache lines with non-temporal stores.

    ``line_of(inputs, column)`` returns a cache line of the row, ``part_of`` as in `write_ends`.
    """
    line = LINE_BYTES // out.itemsize
    if out.size < line:
        store_some(out, 0, part_of(inputs, 0, 0, out.size), 0, out.size)
        return
    if not streams:
        for begin in range(0, out.size, line):
            # The last vector may overlap the previous one; both write the same values.
            column = min(begin, out.size - line)
            store(out, column, line_of(inputs, column))
        return
    first = to_next_line(out, 0)
    end = first + (out.size - first) // line * line
    for column in range(first, end, line):
        stream(out, column, line_of(inputs, column))
    write_ends(inputs, out, first, end, part_of)


@device_function
def _line_of(inputs: Any, column: int) -> Any:
    values, out = inputs  # without reference counts, Numba indexes no tuple of arrays
    return load_like(values, column, out)


@device_function
def _part_of(inputs: Any, column: int, begin: int, stop: int) -> Any:
    values, out = inputs
    return load_some(values, column, begin, stop, out)


@device_function
def store_rounded(values: Floats, out: Stored, streams: bool) -> None:
    """Round fp32 numbers once to the storage type of ``out``, as `write_row` writes a row.

    With ``streams``, `npu_sim.kernels.vectors.lanes.end_streams` must follow.
    """
    write_row((values, out), out, streams, _line_of, _part_of)


def streams_rows(out: Stored, least_row_bytes: int = STREAM_ROW_BYTES) -> bool:
    """Return whether rows are written with non-temporal stores.

    Rows of fewer bytes qualify only if they are cache-line aligned at both ends.
    """
    are_aligned = (
        address_of(out) % LINE_BYTES == 0 and out.shape[1] * out.itemsize % LINE_BYTES == 0
    )
    return is_streamed(out, LINE_BYTES if are_aligned else least_row_bytes)
