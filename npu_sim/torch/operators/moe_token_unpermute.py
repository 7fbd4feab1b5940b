"""Unpermutation of tokens: MoeTokenUnpermute, with gradients of MoeTokenUnpermuteGrad."""

from typing import Any

import torch
from torch import Tensor

from npu_sim.torch.library import Gradient, Gradients, operator_of, saving

__all__ = ["moe_token_unpermute", "npu_moe_token_unpermute"]

GRADIENT_OPERATOR = operator_of("moe_token_unpermute_grad")


def _backward(ctx: Any, grad: Tensor) -> Gradients:
    permuted_tokens, sorted_indices, probs = ctx.saved_tensors
    tokens_grad, probs_grad = GRADIENT_OPERATOR(
        permuted_tokens, grad.contiguous(), sorted_indices, probs
    )
    return tokens_grad, None, None if probs is None else probs_grad, None, None


FORWARD_OPERATOR = operator_of("moe_token_unpermute", Gradient(saving(0, 1, 2), _backward))


def moe_token_unpermute(
    permuted_tokens: Tensor,
    sorted_indices: Tensor,
    probs: Tensor | None = None,
    padded_mode: bool = False,
) -> Tensor:
    """Return the sum of the experts' rows of every token, weighted with ``probs``.

    MoeTokenUnpermuteGrad computes the gradients.

    Parameters
    ----------
    permuted_tokens : (rows, hidden)
        Rows of the experts; fewer than indices if tokens were dropped, which the gradients support
        up to release 9.0.
    sorted_indices : (tokens * num_topk,)
        Row of every token and expert, as returned by :func:`moe_token_permute`.
    probs : (tokens, num_topk)
        Weights, in any of the three dtypes; None for one expert with weight 1.
    padded_mode
        Must be False; the product does not support it yet.
    """
    weights = None if probs is None else probs.contiguous()
    indices = sorted_indices.to(torch.int32).contiguous()
    return FORWARD_OPERATOR(permuted_tokens.contiguous(), indices, weights, padded_mode)


def npu_moe_token_unpermute(
    permuted_tokens: Tensor,
    sorted_indices: Tensor,
    probs: Tensor | None = None,
    padded_mode: bool = False,
    restore_shape: Any = None,
) -> Tensor:
    """Return the result of :func:`moe_token_unpermute`; ``restore_shape`` is ignored."""
    return moe_token_unpermute(permuted_tokens, sorted_indices, probs, padded_mode)
