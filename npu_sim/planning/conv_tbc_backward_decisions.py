"""What decides the plan of ConvTbcBackward, and what a user should know about it."""

from typing import TYPE_CHECKING

from npu_sim.plan_model import Caveat, Decision, Flip
from npu_sim.tiling.conv_tbc_problem import (
    NPU_ARCH_A2_A3,
    ROUTE_GATE_FAILED,
    ROUTE_MATMUL,
    ROUTE_PLANNER,
    ConvTbcProblem,
    gate_bytes,
    is_plannable,
    published_planner_takes,
)

if TYPE_CHECKING:
    from npu_sim.planning.conv_tbc_backward import Case

SMALLEST_ROW_BYTES = 32
"""A row of input in L1 takes at least this, so that no time beyond L1 / 32 passes the gate."""


def compute_dtype(dtype: str, cube_math_type: int, cube_dtypes: tuple[str, ...]) -> str | None:
    """Return the dtype the cube unit computes in; None where the product refuses the combination (page, table of step 8)."""
    if dtype == "float16" or cube_math_type == 2:
        return "float16" if "float16" in cube_dtypes else None
    if dtype == "bfloat16":
        return "bfloat16" if "bfloat16" in cube_dtypes else None
    if cube_math_type == 0:
        return "float32" if "float32" in cube_dtypes else None
    if "hf32" in cube_dtypes:
        return "hf32"
    return "float16" if cube_math_type == 1 and "float16" in cube_dtypes else None


def decisions(case: "Case") -> tuple[Decision, ...]:
    """Return every condition that was tested, with what would turn it around."""
    found = [_compute_decision(case)]
    if case.profile.npu_arch == NPU_ARCH_A2_A3:
        found.append(_matmul_decision(case))
    if case.route != ROUTE_MATMUL:
        found.append(_deterministic_decision(case))
        if case.deterministic and case.profile.npu_arch == NPU_ARCH_A2_A3:
            found.append(_gate_decision(case))
        if not case.deterministic:
            found.append(_split_decision(case))
    return tuple(found)


def _compute_decision(case: "Case") -> Decision:
    converted = case.compute != case.dtype
    others = [one for one in range(4) if (compute_dtype(case.dtype, one, case.profile.product.cube_dtypes) or case.compute) != case.compute]
    flipping = [one for one in others if (compute_dtype(case.dtype, one, case.profile.product.cube_dtypes) != case.dtype) is not converted]
    nearest = sorted(flipping, key=lambda one: abs(one - case.cube_math_type))[:1]
    return Decision(
        name="operands are converted",
        condition="the dtype that cubeMathType selects is not the dtype of the tensors",
        values={"dtype": case.dtype, "cubeMathType": case.cube_math_type, "computed in": case.compute},
        outcome=converted,
        effect=f"the cube unit multiplies {case.compute} and accumulates fp32",
        flips=tuple(Flip(argument="cubeMathType", value=one) for one in nearest),
    )


def _matmul_decision(case: "Case") -> Decision:
    outcome = case.route == ROUTE_MATMUL
    flips: tuple[Flip, ...] = ()
    if outcome:
        flips = (Flip(argument="pad", value=1),)
    elif case.pad == 0:
        flips = (Flip(argument="K", value=case.time),)
    elif case.taps == case.time:
        flips = (Flip(argument="pad", value=0),)
    return Decision(
        name="matrix product",
        condition="pad == 0 and K == T",
        values={"pad": case.pad, "K": case.taps, "T": case.time},
        outcome=outcome,
        effect="both gradients are plain batched matrix products" if outcome else "both gradients are convolutions",
        flips=flips,
    )


def _deterministic_decision(case: "Case") -> Decision:
    effect = "no output depends on timing" if case.deterministic else "cores may share a gradWeight tile and add atomically"
    return Decision(
        name="deterministic",
        condition="deterministic",
        values={"deterministic": case.deterministic},
        outcome=case.deterministic,
        effect=effect,
        flips=(Flip(argument="deterministic", value=str(not case.deterministic).lower()),),
    )


def _gate_decision(case: "Case") -> Decision:
    device = case.profile.device
    return Decision(
        name="deterministic planner takes the shape",
        condition="pad < K and smallest operands in L1 <= L1, and L0A, L0B, L0C are not smaller than on any A2 or A3 SoC",
        values={"pad": case.pad, "K": case.taps, "smallest operands in L1": gate_bytes(case.problem), "L1": device.l1_bytes},
        outcome=case.route == ROUTE_PLANNER,
        effect="gradWeight follows the published planner" if case.route == ROUTE_PLANNER else "the model without a split over cores",
        flips=_gate_flips(case),
    )


