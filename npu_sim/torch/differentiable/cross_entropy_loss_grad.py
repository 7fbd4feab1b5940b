"""Cross entropy with gradients of CrossEntropyLossGrad."""

from typing import Any

import torch
from torch.nn import functional

from npu_sim.language import Text
from npu_sim.registry import load_operator
from npu_sim.settings import current_device
from npu_sim.status import INVALID, AclnnError
from npu_sim.torch.library import Gradient, define, operator_of
from npu_sim.torch.simulation import Gradients, device_of, without_autocast

__all__ = ["cross_entropy", "npu_cross_entropy_loss"]

GRADIENT = operator_of(load_operator("cross_entropy_loss_grad"))


def _log_prob(logits: torch.Tensor) -> torch.Tensor:
    return functional.log_softmax(logits.float(), dim=1)


@without_autocast
def cross_entropy_forward(
    logits: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None,
    reduction: str,
    ignore_index: int,
    label_smoothing: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the loss, 0-D or (N,), and the log-probabilities (N, C), in the dtype of logits."""
    log_prob = _log_prob(logits)
    loss = functional.cross_entropy(
        log_prob,
        target,
        weight,
        ignore_index=ignore_index,
        reduction=reduction,
        label_smoothing=label_smoothing,
    )
    return loss.to(logits.dtype), log_prob.to(logits.dtype)


def _shapes(
    logits: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None,
    reduction: str,
    ignore_index: int,
    label_smoothing: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    loss = logits.new_empty(target.shape if reduction == "none" else ())
    return loss, torch.empty_like(logits, memory_format=torch.contiguous_format)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    logits, target, weight, *ctx.call = inputs
    log_prob = output[1]
    ctx.settings = current_device()
    ctx.save_for_backward(logits, log_prob, target, weight)
    ctx.mark_non_differentiable(log_prob)


def _backward(ctx: Any, grad_loss: torch.Tensor, _: Any) -> Gradients:
    logits, log_prob, target, weight = ctx.saved_tensors
    if torch.is_grad_enabled():
        # The gradient depends on the logits: without this, second derivatives would be zero.
        log_prob = _log_prob(logits).to(logits.dtype)
    reduction, ignore_index, label_smoothing = ctx.call
    tensors = {
        "grad_loss": grad_loss.contiguous(),
        "log_prob": log_prob,
        "target": target.contiguous(),
        "weight": weight,
    }
    with device_of(ctx):
        logits_grad = GRADIENT(
            **tensors,
            reduction=reduction,
            ignore_index=ignore_index,
            label_smoothing=label_smoothing,
        )
    return logits_grad, None, None, None, None, None


FORWARD = define(
    "cross_entropy(Tensor logits, Tensor target, Tensor? weight, str reduction, int ignore_index, "
    "float label_smoothing) -> (Tensor, Tensor)",
    cross_entropy_forward,
    _shapes,
    Gradient(_keep, _backward),
)


def _checked(
    logits: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None,
    reduction: str,
    ignore_index: int,
    label_smoothing: float = 0.0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Check that the product supports a call, and compute the loss and log-probabilities.

    Raises
    ------
    AclnnError
        161002 for logits that are not (N, C), labels that are not int64, and weights that are not
        fp32.
    """
    if logits.dim() != 2:
        message = Text(
            "input has shape {shape}; the product takes logits (N, C)", shape=tuple(logits.shape)
        )
        hint = "input.reshape(-1, C), or input[None] for one row; target likewise"
        raise AclnnError(INVALID, "input", message, hint)
    if target.dtype != torch.int64:
        message = Text("target is {dtype}; the product takes int64", target)
        raise AclnnError(INVALID, "target", message, "target.long()")
    if weight is not None and weight.dtype != torch.float32:
        message = Text("weight is {dtype}; the product takes float32", weight)
        raise AclnnError(INVALID, "weight", message, "weight.float()")
    if torch.is_autocast_enabled("cpu"):
        logits = logits.float()
    loss, log_prob = FORWARD(logits, target, weight, reduction, ignore_index, label_smoothing)
    return loss, log_prob


def cross_entropy(
    input: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> torch.Tensor:
    """Return the cross entropy of logits (N, C), as :func:`torch.nn.functional.cross_entropy`.

    CrossEntropyLossGrad computes its gradient.
    """
    return _checked(input, target, weight, reduction, ignore_index)[0]


def npu_cross_entropy_loss(
    input: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    lse_square_scale_for_zloss: float = 0.0,
    return_zloss: bool = False,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return (loss, log_prob, zloss, lse_for_zloss); the last two are empty.

    The loss has shape (1,) for mean and sum, (N,) for none. All results have the input's dtype.

    Raises
    ------
    AclnnError
        161002 for the z-loss, which the product does not support yet, and for label smoothing of an
        input that requires a gradient, which the product's gradient does not support.
    """
    if lse_square_scale_for_zloss != 0.0 or return_zloss:
        name = "return_zloss" if return_zloss else "lse_square_scale_for_zloss"
        hint = "lse_square_scale_for_zloss = 0.0 and return_zloss = False"
        raise AclnnError(INVALID, name, "the z-loss is not supported yet", hint)
    if label_smoothing != 0.0 and input.requires_grad:
        message = Text(
            "label_smoothing = {label_smoothing}: the gradient with label smoothing is not "
            "supported yet",
            label_smoothing=label_smoothing,
        )
        raise AclnnError(INVALID, "label_smoothing", message, "label_smoothing = 0.0")
    loss, log_prob = _checked(input, target, weight, reduction, ignore_index, label_smoothing)
    empty = input.new_empty(0)
    return loss if reduction == "none" else loss.reshape(1), log_prob, empty, empty.clone()
