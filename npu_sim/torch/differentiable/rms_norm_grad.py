"""RMS normalisation: RmsNorm, with gradients of RmsNormGrad."""

from typing import Any

import torch

from npu_sim.language import Text
from npu_sim.registry import load_operator
from npu_sim.settings import current_device
from npu_sim.status import NULL_POINTER, AclnnError
from npu_sim.torch.library import Gradient, operator_of
from npu_sim.torch.simulation import Gradients, device_of

__all__ = ["npu_rms_norm", "rms_norm"]

GRADIENT = operator_of(load_operator("rms_norm_grad"))


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    x, gamma, _ = inputs
    rstd = output[1]
    ctx.settings = current_device()
    ctx.save_for_backward(x, rstd, gamma)
    ctx.mark_non_differentiable(rstd)


def _backward(ctx: Any, dy: torch.Tensor, _: Any) -> Gradients:
    x, rstd, gamma = ctx.saved_tensors
    with device_of(ctx):
        dx, dgamma = GRADIENT(dy.contiguous(), x, rstd, gamma)
    return dx, dgamma.to(gamma.dtype), None


FORWARD = operator_of(load_operator("rms_norm"), Gradient(_keep, _backward))


def rms_norm(input: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """Return ``input`` normalised over the axes of ``weight``, as PyTorch's ``rms_norm``.

    RmsNormGrad computes the gradients.

    Raises
    ------
    AclnnError
        161001 without a weight, which the product's operator requires.
    """
    return npu_rms_norm(input, _required("weight", weight), eps)[0]


def npu_rms_norm(
    self: torch.Tensor, gamma: torch.Tensor, epsilon: float = 1e-06
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (y, rstd): the RMS normalisation over the axes of gamma, and 1 / rms in fp32.

    ``rstd`` has size 1 on these axes: shape (4, 1, 1) for x of shape (4, 1, 4096).
    """
    y, rstd = FORWARD(self.contiguous(), _required("gamma", gamma).contiguous(), epsilon)
    return y, rstd


def _required(name: str, scale: torch.Tensor | None) -> torch.Tensor:
    """Return the weight; raise AclnnError if it is missing."""
    if scale is None:
        message = Text("{name} = None: the product normalises with a scale", name=name)
        hint = Text("{name}: torch.ones of the last axes", name=name)
        raise AclnnError(NULL_POINTER, name, message, hint)
    return scale
