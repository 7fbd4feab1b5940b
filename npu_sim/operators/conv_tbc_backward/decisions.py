"""Decisions and warnings of ConvTbcBackward, and the dtype that cubeMathType selects.

Source: product document aclnnConvTbcBackward; specification page ``conv_tbc_backward``, table of
step 8 of "Contract".
"""

from functools import cache
from itertools import product

from npu_sim.cores import NPU_ARCH_A2_A3, NPU_ARCH_ATLAS_TRAIN, Profile
from npu_sim.framework.axes import FLOAT_DTYPES
from npu_sim.framework.case import Case
from npu_sim.language import Text
from npu_sim.plans.model import Caveat, Decision, Flip
from npu_sim.tiling.conv_tbc_backward.planner import (
    COMPUTE_BITS,
    COMPUTE_DTYPES,
    MATH_TYPES,
    TRAINING_SERIES_UNKNOWN,
    problem_of,
)
from npu_sim.tiling.conv_tbc_backward.problem import (
    BIAS_UNIT_ROWS,
    ROUTE_GATE_FAILED,
    ROUTE_MATMUL,
    ROUTE_MODEL,
    ROUTE_PLANNER,
    ConvTbcProblem,
    gate_bytes,
    is_plannable,
    multiplies_elements,
    published_planner_takes,
)

CUBE_MATH_TYPES = ("KEEP_DTYPE", "ALLOW_FP32_DOWN_PRECISION", "USE_FP16", "USE_HF32")
"""The vendor's names of the values of cubeMathType."""
CONTRACTIONS = {"gradInput": "Cout", "gradWeight": "B"}
"""Axis that the matrix product of each gradient sums over."""


def compute_dtype(dtype: str, cube_math_type: int, cube_dtypes: tuple[str, ...]) -> str | None:
    """Return the dtype of the cube unit; None where the product refuses the combination."""
    if dtype == "float16" or cube_math_type == 2:
        return "float16" if "float16" in cube_dtypes else None
    if dtype == "bfloat16":
        return "bfloat16" if "bfloat16" in cube_dtypes else None
    if cube_math_type == 0:
        return "float32" if "float32" in cube_dtypes else None
    if "hf32" in cube_dtypes:
        return "hf32"
    return "float16" if cube_math_type == 1 and "float16" in cube_dtypes else None


def compute_codes(profile: Profile) -> int:
    """Return the codes of :func:`compute_dtype` for every dtype and cubeMathType, packed.

    ``tiling.conv_tbc_backward`` unpacks them.
    """
    return _packed(profile.product.cube_dtypes)


@cache
def _packed(cube_dtypes: tuple[str, ...]) -> int:
    packed = 0
    for place, (dtype, math_type) in enumerate(product(FLOAT_DTYPES, range(MATH_TYPES))):
        packed |= COMPUTE_DTYPES.index(compute_dtype(dtype, math_type, cube_dtypes) or "none") << (
            COMPUTE_BITS * place
        )
    return packed


def computed_in(case: Case) -> str:
    """Return the dtype that the cube unit computes in, for a call with a tiling."""
    return COMPUTE_DTYPES[case.tiling.compute]


def elementwise_gradients(case: Case) -> tuple[str, ...]:
    """Return the gradients computed element by element, not as matrix products.

    These are gradInput for Cout == 1 and gradWeight for B == 1.
    """
    return tuple(
        name
        for name, axis in CONTRACTIONS.items()
        if multiplies_elements(case.tiling.route, getattr(case.row, axis))
    )


def converts_to_fp16(case: Case) -> bool:
    """Return whether operands are cast to fp16 before the cube unit."""
    return computed_in(case) == "float16" and case.specs["input"].dtype != "float16"


SMALLEST_ROW_BYTES = 32
"""Smallest size of a row of input in L1: no T above L1 / 32 passes the gate."""


