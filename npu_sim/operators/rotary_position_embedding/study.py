"""Studies of RotaryPositionEmbedding: what fusing changes, and dumps. There are no sums."""

import numpy as np

from npu_sim.framework.vocabulary import Index, Result
from npu_sim.kernels.shared.elementwise import narrow_array, widen_array
from npu_sim.operators.shared.rotations.compute import rotated
from npu_sim.operators.shared.rotations.study import FP64, ROTARY_MUL, attributes_of
from npu_sim.operators.shared.study import (
    FoundCall,
    InDumps,
    NamedTerms,
    StudyCall,
    UnfusedCall,
    WrappedCall,
    fused_differs,
    no_claims,
)


class ProductsApart(UnfusedCall):
    """The call as separate kernels: both products are rounded to the dtype, then their sum."""

    rounded_between = "products rounded before the sum"

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


claims, variants = no_claims, ProductsApart.beside


def causes(call: StudyCall, dtype: str, golden: np.ndarray) -> list[tuple[str, float, str]]:
    """Return what fusing changes (page, "Warnings", ``fused_differs``)."""
    template = "{percent} of the elements differ from products rounded to {dtype} before the sum"
    return fused_differs(call, dtype, variants(call), template)


def terms(call: StudyCall, output: str, index: Index) -> NamedTerms:
    """Return the two terms of an element in float64."""
    x, cos, sin = (call.tensors[name].astype(FP64) for name in ("x", "cos", "sin"))
    turned = rotated(x, int(call.arguments.mode))
    products = np.broadcast_arrays(x * cos, turned * sin)
    return [
        (name, float(product[index]))
        for name, product in zip(("x*cos", "rot(x)*sin"), products, strict=True)
    ]


def _in_dump(wrapped: WrappedCall) -> FoundCall:
    arguments = {
        "x": wrapped.tensor("input"),
        "cos": wrapped.tensor("r1"),
        "sin": wrapped.tensor("r2"),
        **attributes_of(wrapped),
    }
    return arguments, {"y": wrapped.output(0)}


IN_DUMPS = InDumps((ROTARY_MUL,), _in_dump)
