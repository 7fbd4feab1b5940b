"""The plan of ConvTbcBackward: path, cores, on-chip buffers and order of both gradients.

Source: specification page ``conv_tbc_backward``. A model plans gradInput, and gradWeight in default
mode; the published rule of the product plans gradWeight in deterministic mode on A2 and A3.
"""

from typing import Any

from npu_sim.cores import NPU_ARCH_A2_A3, Device
from npu_sim.framework.case import Case
from npu_sim.language import Text
from npu_sim.numbers.formats import ORDERED_ADDITIONS
from npu_sim.operators.conv_tbc_backward.decisions import (
    CONTRACTIONS,
    caveats,
    computed_in,
    decisions,
    elementwise_gradients,
)
from npu_sim.operators.conv_tbc_backward.workspace import launches_of
from npu_sim.plans.answers import Evidence
from npu_sim.plans.model import Allocation, Caveat, CoreWork, Memory, OutputOrder
from npu_sim.plans.workspace import executor_workspace
from npu_sim.tiling.common import ceil_div
from npu_sim.tiling.conv_tbc_backward.cube_tiling import (
    CubeProduct,
    CubeTiling,
    block_range,
    grad_input_product,
    grad_weight_product,
    other_bytes,
    self_bytes,
)
from npu_sim.tiling.conv_tbc_backward.grad_weight_deterministic import (
    DeterministicTiling,
    TailSplit,
    tail_split,
)
from npu_sim.tiling.conv_tbc_backward.planner import is_split, problem_of, weight_depends_on_arrival
from npu_sim.tiling.conv_tbc_backward.problem import (
    ROUTE_GATE_FAILED,
    ROUTE_MATMUL,
    ROUTE_MODEL,
    ROUTE_NAMES,
    ROUTE_PLANNER,
    ConvTbcProblem,
)
from npu_sim.tiling.fields import vendor_fields

PATHS = {
    ROUTE_MATMUL: "batched matrix products",
    ROUTE_PLANNER: "convolution, gradWeight by the deterministic planner",
    ROUTE_GATE_FAILED: "convolution, gradWeight without a split over cores",
    ROUTE_MODEL: "convolution",
}
COMPUTE_NAMES = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "hf32": "hf32"}
GRAD_INPUT_RANGES = "gradInput blocks", "gradInput time", "gradInput channels", "gradInput samples"
GRAD_WEIGHT_RANGES = (
    "gradWeight blocks",
    "gradWeight output channels",
    "gradWeight columns",
    "gradWeight samples",
)


def describe_empty(case: Case) -> dict[str, Any]:
    """Return the fields of the plan of a call whose input or weight is empty."""
    batch, out_time = case.row.B, case.row.To
    message = Text(
        "input or weight is empty: gradBias is the constant B * To = {batch} * {out_time} = "
        "{rows}, not the sum of self",
        batch=batch,
        out_time=out_time,
        rows=batch * out_time,
    )
    return {
        "path_reason": "input or weight has no element",
        "order": tuple(
            OutputOrder(output=output.name, fixed=True, reason="a constant")
            for output in case.operator.outputs
        ),
        "caveats": (Caveat(code="grad_bias_constant", argument="input", message=message),),
    }


def describe(case: Case) -> dict[str, Any]:
    """Return the fields of the plan that depend on the case, which has a tiling."""
    route = case.tiling.route
    launches = launches_of(case)
    fields = _matmul_fields(case) if route == ROUTE_MATMUL else _convolution_fields(case)
    return {
        **fields,
        "path": Text(
            "{paths} in {compute_names}",
            paths=PATHS[route],
            compute_names=COMPUTE_NAMES[computed_in(case)],
        ),
        "path_reason": _reason(case),
        "decisions": lambda: decisions(case),
        "workspace": executor_workspace(launches, case.tiling.workspace_bytes),
        "launches": launches,
        "order": lambda: _order(case),
        "caveats": tuple(caveats(case)),
    }


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


def _matmul_fields(case: Case) -> dict[str, Any]:
    return {
        "kernel": _products(case),
        "block_dim": case.tiling.block_dim,
        "cores_note": "how the products are spread over cores is not published",
        "per_core": "",
        "tiling": {"route": ROUTE_NAMES[case.tiling.route]},
        "evidence": Evidence.UNKNOWN,
    }


