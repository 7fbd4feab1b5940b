"""What lies in the Unified Buffer of a core that computes RmsNormGrad.

Source: specification page ``rms_norm_grad``, "Unified Buffer of a core".
"""

from typing import Any, NamedTuple

from npu_sim.cores import NPU_ARCH_ATLAS_INFERENCE, Device
from npu_sim.tiling.integers import align
from npu_sim.tiling.normalised_rows import BLOCK_BYTES, VECTOR_LANES, alignment
from npu_sim.tiling.rms_norm_grad import PIECE_COLUMNS, SPLIT_D, Tiling, takes_lanes


class Buffers(NamedTuple):
    """Bytes in the Unified Buffer of one core; 0 for what a path does not have."""

    dy: int
    x: int
    dx: int
    gamma: int
    dgamma: int
    rstd: int
    means: int
    scratch: int
    zeros: int
    synchronisation: int


def merged_elements(tiling: Tiling) -> int:
    """What all cores' merge of dgamma reads into a queue: the 64 columns of a core from every core."""
    return VECTOR_LANES * tiling.block_dim


def buffers(tiling: Tiling, npu_arch: int, rules: Any) -> Buffers:
    """Return the bytes in the Unified Buffer of one core (page, "Unified Buffer of a core"), as the release lays them out."""
    inference = npu_arch == NPU_ARCH_ATLAS_INFERENCE
    synchronisation = BLOCK_BYTES * tiling.block_dim if inference else 0
    if tiling.tiling_key == SPLIT_D:
        piece = 4 * PIECE_COLUMNS
        return Buffers(
            2 * piece,
            2 * piece,
            2 * piece,
            piece,
            piece,
            128,
            2 * 128,
            0,
            piece if inference else 0,
            synchronisation,
        )
    rows = 4 * max(
        tiling.ub_factor * tiling.columns_aligned,
        merged_elements(tiling) if rules.queue_holds_merge else 0,
    )
    row = 4 * tiling.columns_aligned
    rstd = 2 * 4 * align(tiling.ub_factor, alignment(tiling.dtype_code))
    lanes = takes_lanes(tiling.columns_aligned, npu_arch)
    means = 4 * tiling.ub_factor if lanes else 0
    scratch = 4 * VECTOR_LANES * tiling.ub_factor if lanes else 0
    return Buffers(
        2 * rows,
        2 * rows,
        2 * rows,
        row,
        row,
        rstd,
        means,
        scratch,
        row if inference else 0,
        synchronisation,
    )


def used_bytes(row: Any, tiling: Tiling, device: Device, rules: Any) -> int:
    """Return how much of the Unified Buffer of a core is taken; the planner does not look at its size."""
    own = buffers(tiling, device.npu_arch, rules)
    rows = own.dy + own.x + own.dx + own.gamma + own.dgamma + own.rstd
    return rows + own.means + own.scratch + own.zeros + own.synchronisation
