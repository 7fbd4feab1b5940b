"""The permutation of tokens to experts, whose gradient is MoeTokenPermuteGrad."""

from typing import Any

import torch

from npu_sim.registry import load_operator
from npu_sim.settings import current_device
from npu_sim.status import INVALID, AclnnError
from npu_sim.torch.library import Gradient, define, operator_of
from npu_sim.torch.simulation import Gradients, device_of

__all__ = ["moe_token_permute", "npu_moe_token_permute"]

GRADIENT = operator_of(load_operator("moe_token_permute_grad"))


def _permuted(tokens: torch.Tensor, indices: torch.Tensor, num_out_tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Sort copies of tokens by expert; return them, and where each copy went (int32, (tokens * topk,))."""
    by_expert = torch.argsort(indices.reshape(-1), stable=True)
    sorted_indices = torch.argsort(by_expert, stable=True).to(torch.int32)
    kept = by_expert[:num_out_tokens] if num_out_tokens else by_expert
    return tokens.index_select(0, kept // _topk(indices)), sorted_indices


def _topk(indices: torch.Tensor) -> int:
    return indices.shape[1] if indices.dim() == 2 else 1


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    sorted_indices = output[1]
    ctx.settings = current_device()
    ctx.topk = _topk(inputs[1])
    ctx.save_for_backward(sorted_indices)
    ctx.mark_non_differentiable(sorted_indices)


def _backward(ctx: Any, grad: torch.Tensor, _: Any) -> Gradients:
    (sorted_indices,) = ctx.saved_tensors
    with device_of(ctx):
        return GRADIENT(grad.contiguous(), sorted_indices, ctx.topk, False), None, None


PERMUTED = define(
    "permuted_tokens(Tensor tokens, Tensor indices, int num_out_tokens) -> (Tensor, Tensor)",
    _permuted,
    _permuted,
    Gradient(_keep, _backward),
)


def moe_token_permute(tokens: torch.Tensor, indices: torch.Tensor, num_out_tokens: int | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """Sort copies of tokens by expert; return them and where each went. The gradient is MoeTokenPermuteGrad.

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
    permuted, sorted_indices = PERMUTED(tokens, indices, num_out_tokens or 0)
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
    return moe_token_permute(tokens, indices, num_out_tokens)
