"""Embedding: the gradient of EmbeddingDenseBackward, and how its calls are recorded."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from npu_sim.language import Text
from npu_sim.status import NotModelledError
from npu_sim.torch.fused import Backward, FusedCall
from npu_sim.torch.library import Gradient, Gradients, define, operator_of
from npu_sim.torch.recorder import Span, spec_of

__all__ = ["embedding"]

GRADIENT_OPERATOR = operator_of("embedding_dense_backward")


def _forward(indices: Tensor, weight: Tensor, padding_idx: int, scale_grad_by_freq: bool) -> Tensor:
    return torch.ops.aten.embedding(weight, indices)  # programs may replace the functions


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    indices, weight, *ctx.call = inputs
    ctx.rows = weight.shape[0]
    ctx.save_for_backward(indices)


def _backward(ctx: Any, grad: Tensor) -> Gradients:
    (indices,) = ctx.saved_tensors
    rows = grad.reshape(-1, grad.shape[-1])
    return None, GRADIENT_OPERATOR(rows, indices.reshape(-1), ctx.rows, *ctx.call), None, None


FORWARD_OPERATOR = define(
    "embedding(Tensor indices, Tensor weight, int padding_idx, bool scale_grad_by_freq) -> Tensor",
    _forward,
    _forward,
    Gradient(_keep, _backward),
)


def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """Return rows of ``weight``, as :func:`torch.nn.functional.embedding`.

    EmbeddingDenseBackward computes its gradient. A negative ``padding_idx`` counts from the end
    of the table.

    Raises
    ------
    NotModelledError
        For ``max_norm``, which renormalises the table, and ``sparse``.
    """
    if max_norm is not None:
        raise NotModelledError(
            "max_norm", "max_norm: another operator renormalises the table first", "leave it out"
        )
    if sparse:
        raise NotModelledError("sparse", "sparse: the operator's gradient is dense", "sparse=False")
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
    return FORWARD_OPERATOR(input, weight, padding, scale_grad_by_freq)


OPERATOR = "embedding_dense_backward"


def _functional(
    span: Span,
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> FusedCall | None:
    if sparse:
        span.not_recognised("embedding", "its gradient is sparse")
        return None
    row = -1 if padding_idx is None else padding_idx + weight.shape[0] * (padding_idx < 0)
    call: dict[str, Any] = {"indices": spec_of(input), "num_weights": weight.shape[0]}
    if row >= 0:
        call["padding_idx"] = row
    if scale_grad_by_freq:
        call["scale_grad_by_freq"] = True
    return FusedCall(
        compute=lambda: embedding(
            input, weight, padding_idx, max_norm, norm_type, scale_grad_by_freq
        ),
        backward=[Backward(OPERATOR, lambda gradient: {"grad": spec_of(gradient), **call})],
    )


def _lookup(
    span: Span,
    weight: Tensor,
    indices: Tensor,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> FusedCall | None:
    row = None if padding_idx < 0 else padding_idx
    return _functional(span, indices, weight, row, None, 2.0, scale_grad_by_freq, sparse)


FUNCTIONS = {functional.embedding: _functional, torch.embedding: _lookup}
KERNELS = {"aten::embedding_dense_backward": "embedding"}
