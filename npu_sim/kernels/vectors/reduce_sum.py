"""``reduce_sum`` of Atlas A2 and A3: the sum of fp32 numbers in one vector core.

Source: specification page ``numerics``, "Sums inside one vector core".
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import config, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from npu_sim.kernels.engine.compile import device_function
from npu_sim.kernels.vectors.lane_type import (
    FLOAT,
    I32,
    I64,
    Emitted,
    element_address,
    load_vector,
    undefined_vector,
)

LANE_COUNT = 64
"""fp32 lanes of one vector instruction."""
_ZERO = np.float32(0)
NOTHING_YET = np.float32(-0.0)
"""Neutral element of addition: -0 + x is x for every x, with its sign."""
Floats = NDArray[np.float32]


def add_lanes(lanes: Floats) -> np.float32:
    """Return the sum of 64 lanes as a binary tree of neighbours."""
    while lanes.size > 1:
        lanes = lanes[0::2] + lanes[1::2]
    return lanes[0]


@intrinsic
def _add_lanes(typing_context: Any, lanes: Any) -> Emitted:
    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        address = element_address(context, builder, lanes, LANE_COUNT, arguments[0], I64(0))
        numbers, count = load_vector(builder, address, FLOAT, LANE_COUNT, 4), LANE_COUNT
        while count > 1:
            count //= 2
            unused, kind = undefined_vector(FLOAT, 2 * count), ir.VectorType(I32, count)
            even, odd = (ir.Constant(kind, list(range(first, 2 * count, 2))) for first in (0, 1))
            numbers = builder.fadd(
                builder.shuffle_vector(numbers, unused, even),
                builder.shuffle_vector(numbers, unused, odd),
            )
        return builder.extract_element(numbers, I32(0))

    return types.float32(lanes), generate


if not config.DISABLE_JIT:
    add_lanes = _add_lanes


@device_function
def tree64(values: Floats, lanes: Floats) -> np.float32:
    """Return the sum of at most 64 values as a binary tree of neighbours; missing lanes are +0.

    Parameters
    ----------
    values : float32 (n,), n <= 64
    lanes : float32 (64,)
        Scratch.
    """
    for lane in range(values.size):
        lanes[lane] = values[lane]
    for lane in range(values.size, LANE_COUNT):
        lanes[lane] = _ZERO
    return add_lanes(lanes)


@device_function
def reduce_sum(values: Floats, lanes: Floats) -> np.float32:
    """Return the sum of at least one value: `tree64` of every 64, added from first to last."""
    total = NOTHING_YET
    for begin in range(0, values.size, LANE_COUNT):
        total = total + tree64(values[begin : begin + LANE_COUNT], lanes)
    return total
