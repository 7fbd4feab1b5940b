"""``reduce_sum`` of Atlas A2 and A3: how one vector core adds up fp32 numbers.

Source: specification page ``numerics``, "Sums inside one vector core".
"""

import numpy as np
from numpy.typing import NDArray

from npu_sim.kernels._compile import device_function

LANE_COUNT = 64
"""fp32 lanes of one vector instruction."""
_ZERO = np.float32(0)
NOTHING_YET = np.float32(-0.0)
"""What any number can be added to without a change."""
Floats = NDArray[np.float32]


@device_function
def tree64(values: Floats, lanes: Floats) -> np.float32:
    """Sum of at most 64 values as a binary tree of neighbours; missing lanes count as +0.

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
    left = LANE_COUNT // 2
    while left > 0:
        for lane in range(left):
            lanes[lane] = lanes[2 * lane] + lanes[2 * lane + 1]
        left //= 2
    return lanes[0]


@device_function
def reduce_sum(values: Floats, lanes: Floats) -> np.float32:
    """Sum of at least one value: tree64 of every 64, then the sums of these blocks one after the other from the first."""
    total = NOTHING_YET
    for begin in range(0, values.size, LANE_COUNT):
        total = total + tree64(values[begin : begin + LANE_COUNT], lanes)
    return total
