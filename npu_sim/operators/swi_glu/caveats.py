"""Documented caveats of SwiGlu as experiments."""

import numpy as np

from npu_sim.language import Text
from npu_sim.numbers.formats import numpy_dtype
from npu_sim.operators.shared.experiment import Caveat, Numbers
from npu_sim.operators.shared.study import study_call
from npu_sim.operators.swi_glu.study import causes

ELEMENTS = 1 << 16


def _fused() -> Numbers:
    values = np.random.default_rng(0).standard_normal((64, 2 * ELEMENTS // 64), np.float32)
    numbers = {}
    for dtype in ("float16", "bfloat16"):
        call = study_call("swi_glu", {"x": values.astype(numpy_dtype(dtype))})
        _, distance, note = causes(call, dtype, np.empty(0))[0]
        numbers[dtype] = {"note": note, "largest_ulp": distance}
    return numbers


def _explain_fused(numbers: Numbers) -> list[str]:
    return [
        Text("{dtype}: {note}, by up to {largest_ulp} ulp", dtype=dtype, **found)
        for dtype, found in numbers.items()
    ]


CAVEATS = (
    Caveat(
        "fused_differs",
        "SwiGlu rounds once: training with it and inference with silu and a product disagree",
        "specification page swi_glu",
        _fused,
        _explain_fused,
    ),
)
