"""ApplyAdamWV2 on Ascend 950: computation.

Source: specification page ``apply_adam_w_v2_950``.
"""

from typing import Any

import numpy as np

from npu_sim.framework.vocabulary import Run, to_fp32
from npu_sim.operators.apply_adam_w_v2.compute import (
    ONE,
    F,
    Powers,
    compute_step,
    powers_of,
    scalars_of,
)


def flushed(value: Any) -> Any:
    """Return fp32 values, with the zero of its sign in place of a subnormal one."""
    return np.where(np.abs(value) < np.finfo(F).tiny, np.copysign(F(0), value), value)[()]


def power(x: np.float32, y: np.float32) -> np.float32:
    """Return x to the power of y, rounded once."""
    return F(np.power(np.float64(x), np.float64(y)))


def scalars_here(arguments: Any, powers: Powers, v_dtype: str) -> dict[str, Any]:
    """Return the scalars of a step by name."""
    with np.errstate(all="ignore"):
        root = flushed(np.sqrt(flushed(ONE - powers[1])))
        size = flushed(flushed(to_fp32(arguments.lr)) / flushed(powers[0] - ONE))
    return {**scalars_of(arguments, powers, v_dtype), "root": root, "size": size}


def compute(run: Run) -> None:
    """Compute the state after the step."""
    arguments = run.case.arguments
    powers = powers_of(arguments, run.tensors["step"], power)
    scalars = scalars_here(arguments, powers, run.case.specs["v"].dtype)
    arithmetic = {"subtracts_products": True, "divides_root": True, "rounds_half_away": False}
    compute_step(run, powers, scalars, **arithmetic)
