"""Kernels of ConvTbcBackward: gradInput, gradWeight and gradBias."""

from npu_sim.kernels.conv_tbc_backward.input import grad_input
from npu_sim.kernels.conv_tbc_backward.tile import (
    EXACT,
    TO_FP16,
    TO_FP16_SATURATED,
    TO_HF32,
    core_sums,
    grad_bias,
    multiply_elements,
)
from npu_sim.kernels.conv_tbc_backward.weight import NO_TAIL, ReductionSplit, TailTiles, grad_weight

__all__ = [
    "EXACT",
    "NO_TAIL",
    "TO_FP16",
    "TO_FP16_SATURATED",
    "TO_HF32",
    "ReductionSplit",
    "TailTiles",
    "core_sums",
    "grad_bias",
    "grad_input",
    "grad_weight",
    "multiply_elements",
]
