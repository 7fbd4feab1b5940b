"""Studies of SwiGlu: what fusing changes, what is not published of its arithmetic, and dumps.

There are no sums, and every element depends on its own a and b alone.
"""

from collections.abc import Iterator
from functools import partial

import numpy as np

from npu_sim.framework.vocabulary import Result, Text, numpy_dtype
from npu_sim.kernels.shared.elementwise import narrow_array, widen_array
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
    Experiment,
    FoundCall,
    InDumps,
    Numbers,
    OpenRule,
    Shown,
    StudyCall,
    UnfusedCall,
    Values,
    WrappedCall,
    fused_differs,
    no_claims,
    single_terms,
    study_call,
)
from npu_sim.operators.shared.unfused import Ends, Formulas, ends_of, is_16_bit, rounded, short
from npu_sim.operators.swi_glu.compute import formula


class SiluApart(UnfusedCall):
    """The call as two kernels: silu(a) is rounded to the dtype before it is multiplied with b."""

    rounded_between = "silu rounded before the product"

    def run(self) -> Result:
        """Compute the call."""
        dim = int(self.arguments.dim)
        a, b = np.split(self.tensors["x"], 2, axis=dim)
        ones = np.concatenate((a, np.ones_like(a)), axis=dim)
        silu = StudyCall.run(self.with_tensors(x=ones))
        product = widen_array(silu.outputs["y"]) * widen_array(b)
        return Result({"y": narrow_array(product, b.dtype)}, silu.plan, silu.order_dependent)


claims, variants = no_claims, SiluApart.beside
terms = single_terms(y="silu(a)*b")


def causes(call: StudyCall, dtype: str, golden: np.ndarray) -> list[tuple[str, float, str]]:
    """Return what fusing changes (page, "Warnings", ``fused_differs``)."""
    template = "{percent} of the elements differ from silu(a) rounded to {dtype} before the product"
    return fused_differs(call, dtype, variants(call), template)


def open_rules(call: StudyCall, result: Result) -> Iterator[OpenRule]:
    """Yield the bound of out, which contains an exp and a division."""
    if not call.case.empty:
        a, b = halves_of(call.arguments, call.tensors["x"], FP64)
        out = formula(call.arguments, call.tensors, FP64)["y"]
        radius = np.abs(out) * RELATIVE + np.abs(a * b) * VANISHING
        yield open_rule(result, "y", out, radius, EXP_IN_FP32)


def unfused(call: StudyCall, output: str) -> Formulas:
    """Yield the call as three kernels in 16 bits: sigmoid(a), silu(a) and the product."""
    x = call.tensors["x"]
    if is_16_bit(x):
        text = Text(
            "sigmoid(a) and silu(a) rounded to {dtype} before the product", dtype=short(x.dtype)
        )
        yield text, partial(_rounded_sigmoid, call)


def _rounded_sigmoid(call: StudyCall) -> Ends:
    x = call.tensors["x"]
    a, b = halves_of(call.arguments, x, FP64)
    y = rounded(a * rounded(sigmoid(a), x.dtype), x.dtype) * b
    return ends_of(y, np.zeros_like(y), x.dtype)


def _in_dump(wrapped: WrappedCall) -> FoundCall:
    arguments = {"x": wrapped.tensor("self"), **wrapped.pick(dim=-1)}
    return arguments, {"y": wrapped.output(0)}


def _contradictions(arguments: Values, results: Values) -> Iterator[str]:
    yield from contradictions(results, arguments["x"].largest ** 2)


IN_DUMPS = InDumps((SWIGLU,), _in_dump, contradictions=_contradictions)


ELEMENTS = 1 << 16


def _fused() -> Shown:
    values = np.random.default_rng(0).standard_normal((64, 2 * ELEMENTS // 64), np.float32)
    numbers: Numbers = {}
    for dtype in ("float16", "bfloat16"):
        call = study_call("swi_glu", {"x": values.astype(numpy_dtype(dtype))})
        _, distance, note = causes(call, dtype, np.empty(0))[0]
        numbers[dtype] = {"note": note, "largest_ulp": distance}
    return numbers, [
        Text("{dtype}: {note}, by up to {largest_ulp} ulp", dtype=dtype, **found)
        for dtype, found in numbers.items()
    ]


CAVEATS = (
    Experiment(
        "fused_differs",
        "SwiGlu rounds once: training with it and inference with silu and a product disagree",
        "public sources, SwiGlu, rounding of y",
        _fused,
    ),
)
