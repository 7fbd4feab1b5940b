"""Temporal convolution: gradients of ConvTbcBackward, and how its calls are recorded."""

from typing import Any

import torch
from torch import Tensor

from npu_sim.torch.fused import Backward, FusedCall
from npu_sim.torch.library import Gradient, Gradients, define, operator_of, saving, without_autocast
from npu_sim.torch.recorder import Span, spec_of

__all__ = ["conv_tbc"]

GRADIENT_OPERATOR = operator_of("conv_tbc_backward")


@without_autocast
def _forward(input: Tensor, weight: Tensor, bias: Tensor, pad: int, cube_math_type: int) -> Tensor:
    return torch.ops.aten.conv_tbc(input, weight, bias, pad)  # programs may replace the function


def _shapes(input: Tensor, weight: Tensor, bias: Tensor, pad: int, cube_math_type: int) -> Tensor:
    return input.new_empty(
        input.shape[0] + 2 * pad - weight.shape[0] + 1, input.shape[1], weight.shape[2]
    )


def _backward(ctx: Any, grad: Tensor) -> Gradients:
    return *GRADIENT_OPERATOR(grad, *ctx.saved_tensors, *ctx.call), None, None


FORWARD_OPERATOR = define(
    "conv_tbc(Tensor input, Tensor weight, Tensor bias, int pad, int cube_math_type) -> Tensor",
    _forward,
    _shapes,
    Gradient(saving(0, 1, 2), _backward),
)


def conv_tbc(
    input: Tensor, weight: Tensor, bias: Tensor, pad: int = 0, cube_math_type: int = 0
) -> Tensor:
    """Return a temporal convolution, as :func:`torch.conv_tbc`.

    ConvTbcBackward computes its gradients. Autocast converts the tensors first, as in PyTorch.
    ``cube_math_type`` has the product's meaning: 0 keeps fp32 (Atlas A2, A3); 1, legal on every
    product, lets the cube unit read fp32 as hf32 (Atlas A2, A3) or as fp16 (Atlas training series).
    """
    if torch.is_autocast_enabled("cpu"):
        dtype = torch.get_autocast_dtype("cpu")
        input, weight, bias = input.to(dtype), weight.to(dtype), bias.to(dtype)
    return FORWARD_OPERATOR(input, weight, bias, pad, cube_math_type)


def _conv_tbc(span: Span, input: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> FusedCall:
    call = {"input": spec_of(input), "weight": spec_of(weight), "bias": spec_of(bias), "pad": pad}
    return FusedCall(
        compute=lambda: conv_tbc(input, weight, bias, pad),
        backward=[Backward(OPERATOR, lambda gradient: {"grad_output": spec_of(gradient), **call})],
    )


OPERATOR = "conv_tbc_backward"
FUNCTIONS = {torch.conv_tbc: _conv_tbc}
KERNELS = {"aten::conv_tbc_backward": "conv_tbc"}
