"""ApplyAdamWV2 on Ascend 950: computation.

Source: specification page ``apply_adam_w_v2_950``.
"""

import numpy as np

from npu_sim.framework.vocabulary import Run, to_fp32
from npu_sim.operators.apply_adam_w_v2.compute import ONE, F, compute_step, powers_of, scalars_of


def flushed(value: np.float32) -> np.float32:
    """Return a value, or for a subnormal one the zero of its sign."""
    return value * F(0) if abs(value) < np.finfo(F).tiny else value


def power(x: np.float32, y: np.float32) -> np.float32:
    """Return x to the power of y, rounded once."""
    return F(np.power(np.float64(x), np.float64(y)))


def compute(run: Run) -> None:
    """Compute the state after the step."""
    arguments = run.case.arguments
    powers = powers_of(arguments, run.tensors["step"], power)
    scalars = scalars_of(arguments, powers, run.case.specs["v"].dtype)
    with np.errstate(all="ignore"):
        root = flushed(np.sqrt(flushed(ONE - powers[1])))
        size = flushed(flushed(to_fp32(arguments.lr)) / flushed(powers[0] - ONE))
    scalars |= {"root": root, "size": size}
    arithmetic = {"sums_products": True, "divides_root": True, "rounds_half_away": False}
    compute_step(run, powers, scalars, **arithmetic)
