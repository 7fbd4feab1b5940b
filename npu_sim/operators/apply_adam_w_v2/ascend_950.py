"""ApplyAdamWV2 on Ascend 950: own planner and order of operations.

Rates of vector instructions are not published for this product: the bound is that of the copies.

Source: specification page ``apply_adam_w_v2_950``.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from npu_sim.framework.vocabulary import (
    FP32_BYTES,
    Case,
    Caveat,
    Description,
    Plan,
    Run,
    TensorSpec,
    Text,
    caveat,
    counted,
    to_fp32,
)
from npu_sim.operators.apply_adam_w_v2.compute import ONE, F, compute_step, powers_of, scalars_of
from npu_sim.operators.apply_adam_w_v2.plan import caveats, description
from npu_sim.operators.apply_adam_w_v2.timeline import program_of
from npu_sim.tiling.ascend_950 import apply_adam_w_v2 as tiler
from npu_sim.timelines import NARROWING, WIDENING, Program, ranged_cores

SCALARS = (*("duplicate",) * 9, *("sub",) * 5, "adds", "muls", "square root", "div")
"""Scalars of a tile, computed for every element."""
MOMENTS = ("muls", *("mul",) * 3, "muls", "muls", "sub", "sub")
"""g = grad*gt; m' = m*beta1 - g*c1; v' = v*beta2 - (g*g)*c2."""
UPDATE = ("square root", "div", "adds", "mul", "div", "mul", "add")
"""den = sqrt(v')/root + eps; var' = var*decay + size*(m'/den)."""


def describe(case: Case) -> Description:
    """Return what the operator states of a plan."""
    tiling = case.tiling
    parts = [tiler.range_of_core(tiling, core) for core in range(tiling.block_dim)]
    return description(
        case,
        path_reason=Text("tiles of {elements}", elements=counted(tiling.tile_elements, "element")),
        buffers={"pool": tiler.pool_bytes(case.row, tiling)},
        ranges=[(part.start, part.stop) for part in parts],
        unit="element",
        fields=tiler.vendor_structure(tiling, case.arguments, case.rules),
        caveats=(*caveats(case), *_idle_cores(case)),
    )


def _idle_cores(case: Case) -> Iterator[Caveat]:
    used, cores = case.tiling.block_dim, case.device.vector_cores
    if used < cores:
        step = tiler.CORE_STEP * cores
        yield caveat(
            "cores_idle",
            "var",
            "{used} of {cores} cores work; {elements} elements use all of them, as the elements "
            "of a core are a multiple of {step}",
            used=used,
            cores=cores,
            elements=max(
                tiler.elements_for_all(case.row, cores), -(-case.row.elements // step) * step
            ),
            step=tiler.CORE_STEP,
        )


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
    compute_step(run, powers, {**scalars, "root": root, "size": size}, is_950=True)


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


instructions = None
"""No rates of vector instructions are published."""

FIELDS: dict[str, Any] = {"tiling": tiler.Tiling, "tile": tiler.tile}
"""Fields of the declaration that differ on Ascend 950."""
