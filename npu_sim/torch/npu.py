"""Functions under the names and signatures of ``torch_npu``; their gradients are the simulated operators."""

import torch

from npu_sim.status import INVALID, AclnnError
from npu_sim.torch.differentiable import CrossEntropy, MoeTokenPermute, RmsNorm


def npu_rms_norm(self: torch.Tensor, gamma: torch.Tensor, epsilon: float = 1e-06) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (y, rstd): the RMS normalisation over the axes of gamma, and 1 / rms in fp32, for instance (4, 1, 1) for (4, 1, 4096)."""
    y, rstd = RmsNorm.apply(self, gamma, epsilon)
    return y, rstd


def npu_moe_token_permute(
    tokens: torch.Tensor, indices: torch.Tensor, num_out_tokens: int | None = None, padded_mode: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (permuted_tokens, sorted_indices): copies of the tokens sorted by expert, and where each went (int32).

    Raises
    ------
    AclnnError
        161002 for ``padded_mode``, which the product does not support yet.
    """
    if padded_mode:
        raise AclnnError(INVALID, "padded_mode", "padded_mode = True is not supported yet", "padded_mode = False")
    permuted, sorted_indices = MoeTokenPermute.apply(tokens, indices, num_out_tokens)
    return permuted, sorted_indices


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
