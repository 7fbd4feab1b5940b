"""Studies of ApplyAdamWV2 on Ascend 950: the bound of var.

Source: specification page ``apply_adam_w_v2_950``.
"""

from collections.abc import Iterator

import numpy as np

from npu_sim.framework.vocabulary import Result
from npu_sim.operators.apply_adam_w_v2 import study
from npu_sim.operators.apply_adam_w_v2.ascend_950.compute import flushed, power, scalars_here
from npu_sim.operators.apply_adam_w_v2.compute import ONE, powers_of
from npu_sim.operators.shared.study import OpenRule, StudyCall


def open_rules(call: StudyCall, result: Result) -> Iterator[OpenRule]:
    """Yield the bound of var_out (page ``apply_adam_w_v2``, "What the model costs")."""
    if call.case.empty:
        return
    powers = powers_of(call.arguments, call.tensors["step"], power)
    scalars = scalars_here(call.arguments, powers, call.case.specs["v"].dtype)
    old, beta1, beta2 = study.state_of(call, scalars), scalars["beta1"], scalars["beta2"]
    first = old["m"] * beta1 - old["grad"] * (beta1 - ONE)
    second = old["v"] * beta2 - old["grad"] * old["grad"] * (beta2 - ONE)
    root = flushed(np.sqrt(flushed(study.largest(old, second))))
    divisor = flushed(flushed(root / scalars["root"]) + scalars["eps"])
    # The size has the other sign here.
    step = -scalars["size"] * flushed(flushed(first) / divisor)
    lost = 2.0**-125 * max(1.0, abs(float(scalars["size"])))
    steps = study.steps_between(first, step, powers, lost)
    decayed = [old["var"] * scalars["decay"]]
    yield study.rule_of_var(call, result, decayed, steps, rounds_half_away=False)
