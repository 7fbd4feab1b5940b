"""The permutation of tokens to experts: its forward is MoeTokenPermute, its gradient is MoeTokenPermuteGrad."""

from typing import Any

import torch
from torch.autograd.function import once_differentiable

from npu_sim.settings import current_device
from npu_sim.torch.operators import Gradients, compute, device_of

__all__ = ["moe_token_permute", "npu_moe_token_permute"]


class MoeTokenPermute(torch.autograd.Function):  # type: ignore[misc]
    """(tokens, indices, num_out_tokens, padded_mode) to (permuted tokens, sorted indices); the indices carry no gradient."""

    @staticmethod
    def forward(
        ctx: Any, tokens: torch.Tensor, indices: torch.Tensor, num_out_tokens: int, padded_mode: bool
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Permute as the product does, and keep what the gradient needs."""
        ctx.settings, ctx.shape = current_device(), tokens.shape
        ctx.top_k = indices.shape[1] if indices.dim() == 2 else 1
        arguments = {"tokens": tokens, "indices": indices, "num_out_tokens": num_out_tokens, "padded_mode": padded_mode}
        permuted, sorted_indices = compute("moe_token_permute", ctx.settings, arguments)
        ctx.save_for_backward(sorted_indices)
        ctx.mark_non_differentiable(sorted_indices)
        return permuted, sorted_indices

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad: torch.Tensor, _: Any) -> Gradients:
        """Return the gradient of the tokens."""
        (sorted_indices,) = ctx.saved_tensors
        rows = grad.reshape(grad.shape[0], ctx.shape[1:].numel())
        arguments = {"permuted_output_grad": rows, "sorted_indices": sorted_indices, "num_topk": ctx.top_k}
        (tokens_grad,) = compute("moe_token_permute_grad", device_of(ctx), arguments)
        return tokens_grad.reshape(ctx.shape), None, None, None


def moe_token_permute(
    tokens: torch.Tensor, indices: torch.Tensor, num_out_tokens: int | None = None, padded_mode: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (permuted_tokens, sorted_indices): copies of the tokens sorted by expert, and where each went (int32, (tokens * topk,)).

    Copy i of the flattened indices is token i // topk and goes to row sorted_indices[i]; rows from ``num_out_tokens`` on are dropped
    (0 and None drop nothing, a negative number counts from the end). The gradient is MoeTokenPermuteGrad.

    Raises
    ------
    AclnnError
        As :func:`npu_sim.moe_token_permute`; 561002 for ``padded_mode``, which the product does not support yet.
    """
    permuted, sorted_indices = MoeTokenPermute.apply(tokens, indices, num_out_tokens or 0, padded_mode)
    return permuted, sorted_indices


npu_moe_token_permute = moe_token_permute
"""Its name in ``torch_npu``."""
