"""The permutation of tokens to experts, whose gradient is MoeTokenPermuteGrad."""

from typing import Any

import torch
from torch.autograd.function import once_differentiable

from npu_sim.settings import current_device
from npu_sim.status import INVALID, AclnnError
from npu_sim.torch.operators import Gradients, compute, device_of

__all__ = ["moe_token_permute", "npu_moe_token_permute"]


def moe_token_permute_forward(
    tokens: torch.Tensor, indices: torch.Tensor, num_out_tokens: int | None
) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Sort copies of tokens by expert; return them, where each copy went (int32, (tokens * topk,)), and topk.

    Copy i of the flattened indices is token i // topk and goes to row sorted_indices[i]; rows from ``num_out_tokens`` on are dropped
    (0 and None drop nothing, a negative number counts from the end).

    Raises
    ------
    AclnnError
        161002 for tokens that are not 2-D or indices that do not belong to them.
    """
    if tokens.dim() != 2 or indices.dim() not in (1, 2) or indices.shape[0] != tokens.shape[0]:
        message = f"tokens {tuple(tokens.shape)} and indices {tuple(indices.shape)} do not belong together"
        raise AclnnError(INVALID, "indices", message, "tokens: (tokens, hidden); indices: (tokens, topk) or (tokens,)")
    topk = indices.shape[1] if indices.dim() == 2 else 1
    by_expert = torch.argsort(indices.reshape(-1), stable=True)
    sorted_indices = torch.argsort(by_expert, stable=True).to(torch.int32)
    kept = by_expert[:num_out_tokens] if num_out_tokens else by_expert
    return tokens.index_select(0, kept // topk), sorted_indices, topk


class MoeTokenPermute(torch.autograd.Function):  # type: ignore[misc]
    """(tokens, indices, num_out_tokens) to (permuted tokens, sorted indices); the indices carry no gradient."""

    @staticmethod
    def forward(ctx: Any, tokens: torch.Tensor, indices: torch.Tensor, num_out_tokens: int | None) -> tuple[torch.Tensor, torch.Tensor]:
        """Permute, and keep what the gradient needs."""
        ctx.settings = current_device()
        permuted, sorted_indices, ctx.topk = moe_token_permute_forward(tokens, indices, num_out_tokens)
        ctx.save_for_backward(sorted_indices)
        ctx.mark_non_differentiable(sorted_indices)
        return permuted, sorted_indices

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad: torch.Tensor, _: Any) -> Gradients:
        """Return the gradient of the tokens."""
        (sorted_indices,) = ctx.saved_tensors
        arguments = {"permuted_output_grad": grad.contiguous(), "sorted_indices": sorted_indices, "num_topk": ctx.topk}
        (tokens_grad,) = compute("moe_token_permute_grad", device_of(ctx), arguments)
        return tokens_grad, None, None


def moe_token_permute(tokens: torch.Tensor, indices: torch.Tensor, num_out_tokens: int | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """Sort copies of tokens by expert; return them and where each went. The gradient is MoeTokenPermuteGrad."""
    permuted, sorted_indices = MoeTokenPermute.apply(tokens, indices, num_out_tokens)
    return permuted, sorted_indices


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