def decisions(case: Case) -> tuple[Decision, ...]:
    """Return every condition of the plan, with the argument values that would flip it."""
    made = [_compute_decision(case)]
    if case.profile.npu_arch == NPU_ARCH_A2_A3:
        made.append(_matmul_decision(case))
    if case.tiling.route == ROUTE_MATMUL:
        made += [_elementwise_decision(case, name, axis) for name, axis in CONTRACTIONS.items()]
    if case.tiling.route != ROUTE_MATMUL:
        made.append(_deterministic_decision(case))
        if case.deterministic and case.tiling.route in (ROUTE_PLANNER, ROUTE_GATE_FAILED):
            made.append(_gate_decision(case))
        if _white_listed(case):
            made.append(_white_list_decision(case))
        elif not case.deterministic:
            made.append(_split_decision(case))
    if case.profile.npu_arch != NPU_ARCH_A2_A3:
        made.append(_bias_decision(case))
    return tuple(made)


def _compute_decision(case: Case) -> Decision:
    dtype, compute, chosen = case.specs["input"].dtype, computed_in(case), case.row.cube_math_type
    converted = compute != dtype
    cube_dtypes = case.profile.product.cube_dtypes
    offered = [compute_dtype(dtype, code, cube_dtypes) for code in range(len(CUBE_MATH_TYPES))]
    flipping = [
        code
        for code, selected in enumerate(offered)
        if selected is not None and (selected != dtype) is not converted
    ]
    nearest = sorted(flipping, key=lambda code: abs(code - chosen))[:1]
    return Decision(
        name="operands are converted",
        condition="the dtype that cubeMathType selects is not the dtype of the tensors",
        values={"dtype": dtype, "cubeMathType": chosen, "computed in": compute},
        outcome=converted,
        effect=Text("the cube unit multiplies {compute} and accumulates fp32", compute=compute),
        flips=tuple(Flip(argument="cubeMathType", value=code) for code in nearest),
    )


def _matmul_decision(case: Case) -> Decision:
    row, outcome = case.row, case.tiling.route == ROUTE_MATMUL
    flips: tuple[Flip, ...] = ()
    if outcome:
        flips = (Flip(argument="pad", value=1),)
    elif row.pad == 0:
        flips = (Flip(argument="K", value=row.T),)
    elif row.K == row.T:
        flips = (Flip(argument="pad", value=0),)
    return Decision(
        name="matrix product",
        condition="pad == 0 and K == T",
        values={"pad": row.pad, "K": row.K, "T": row.T},
        outcome=outcome,
        effect="both gradients are plain batched matrix products"
        if outcome
        else "both gradients are convolutions",
        flips=flips,
    )


def _elementwise_decision(case: Case, gradient: str, axis: str) -> Decision:
    """Return the decision for a matrix product that may have a contraction of length 1."""
    outcome, size = gradient in elementwise_gradients(case), getattr(case.row, axis)
    product = (
        "every product of elements is rounded once, to the dtype of the operands"
        if outcome
        else "a matrix product on the cube unit"
    )
    return Decision(
        name=Text("{gradient} element by element", gradient=gradient),
        condition=f"{axis} == 1",
        values={axis: size},
        outcome=outcome,
        effect=product,
        flips=(Flip(argument=axis, value=2 if outcome else 1),),
    )


def _white_listed(case: Case) -> bool:
    """Return whether the shape takes the deterministic route in default mode."""
    return case.tiling.route == ROUTE_PLANNER and not case.deterministic


def _white_list_decision(case: Case) -> Decision:
    row = case.row
    return Decision(
        name="white-listed shape",
        condition="fp32, T == 8, B == 1, Cin == 4, Cout == 2, K == 4, pad == 0",
        values={
            "T": row.T,
            "B": row.B,
            "Cin": row.Cin,
            "Cout": row.Cout,
            "K": row.K,
            "pad": row.pad,
        },
        outcome=True,
        effect="gradWeight takes the deterministic planner in default mode too",
        flips=(Flip(argument="pad", value=1),),
    )


def _bias_decision(case: Case) -> Decision:
    cores, row = case.tiling.bias_cores, case.row
    return Decision(
        name="gradBias split over cores",
        condition=Text(
            "fp32, default mode, and more than {bias_unit_rows} rows of self",
            bias_unit_rows=BIAS_UNIT_ROWS,
        ),
        values={
            "dtype": case.specs["input"].dtype,
            "deterministic": case.deterministic,
            "rows": row.B * row.To,
        },
        outcome=cores > 1,
        effect=Text("{cores} cores add to every element atomically", cores=cores)
        if cores > 1
        else "one core adds every element",
    )


