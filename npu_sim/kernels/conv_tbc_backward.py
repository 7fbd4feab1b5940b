"""ConvTbcBackward: the three gradients."""

from npu_sim.kernels.conv_tbc_backward_bias import core_sums, grad_bias
from npu_sim.kernels.conv_tbc_backward_folds import NO_TAIL, Shares, TailTiles
from npu_sim.kernels.conv_tbc_backward_input import grad_input
from npu_sim.kernels.conv_tbc_backward_operands import EXACT, TO_FP16, TO_FP16_SATURATED, TO_HF32
from npu_sim.kernels.conv_tbc_backward_products import multiply_elements
from npu_sim.kernels.conv_tbc_backward_weight import grad_weight

__all__ = [
    "EXACT",
    "NO_TAIL",
    "TO_FP16",
    "TO_FP16_SATURATED",
    "TO_HF32",
    "Shares",
    "TailTiles",
    "core_sums",
    "grad_bias",
    "grad_input",
    "grad_weight",
    "multiply_elements",
]