def _gate_flips(case: "Case") -> tuple[Flip, ...]:
    problem, device, passes = case.problem, case.profile.device, case.route == ROUTE_PLANNER

    def turns(changed: ConvTbcProblem) -> bool:
        return is_plannable(changed) and published_planner_takes(changed, device) is not passes

    flips = []
    pad = problem.taps if passes else problem.taps - 1
    if turns(problem._replace(pad=pad)):
        flips.append(Flip(argument="pad", value=pad))
    longest = device.l1_bytes // SMALLEST_ROW_BYTES + 1
    times = range(problem.time + 1, longest + 1) if passes else range(min(problem.time, longest), 0, -1)
    if problem.pad >= problem.taps:
        times = range(0)
    time = next((time for time in times if turns(problem._replace(time=time)) and not (problem.pad == 0 and time == problem.taps)), 0)
    if time:
        flips.append(Flip(argument="T", value=time))
    return tuple(flips)


def _split_decision(case: "Case") -> Decision:
    tiling = case.weight_tiling
    parts = tiling.sample_blocks * tiling.time_blocks
    tiles = tiling.m_blocks * tiling.n_blocks
    return Decision(
        name="gradWeight split over cores",
        condition="at least twice as many cores as tiles, and more than one sample or 16 time steps",
        values={"tiles": tiles, "cores": tiling.cores, "B": case.batch, "To": case.output_time},
        outcome=parts > 1,
        effect=f"{parts} cores add to every tile" if parts > 1 else "one core computes a whole tile",
    )


def caveats(case: "Case") -> tuple[Caveat, ...]:
    """Return what a user should know although the call succeeds."""
    found = [*_precision_caveats(case)]
    if case.route == ROUTE_MATMUL:
        message = "pad 0 and K = T: both gradients are matrix products whose tiling and workspace are not published"
        found.append(Caveat(code="matmul_unpublished", argument="weight", message=message))
    if case.route == ROUTE_GATE_FAILED:
        message = "the deterministic planner does not take this shape: gradWeight is planned by the model, one core for every tile"
        found.append(Caveat(code="deterministic_gate", argument="pad" if case.pad >= case.taps else "input", message=message))
    if case.route == ROUTE_PLANNER:
        found += _planner_caveats(case)
    return tuple(found)


def _precision_caveats(case: "Case") -> list[Caveat]:
    found = []
    if case.compute == "hf32":
        message = "operands are rounded to hf32, 11 explicit mantissa bits: gradients in fp32 carry about 3 decimal digits"
        found.append(Caveat(code="hf32_precision", argument="cube_math_type", message=message))
    if case.converts_to_fp16:
        range_text = "values beyond 65504 become 65504" if case.profile.saturates else "values beyond 65504 become inf"
        message = (
            f"operands and gradInput are rounded to fp16: 10 explicit mantissa bits, {range_text}, below 2^-24 they vanish; "
            "gradBias is summed from the original self"
        )
        found.append(Caveat(code="fp16_conversion", argument="cube_math_type", message=message))
    if case.profile.saturates:
        message = "inf and nan are not supported on this product: overflow becomes the largest finite value, nan becomes 0"
        found.append(Caveat(code="saturation", message=message))
    return found


def _planner_caveats(case: "Case") -> list[Caveat]:
    """Shapes for which the published rule asks for more than the chip has (page, "Known defects")."""
    tiling, device = case.planner_tiling, case.profile.device
    excess = (
        ("L0A", tiling.exceeds_l0a, tiling.l0a_bytes, device.l0a_bytes),
        ("L0B", tiling.exceeds_l0b, tiling.l0b_bytes, device.l0b_bytes),
        ("L0C", tiling.exceeds_l0c, tiling.l0c_bytes, device.l0c_bytes),
        ("L1", tiling.exceeds_l1, tiling.l1_bytes, device.l1_bytes),
    )
    base = f"{tiling.base_m} x {tiling.base_n} x {tiling.base_k}"
    return [
        Caveat(
            code=f"hardware_limit_{name.lower()}",
            argument="deterministic",
            message=f"hardware limit: the deterministic planner's base block {base} needs {needed} bytes of {name}, there are {available}; "
            "the call may fail on the device (without --deterministic it fits)",
        )
        for name, exceeds, needed, available in excess
        if exceeds
    ]
