"""Decisions and warnings of ConvTbcBackward, and the dtype that cubeMathType selects.

Source: product document aclnnConvTbcBackward; specification page ``conv_tbc_backward``, table of
step 8 of "Contract".
"""

from collections.abc import Iterable, Iterator
from functools import cache
from itertools import chain, product

from npu_sim.cores import NPU_ARCH_A2_A3, NPU_ARCH_ATLAS_TRAIN, Profile
from npu_sim.framework.axes import FLOAT_DTYPES
from npu_sim.framework.case import Case
from npu_sim.framework.describing import decided
from npu_sim.language import Text, joined
from npu_sim.plans.model import Caveat, Decision
from npu_sim.tiling.conv_tbc_backward.planner import (
    COMPUTE_BITS,
    COMPUTE_DTYPES,
    MATH_TYPES,
    TRAINING_SERIES_UNKNOWN,
    problem_of,
)
from npu_sim.tiling.conv_tbc_backward.problem import (
    BIAS_UNIT_ROWS,
    CUBE_EDGE,
    ROUTE_GATE_FAILED,
    ROUTE_MATMUL,
    ROUTE_MODEL,
    ROUTE_PLANNER,
    ConvTbcProblem,
    gate_bytes,
    gate_row_bytes,
    is_plannable,
    multiplies_elements,
    output_time,
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
    for position, (dtype, math_type) in enumerate(product(FLOAT_DTYPES, range(MATH_TYPES))):
        packed |= COMPUTE_DTYPES.index(compute_dtype(dtype, math_type, cube_dtypes) or "none") << (
            COMPUTE_BITS * position
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


def decisions(case: Case) -> Iterator[Decision]:
    """Yield every condition of the plan, with the argument values that would flip it."""
    route, is_a2_a3 = case.tiling.route, case.profile.npu_arch == NPU_ARCH_A2_A3
    yield _compute_decision(case)
    if is_a2_a3:
        yield _matmul_decision(case)
    if route == ROUTE_MATMUL:
        for name, axis in CONTRACTIONS.items():
            yield _elementwise_decision(case, name, axis)
    else:
        yield _deterministic_decision(case)
        if case.deterministic and route in (ROUTE_PLANNER, ROUTE_GATE_FAILED):
            yield _gate_decision(case)
        if _white_listed(case):
            yield _white_list_decision(case)
        elif not case.deterministic:
            yield _split_decision(case)
    if not is_a2_a3:
        yield _bias_decision(case)


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
    effect = Text("the cube unit multiplies {compute} and accumulates fp32", compute=compute)
    return decided(
        "operands are converted",
        "the dtype that cubeMathType selects is not the dtype of the tensors",
        {"dtype": dtype, "cubeMathType": chosen, "computed in": compute},
        converted,
        (effect, effect),
        *(("cubeMathType", code) for code in nearest),
    )


def _matmul_decision(case: Case) -> Decision:
    row, outcome = case.row, case.tiling.route == ROUTE_MATMUL
    flips: list[tuple[str, int]] = []
    if outcome:
        flips = [("pad", 1)]
    elif row.pad == 0:
        flips = [("K", row.T)]
    elif row.K == row.T:
        flips = [("pad", 0)]
    effects = "both gradients are plain batched matrix products", "both gradients are convolutions"
    values = {"pad": row.pad, "K": row.K, "T": row.T}
    return decided("matrix product", "pad == 0 and K == T", values, outcome, effects, *flips)


def _elementwise_decision(case: Case, gradient: str, axis: str) -> Decision:
    """Return the decision for a matrix product that may have a contraction of length 1."""
    outcome = gradient in elementwise_gradients(case)
    rounded = "every product of elements is rounded once, to the dtype of the operands"
    return decided(
        Text("{gradient} element by element", gradient=gradient),
        f"{axis} == 1",
        {axis: getattr(case.row, axis)},
        outcome,
        (rounded, "a matrix product on the cube unit"),
        (axis, 1 + outcome),
    )


def _white_listed(case: Case) -> bool:
    """Return whether the shape takes the deterministic route in default mode."""
    return case.tiling.route == ROUTE_PLANNER and not case.deterministic


def _white_list_decision(case: Case) -> Decision:
    return decided(
        "white-listed shape",
        "fp32, T == 8, B == 1, Cin == 4, Cout == 2, K == 4, pad == 0",
        {name: getattr(case.row, name) for name in ("T", "B", "Cin", "Cout", "K", "pad")},
        True,
        ("gradWeight takes the deterministic planner in default mode too", ""),
        ("pad", 1),
    )


def _bias_decision(case: Case) -> Decision:
    cores, rows = case.tiling.bias_cores, case.row.B * case.row.To
    condition = Text(
        "fp32, default mode, and more than {bias_unit_rows} rows of self",
        bias_unit_rows=BIAS_UNIT_ROWS,
    )
    dtype = case.specs["input"].dtype
    values = {"dtype": dtype, "deterministic": case.deterministic, "rows": rows}
    several = Text("{cores} cores add to every element atomically", cores=cores)
    effects = several, "one core adds every element"
    return decided("gradBias split over cores", condition, values, cores > 1, effects)


def _deterministic_decision(case: Case) -> Decision:
    fixed = case.deterministic or _white_listed(case)
    shared = "cores may share a gradWeight tile and add atomically"
    effect = "no output depends on timing" if fixed else shared
    return decided(
        "deterministic",
        "deterministic",
        {"deterministic": case.deterministic},
        case.deterministic,
        (effect, effect),
        ("deterministic", str(not case.deterministic).lower()),
    )


def _gate_decision(case: Case) -> Decision:
    row, smallest = case.row, gate_bytes(problem_of(case.row, case.rules))
    condition = (
        "pad < K and smallest operands in L1 <= L1, and L0A, L0B, L0C are not smaller than on "
        "any A2 or A3 SoC"
    )
    sizes = {"smallest operands in L1": smallest, "L1": case.device.l1_bytes}
    published = "gradWeight follows the published planner"
    return decided(
        "deterministic planner takes the shape",
        condition,
        {"pad": row.pad, "K": row.K, **sizes},
        case.tiling.route == ROUTE_PLANNER,
        (published, "the model without a split over cores"),
        *_gate_flips(case),
    )


def _gate_flips(case: Case) -> Iterator[tuple[str, int]]:
    problem, device = problem_of(case.row, case.rules), case.device
    passes = case.tiling.route == ROUTE_PLANNER

    def flips_gate(changed: ConvTbcProblem) -> bool:
        return is_plannable(changed) and published_planner_takes(changed, device) is not passes

    pad = problem.taps if passes else problem.taps - 1
    if flips_gate(problem._replace(pad=pad)):
        yield "pad", pad
    rows = device.l1_bytes // gate_row_bytes(problem)
    times: Iterable[int] = ()
    if passes:
        # T passes without a search if To >= 16 and 16 rows of self and 2 * T rows of x fit.
        following, passing = problem.time + 1, (rows - CUBE_EDGE) // 2
        long = problem.time + CUBE_EDGE - output_time(problem)
        times = chain(range(following, long), range(max(following, long, passing), rows + 2))
    elif problem.pad < problem.taps:
        times = range(min(problem.time, rows), 0, -1)
    candidates = (time for time in times if not (problem.pad == 0 and time == problem.taps))
    time = next((time for time in candidates if flips_gate(problem._replace(time=time))), 0)
    if time:
        yield "T", time


def _split_decision(case: Case) -> Decision:
    tiling, parts = case.tiling.weight_model, case.tiling.grad_weight.splits
    tiles = {"tiles": tiling.m_blocks * tiling.n_blocks, "cores": tiling.cores}
    return decided(
        "gradWeight split over cores",
        "at least twice as many cores as tiles, and more than one sample or 16 time steps",
        {**tiles, "B": case.row.B, "To": case.row.To},
        parts > 1,
        (Text("{parts} cores add to every tile", parts=parts), "one core computes a whole tile"),
    )


def caveats(case: Case) -> Iterator[Caveat]:
    """Yield the warnings of a call."""
    yield from _precision_caveats(case)
    route, elementwise = case.tiling.route, elementwise_gradients(case)
    if route == ROUTE_MATMUL and len(elementwise) < len(CONTRACTIONS):
        message: str = (
            "pad 0 and K = T: the gradients are matrix products whose tiling and workspace are not "
            "published"
        )
        yield Caveat(code="matmul_unpublished", argument="weight", message=message)
    if computed_in(case) == "bfloat16" and elementwise:
        message = Text(
            "{names}: whether the product multiplies bf16 element by element depends on a size "
            "test that is not published; taken to do so (model), which only decides on the sign "
            "of zeros",
            names=joined(elementwise, " and "),
        )
        yield Caveat(code="elementwise_model", argument="weight", message=message)
    if _white_listed(case):
        message = (
            "the shape is on a white list of the product: gradWeight takes the deterministic route "
            "in default mode too"
        )
        yield Caveat(code="white_listed", argument="input", message=message)
    if route == ROUTE_GATE_FAILED:
        message = (
            "the deterministic planner does not take this shape: gradWeight is planned by the "
            "model, one core for every tile"
        )
        argument = "pad" if case.row.pad >= case.row.K else "input"
        yield Caveat(code="deterministic_gate", argument=argument, message=message)
    on_a2_a3 = case.profile.npu_arch == NPU_ARCH_A2_A3
    if case.deterministic and on_a2_a3 and route == ROUTE_MODEL:
        message = Text(
            "the planner of deterministic gradWeight is not published for release {release}: "
            "planned by the model, one core for every tile",
            release=case.profile.release,
        )
        code = "deterministic_planner_unpublished"
        yield Caveat(code=code, argument="deterministic", message=message)
    if _is_unknown_on_training_series(case):
        message = Text(
            "whether release {release} takes pad 0 and K = T on this product is not known; later "
            "ones refuse, then take it",
            release=case.profile.release,
        )
        yield Caveat(code="matrix_shape_unknown", argument="weight", message=message)
    yield from _planner_caveats(case)


def _is_unknown_on_training_series(case: Case) -> bool:
    if case.profile.npu_arch != NPU_ARCH_ATLAS_TRAIN:
        return False
    unknown = case.rules.training_series_matrix == TRAINING_SERIES_UNKNOWN
    return bool(unknown and case.row.pad == 0 and case.row.K == case.row.T)


def _precision_caveats(case: Case) -> Iterator[Caveat]:
    exact = elementwise_gradients(case)
    if computed_in(case) == "hf32" and len(exact) < len(CONTRACTIONS):
        message: str = (
            "operands are rounded to hf32, 11 explicit mantissa bits: gradients in fp32 carry "
            "about 3 decimal digits"
        )
        if exact:
            message += Text(
                " ({exact}, multiplied element by element, is not rounded)", exact=exact[0]
            )
        yield Caveat(code="hf32_precision", argument="cube_math_type", message=message)
    if converts_to_fp16(case):
        saturated, infinite = "values beyond 65504 become 65504", "values beyond 65504 become inf"
        message = Text(
            "operands and gradInput are rounded to fp16: 10 explicit mantissa bits, {range}, "
            "below 2^-24 they vanish; gradBias is summed from the original self",
            range=saturated if case.profile.saturates else infinite,
        )
        yield Caveat(code="fp16_conversion", argument="cube_math_type", message=message)
    if case.profile.saturates:
        message = (
            "inf and nan are not supported on this product: overflow becomes the largest finite "
            "value, nan becomes 0"
        )
        yield Caveat(code="saturation", message=message)


def _planner_caveats(case: Case) -> Iterator[Caveat]:
    """Warn where the published rule needs more memory than the chip has (page, "Known defects")."""
    tiling, device = case.tiling.published, case.device
    base = f"{tiling.base_m} x {tiling.base_n} x {tiling.base_k}"
    for name in ("l0a", "l0b", "l0c", "l1"):
        if getattr(tiling, f"exceeds_{name}"):
            message = Text(
                "hardware limit: the deterministic planner's base block {base} needs {needed} "
                "bytes of {name}, there are {available}; the call may fail on the device (it fits "
                "when not deterministic)",
                base=base,
                needed=getattr(tiling, f"{name}_bytes"),
                name=name.upper(),
                available=getattr(device, f"{name}_bytes"),
            )
            yield Caveat(code=f"hardware_limit_{name}", argument="deterministic", message=message)
