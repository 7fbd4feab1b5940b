"""Calls of cross entropy of logits or log-probabilities.

CrossEntropyLossGrad computes the gradient.
"""

from typing import Any

import torch
from torch.nn import functional

from npu_sim.torch.recording.recorder import Span, spec_of

OPERATOR = "cross_entropy_loss_grad"


def _cross_entropy(
    span: Span,
    result: torch.Tensor,
    input: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    size_average: Any = None,
    ignore_index: int = -100,
    reduce: Any = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> None:
    if target.is_floating_point():
        span.not_recognised("cross_entropy", "its targets are probabilities, not labels")
        return
    if size_average is not None or reduce is not None:
        reduction = _reduction(size_average, reduce)
    classes_axis = 1 if input.dim() > 1 else 0
    classes = input.shape[classes_axis]
    rows = input.numel() // classes if classes else 0
    # The recorded call has the classes on the last axis and all other axes as rows.
    call: dict[str, Any] = {
        "log_prob": spec_of(input, (rows, classes), copied=True),
        "target": spec_of(target, (rows,), copied=True),
    }
    call |= {"weight": spec_of(weight, copied=True)} if weight is not None else {}
    call |= {"reduction": reduction, "ignore_index": ignore_index}
    call |= {"label_smoothing": label_smoothing} if label_smoothing else {}
    shape = (rows,) if reduction == "none" else ()
    span.backward(
        result,
        OPERATOR,
        lambda gradient: {"grad_loss": spec_of(gradient, shape, copied=True), **call},
    )


def _reduction(size_average: bool | None, reduce: bool | None) -> str:
    """Return the reduction for PyTorch's two deprecated options; None means True."""
    if reduce is False:
        return "none"
    return "sum" if size_average is False else "mean"


def _nll_loss(
    span: Span,
    result: torch.Tensor,
    input: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    size_average: Any = None,
    ignore_index: int = -100,
    reduce: Any = None,
    reduction: str = "mean",
) -> None:
    if not _is_log_softmax(input.grad_fn):
        span.not_recognised("nll_loss", "its input is not the result of log_softmax")
        return
    _cross_entropy(
        span, result, input, target, weight, size_average, ignore_index, reduce, reduction
    )


VIEWS = (
    "ViewBackward0",
    "UnsafeViewBackward0",
    "ReshapeAliasBackward0",
    "ToCopyBackward0",
    "TransposeBackward0",
    "PermuteBackward0",
)


def _is_log_softmax(node: Any) -> bool:
    """Return whether an autograd node is log_softmax, or a view or cast of its result."""
    while node is not None and node.name() in VIEWS:
        node = node.next_functions[0][0]
    return node is not None and node.name() == "LogSoftmaxBackward0"


FUNCTIONS = {functional.cross_entropy: _cross_entropy, functional.nll_loss: _nll_loss}
KERNELS = {"aten::nll_loss_backward": "cross_entropy", "aten::nll_loss2d_backward": "cross_entropy"}
