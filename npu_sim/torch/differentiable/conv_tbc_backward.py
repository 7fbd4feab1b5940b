"""A temporal convolution whose gradients are ConvTbcBackward."""

from typing import Any

import torch
from torch.autograd.function import once_differentiable

from npu_sim.settings import current_device
from npu_sim.torch.operators import Gradients, compute, device_of

__all__ = ["conv_tbc"]


class _ConvTbc(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, pad: int, cube_math_type: int) -> torch.Tensor:
        ctx.settings = current_device()
        ctx.save_for_backward(input, weight, bias)
        ctx.call = {"pad": pad, "cube_math_type": cube_math_type}
        return torch.conv_tbc(input, weight, bias, pad)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad: torch.Tensor) -> Gradients:
        input, weight, bias = ctx.saved_tensors
        tensors = {"grad_output": grad, "input": input, "weight": weight, "bias": bias}
        return *compute("conv_tbc_backward", device_of(ctx), {**tensors, **ctx.call}), None, None


def conv_tbc(input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, pad: int = 0, cube_math_type: int = 0) -> torch.Tensor:
    """Temporal convolution, as :func:`torch.conv_tbc`; its gradients are ConvTbcBackward.

    ``cube_math_type`` is the product's: 0 keeps fp32 (Atlas A2, A3); 1, legal on every product, lets the cube unit take fp32 as hf32
    (Atlas A2, A3) or as fp16 (Atlas training series).
    """
    result: torch.Tensor = _ConvTbc.apply(input, weight, bias, pad, cube_math_type)
    return result
