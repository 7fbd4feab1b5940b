"""ApplyAdamWV2 on Ascend 950: own planner and order of operations.

Rates of vector instructions are not published for this product: the bound is that of the copies.

Source: specification page ``apply_adam_w_v2_950``.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from npu_sim.operators.apply_adam_w_v2.compute import (
    F,
    ONE,
    compute_step,
    power_950,
    powers_of,
    scalar_caveats,
    scalars_of,
)
from npu_sim.tiling.apply_adam_w_v2 import rounded
from npu_sim.tiling.ascend_950 import apply_adam_w_v2 as tiler

if TYPE_CHECKING:
    from npu_sim.framework.execution import Run


def flushed(value: np.float32) -> np.float32:
    """Return a value, or for a subnormal one the zero of its sign."""
    return value * F(0) if abs(value) < np.finfo(F).tiny else value


def compute(run: "Run") -> None:
    """Compute the state after the step."""
    arguments = run.case.arguments
    powers = powers_of(arguments, run.tensors["step"], power_950)
    scalars = scalars_of(arguments, powers, run.case.specs["v"].dtype)
    with np.errstate(all="ignore"):
        root = flushed(np.sqrt(flushed(ONE - powers[1])))
        size = flushed(flushed(rounded(arguments.lr)) / flushed(powers[0] - ONE))
    compute_step(run, scalars._replace(root=root, size=size), True, 0)
    run.caveats = (*run.caveats, *scalar_caveats(run, powers))


instructions = None
"""No rates of vector instructions are published."""

FIELDS: dict[str, Any] = {"tiling": tiler.Tiling, "tile": tiler.tile}
"""Fields of the declaration that differ on Ascend 950."""
