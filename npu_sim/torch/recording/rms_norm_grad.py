"""RMS normalisation, as a function or computed by hand in a module of a model library: RmsNorm and RmsNormGrad."""

import re
from typing import Any

import torch
from torch.nn import functional

from npu_sim.torch.recording.stretch import Stretch, spec_of

FORWARD, OPERATOR = "rms_norm", "rms_norm_grad"
NAMED = re.compile(r"RMSNorm", re.IGNORECASE)
WRITTEN_OUT = {FORWARD: re.compile(r"aten::(pow|square|mul) aten::mean aten::add aten::rsqrt$")}
MOST_KERNELS = 10
"""Kernels of a module that only normalises, with casts to fp32 and back; where more run, only its
name tells."""
EPSILON = ("variance_epsilon", "eps", "epsilon")
"""What modules call it."""


def _rms_norm(
    stretch: Stretch,
    result: torch.Tensor,
    input: torch.Tensor,
    normalized_shape: Any,
    weight: torch.Tensor | None = None,
    eps: float | None = None,
) -> None:
    if weight is None:
        stretch.not_recognised(FORWARD, "it has no weight, and the operator needs gamma")
        return
    record(stretch, result, input, weight, torch.finfo(input.dtype).eps if eps is None else eps)


def record(
    stretch: Stretch,
    result: torch.Tensor,
    x: torch.Tensor,
    gamma: torch.Tensor,
    epsilon: float | None,
) -> None:
    """Record the forward call and, when the gradient arrives, the backward call."""
    call = {"x": spec_of(x, copied=True), "gamma": spec_of(gamma, copied=True)}
    stretch.forward(FORWARD, call if epsilon is None else {**call, "epsilon": float(epsilon)})
    # The operator's result has the dtype of x, whatever a module that computes it by hand makes of
    # it.
    stretch.backward(result, OPERATOR, lambda gradient: {"dy": call["x"], **call})


def left(
    stretch: Stretch, module: torch.nn.Module | None, inputs: tuple[Any, ...], result: Any
) -> None:
    """Look whether a module is a normalisation: by its name, or by what it computed."""
    by_hand = FORWARD in stretch.written_out
    named = module is not None and NAMED.search(type(module).__name__) is not None
    if not by_hand and (not named or FORWARD in stretch.operators):
        return
    weights = list(module.parameters(recurse=False)) if module is not None else []
    tensors = [one for one in inputs if isinstance(one, torch.Tensor)]
    more = not named and stretch.kernels.total() > MOST_KERNELS
    if (
        more
        or len(tensors) != 1
        or not isinstance(result, torch.Tensor)
        or result.shape != tensors[0].shape
    ):
        stretch.not_recognised(
            FORWARD, "it is written out where more is done than to normalise one input"
        )
        return
    x = tensors[0]
    if len(weights) != 1 or tuple(weights[0].shape) != tuple(x.shape[x.dim() - weights[0].dim() :]):
        stretch.not_recognised(
            FORWARD, "it has no weight for the last axes of its input, and the operator needs gamma"
        )
    else:
        epsilon = next(
            (
                getattr(module, name)
                for name in EPSILON
                if isinstance(getattr(module, name, None), float)
            ),
            None,
        )
        record(stretch, result, x, weights[0], epsilon)


FUNCTIONS = {functional.rms_norm: _rms_norm, torch.rms_norm: _rms_norm}
KERNELS = {"aten::_fused_rms_norm_backward": FORWARD}
