"""What is not published of the arithmetic of SwiGlu and SwiGluGrad, and their calls in dumps."""

from collections.abc import Iterator

import numpy as np

from npu_sim.framework.vocabulary import Text
from npu_sim.operators.shared.study import DumpedTensor, Function, Values

FP64 = np.dtype(np.float64)
EXP_IN_FP32 = (
    "exp and division in fp32 are taken as correctly rounded; values are possible that differ by a "
    "few units in the last place of fp32"
)
RELATIVE, VANISHING = 2.0**-20, 2.0**-124
"""Bounds of the difference that exp and division of 1 ulp make: relative to the result, and, where
1 / (1 + exp(-a)) may be lost as a subnormal number, relative to a*b."""


TOLERANCE = 1 + 2.0**-6
"""Rounding of a result to 16 bits."""


def contradictions(results: Values, limit: float) -> Iterator[str]:
    """Yield whether the result exceeds a bound that its inputs set."""
    out = next(iter(results.values()), None)  # a dump may have no outputs
    if (
        isinstance(out, DumpedTensor)
        and np.isfinite(out.largest)
        and out.largest > limit * TOLERANCE
    ):
        yield Text(
            "out has the value {value}; at most {limit} is possible with these inputs",
            value=f"{out.largest:.4g}",
            limit=f"{limit:.4g}",
        )


SWIGLU = Function(("npu_swiglu",), ("self", "dim"), ("self",))
