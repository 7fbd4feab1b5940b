"""Studies of RotaryPositionEmbedding: what fusing changes, and dumps. There are no sums."""

from collections.abc import Iterator
from dataclasses import fields

import numpy as np

from npu_sim.framework.execution import Result
from npu_sim.kernels.elementwise import narrow_array, ulp_distance, widen_array
from npu_sim.language import Text
from npu_sim.numbers.formats import canonical_dtype
from npu_sim.operators.rotary_position_embedding.compute import rotated
from npu_sim.operators.shared.dumped import Function, InDumps, Values, WrappedCall
from npu_sim.operators.shared.study import StudyCall
from npu_sim.orders.claims import Claim

FP64 = np.dtype(np.float64)
MODES = {"half": 0, "interleave": 1}
"""Modes by the names of torch_npu."""


class UnfusedCall(StudyCall):
    """The call as separate kernels: both products are rounded to the dtype, then their sum."""

    def run(self) -> Result:
        """Compute the call."""
        x, cos, sin = (self.tensors[name] for name in ("x", "cos", "sin"))
        turned = rotated(widen_array(x), int(self.arguments.mode))
        products = (
            widen_array(narrow_array(wide * widen_array(factor), x.dtype))
            for wide, factor in ((widen_array(x), cos), (turned, sin))
        )
        fused = StudyCall.run(self)
        return Result(
            {"y": narrow_array(sum(products), x.dtype)}, fused.plan, fused.order_dependent
        )


def claims(call: StudyCall) -> Iterator[Claim]:
    """Yield nothing: no result is a sum of more than two terms."""
    yield from ()


def variants(call: StudyCall) -> Iterator[tuple[str, str, StudyCall]]:
    """Yield the call, and in 16 bits the call as separate kernels."""
    dtype = canonical_dtype(call.tensors["x"].dtype)
    yield "fused", dtype, call
    if dtype != "float32":
        unfused = UnfusedCall(*(getattr(call, one.name) for one in fields(call)))
        yield "products rounded before the sum", dtype, unfused


def causes(call: StudyCall, dtype: str, golden: np.ndarray) -> list[tuple[str, float, str]]:
    """Return what fusing changes."""
    if dtype == "float32" or isinstance(call, UnfusedCall):
        return []
    fused, unfused = (one.run().outputs["y"] for _, _, one in variants(call))
    distances = ulp_distance(fused, unfused, dtype)
    share = np.count_nonzero(distances) / max(distances.size, 1)
    note = Text(
        "{percent} of the elements differ from products rounded to {dtype} before the sum",
        percent=f"{100 * share:.1f} %",
        dtype=dtype,
    )
    return [("fused_differs", float(distances.max(initial=0)), note)]


def terms(call: StudyCall, output: str, index: tuple[int, ...]) -> list[tuple[str, float]]:
    """Return the two terms of an element in float64."""
    x, cos, sin = (call.tensors[name].astype(FP64) for name in ("x", "cos", "sin"))
    turned = rotated(x, int(call.arguments.mode))
    products = np.broadcast_arrays(x * cos, turned * sin)
    return [
        (name, float(product[index]))
        for name, product in zip(("x*cos", "rot(x)*sin"), products, strict=True)
    ]


def attributes_of(wrapped: WrappedCall) -> dict[str, object]:
    """Return the mode of a dumped call of torch_npu."""
    mode = wrapped.pick("rotary_mode", rotary_mode="half")["rotary_mode"]
    return {"mode": MODES.get(str(mode), mode)}


def _in_dump(wrapped: WrappedCall) -> tuple[Values, Values]:
    arguments = {
        "x": wrapped.tensor("input"),
        "cos": wrapped.tensor("r1"),
        "sin": wrapped.tensor("r2"),
        **attributes_of(wrapped),
    }
    return arguments, {"y": wrapped.output(0)}


FUNCTION = Function(
    ("npu_rotary_mul",), ("input", "r1", "r2", "rotary_mode"), ("input", "r1", "r2")
)
IN_DUMPS = InDumps((FUNCTION,), _in_dump)
