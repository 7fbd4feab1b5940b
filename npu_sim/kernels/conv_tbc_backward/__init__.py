"""Kernels of ConvTbcBackward: gradInput, gradWeight and gradBias."""

from npu_sim.kernels.conv_tbc_backward.bias import core_sums, grad_bias
from npu_sim.kernels.conv_tbc_backward.input import grad_input
from npu_sim.kernels.conv_tbc_backward.operands import EXACT, TO_FP16, TO_FP16_SATURATED, TO_HF32
from npu_sim.kernels.conv_tbc_backward.outer_product import multiply_elements
from npu_sim.kernels.conv_tbc_backward.weight import (
    NO_TAIL,
    Reduction,
    ReductionSplit,
    TailTiles,
    grad_weight,
)

__all__ = [
    "EXACT",
    "NO_TAIL",
    "TO_FP16",
    "TO_FP16_SATURATED",
    "TO_HF32",
    "Reduction",
    "ReductionSplit",
    "TailTiles",
    "core_sums",
    "grad_bias",
    "grad_input",
    "grad_weight",
    "multiply_elements",
]
