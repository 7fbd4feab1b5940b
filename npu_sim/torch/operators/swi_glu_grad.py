"""SwiGlu as in ``torch_npu``, with gradients of SwiGluGrad; calls of it are recorded."""

from typing import Any

import torch

from npu_sim.registry import load_operator
from npu_sim.settings import current_device
from npu_sim.torch.library import Gradient, Gradients, device_of, operator_of

__all__ = ["npu_swiglu"]

GRADIENT_OPERATOR = operator_of(load_operator("swi_glu_grad"))


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    x, ctx.dim = inputs
    ctx.settings = current_device()
    ctx.save_for_backward(x)


def _backward(ctx: Any, grad: torch.Tensor) -> Gradients:
    (x,) = ctx.saved_tensors
    with device_of(ctx):
        return GRADIENT_OPERATOR(grad.contiguous(), x, ctx.dim), None


FORWARD_OPERATOR = operator_of(load_operator("swi_glu"), Gradient(_keep, _backward))


def npu_swiglu(self: torch.Tensor, dim: int = -1) -> torch.Tensor:
    """Return silu of the first half of a tensor along ``dim``, times the second half.

    SwiGluGrad computes the gradient.
    """
    result: torch.Tensor = FORWARD_OPERATOR(self.contiguous(), dim)
    return result
