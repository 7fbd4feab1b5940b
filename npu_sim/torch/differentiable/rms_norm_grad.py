"""RMS normalisation: its forward is RmsNorm, its gradients are RmsNormGrad."""

from typing import Any

import torch
from torch.autograd.function import once_differentiable

from npu_sim.settings import current_device
from npu_sim.torch.operators import Gradients, compute, device_of

__all__ = ["npu_rms_norm", "rms_norm"]


class RmsNorm(torch.autograd.Function):  # type: ignore[misc]
    """(x, gamma, epsilon) to (y, rstd); rstd carries no gradient."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, gamma: torch.Tensor, epsilon: float) -> tuple[torch.Tensor, torch.Tensor]:
        """Normalise as the product does, and keep what the gradient needs."""
        ctx.settings = current_device()
        y, rstd = compute("rms_norm", ctx.settings, {"x": x.contiguous(), "gamma": gamma.contiguous(), "epsilon": epsilon})
        ctx.save_for_backward(x, rstd, gamma)
        ctx.mark_non_differentiable(rstd)
        return y, rstd

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, dy: torch.Tensor, _: Any) -> Gradients:
        """Return the gradients of x and gamma."""
        x, rstd, gamma = (tensor.contiguous() for tensor in ctx.saved_tensors)
        dx, dgamma = compute("rms_norm_grad", device_of(ctx), {"dy": dy.contiguous(), "x": x, "rstd": rstd, "gamma": gamma})
        return dx, dgamma.to(gamma.dtype), None


def rms_norm(input: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """Normalise over the axes of ``weight``, as :func:`torch.nn.functional.rms_norm`; its gradients are RmsNormGrad."""
    result: torch.Tensor = RmsNorm.apply(input, weight, eps)[0]
    return result


def npu_rms_norm(self: torch.Tensor, gamma: torch.Tensor, epsilon: float = 1e-06) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (y, rstd): the RMS normalisation over the axes of gamma, and 1 / rms in fp32, for instance (4, 1, 1) for (4, 1, 4096)."""
    y, rstd = RmsNorm.apply(self, gamma, epsilon)
    return y, rstd
