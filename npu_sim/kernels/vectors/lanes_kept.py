"""Lanes in memory between two passes over a row, and lanes in the order of their elements.

`store_lanes` writes lanes to a float32 array ``kept``, 1-D, C-contiguous and aligned. Lanes of bf16
elements are not in the order of the elements, so `load_lanes` must have the same ``like``.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import config, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from npu_sim.kernels.vectors.lane_type import (
    FLOAT,
    I32,
    LINE_BYTES,
    Emitted,
    LanesType,
    constant_vector,
    element_address,
    lanes_of,
    load_vector,
    undefined_vector,
)
from npu_sim.kernels.vectors.lanes import Stored, Values, widen_half
from npu_sim.numbers.rounding import BF16_SHIFT
from npu_sim.numbers.scalars import widen

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
