"""Timeline of ApplyAdamWV2 on Ascend 950.

Source: specification page ``apply_adam_w_v2_950``.
"""

from npu_sim.framework.vocabulary import FP32_BYTES, Plan, TensorSpec, Text
from npu_sim.operators.apply_adam_w_v2.timeline import program_of
from npu_sim.timelines import NARROWING, WIDENING, Program, ranged_cores

SCALARS = (*("duplicate",) * 9, *("sub",) * 5, "adds", "muls", "square root", "div")
"""Scalars of a tile, computed for every element."""
MOMENTS = ("muls", *("mul",) * 3, "muls", "muls", "sub", "sub")
"""g = grad*gt; m' = m*beta1 - g*c1; v' = v*beta2 - (g*g)*c2."""
UPDATE = ("square root", "div", "adds", "mul", "div", "mul", "add")
"""den = sqrt(v')/root + eps; var' = var*decay + size*(m'/den)."""


def program(plan: Plan) -> Program:
    """Return the work of every core."""
    return program_of(
        plan,
        _kinds(plan),
        lambda tile: ranged_cores(plan, "elements", plan.tiling["ubFormer"], tile),
        Text("the two powers, of every element"),
    )


def _kinds(plan: Plan) -> tuple[str, ...]:
    """Return the kinds of the instructions of a tile."""
    is_mixed, amsgrad = plan.path == "mixed", plan.arguments["amsgrad"]
    is_native_16 = (
        plan.path == "native" and TensorSpec.parse(plan.arguments["var"]).itemsize < FP32_BYTES
    )
    casts_norm = amsgrad and (is_native_16 or is_mixed)
    return (
        *(WIDENING,) * ((4 if is_native_16 else is_mixed) + casts_norm),
        *SCALARS,
        *MOMENTS,
        *("max",) * amsgrad,
        *UPDATE,
        *(NARROWING,) * (3 * is_native_16 + casts_norm),
    )
