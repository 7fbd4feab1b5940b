"""The plan of ConvTbcBackward: path, cores, on-chip buffers and order of both gradients.

Source: specification page ``conv_tbc_backward``. A model plans gradInput, and gradWeight in default
mode; the published rule of the product plans gradWeight in deterministic mode on A2 and A3.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain
from typing import Any

from npu_sim.cores import NPU_ARCH_A2_A3, NPU_ARCH_ATLAS_TRAIN, Device
from npu_sim.framework.case import Case
from npu_sim.framework.describing import Condition, Description, core_works, decision
from npu_sim.language import Text, joined
from npu_sim.numbers.formats import ORDERED_ADDITIONS
from npu_sim.operators.conv_tbc_backward.launches import (
    CONTRACTIONS,
    blocks_text,
    compute_dtype,
    computed_in,
    converts_to_fp16,
    core_ranges,
    elementwise_gradients,
    launches_of,
    model_memories,
    model_note,
    planner_memories,
    planner_note,
    product_kernels,
)
from npu_sim.plans.answers import Evidence
from npu_sim.plans.model import Caveat, Decision, OutputOrder, caveat
from npu_sim.plans.workspace import executor_workspace
from npu_sim.tiling.conv_tbc_backward import (
    MATH_TYPES,
    TRAINING_SERIES_UNKNOWN,
    is_split,
    problem_of,
    tile_row,
    weight_depends_on_arrival,
)
from npu_sim.tiling.conv_tbc_backward.problem import (
    BIAS_UNIT_ROWS,
    CUBE_EDGE,
    ROUTE_GATE_FAILED,
    ROUTE_MATMUL,
    ROUTE_MODEL,
    ROUTE_NAMES,
    ROUTE_PLANNER,
    gate_bytes,
    gate_row_bytes,
    is_plannable,
    on_white_list,
    output_time,
    published_planner_takes,
)
from npu_sim.tiling.fields import vendor_fields

PATHS = {
    ROUTE_MATMUL: "batched matrix products",
    ROUTE_PLANNER: "convolution, gradWeight by the deterministic planner",
    ROUTE_GATE_FAILED: "convolution, gradWeight without a split over cores",
    ROUTE_MODEL: "convolution",
}
COMPUTE_NAMES = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "hf32": "hf32"}


def describe_empty(case: Case) -> Description:
    """Return what the operator states of a plan whose input or weight is empty."""
    batch, out_time = case.row.B, case.row.To
    return Description(
        path=case.operator.empty,
        path_reason="input or weight has no element",
        order=[
            OutputOrder(output=output.name, fixed=True, reason="a constant")
            for output in case.operator.outputs
        ],
        caveats=(
            caveat(
                "grad_bias_constant",
                "input",
                "input or weight is empty: gradBias is the constant B * To = {batch} * {out_time} "
                "= {rows}, not the sum of self",
                batch=batch,
                out_time=out_time,
                rows=batch * out_time,
            ),
        ),
    )


def describe(case: Case) -> Description:
    """Return what the operator states of a plan."""
    route, launches = case.tiling.route, launches_of(case)
    described = _matmul_description if route == ROUTE_MATMUL else _convolution_description
    return replace(
        described(case),
        block_dim=case.tiling.block_dim,
        path_reason=_reason(case),
        decisions=lambda: _decisions(case),
        workspace=executor_workspace(launches, case.tiling.workspace_bytes),
        launches=launches,
        order=lambda: _order(case),
        caveats=tuple(_caveats(case)),
    )


def _path(case: Case) -> str:
    return Text(
        "{paths} in {compute_names}",
        paths=PATHS[case.tiling.route],
        compute_names=COMPUTE_NAMES[computed_in(case)],
    )


def _reason(case: Case) -> str:
    route = case.tiling.route
    if route == ROUTE_MATMUL:
        return Text("pad 0 and K = T = {k}: the output has length 1", k=case.row.K)
    if route == ROUTE_PLANNER:
        white_listed = "a shape that the product computes deterministically in any mode"
        return "deterministic computation is on" if case.deterministic else white_listed
    if route == ROUTE_GATE_FAILED:
        return "deterministic computation is on, but its planner does not take this shape"
    shared, whole = "cores share gradWeight tiles", "one core for every gradWeight tile"
    kind = shared if is_split(case.tiling) else whole
    return Text(
        "cubeMathType {cube_math_type}, {kind}", cube_math_type=case.row.cube_math_type, kind=kind
    )


def _matmul_description(case: Case) -> Description:
    return Description(
        path=_path(case),
        kernel=product_kernels(case),
        cores_note="how the products are spread over cores is not published",
        tiling={"route": ROUTE_NAMES[case.tiling.route]},
        evidence=Evidence.UNKNOWN,
    )


def _convolution_description(case: Case) -> Description:
    tiling, problem, device = case.tiling, problem_of(case.row, case.rules), case.device
    input_model, published = tiling.input_model, tiling.route == ROUTE_PLANNER
    weight_model = tiling.weight_model
    return Description(
        path=_path(case),
        kernel="gradInput and gradWeight on the cube unit, gradBias on vector cores",
        tiling_key=tiling.tiling_key if published else None,
        cores_note=Text(
            "gradInput {input_cores} cores, gradWeight {weight_cores}",
            input_cores=input_model.block_dim,
            weight_cores=tiling.grad_weight.block_dim,
        ),
        per_core=Text(
            "gradInput {blocks}; gradWeight {planner_note}",
            blocks=blocks_text(input_model),
            planner_note=planner_note(case) if published else model_note(weight_model),
        ),
        tiling={
            "route": ROUTE_NAMES[tiling.route],
            "gradInput": input_model._asdict(),
            "gradWeight": vendor_fields(tiling.published) if published else weight_model._asdict(),
        },
        cores=lambda: core_works(core_ranges(case), tiling.block_dim),
        memories=lambda: (
            *model_memories("gradInput", input_model, problem, device),
            *(
                planner_memories(tiling.published, problem, device)
                if published
                else model_memories("gradWeight", weight_model, problem, device)
            ),
        ),
        evidence=Evidence.MODEL,
    )


def _order(case: Case) -> tuple[OutputOrder, ...]:
    weight_is_fixed = not weight_depends_on_arrival(case.row, case.tiling)
    bias_is_fixed = case.tiling.bias_cores < ORDERED_ADDITIONS
    return (
        OutputOrder(output="grad_input", fixed=True, reason=_input_order(case)),
        OutputOrder(output="grad_weight", fixed=weight_is_fixed, reason=_weight_order(case)),
        OutputOrder(output="grad_bias", fixed=bias_is_fixed, reason=_bias_order(case)),
    )


def _input_order(case: Case) -> str:
    if "gradInput" in elementwise_gradients(case):
        return "one product for every element, nothing is added"
    return "one accumulator for every element, no split across cores"


def _bias_order(case: Case) -> str:
    if case.tiling.bias_cores > 1:
        rows, cores = case.tiling.bias_rows, case.tiling.bias_cores
        if cores < ORDERED_ADDITIONS:
            return Text(
                "two cores add the sums of {rows} rows of self atomically (model): two additions "
                "commute",
                rows=rows,
            )
        return Text(
            "{cores} cores add the sums of {rows} rows of self atomically (model); fixed when "
            "deterministic",
            cores=cores,
            rows=rows,
        )
    if case.profile.npu_arch == NPU_ARCH_A2_A3:
        return (
            "fp32 sum of self in a fixed order, rounded once (model: how cores share it is not "
            "published)"
        )
    return "fp32 sum of self by one core, rounded once"


def _weight_order(case: Case) -> str:
    if "gradWeight" in elementwise_gradients(case):
        return "one product for every element, nothing is added"
    if case.tiling.route == ROUTE_MATMUL:
        return "one matrix product, summed over the batch"
    if is_split(case.tiling):
        parts = case.tiling.grad_weight.splits
        if not weight_depends_on_arrival(case.row, case.tiling):
            return Text(
                "{parts} cores share every tile and add atomically, at most two to an element: two "
                "additions commute",
                parts=parts,
            )
        return Text(
            "{parts} cores share every tile, each adds one sum over its samples and time "
            "atomically; fixed when deterministic",
            parts=parts,
        )
    if case.tiling.published.stream_k:
        return "sample after sample; split tiles go to private slots, added in slot order"
    if case.tiling.route == ROUTE_PLANNER:
        return "one core computes a whole tile and adds it to memory sample after sample"
    return "one core computes a whole tile: one accumulator over all samples"


MATRIX = Condition(
    "matrix product",
    "pad == 0 and K == T",
    lambda row, device, rules: row.pad == 0 and row.K == row.T,
    "both gradients are plain batched matrix products",
    "both gradients are convolutions",
    ("pad", "K"),
    {"pad": lambda row, device, rules: (0, 1), "K": lambda row, device, rules: (row.T,)},
)
WHITE_LISTED = Condition(
    "white-listed shape",
    "fp32, T == 8, B == 1, Cin == 4, Cout == 2, K == 4, pad == 0",
    lambda row, device, rules: on_white_list(problem_of(row, rules)),
    "gradWeight takes the deterministic planner in default mode too",
    vary=("pad",),
)


def _decisions(case: Case) -> Iterator[Decision]:
    """Yield every condition of the plan, with the argument values that would flip it."""
    row, is_a2_a3 = case.row, case.profile.npu_arch == NPU_ARCH_A2_A3
    yield _compute_decision(case)
    if is_a2_a3:
        yield decision(case, MATRIX, pad=row.pad, K=row.K, T=row.T)
    if case.tiling.route == ROUTE_MATMUL:
        for gradient, axis in CONTRACTIONS.items():
            yield _elementwise_decision(case, gradient, axis)
    else:
        yield from _weight_decisions(case)
    if not is_a2_a3:
        cores = case.tiling.bias_cores
        shared = Condition(
            "gradBias split over cores",
            Text(
                "fp32, default mode, and more than {bias_unit_rows} rows of self",
                bias_unit_rows=BIAS_UNIT_ROWS,
            ),
            lambda row, device, rules: tile_row(row, device, rules).bias_cores > 1,
            Text("{cores} cores add to every element atomically", cores=cores),
            "one core adds every element",
        )
        dtype, switch = case.specs["input"].dtype, case.deterministic
        yield decision(case, shared, dtype=dtype, deterministic=switch, rows=row.B * row.To)


def _compute_decision(case: Case) -> Decision:
    dtype, compute, chosen = case.specs["input"].dtype, computed_in(case), case.row.cube_math_type
    cube_dtypes = case.profile.product.cube_dtypes
    nearest = sorted(range(MATH_TYPES), key=lambda code: abs(code - chosen))
    effect = Text("the cube unit multiplies {compute} and accumulates fp32", compute=compute)
    converted = Condition(
        "operands are converted",
        "the dtype that cubeMathType selects is not the dtype of the tensors",
        lambda row, device, rules: compute_dtype(dtype, row.cube_math_type, cube_dtypes) != dtype,
        effect,
        effect,
        ("cubeMathType",),
        {
            "cubeMathType": lambda row, device, rules: (
                code for code in nearest if compute_dtype(dtype, code, cube_dtypes) is not None
            )
        },
    )
    values = {"dtype": dtype, "cubeMathType": chosen, "computed in": compute}
    return decision(case, converted, **values)


def _elementwise_decision(case: Case, gradient: str, axis: str) -> Decision:
    """Return the decision for a matrix product that may have a contraction of length 1."""
    condition = Condition(
        Text("{gradient} element by element", gradient=gradient),
        f"{axis} == 1",
        lambda row, device, rules: getattr(row, axis) <= 1,
        "every product of elements is rounded once, to the dtype of the operands",
        "a matrix product on the cube unit",
        (axis,),
    )
    return decision(case, condition, **{axis: getattr(case.row, axis)})


def _is_white_listed(case: Case) -> bool:
    """Return whether the shape takes the deterministic route in default mode."""
    return case.tiling.route == ROUTE_PLANNER and not case.deterministic


def _weight_decisions(case: Case) -> Iterator[Decision]:
    row, route = case.row, case.tiling.route
    fixed, shared = (
        "no output depends on timing",
        "cores may share a gradWeight tile and add atomically",
    )
    deterministic = Condition(
        "deterministic",
        "deterministic",
        lambda row, device, rules: row.deterministic == 1,
        fixed,
        fixed if _is_white_listed(case) else shared,
        ("deterministic",),
    )
    yield decision(case, deterministic, deterministic=case.deterministic)
    if case.deterministic and route in (ROUTE_PLANNER, ROUTE_GATE_FAILED):
        smallest = gate_bytes(problem_of(row, case.rules))
        sizes = {"smallest operands in L1": smallest, "L1": case.device.l1_bytes}
        yield decision(case, GATE, pad=row.pad, K=row.K, **sizes)
    if _is_white_listed(case):
        names = ("T", "B", "Cin", "Cout", "K", "pad")
        yield decision(case, WHITE_LISTED, **{name: getattr(row, name) for name in names})
    elif not case.deterministic:
        model, parts = case.tiling.weight_model, case.tiling.grad_weight.splits
        split = Condition(
            "gradWeight split over cores",
            "at least twice as many cores as tiles, and more than one sample or 16 time steps",
            lambda row, device, rules: tile_row(row, device, rules).grad_weight.splits > 1,
            Text("{parts} cores add to every tile", parts=parts),
            "one core computes a whole tile",
        )
        tiles = model.m_blocks * model.n_blocks
        yield decision(case, split, tiles=tiles, cores=model.cores, B=row.B, To=row.To)


def _gate_pads(row: Any, device: Device, rules: Any) -> Iterator[int]:
    """Yield the values of pad on both sides of pad < K with which the call can be planned."""
    problem = problem_of(row, rules)
    pads = problem.taps - 1, problem.taps
    return (pad for pad in pads if is_plannable(problem._replace(pad=pad)))


def _gate_times(row: Any, device: Device, rules: Any) -> Iterator[int]:
    """Yield the values of T, nearest first, at which the deterministic planner may change."""
    problem = problem_of(row, rules)
    rows = device.l1_bytes // gate_row_bytes(problem)
    times: Iterable[int] = ()
    if published_planner_takes(problem, device):
        # T passes without a search if To >= 16 and 16 rows of self and 2 * T rows of x fit.
        following, passing = problem.time + 1, (rows - CUBE_EDGE) // 2
        long = problem.time + CUBE_EDGE - output_time(problem)
        times = chain(range(following, long), range(max(following, long, passing), rows + 2))
    elif problem.pad < problem.taps:
        times = range(min(problem.time, rows), 0, -1)
    return (
        time
        for time in times
        if not (problem.pad == 0 and time == problem.taps)
        and is_plannable(problem._replace(time=time))
    )


GATE = Condition(
    "deterministic planner takes the shape",
    "pad < K and smallest operands in L1 <= L1, and L0A, L0B, L0C are not smaller than on any A2 "
    "or A3 SoC",
    lambda row, device, rules: published_planner_takes(problem_of(row, rules), device),
    "gradWeight follows the published planner",
    "the model without a split over cores",
    ("pad", "T"),
    {"pad": _gate_pads, "T": _gate_times},
)


def _caveats(case: Case) -> Iterator[Caveat]:
    """Yield the warnings of a call."""
    yield from _precision_caveats(case)
    route, elementwise = case.tiling.route, elementwise_gradients(case)
    if route == ROUTE_MATMUL and len(elementwise) < len(CONTRACTIONS):
        yield caveat(
            "matmul_unpublished",
            "weight",
            "pad 0 and K = T: the gradients are matrix products whose tiling and workspace are not "
            "published",
        )
    if computed_in(case) == "bfloat16" and elementwise:
        yield caveat(
            "elementwise_model",
            "weight",
            "{names}: whether the product multiplies bf16 element by element depends on a size "
            "test that is not published; taken to do so (model), which only decides on the sign "
            "of zeros",
            names=joined(elementwise, " and "),
        )
    if _is_white_listed(case):
        yield caveat(
            "white_listed",
            "input",
            "the shape is on a white list of the product: gradWeight takes the deterministic route "
            "in default mode too",
        )
    if route == ROUTE_GATE_FAILED:
        yield caveat(
            "deterministic_gate",
            "pad" if case.row.pad >= case.row.K else "input",
            "the deterministic planner does not take this shape: gradWeight is planned by the "
            "model, one core for every tile",
        )
    on_a2_a3 = case.profile.npu_arch == NPU_ARCH_A2_A3
    if case.deterministic and on_a2_a3 and route == ROUTE_MODEL:
        yield caveat(
            "deterministic_planner_unpublished",
            "deterministic",
            "the planner of deterministic gradWeight is not published for release {release}: "
            "planned by the model, one core for every tile",
            release=case.profile.release,
        )
    unknown = case.rules.training_series_matrix == TRAINING_SERIES_UNKNOWN
    on_training_series = case.profile.npu_arch == NPU_ARCH_ATLAS_TRAIN
    if on_training_series and unknown and case.row.pad == 0 and case.row.K == case.row.T:
        yield caveat(
            "matrix_shape_unknown",
            "weight",
            "whether release {release} takes pad 0 and K = T on this product is not known; later "
            "ones refuse, then take it",
            release=case.profile.release,
        )
    yield from _planner_caveats(case)


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
        yield caveat(
            "fp16_conversion",
            "cube_math_type",
            "operands and gradInput are rounded to fp16: 10 explicit mantissa bits, {range}, "
            "below 2^-24 they vanish; gradBias is summed from the original self",
            range=saturated if case.profile.saturates else infinite,
        )
    if case.profile.saturates:
        yield caveat(
            "saturation",
            "",
            "inf and nan are not supported on this product: overflow becomes the largest finite "
            "value, nan becomes 0",
        )


def _planner_caveats(case: Case) -> Iterator[Caveat]:
    """Warn where the published rule needs more memory than the chip has (page, "Known defects")."""
    tiling, device = case.tiling.published, case.device
    base = f"{tiling.base_m} x {tiling.base_n} x {tiling.base_k}"
    for name in ("l0a", "l0b", "l0c", "l1"):
        if getattr(tiling, f"exceeds_{name}"):
            yield caveat(
                f"hardware_limit_{name}",
                "deterministic",
                "hardware limit: the deterministic planner's base block {base} needs {needed} "
                "bytes of {name}, there are {available}; the call may fail on the device (it fits "
                "when not deterministic)",
                base=base,
                needed=getattr(tiling, f"{name}_bytes"),
                name=name.upper(),
                available=getattr(device, f"{name}_bytes"),
            )