def _deterministic_decision(case: Case) -> Decision:
    fixed = case.deterministic or _white_listed(case)
    effect = (
        "no output depends on timing"
        if fixed
        else "cores may share a gradWeight tile and add atomically"
    )
    return Decision(
        name="deterministic",
        condition="deterministic",
        values={"deterministic": case.deterministic},
        outcome=case.deterministic,
        effect=effect,
        flips=(Flip(argument="deterministic", value=str(not case.deterministic).lower()),),
    )


def _gate_decision(case: Case) -> Decision:
    row, taken = case.row, case.tiling.route == ROUTE_PLANNER
    smallest = gate_bytes(problem_of(row, case.rules))
    return Decision(
        name="deterministic planner takes the shape",
        condition=(
            "pad < K and smallest operands in L1 <= L1, and L0A, L0B, L0C are not smaller than on "
            "any A2 or A3 SoC"
        ),
        values={
            "pad": row.pad,
            "K": row.K,
            "smallest operands in L1": smallest,
            "L1": case.device.l1_bytes,
        },
        outcome=taken,
        effect="gradWeight follows the published planner"
        if taken
        else "the model without a split over cores",
        flips=_gate_flips(case),
    )


def _gate_flips(case: Case) -> tuple[Flip, ...]:
    problem, device = problem_of(case.row, case.rules), case.device
    passes = case.tiling.route == ROUTE_PLANNER

    def flips_gate(changed: ConvTbcProblem) -> bool:
        return is_plannable(changed) and published_planner_takes(changed, device) is not passes

    flips = []
    pad = problem.taps if passes else problem.taps - 1
    if flips_gate(problem._replace(pad=pad)):
        flips.append(Flip(argument="pad", value=pad))
    longest = device.l1_bytes // SMALLEST_ROW_BYTES + 1
    if problem.pad >= problem.taps:
        times = range(0)
    elif passes:
        times = range(problem.time + 1, longest + 1)
    else:
        times = range(min(problem.time, longest), 0, -1)
    candidates = (time for time in times if not (problem.pad == 0 and time == problem.taps))
    time = next((time for time in candidates if flips_gate(problem._replace(time=time))), 0)
    if time:
        flips.append(Flip(argument="T", value=time))
    return tuple(flips)


def _split_decision(case: Case) -> Decision:
    tiling, parts = case.tiling.weight_model, case.tiling.grad_weight.splits
    shared = Text("{parts} cores add to every tile", parts=parts)
    whole = "one core computes a whole tile"
    return Decision(
        name="gradWeight split over cores",
        condition=(
            "at least twice as many cores as tiles, and more than one sample or 16 time steps"
        ),
        values={
            "tiles": tiling.m_blocks * tiling.n_blocks,
            "cores": tiling.cores,
            "B": case.row.B,
            "To": case.row.To,
        },
        outcome=parts > 1,
        effect=shared if parts > 1 else whole,
    )


