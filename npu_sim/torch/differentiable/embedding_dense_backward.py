"""An embedding whose gradient is EmbeddingDenseBackward."""

from typing import Any

import torch
from torch.autograd.function import once_differentiable
from torch.nn import functional

from npu_sim.settings import current_device
from npu_sim.torch.operators import Gradients, compute, device_of

__all__ = ["embedding"]


class _Embedding(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, indices: torch.Tensor, weight: torch.Tensor, padding_idx: int, scale_grad_by_freq: bool) -> torch.Tensor:
        ctx.settings = current_device()
        ctx.save_for_backward(indices)
        ctx.call = {"num_weights": weight.shape[0], "padding_idx": padding_idx, "scale_grad_by_freq": scale_grad_by_freq}
        return functional.embedding(indices, weight)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad: torch.Tensor) -> Gradients:
        (indices,) = ctx.saved_tensors
        tensors = {"grad": grad.reshape(-1, grad.shape[-1]), "indices": indices.reshape(-1)}
        (weight_grad,) = compute("embedding_dense_backward", device_of(ctx), {**tensors, **ctx.call})
        return None, weight_grad, None, None


def embedding(input: torch.Tensor, weight: torch.Tensor, padding_idx: int | None = None, scale_grad_by_freq: bool = False) -> torch.Tensor:
    """Look rows of ``weight`` up, as :func:`torch.nn.functional.embedding`; its gradient is EmbeddingDenseBackward.

    A negative ``padding_idx`` counts from the end of the table.
    """
    if padding_idx is None:
        padding = -1
    else:
        padding = padding_idx + weight.shape[0] if padding_idx < 0 else padding_idx
        if not 0 <= padding < weight.shape[0]:
            raise ValueError(f"padding_idx = {padding_idx} is not a row of a table of {weight.shape[0]}")
    result: torch.Tensor = _Embedding.apply(input, weight, padding, scale_grad_by_freq)
    return result
