"""Permutation of tokens to experts: MoeTokenPermute, with gradients of MoeTokenPermuteGrad."""

from typing import Any

import torch

from npu_sim.registry import load_operator
from npu_sim.settings import current_device
from npu_sim.torch.library import Gradient, operator_of
from npu_sim.torch.simulation import Gradients, device_of

__all__ = ["moe_token_permute", "npu_moe_token_permute"]

GRADIENT = operator_of(load_operator("moe_token_permute_grad"))


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    tokens, indices, *_ = inputs
    sorted_indices = output[1]
    ctx.settings, ctx.shape = current_device(), tokens.shape
    ctx.topk = indices.shape[1] if indices.dim() == 2 else 1
    ctx.save_for_backward(sorted_indices)
    ctx.mark_non_differentiable(sorted_indices)


def _backward(ctx: Any, grad: torch.Tensor, _: Any) -> Gradients:
    (sorted_indices,) = ctx.saved_tensors
    rows = grad.contiguous().reshape(grad.shape[0], ctx.shape[1:].numel())
    with device_of(ctx):
        return GRADIENT(rows, sorted_indices, ctx.topk, False).reshape(ctx.shape), None, None, None


FORWARD = operator_of(load_operator("moe_token_permute"), Gradient(_keep, _backward))


def moe_token_permute(
    tokens: torch.Tensor,
    indices: torch.Tensor,
    num_out_tokens: int | None = None,
    padded_mode: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (permuted_tokens, sorted_indices): tokens sorted by expert, and the row of each copy.

    Entry i of the flattened indices copies token i // topk to row sorted_indices[i], which is int32
    of shape (tokens * topk,). Rows from ``num_out_tokens`` on are dropped; 0 and None drop nothing,
    and a negative number counts from the end. MoeTokenPermuteGrad computes the gradient.

    Raises
    ------
    AclnnError
        As :func:`npu_sim.moe_token_permute`; 561002 for ``padded_mode``, which the product does not
        support yet.
    """
    permuted, sorted_indices = FORWARD(
        tokens.contiguous(), indices.contiguous(), num_out_tokens or 0, padded_mode
    )
    return permuted, sorted_indices


npu_moe_token_permute = moe_token_permute
"""Name of the same function in ``torch_npu``."""
