"""Tiling of SwiGluGrad on Atlas A2, A3 and the Atlas inference series.

The planner is that of SwiGlu, with more bytes per column. Source: specification page
``swi_glu_grad``, section "Tiling".
"""

from typing import Any

from npu_sim.cores import Device
from npu_sim.tiling import swi_glu
from npu_sim.tiling.common import FP32, FP32_BYTES, Structure, element_bytes, raw_planner

BACKWARD = swi_glu.ColumnBytes(5, 2, 5)
"""a, b, yGrad and both halves of the result; 1 and s; a, yGrad and a result in fp32."""


def tile(problem: swi_glu.Problem, device: Device, rules: Any) -> swi_glu.Tiling:
    """Plan one call; see :func:`npu_sim.tiling.swi_glu.tile_of`."""
    return swi_glu.tile_of(problem, device, rules, BACKWARD)


KERNELS = {"swi_glu_grad": raw_planner(swi_glu.problem_of, tile)}


def buffers(tiling: Any, dtype: int) -> dict[str, int]:
    """Return the bytes in the Unified Buffer of one core, in the order of allocation."""
    elements = swi_glu.tile_elements(tiling, dtype)
    size = (1 + tiling.is_double_buffer) * elements * element_bytes(dtype)
    tensors = ("a", "b", "y_grad", "out_a", "out_b")
    fp32 = ("temp", "s") if dtype == FP32 else ("temp", "s", "a_fp32", "y_grad_fp32", "result")
    return dict.fromkeys(tensors, size) | dict.fromkeys(fp32, FP32_BYTES * elements)


STRUCTURES = (Structure("SwiGluGrad", "8.3", swi_glu.RUNS),)
