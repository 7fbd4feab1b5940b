"""AddRmsNorm as in ``torch_npu``, with gradients of RmsNormGrad.

Of a sum that a normalisation follows, the recorder knows that it is one: inference engines compute
both with AddRmsNorm (:mod:`npu_sim.torch.operators.rms_norm`).
"""

from typing import Any

import torch

from npu_sim.torch.flow import Kernel, Step
from npu_sim.torch.library import Gradient, Gradients, operator_of
from npu_sim.torch.operators.rms_norm import GRADIENT_OPERATOR as NORM_GRADIENT

__all__ = ["npu_add_rms_norm"]


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    _, rstd, x = output
    ctx.save_for_backward(x, inputs[2], rstd)
    ctx.mark_non_differentiable(rstd)


def _backward(ctx: Any, dy: torch.Tensor, _: Any, dx: torch.Tensor) -> Gradients:
    x, gamma, rstd = ctx.saved_tensors
    of_norm, dgamma = NORM_GRADIENT(dy.contiguous(), x, rstd, gamma)
    of_sum = of_norm + dx
    return of_sum, of_sum, dgamma.to(gamma.dtype), None, None, None


FORWARD_OPERATOR = operator_of("add_rms_norm", Gradient(_keep, _backward))


def npu_add_rms_norm(
    x1: torch.Tensor, x2: torch.Tensor, gamma: torch.Tensor, epsilon: float = 1e-6
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return (y, rstd, x) with x = x1 + x2, and y its RMS normalisation over the axes of gamma.

    RmsNormGrad computes the gradients, of x as it is stored; rstd has none. It has size 1 on the
    axes of gamma.
    """
    tensors = (tensor.contiguous() for tensor in (x1, x2, gamma))
    y, rstd, x = FORWARD_OPERATOR(*tensors, epsilon)
    return y, rstd, x


TOPIC = "add_rms_norm"


def follow(kernel: Kernel) -> list[tuple[torch.Tensor, Step]]:
    """Return the kernel that added two tensors of one form, as a fact of the sum."""
    forms = {(tuple(tensor.shape), tensor.dtype) for tensor in kernel.tensors}
    is_sum = kernel.name == "add" and len(kernel.tensors) == 2 and len(forms) == 1
    if not is_sum or kernel.options.get("alpha", 1) != 1:
        return []
    return [(kernel.results[0], kernel.step)]
