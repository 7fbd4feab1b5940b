"""Calls of RMS normalisation: PyTorch's function, or a model library's module.

They correspond to RmsNorm and RmsNormGrad.
"""

import re
from typing import Any

import torch
from torch.nn import functional

from npu_sim.torch.recording.recorder import Span, spec_of

FORWARD, OPERATOR = "rms_norm", "rms_norm_grad"
CLASS_NAME = re.compile(r"RMSNorm", re.IGNORECASE)
BY_HAND = {FORWARD: re.compile(r"aten::(pow|square|mul) aten::mean aten::add aten::rsqrt$")}
MAX_KERNELS = 10
"""Most kernels of a module that only normalises, casts to fp32 and back included.

A module that runs more of them is recognised by its name only."""
EPSILON = ("variance_epsilon", "eps", "epsilon")
"""Names of the attribute that holds epsilon."""


def _rms_norm(
    span: Span,
    result: torch.Tensor,
    input: torch.Tensor,
    normalized_shape: Any,
    weight: torch.Tensor | None = None,
    eps: float | None = None,
) -> None:
    if weight is None:
        span.not_recognised(FORWARD, "it has no weight, and the operator needs gamma")
        return
    record(span, result, input, weight, torch.finfo(input.dtype).eps if eps is None else eps)


def record(
    span: Span, result: torch.Tensor, x: torch.Tensor, gamma: torch.Tensor, epsilon: float | None
) -> None:
    """Record the forward call and, when the gradient arrives, the backward call."""
    call = {"x": spec_of(x, copied=True), "gamma": spec_of(gamma, copied=True)}
    span.forward(FORWARD, call if epsilon is None else {**call, "epsilon": float(epsilon)})
    # dy has the dtype of x, even if a module that computes by hand returns another dtype.
    span.backward(result, OPERATOR, lambda gradient: {"dy": call["x"], **call})


def on_module_exit(
    span: Span, module: torch.nn.Module | None, inputs: tuple[Any, ...], result: Any
) -> None:
    """Record a module that is a normalisation by its name or by its kernels."""
    by_hand = FORWARD in span.by_hand
    named = module is not None and CLASS_NAME.search(type(module).__name__) is not None
    if not by_hand and (not named or FORWARD in span.operators):
        return
    tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
    if (
        (not named and span.kernels.total() > MAX_KERNELS)
        or len(tensors) != 1
        or not isinstance(result, torch.Tensor)
        or result.shape != tensors[0].shape
    ):
        span.not_recognised(
            FORWARD, "it is written out where more is done than to normalise one input"
        )
        return
    x = tensors[0]
    weights = list(module.parameters(recurse=False)) if module is not None else []
    if len(weights) != 1 or weights[0].shape != x.shape[x.dim() - weights[0].dim() :]:
        span.not_recognised(
            FORWARD, "it has no weight for the last axes of its input, and the operator needs gamma"
        )
        return
    attributes = (getattr(module, name, None) for name in EPSILON)
    epsilon = next((value for value in attributes if isinstance(value, float)), None)
    record(span, result, x, weights[0], epsilon)


FUNCTIONS = {functional.rms_norm: _rms_norm, torch.rms_norm: _rms_norm}
KERNELS = {"aten::_fused_rms_norm_backward": FORWARD}
