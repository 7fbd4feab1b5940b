"""The way back from experts to tokens: its forward is MoeTokenUnpermute, its gradients are MoeTokenUnpermuteGrad."""

from typing import Any

import torch
from torch.autograd.function import once_differentiable

from npu_sim.settings import current_device
from npu_sim.torch.operators import Gradients, compute, device_of

__all__ = ["moe_token_unpermute", "npu_moe_token_unpermute"]


class MoeTokenUnpermute(torch.autograd.Function):  # type: ignore[misc]
    """(permuted tokens, sorted indices, probs, padded mode) to tokens; the indices carry no gradient."""

    @staticmethod
    def forward(
        ctx: Any, permuted_tokens: torch.Tensor, sorted_indices: torch.Tensor, probs: torch.Tensor | None, padded_mode: bool
    ) -> torch.Tensor:
        """Weigh and sum as the product does, and keep what the gradients need."""
        ctx.settings = current_device()
        tensors = {"permuted_tokens": permuted_tokens, "sorted_indices": sorted_indices.to(torch.int32), "probs": probs}
        given = {name: tensor.contiguous() for name, tensor in tensors.items() if tensor is not None}
        ctx.save_for_backward(*tensors.values())
        tokens: torch.Tensor = compute("moe_token_unpermute", ctx.settings, {**given, "padded_mode": padded_mode})[0]
        return tokens

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad: torch.Tensor) -> Gradients:
        """Return the gradients of the permuted tokens and of probs."""
        permuted_tokens, sorted_indices, probs = ctx.saved_tensors
        tensors = {"permuted_tokens": permuted_tokens, "unpermuted_tokens_grad": grad, "sorted_indices": sorted_indices, "probs": probs}
        given = {name: tensor.contiguous() for name, tensor in tensors.items() if tensor is not None}
        tokens_grad, probs_grad = compute("moe_token_unpermute_grad", device_of(ctx), given)
        return tokens_grad, None, probs_grad, None


def moe_token_unpermute(
    permuted_tokens: torch.Tensor, sorted_indices: torch.Tensor, probs: torch.Tensor | None = None, padded_mode: bool = False
) -> torch.Tensor:
    """Gather the rows that experts returned, weigh them with probs, and sum them for every token; its gradients are MoeTokenUnpermuteGrad.

    Parameters
    ----------
    permuted_tokens : (rows, hidden)
        Rows of the experts; fewer than indices when tokens were dropped, which the gradients take up to release 9.0.
    sorted_indices : (tokens * num_topk,)
        Row of every token and expert, as :func:`moe_token_permute` returns it.
    probs : (tokens, num_topk)
        Weights, of any of the three dtypes; None for one expert with weight 1.
    padded_mode
        Not supported yet by the product: False.
    """
    tokens: torch.Tensor = MoeTokenUnpermute.apply(permuted_tokens, sorted_indices, probs, padded_mode)
    return tokens


def npu_moe_token_unpermute(
    permuted_tokens: torch.Tensor,
    sorted_indices: torch.Tensor,
    probs: torch.Tensor | None = None,
    padded_mode: bool = False,
    restore_shape: Any = None,
) -> torch.Tensor:
    """Return the weighted sum for every token, as :func:`moe_token_unpermute`; ``restore_shape`` is looked at by nobody."""
    return moe_token_unpermute(permuted_tokens, sorted_indices, probs, padded_mode)
