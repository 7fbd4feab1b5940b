"""Studies of SwiGluGrad: what is not published of its arithmetic, and dumps. There are no sums."""

from collections.abc import Iterator
from functools import partial

import numpy as np

from npu_sim.framework.vocabulary import Result, Text
from npu_sim.operators.shared.gated_halves.compute import halves_of, sigmoid
from npu_sim.operators.shared.gated_halves.study import (
    EXP_IN_FP32,
    FP64,
    RELATIVE,
    SWIGLU,
    VANISHING,
    contradictions,
)
from npu_sim.operators.shared.open_rules import open_rule
from npu_sim.operators.shared.study import (
    FoundCall,
    InDumps,
    OpenRule,
    StudyCall,
    Values,
    WrappedCall,
    no_claims,
    single_terms,
)
from npu_sim.operators.shared.unfused import Ends, Formulas, ends_of, is_16_bit, rounded, short
from npu_sim.operators.swi_glu_grad.compute import formula

claims = no_claims
terms = single_terms(x_grad="gradient")
STEEPEST = 1.1
"""Bound of the derivative of silu, which is at most 1.0998."""


def open_rules(call: StudyCall, result: Result) -> Iterator[OpenRule]:
    """Yield the bound of out, which contains an exp and a division.

    In the half of a, 1 - s is taken from a rounded s, and the two terms may cancel.
    """
    if call.case.empty:
        return
    a, b = halves_of(call.arguments, call.tensors["x"], FP64)
    grad, s = call.tensors["y_grad"].astype(FP64), sigmoid(a)
    terms_of_a = 2 * (s + np.abs(s * (1 - s) * a) + s * np.abs(a)) * RELATIVE
    radius_a = np.abs(grad * b) * (terms_of_a + (1 + np.abs(a)) * VANISHING)
    radius_b = np.abs(grad * a) * (s * RELATIVE + VANISHING)
    radius = np.concatenate((radius_a, radius_b), axis=int(call.arguments.dim))
    exact = formula(call.arguments, call.tensors, FP64)["x_grad"]
    yield open_rule(result, "x_grad", exact, radius, EXP_IN_FP32)


def unfused(call: StudyCall, output: str) -> Formulas:
    """Yield the gradient of silu and of the product, each rounded to 16 bits."""
    x = call.tensors["x"]
    if is_16_bit(x):
        text = "gradient of the unfused chain: silu(a) and its gradient rounded to {dtype}"
        yield Text(text, dtype=short(x.dtype)), partial(_unfused_gradient, call)


def _unfused_gradient(call: StudyCall) -> Ends:
    x = call.tensors["x"]
    a, b = halves_of(call.arguments, x, FP64)
    grad, s = call.tensors["y_grad"].astype(FP64), sigmoid(a)
    of_b = grad * rounded(a * s, x.dtype)
    scaled = rounded(grad * b, x.dtype)
    of_a = scaled * s * (1 + a * (1 - s))
    sizes = np.abs(scaled) * s * (1 + np.abs(a * (1 - s)))
    axis = int(call.arguments.dim)
    ends = (ends_of(of_a, sizes, x.dtype), ends_of(of_b, np.abs(of_b) * 0, x.dtype))
    low, high = (np.concatenate(side, axis=axis) for side in zip(*ends, strict=True))
    return low, high


def _in_dump(wrapped: WrappedCall) -> FoundCall:
    arguments = {
        "x": wrapped.tensor("self"),
        **wrapped.pick(dim=-1),
        "y_grad": wrapped.output_gradient(),
    }
    return arguments, {"x_grad": wrapped.gradients.get("self")}


def _contradictions(arguments: Values, results: Values) -> Iterator[str]:
    limit = STEEPEST * arguments["y_grad"].largest * arguments["x"].largest
    yield from contradictions(results, limit)


IN_DUMPS = InDumps((SWIGLU,), _in_dump, contradictions=_contradictions)