def _products(case: Case) -> str:
    """Return the name of the kernels of both products."""
    elementwise = elementwise_gradients(case)
    if len(elementwise) == len(CONTRACTIONS):
        return "element by element"
    return "batched matrix product" + "".join(
        Text(", {name} element by element", name=name) for name in elementwise
    )


def _convolution_fields(case: Case) -> dict[str, Any]:
    tiling, problem, device = case.tiling, problem_of(case.row, case.rules), case.device
    input_model, published = tiling.input_model, tiling.route == ROUTE_PLANNER
    weight_model = tiling.weight_model
    return {
        "kernel": "gradInput and gradWeight on the cube unit, gradBias on vector cores",
        "tiling_key": tiling.tiling_key if published else None,
        "block_dim": tiling.block_dim,
        "cores_note": Text(
            "gradInput {input_cores} cores, gradWeight {weight_cores}",
            input_cores=input_model.block_dim,
            weight_cores=tiling.grad_weight.block_dim,
        ),
        "per_core": Text(
            "gradInput {blocks}; gradWeight {planner_note}",
            blocks=_blocks_text(input_model),
            planner_note=_planner_note(case) if published else _model_note(weight_model),
        ),
        "tiling": {
            "route": ROUTE_NAMES[tiling.route],
            "gradInput": input_model._asdict(),
            "gradWeight": vendor_fields(tiling.published) if published else weight_model._asdict(),
        },
        "cores": lambda: tuple(
            CoreWork(core=core, ranges=_ranges(case, core)) for core in range(tiling.block_dim)
        ),
        "memories": lambda: (
            *model_memories("gradInput", input_model, problem, device),
            *(
                planner_memories(tiling.published, problem, device)
                if published
                else model_memories("gradWeight", weight_model, problem, device)
            ),
        ),
        "evidence": Evidence.MODEL,
    }


def _blocks_text(tiling: CubeTiling) -> str:
    most = tiling.blocks_per_core
    base = f"{tiling.base_m} x {tiling.base_n} x {tiling.base_k}"
    sizes = {"blocks": tiling.blocks, "single_m": tiling.single_m, "single_n": tiling.single_n}
    if most > 1:
        return Text(
            "up to {most} of {blocks} blocks of {single_m} x {single_n} (base {base})",
            most=most,
            base=base,
            **sizes,
        )
    return Text(
        "one of {blocks} blocks of {single_m} x {single_n} (base {base})", base=base, **sizes
    )


def _model_note(tiling: CubeTiling) -> str:
    parts = tiling.sample_blocks * tiling.time_blocks
    if parts <= 1:
        return _blocks_text(tiling)
    pieces = Text(
        "{sample_blocks} x {single_samples} samples",
        sample_blocks=tiling.sample_blocks,
        single_samples=tiling.single_samples,
    )
    if tiling.time_blocks > 1:
        pieces = Text(
            "{pieces} and {time_blocks} x {single_reduction} time steps",
            pieces=pieces,
            time_blocks=tiling.time_blocks,
            single_reduction=tiling.single_reduction,
        )
    split = Text("reduction split {parts} ways ({pieces})", parts=parts, pieces=pieces)
    return Text("{blocks}; {split}", blocks=_blocks_text(tiling), split=split)


def _tail(case: Case) -> TailSplit | None:
    return tail_split(case.tiling.published, problem_of(case.row, case.rules))


def _planner_note(case: Case) -> str:
    tiling = case.tiling.published
    text = Text(
        "{tiles} tiles of {single_m} x {single_n} (base {base_m} x {base_n} x {base_k})",
        tiles=tiling.tiles,
        single_m=tiling.single_m,
        single_n=tiling.single_n,
        base_m=tiling.base_m,
        base_n=tiling.base_n,
        base_k=tiling.base_k,
    )
    tail = _tail(case)
    if tail is None:
        return text
    return Text(
        "{text}; the last {tiles} with their samples split over {stream_k_cores} cores",
        text=text,
        tiles=tiling.tiles - tail.first,
        stream_k_cores=tiling.stream_k_cores,
    )


def _ranges(case: Case, core: int) -> dict[str, tuple[int, int]]:
    """Return the ranges of a core: those of its first block, and ``blocks``, their number."""
    input_model, weight = case.tiling.input_model, case.tiling.weight_model
    work: dict[str, tuple[int, int]] = {}
    if core < input_model.block_dim:
        work |= _block_ranges(input_model, core, GRAD_INPUT_RANGES)
    if case.tiling.route == ROUTE_PLANNER:
        return work | _planner_ranges(case, core)
    if core < weight.block_dim:
        work |= _block_ranges(weight, core, GRAD_WEIGHT_RANGES)
        first = block_range(weight, core)
        work["gradWeight time"] = (first.reduction_start, min(first.reduction_stop, case.row.To))
    return work


