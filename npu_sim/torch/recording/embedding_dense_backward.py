"""Calls of an embedding, whose gradient EmbeddingDenseBackward computes."""

from typing import Any

import torch
from torch.nn import functional

from npu_sim.torch.recording.recorder import Span, spec_of

OPERATOR = "embedding_dense_backward"


def _functional(
    span: Span,
    result: torch.Tensor,
    input: torch.Tensor,
    weight: torch.Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> None:
    row = -1 if padding_idx is None else padding_idx + weight.shape[0] * (padding_idx < 0)
    _lookup(span, result, weight, input, row, scale_grad_by_freq, sparse)


def _lookup(
    span: Span,
    result: torch.Tensor,
    weight: torch.Tensor,
    indices: torch.Tensor,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> None:
    if sparse:
        span.not_recognised("embedding", "its gradient is sparse")
        return
    call: dict[str, Any] = {"indices": spec_of(indices), "num_weights": weight.shape[0]}
    call |= {"padding_idx": padding_idx} if padding_idx >= 0 else {}
    call |= {"scale_grad_by_freq": True} if scale_grad_by_freq else {}
    if weight.requires_grad:
        span.backward(result, OPERATOR, lambda gradient: {"grad": spec_of(gradient), **call})


FUNCTIONS = {functional.embedding: _functional, torch.embedding: _lookup}
KERNELS = {"aten::embedding_dense_backward": "embedding"}
