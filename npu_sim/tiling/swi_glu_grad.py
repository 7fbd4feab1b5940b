"""Tiling of SwiGluGrad on Atlas A2, A3 and the Atlas inference series.

The planner is that of SwiGlu, with more buffers. Source: specification page
``swi_glu_grad``, section "Tiling".
"""

from typing import Any

from npu_sim.cores import Device
from npu_sim.tiling import swi_glu
from npu_sim.tiling.common import Structure, raw_planner

BUFFERS = swi_glu.Buffers(
    ("a", "b", "y_grad", "out_a", "out_b"),
    ("temp", "s"),
    ("temp", "s", "a_fp32", "y_grad_fp32", "result"),
)
"""Page ``swi_glu_grad``, "Unified Buffer of a core"."""


def tile(problem: swi_glu.Problem, device: Device, rules: Any) -> swi_glu.Tiling:
    """Plan one call; see :func:`npu_sim.tiling.swi_glu.tile_of`."""
    return swi_glu.tile_of(problem, device, rules, BUFFERS)


KERNELS = {"swi_glu_grad": raw_planner(swi_glu.problem_of, tile)}


STRUCTURES = (Structure("SwiGluGrad", "8.3", swi_glu.FIELD_RUNS),)