def _block_ranges(
    tiling: CubeTiling, core: int, names: tuple[str, str, str, str]
) -> dict[str, tuple[int, int]]:
    """Return the number of blocks of a core, and rows, columns and samples of the first."""
    first = block_range(tiling, core)
    ranges = (
        (0, ceil_div(tiling.blocks - core, tiling.block_dim)),
        (first.m_start, first.m_stop),
        (first.n_start, first.n_stop),
        (first.sample_start, first.sample_stop),
    )
    return dict(zip(names, ranges, strict=True))


def _planner_ranges(case: Case, core: int) -> dict[str, tuple[int, int]]:
    tiling, tail = case.tiling.published, _tail(case)
    whole = tiling.tiles if tail is None else tail.first
    work: dict[str, tuple[int, int]] = {}
    if core < tiling.block_dim and core < whole:
        work["gradWeight tiles"] = (0, ceil_div(whole - core, tiling.block_dim))
    if tail is not None and core < (tiling.tiles - tail.first) * tiling.stream_k_cores:
        tile, slot = tail.first + core // tiling.stream_k_cores, core % tiling.stream_k_cores
        start = min(slot * tail.slot_samples, case.row.B)
        work["gradWeight tail tile"] = (tile, tile + 1)
        work["gradWeight tail samples"] = (start, min(start + tail.slot_samples, case.row.B))
    return work


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


Parts = dict[str, tuple[tuple[str, int, int], ...]]
"""Name, bytes and number of buffers of every allocation, by memory."""


def _memories(phase: str, device: Device, parts: Parts, evidence: Evidence) -> tuple[Memory, ...]:
    capacities = {
        "L0A": device.l0a_bytes,
        "L0B": device.l0b_bytes,
        "L0C": device.l0c_bytes,
        "L1": device.l1_bytes,
    }
    return tuple(
        Memory(
            name=memory,
            phase=phase,
            capacity_bytes=capacity,
            allocations=tuple(_allocation(*part) for part in parts[memory]),
            evidence=evidence,
        )
        for memory, capacity in capacities.items()
    )


def _allocation(name: str, size: int, buffers: int) -> Allocation:
    return Allocation(name=name, bytes=size, note="two buffers" if buffers == 2 else "one buffer")


def model_memories(
    phase: str, tiling: CubeTiling, problem: ConvTbcProblem, device: Device
) -> tuple[Memory, ...]:
    """Return L0A, L0B, L0C and L1 of a gradient planned by the model."""
    product: CubeProduct
    if phase == "gradInput":
        product, other = grad_input_product(problem), "weight"
    else:
        product, other = grad_weight_product(problem), "input"
    buffers = tiling.l1_buffers
    own_l1 = buffers * self_bytes(product, tiling.base_m, tiling.length_l1)
    other_l1 = buffers * other_bytes(product, tiling.base_n, tiling.length_l1)
    parts: Parts = {
        "L0A": (("self tile", tiling.l0a_bytes, tiling.l0a_buffers),),
        "L0B": ((Text("{other} tile", other=other), tiling.l0b_bytes, tiling.l0b_buffers),),
        "L0C": (("accumulator", tiling.l0c_bytes, tiling.l0c_buffers),),
        "L1": (("self", own_l1, buffers), (other, other_l1, buffers)),
    }
    return _memories(phase, device, parts, Evidence.MODEL)


def planner_memories(
    tiling: DeterministicTiling, problem: ConvTbcProblem, device: Device
) -> tuple[Memory, ...]:
    """Return L0A, L0B, L0C and L1 of gradWeight planned by the published rule."""
    buffers = tiling.l1_buffers
    input_l1 = tiling.x_l1_elements * problem.element_bytes * buffers
    parts: Parts = {
        "L0A": (("self tile", tiling.l0a_bytes, 2),),
        "L0B": (("input tile", tiling.l0b_bytes, 2),),
        "L0C": (("accumulator", tiling.l0c_bytes, tiling.l0c_buffers),),
        "L1": (("self", tiling.l1_bytes - input_l1, buffers), ("input", input_l1, buffers)),
    }
    return _memories("gradWeight", device, parts, Evidence.EXACT)
