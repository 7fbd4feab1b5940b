"""Cross entropy whose gradient is CrossEntropyLossGrad."""

from typing import Any

import torch
from torch.autograd.function import once_differentiable
from torch.nn import functional

from npu_sim.settings import current_device
from npu_sim.status import INVALID, AclnnError
from npu_sim.torch.operators import Gradients, compute, device_of

__all__ = ["cross_entropy", "npu_cross_entropy_loss"]


def cross_entropy_forward(
    logits: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None,
    reduction: str,
    ignore_index: int,
    label_smoothing: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the loss, 0-D or (N,), and the log-probabilities (N, C), both in the dtype of the logits."""
    log_prob = functional.log_softmax(logits.float(), dim=1)
    loss = functional.cross_entropy(
        log_prob, target, weight, ignore_index=ignore_index, reduction=reduction, label_smoothing=label_smoothing
    )
    return loss.to(logits.dtype), log_prob.to(logits.dtype)


class CrossEntropy(torch.autograd.Function):  # type: ignore[misc]
    """(logits, target, weight, reduction, ignore_index, label_smoothing) to (loss, log_prob); log_prob carries no gradient."""

    @staticmethod
    def forward(
        ctx: Any,
        logits: torch.Tensor,
        target: torch.Tensor,
        weight: torch.Tensor | None,
        reduction: str,
        ignore_index: int,
        label_smoothing: float,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute the loss, and keep what the gradient needs."""
        ctx.settings = current_device()
        loss, log_prob = cross_entropy_forward(logits, target, weight, reduction, ignore_index, label_smoothing)
        ctx.save_for_backward(log_prob, target, weight)
        ctx.call = {"reduction": reduction, "ignore_index": ignore_index, "label_smoothing": label_smoothing}
        ctx.mark_non_differentiable(log_prob)
        return loss, log_prob

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad_loss: torch.Tensor, _: Any) -> Gradients:
        """Return the gradient of the logits."""
        log_prob, target, weight = ctx.saved_tensors
        tensors = {"grad_loss": grad_loss.contiguous(), "log_prob": log_prob.contiguous(), "target": target.contiguous(), "weight": weight}
        (logits_grad,) = compute("cross_entropy_loss_grad", device_of(ctx), {**tensors, **ctx.call})
        return logits_grad, None, None, None, None, None


def cross_entropy(
    input: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> torch.Tensor:
    """Cross entropy of logits (N, C), as :func:`torch.nn.functional.cross_entropy`; its gradient is CrossEntropyLossGrad."""
    result: torch.Tensor = CrossEntropy.apply(input, target, weight, reduction, ignore_index, 0.0)[0]
    return result


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

    The loss has shape (1,) for mean and sum, (N,) for none; all results have the dtype of ``input``.

    Raises
    ------
    AclnnError
        161002 for the z-loss, which the product does not support yet, and for label smoothing of an input that needs a gradient:
        the product's gradient has none.
    """
    if lse_square_scale_for_zloss != 0.0 or return_zloss:
        name = "return_zloss" if return_zloss else "lse_square_scale_for_zloss"
        raise AclnnError(INVALID, name, "the z-loss is not supported yet", "lse_square_scale_for_zloss = 0.0 and return_zloss = False")
    if label_smoothing != 0.0 and input.requires_grad:
        message = f"label_smoothing = {label_smoothing}: the gradient with label smoothing is not supported yet"
        raise AclnnError(INVALID, "label_smoothing", message, "label_smoothing = 0.0")
    loss, log_prob = CrossEntropy.apply(input, target, weight, reduction, ignore_index, label_smoothing)
    empty = input.new_empty(0)
    return loss if reduction == "none" else loss.reshape(1), log_prob, empty, empty.clone()
