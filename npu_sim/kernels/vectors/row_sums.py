"""Sum of a row in one vector core: by halving, or in 64 lanes.

Sources: specification page ``rms_norm_grad``, "Kernels and accumulation order" (``halving``);
``numerics``, "tree64".
"""

import numpy as np
from numpy.typing import NDArray

from npu_sim.kernels.engine.compile import device_function
from npu_sim.kernels.vectors.lanes import Values
from npu_sim.kernels.vectors.lanes_kept import ORDERED_LANES, store_lanes
from npu_sim.kernels.vectors.reduce_sum import LANE_COUNT, add_lanes

_ZERO = np.float32(0)
Floats = NDArray[np.float32]


@device_function
def clear(values: Floats) -> None:
    """Set values to 0."""
    for position in range(values.size):
        values[position] = _ZERO


@device_function
def add_to(target: Floats, values: Floats) -> None:
    """Add values to a slice of the same size."""
    for position in range(target.size):
        target[position] = target[position] + values[position]


@device_function
def keep_lanes(lanes: Floats, first: Values, second: Values, third: Values, fourth: Values) -> None:
    """Write 64 lane accumulators, a quarter in each vector, to an array (64,)."""
    store_lanes(lanes, 0, first)
    store_lanes(lanes, ORDERED_LANES, second)
    store_lanes(lanes, 2 * ORDERED_LANES, third)
    store_lanes(lanes, 3 * ORDERED_LANES, fourth)


@device_function
def front_of(columns: int) -> int:
    """Return the number of values of a row after its first halving, which adds the others to them.

    For a power of two, the first halving would add nothing, so the next one comes first. At most 64
    values are not halved.
    """
    front = LANE_COUNT
    while 2 * front < columns:
        front *= 2
    return min(front, columns)


@device_function
def halve(numbers: Floats, front: int) -> np.float32:
    """Return the sum by ``halving`` of the first ``front`` numbers; overwrites them.

    ``front`` is a power of two and at least 64.
    """
    while front > LANE_COUNT:
        front //= 2
        add_to(numbers[:front], numbers[front : 2 * front])
    return add_lanes(numbers[:LANE_COUNT])
