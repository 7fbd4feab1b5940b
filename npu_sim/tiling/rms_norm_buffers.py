"""What lies in the Unified Buffer of a core that computes RmsNorm.

Source: specification page ``rms_norm``, "Unified Buffer of a core". Every queue has one buffer.
"""

from typing import Any, NamedTuple

from npu_sim.cores import NPU_ARCH_ATLAS_INFERENCE, Device
from npu_sim.tiling.integers import align
from npu_sim.tiling.normalised_rows import (
    BLOCK_BYTES,
    FP32,
    FP32_BYTES,
    VECTOR_LANES,
    element_bytes,
)
from npu_sim.tiling.rms_norm import Tiling, problem_of_row
from npu_sim.tiling.rms_norm_conditions import (
    KEY_MERGE_N,
    KEY_SINGLE_ROW,
    KEY_SPLIT_D,
    RSTD_ROWS,
    Problem,
)

LANES_BYTES = FP32_BYTES * VECTOR_LANES
"""The lanes a row is summed to."""
GROUP_BYTES = FP32_BYTES * RSTD_ROWS
"""One fp32 number for every row whose rstd goes out together."""


class Buffers(NamedTuple):
    """Bytes in the Unified Buffer of one core; 0 for what a path does not have."""

    x: int
    gamma: int
    y: int
    rstd: int
    x_fp32: int
    squares: int
    reduction: int
    sums: int
    zeros: int


def buffers(tiling: Tiling, problem: Problem, device: Device, rules: Any) -> Buffers:
    """Return the bytes in the Unified Buffer of one core, as the release lays them out."""
    key, elements = tiling.tiling_key, tiling.ub_factor
    wide, narrow = FP32_BYTES * elements, element_bytes(problem.dtype_code) * elements
    x_fp32 = 0 if problem.dtype_code == FP32 else wide
    gamma = element_bytes(problem.gamma_dtype_code) * elements
    if key == KEY_MERGE_N:
        rstd = align(FP32_BYTES * tiling.row_factor, BLOCK_BYTES)
        widest_gamma = wide if rules.widens_gamma else gamma
        return Buffers(
            narrow, widest_gamma, narrow, rstd, x_fp32, wide, LANES_BYTES * tiling.row_factor, 0, 0
        )
    if key == KEY_SINGLE_ROW:  # the squares take the place of x, which is as large for them
        return Buffers(wide, wide, narrow, GROUP_BYTES, x_fp32, 0, LANES_BYTES, 0, 0)
    sums = BLOCK_BYTES * RSTD_ROWS if key == KEY_SPLIT_D else 0
    zeros = GROUP_BYTES if device.npu_arch == NPU_ARCH_ATLAS_INFERENCE else 0
    return Buffers(narrow, gamma, narrow, GROUP_BYTES, x_fp32, wide, LANES_BYTES, sums, zeros)


def used_bytes(row: Any, tiling: Tiling, device: Device, rules: Any) -> int:
    """Return how much of the Unified Buffer of a core is taken; the planner's fixed sizes may be more than it has."""
    own = buffers(tiling, problem_of_row(row), device, rules)
    return (
        own.x
        + own.gamma
        + own.y
        + own.rstd
        + own.x_fp32
        + own.squares
        + own.reduction
        + own.sums
        + own.zeros
    )