def caveats(case: Case) -> tuple[Caveat, ...]:
    """Return the warnings of a call."""
    warnings = [*_precision_caveats(case)]
    if case.tiling.route == ROUTE_MATMUL and len(elementwise_gradients(case)) < len(CONTRACTIONS):
        message = (
            "pad 0 and K = T: the gradients are matrix products whose tiling and workspace are not "
            "published"
        )
        warnings.append(Caveat(code="matmul_unpublished", argument="weight", message=message))
    if computed_in(case) == "bfloat16" and elementwise_gradients(case):
        names = " and ".join(elementwise_gradients(case))
        message = Text(
            "{names}: whether the product multiplies bf16 element by element depends on a size "
            "test that is not published; taken to do so (model), which only decides on the sign "
            "of zeros",
            names=names,
        )
        warnings.append(Caveat(code="elementwise_model", argument="weight", message=message))
    if _white_listed(case):
        message = (
            "the shape is on a white list of the product: gradWeight takes the deterministic route "
            "in default mode too"
        )
        warnings.append(Caveat(code="white_listed", argument="input", message=message))
    if case.tiling.route == ROUTE_GATE_FAILED:
        message = (
            "the deterministic planner does not take this shape: gradWeight is planned by the "
            "model, one core for every tile"
        )
        argument = "pad" if case.row.pad >= case.row.K else "input"
        warnings.append(Caveat(code="deterministic_gate", argument=argument, message=message))
    on_a2_a3 = case.profile.npu_arch == NPU_ARCH_A2_A3
    if case.deterministic and on_a2_a3 and case.tiling.route == ROUTE_MODEL:
        message = Text(
            "the planner of deterministic gradWeight is not published for release {release}: "
            "planned by the model",
            release=case.profile.release,
        )
        message = Text("{message}, one core for every tile", message=message)
        code = "deterministic_planner_unpublished"
        warnings.append(Caveat(code=code, argument="deterministic", message=message))
    if _is_unknown_on_training_series(case):
        message = Text(
            "whether release {release} takes pad 0 and K = T on this product is not known; later "
            "ones refuse, then take it",
            release=case.profile.release,
        )
        warnings.append(Caveat(code="matrix_shape_unknown", argument="weight", message=message))
    return (*warnings, *_planner_caveats(case))


def _is_unknown_on_training_series(case: Case) -> bool:
    if case.profile.npu_arch != NPU_ARCH_ATLAS_TRAIN:
        return False
    unknown = case.rules.training_series_matrix == TRAINING_SERIES_UNKNOWN
    return bool(unknown and case.row.pad == 0 and case.row.K == case.row.T)


def _precision_caveats(case: Case) -> list[Caveat]:
    warnings = []
    exact = elementwise_gradients(case)
    if computed_in(case) == "hf32" and len(exact) < len(CONTRACTIONS):
        but = (
            Text(" ({exact}, multiplied element by element, is not rounded)", exact=exact[0])
            if exact
            else ""
        )
        message = (
            "operands are rounded to hf32, 11 explicit mantissa bits: gradients in fp32 carry "
            "about 3 decimal digits"
        ) + but
        warnings.append(Caveat(code="hf32_precision", argument="cube_math_type", message=message))
    if converts_to_fp16(case):
        saturated, infinite = "values beyond 65504 become 65504", "values beyond 65504 become inf"
        range_text = saturated if case.profile.saturates else infinite
        message = Text(
            "operands and gradInput are rounded to fp16: 10 explicit mantissa bits, {range}, "
            "below 2^-24 they vanish; gradBias is summed from the original self",
            range=range_text,
        )
        warnings.append(Caveat(code="fp16_conversion", argument="cube_math_type", message=message))
    if case.profile.saturates:
        message = (
            "inf and nan are not supported on this product: overflow becomes the largest finite "
            "value, nan becomes 0"
        )
        warnings.append(Caveat(code="saturation", message=message))
    return warnings


def _planner_caveats(case: Case) -> list[Caveat]:
    """Warn where the published rule needs more memory than the chip has (page, "Known defects")."""
    tiling, device = case.tiling.published, case.device
    excess = (
        ("L0A", tiling.exceeds_l0a, tiling.l0a_bytes, device.l0a_bytes),
        ("L0B", tiling.exceeds_l0b, tiling.l0b_bytes, device.l0b_bytes),
        ("L0C", tiling.exceeds_l0c, tiling.l0c_bytes, device.l0c_bytes),
        ("L1", tiling.exceeds_l1, tiling.l1_bytes, device.l1_bytes),
    )
    base = f"{tiling.base_m} x {tiling.base_n} x {tiling.base_k}"
    warnings = []
    for name, exceeds, needed, available in excess:
        if exceeds:
            message = Text(
                "hardware limit: the deterministic planner's base block {base} needs {needed} "
                "bytes of {name}, there are {available}; the call may fail on the device (it fits "
                "when not deterministic)",
                base=base,
                needed=needed,
                name=name,
                available=available,
            )
            code = f"hardware_limit_{name.lower()}"
            warnings.append(Caveat(code=code, argument="deterministic", message=message))
    return warnings
