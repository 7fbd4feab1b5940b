"""Embedding with gradients of EmbeddingDenseBackward."""

from typing import Any

import torch
from torch.nn import functional

from npu_sim.language import Text
from npu_sim.registry import load_operator
from npu_sim.settings import current_device
from npu_sim.torch.library import Gradient, define, operator_of
from npu_sim.torch.simulation import Gradients, device_of

__all__ = ["embedding"]

GRADIENT = operator_of(load_operator("embedding_dense_backward"))


def _forward(
    indices: torch.Tensor, weight: torch.Tensor, padding_idx: int, scale_grad_by_freq: bool
) -> torch.Tensor:
    return functional.embedding(indices, weight)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    indices, weight, *ctx.call = inputs
    ctx.settings = current_device()
    ctx.rows = weight.shape[0]
    ctx.save_for_backward(indices)


def _backward(ctx: Any, grad: torch.Tensor) -> Gradients:
    (indices,) = ctx.saved_tensors
    rows = grad.reshape(-1, grad.shape[-1])
    with device_of(ctx):
        return None, GRADIENT(rows, indices.reshape(-1), ctx.rows, *ctx.call), None, None


FORWARD = define(
    "embedding(Tensor indices, Tensor weight, int padding_idx, bool scale_grad_by_freq) -> Tensor",
    _forward,
    _forward,
    Gradient(_keep, _backward),
)


def embedding(
    input: torch.Tensor,
    weight: torch.Tensor,
    padding_idx: int | None = None,
    scale_grad_by_freq: bool = False,
) -> torch.Tensor:
    """Return rows of ``weight``, as :func:`torch.nn.functional.embedding`.

    EmbeddingDenseBackward computes its gradient. A negative ``padding_idx`` counts from the end
    of the table.
    """
    if padding_idx is None:
        padding = -1
    else:
        padding = padding_idx + weight.shape[0] if padding_idx < 0 else padding_idx
        if not 0 <= padding < weight.shape[0]:
            raise ValueError(
                Text(
                    "padding_idx = {padding_idx} is not a row of a table of {shape}",
                    padding_idx=padding_idx,
                    shape=weight.shape[0],
                )
            )
    result: torch.Tensor = FORWARD(input, weight, padding, scale_grad_by_freq)
    return result
