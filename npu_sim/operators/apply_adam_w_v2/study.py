"""Studies of ApplyAdamWV2: what is not published of its arithmetic, and moments that never fall.

There are no sums, and every element depends on its own inputs and the scalars of the step alone.

Source: specification page ``apply_adam_w_v2``, "What the model costs".
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from npu_sim.framework.vocabulary import (
    FORMATS,
    Result,
    Text,
    canonical_dtype,
    numpy_dtype,
    to_fp32,
)
from npu_sim.operators.apply_adam_w_v2.compute import power, powers_of, uncertainties
from npu_sim.operators.shared.study import (
    Experiment,
    Numbers,
    OpenRule,
    Shown,
    StudyCall,
    no_claims,
    open_rule,
    run,
    single_terms,
)
from npu_sim.tiling.apply_adam_w_v2 import STATE

RELATIVE = 2.0**-22
"""What root, division and an error of ln change of the step, besides one unit of the powers."""

claims = no_claims
terms = single_terms(**{f"{name}_out": name for name in STATE})


def open_rules(call: StudyCall, result: Result) -> Iterator[OpenRule]:
    """Yield the bound of var_out, which the power function, a root and a division enter."""
    if call.case.empty:
        return
    arguments, out = call.arguments, result.outputs["var_out"]
    found = uncertainties(powers_of(arguments, call.tensors["step"], power))
    lr, weight_decay = (float(to_fp32(arguments[name])) for name in ("lr", "weight_decay"))
    with np.errstate(all="ignore"):
        new = out.astype(np.float64)
        step = np.abs(call.tensors["var"].astype(np.float64) * (1 - lr * weight_decay) - new)
        unit = np.abs(new) * 2.0 ** -FORMATS[canonical_dtype(out.dtype)].mantissa_bits + 2.0**-133
        yield open_rule(
            result,
            "var_out",
            new,
            step * (2 * sum(found.values()) + RELATIVE) + unit,
            "the power function, root and division in fp32 are taken as correctly rounded; values "
            "are possible that differ by a few units in the last place of the step",
        )


UPDATES = 100
"""Updates without gradient of an experiment."""


def _never_decay() -> Shown:
    """Run updates with a zero gradient; count the second moments that stay."""
    moment = np.square(np.random.default_rng(0).standard_normal(4096, np.float32) * 0.01)
    numbers: Numbers = {}
    for dtype in ("float32", "float16", "bfloat16"):
        start = v = moment.astype(numpy_dtype(dtype))
        call: dict[str, Any] = dict.fromkeys(("var", "m", "grad"), np.zeros_like(start))
        for step in np.arange(UPDATES, dtype=np.float32):
            v = run("apply_adam_w_v2", **call, v=v, step=step.reshape(1)).outputs["v_out"]
        numbers[dtype] = float(np.mean(v == start))
    return numbers, [
        Text(
            "{dtype}: {share} of the second moments are as before after {updates} updates without "
            "gradient",
            dtype=dtype,
            share=f"{100 * share:.0f} %",
            updates=UPDATES,
        )
        for dtype, share in numbers.items()
    ]


CAVEATS = (
    Experiment(
        "moments_never_decay",
        "a second moment in 16 bits never falls with the usual beta2",
        "public sources, ApplyAdamWV2, rounding of v",
        _never_decay,
    ),
)
