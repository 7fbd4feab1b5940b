"""The plan of ConvTbcBackward: path, cores, on-chip buffers and order of both gradients.

Source: specification page ``conv_tbc_backward``. A model plans gradInput, and gradWeight in default
mode; the published rule of the product plans gradWeight in deterministic mode on A2 and A3.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain
from typing import Any

from npu_sim.framework.vocabulary import (
    NPU_ARCH_A2_A3,
    NPU_ARCH_ATLAS_TRAIN,
    ORDERED_ADDITIONS,
    SHORT_NAMES,
    Allocation,
    Case,
    Caveat,
    Condition,
    Decision,
    Description,
    Device,
    Evidence,
    Launch,
    LaunchTensor,
    Memory,
    OutputOrder,
    Range,
    Shape,
    Text,
    WorkspacePart,
    caveat,
    ceil_div,
    contiguous_copy,
    core_works,
    decision,
    executor_workspace,
    intermediate,
    joined,
    kernel_parts,
    vendor_fields,
)
from npu_sim.operators.conv_tbc_backward.declaration import compute_dtype, computed_in
from npu_sim.operators.shared.launches import Executor
from npu_sim.tiling.conv_tbc_backward import (
    MATH_TYPES,
    TRAINING_SERIES_UNKNOWN,
    CubeTiling,
    block_range,
    grad_input_product,
    grad_weight_product,
    is_split,
    other_bytes,
    problem_of,
    tile_row,
    weight_depends_on_arrival,
)
from npu_sim.tiling.conv_tbc_backward.grad_weight_deterministic import (
    BIAS_UNIT_ROWS,
    CHANNEL_BLOCK_BYTES,
    CUBE_EDGE,
    L0_BUFFERS,
    ROUTE_GATE_FAILED,
    ROUTE_MATMUL,
    ROUTE_MODEL,
    ROUTE_NAMES,
    ROUTE_PLANNER,
    DeterministicTiling,
    TailSplit,
    gate_bytes,
    gate_row_bytes,
    is_plannable,
    on_white_list,
    output_time,
    published_planner_takes,
    tail_split,
)

ENTRY_ORDER = ("grad_output", "weight", "input", "bias")
OPERANDS = ("grad_output", "input", "weight")
INPUT_KERNEL, WEIGHT_KERNEL = "Conv2DBackpropInput", "Conv2DBackpropFilter"
"""Kernels of both gradients in cube layout; types of the vendor's operators with these layouts."""
CONTRACTIONS = {"gradInput": "Cout", "gradWeight": "B"}
"""Axis that the matrix product of each gradient sums over."""


def elementwise_gradients(case: Case) -> tuple[str, ...]:
    """Return the gradients computed element by element, not as matrix products.

    These are gradInput for Cout == 1 and gradWeight for B == 1 (page, "What runs").
    """
    return tuple(
        name
        for name, axis in CONTRACTIONS.items()
        if case.tiling.route == ROUTE_MATMUL and getattr(case.row, axis) == 1
    )


def product_kernels(case: Case) -> str:
    """Return the name of the kernels of both products."""
    elementwise = elementwise_gradients(case)
    if len(elementwise) == len(CONTRACTIONS):
        return "element by element"
    return "batched matrix product" + "".join(
        Text(", {name} element by element", name=name) for name in elementwise
    )


def converts_to_fp16(case: Case) -> bool:
    """Return whether operands are cast to fp16 before the cube unit."""
    return computed_in(case) == "float16" and case.specs["input"].dtype != "float16"


def _part(name: str, size: int, evidence: Evidence, note: str) -> WorkspacePart:
    return WorkspacePart(
        name=Text("workspace of {name}", name=name),
        bytes=size,
        kind="kernel",
        evidence=evidence,
        note=note,
    )


class _Executor(Executor):
    """Collects the launches of the convolution, whose routes use common Transposes and operands."""

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.dtype = case.specs["input"].dtype
        self.compute = "float32" if computed_in(case) == "hf32" else computed_in(case)

    def transpose(self, source: LaunchTensor, output: LaunchTensor) -> LaunchTensor:
        """Append a Transpose, which has its own workspace."""
        part = _part(
            Text("Transpose to {name}", name=output.name),
            1024,
            Evidence.MODEL,
            "published for an older release",
        )
        return self.run("Transpose", (source,), output, part)

    def transposed_operands(self) -> dict[str, LaunchTensor]:
        """Append the first launches of both routes: copies, transposes, and gradBias.

        Transposes give (batch or out, channels, time or taps).
        """
        specs = self.case.specs
        for name in ENTRY_ORDER:
            if not specs[name].contiguous:
                copy = Text("entry copy of {name}", name=name)
                self.launches.append(contiguous_copy(name, specs[name].shape, self.dtype, copy))
        transposed = {}
        for name in OPERANDS:
            first, middle, last = shape = specs[name].shape
            source = self.contiguous(name, specs[name])
            shape = (last, middle, first) if name == "weight" else (middle, last, first)
            transposed[name] = self.transpose(
                source, intermediate(Text("transposed {name}", name=name), shape, self.dtype)
            )
        unknown = _part("ReduceSum", 0, Evidence.UNKNOWN, "not published; 32 bytes at least")
        parts = (unknown,) if self.case.profile.npu_arch == NPU_ARCH_A2_A3 else ()
        self.run("ReduceSum", (transposed["grad_output"],), self.case.tensor("grad_bias"), *parts)
        return transposed


def launches_of(case: Case) -> tuple[Launch, ...]:
    """Return the launches of a call, in launch order (page ``workspace``, "ConvTbcBackward")."""
    executor = _Executor(case)
    gradients = _products if case.tiling.route == ROUTE_MATMUL else _convolutions
    grad_input, grad_weight = gradients(executor, executor.transposed_operands())
    executor.transpose(grad_input, case.tensor("grad_input"))
    executor.transpose(grad_weight, case.tensor("grad_weight"))
    return tuple(executor.launches)


def _convolutions(
    executor: _Executor, transposed: dict[str, LaunchTensor]
) -> tuple[LaunchTensor, LaunchTensor]:
    """Append both gradients in cube layout, and the conversions to it and back."""
    case, row, compute, dtype = executor.case, executor.case.row, executor.compute, executor.dtype
    channel_block = CHANNEL_BLOCK_BYTES // problem_of(row, case.rules).element_bytes
    in_blocks, out_blocks = ceil_div(row.Cin, channel_block), ceil_div(row.Cout, channel_block)
    cube: dict[str, Shape] = {
        "grad_output": (row.B, out_blocks, 1, row.To, channel_block),
        "input": (row.B, in_blocks, 1, row.T, channel_block),
        "weight": (in_blocks * row.K, ceil_div(row.Cout, CUBE_EDGE), CUBE_EDGE, channel_block),
    }
    laid_out = {}
    for name in OPERANDS:
        source = transposed[name]
        if converts_to_fp16(case):
            source = executor.cast(source, Text("{name} as fp16", name=name), "float16")
        output = intermediate(Text("{name} in cube layout", name=name), cube[name], compute)
        laid_out[name] = executor.run("TransData", (source,), output)
    result = intermediate("gradInput in cube layout", cube["input"], compute)
    operands = laid_out["grad_output"], laid_out["weight"]
    # The names of the gradients' kernels are a model.
    model, tiling = Evidence.MODEL, case.tiling
    executor.run(
        INPUT_KERNEL, operands, result, block_dim=tiling.grad_input.block_dim, evidence=model
    )
    plain = executor.run(
        "TransData", (result,), intermediate("gradInput", (row.B, row.Cin, 1, row.T), compute)
    )
    grad_input = executor.cast(plain, "gradInput in its dtype", dtype)
    result = intermediate("gradWeight in cube layout", cube["weight"], "float32")
    if not case.deterministic:
        note = "its size is a model; whether deterministic mode clears as well is not published"
        executor.run("MemSet", (), result, is_node=False, evidence=model, note=note)
    operands, block_dim = (laid_out["grad_output"], laid_out["input"]), tiling.grad_weight.block_dim
    parts: tuple[WorkspacePart, ...] = ()
    if tiling.route == ROUTE_PLANNER:  # the only one whose workspace is published
        slots = tiling.workspace_bytes - case.device.system_workspace_bytes
        parts = kernel_parts(
            case, {"slots of split tiles": slots} if tiling.published.stream_k else {}
        )
    executor.run(WEIGHT_KERNEL, operands, result, *parts, block_dim=block_dim, evidence=model)
    output = intermediate("gradWeight in fp32", (row.Cout, row.Cin, 1, row.K), "float32")
    plain = executor.run("TransData", (result,), output)
    return grad_input, executor.cast(plain, "gradWeight in its dtype", dtype)


def _products(
    executor: _Executor, transposed: dict[str, LaunchTensor]
) -> tuple[LaunchTensor, LaunchTensor]:
    """Append both gradients as matrix products: the output has length 1, all else are views."""
    row = executor.case.row
    columns = row.Cin * row.K
    gradient, weight, x = (transposed[name] for name in ("grad_output", "weight", "input"))
    operands = gradient.viewed((row.B, 1, row.Cout)), weight.viewed((row.Cout, columns))
    grad_input = _product(executor, "gradInput", operands, (row.B, 1, columns))
    operands = gradient.viewed((row.B, row.Cout)), x.viewed((row.B, columns))
    grad_weight = _product(executor, "gradWeight", operands, (row.Cout, columns))
    grad_input = grad_input.viewed((row.B, row.Cin, row.K))
    return grad_input, grad_weight.viewed((row.Cout, row.Cin, row.K))


def _product(
    executor: _Executor, name: str, operands: tuple[LaunchTensor, ...], shape: Shape
) -> LaunchTensor:
    """Append one product with the casts around it.

    Whether it is BatchMatMulV3 or an older BatchMatMul is not published (page ``workspace``).
    Operands are cast to the dtype that the product is computed in, also for a Mul of elements.
    """
    if converts_to_fp16(executor.case):
        operands = tuple(
            executor.cast(
                operand,
                Text("{name} as fp16 for {product}", name=operand.name, product=name),
                "float16",
            )
            for operand in operands
        )
    output = intermediate(name, shape, operands[0].dtype)
    if name in elementwise_gradients(executor.case):
        evidence = Evidence.MODEL if executor.compute == "bfloat16" else Evidence.EXACT
        executor.run("Mul", operands, output, evidence=evidence)
    else:
        part = _part(
            Text("BatchMatMul of {name}", name=name),
            0,
            Evidence.UNKNOWN,
            "not published; BatchMatMulV3: 20 MiB and more",
        )
        executor.run(
            "BatchMatMul",
            operands,
            output,
            part,
            evidence=Evidence.MODEL,
            note="BatchMatMulV3 or an older BatchMatMul: closed host code decides",
        )
    return executor.cast(output, Text("{name} in its dtype", name=name), executor.dtype)


GRAD_INPUT_RANGES = "gradInput blocks", "gradInput time", "gradInput channels", "gradInput samples"
GRAD_WEIGHT_RANGES = (
    "gradWeight blocks",
    "gradWeight output channels",
    "gradWeight columns",
    "gradWeight samples",
)


def core_ranges(case: Case) -> dict[str, list[Range]]:
    """Return the ranges of the first block of every core, and the number of its blocks, by unit."""
    ranges = _block_ranges(GRAD_INPUT_RANGES, case.tiling.input_model)
    if case.tiling.route == ROUTE_PLANNER:
        return ranges | _planner_ranges(case)
    weight = case.tiling.weight_model
    reductions = [block_range(weight, core).reduction for core in range(weight.block_dim)]
    time = [(start, min(stop, case.row.To)) for start, stop in reductions]
    return ranges | _block_ranges(GRAD_WEIGHT_RANGES, weight) | {"gradWeight time": time}


def _block_ranges(names: tuple[str, str, str, str], tiling: CubeTiling) -> dict[str, list[Range]]:
    """Return the number of blocks of every core, and rows, columns and samples of the first."""
    cores = range(tiling.block_dim)
    firsts = [block_range(tiling, core) for core in cores]
    ranges = (
        [(0, ceil_div(tiling.blocks - core, tiling.block_dim)) for core in cores],
        [first.m for first in firsts],
        [first.n for first in firsts],
        [first.samples for first in firsts],
    )
    return dict(zip(names, ranges, strict=True))


def tail_of(case: Case) -> TailSplit | None:
    """Return how the samples of the planner's last tiles are split; None if they are not."""
    return tail_split(case.tiling.published, problem_of(case.row, case.rules))


def _planner_ranges(case: Case) -> dict[str, list[Range]]:
    tiling, tail, batch = case.tiling.published, tail_of(case), case.row.B
    whole = tiling.tiles if tail is None else tail.first
    ranges = {
        "gradWeight tiles": [
            (0, ceil_div(whole - core, tiling.block_dim))
            for core in range(min(tiling.block_dim, whole))
        ]
    }
    if tail is None:
        return ranges
    shared = [
        divmod(core, tiling.stream_k_cores)
        for core in range((tiling.tiles - whole) * tiling.stream_k_cores)
    ]
    samples = [
        tuple(min(end * tail.slot_samples, batch) for end in (slot, slot + 1)) for _, slot in shared
    ]
    tiles = [(whole + tile, whole + tile + 1) for tile, _ in shared]
    return ranges | {"gradWeight tail tile": tiles, "gradWeight tail samples": samples}


def blocks_text(tiling: CubeTiling) -> str:
    """Return the blocks of a core, for the plan."""
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


def model_note(tiling: CubeTiling) -> str:
    """Return how the model splits gradWeight, for the plan."""
    parts = tiling.sample_blocks * tiling.time_blocks
    if parts <= 1:
        return blocks_text(tiling)
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
    return Text(
        "{blocks}; {split}",
        blocks=blocks_text(tiling),
        split=Text("reduction split {parts} ways ({pieces})", parts=parts, pieces=pieces),
    )


def planner_note(case: Case) -> str:
    """Return how the published planner splits gradWeight, for the plan."""
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
    tail = tail_of(case)
    if tail is None:
        return text
    return Text(
        "{text}; the last {tiles} with their samples split over {stream_k_cores} cores",
        text=text,
        tiles=tiling.tiles - tail.first,
        stream_k_cores=tiling.stream_k_cores,
    )


def _memories(case: Case, gradient: str) -> Iterator[Memory]:
    """Yield L0A, L0B, L0C and L1 of a gradient."""
    problem, evidence = problem_of(case.row, case.rules), Evidence.MODEL
    tiling: CubeTiling | DeterministicTiling = case.tiling.input_model
    other, cube = "weight", grad_input_product(problem)
    if gradient == "gradWeight":
        tiling, other, cube = case.tiling.weight_model, "input", grad_weight_product(problem)
    if gradient == "gradWeight" and case.tiling.route == ROUTE_PLANNER:
        tiling, evidence = case.tiling.published, Evidence.EXACT
    buffers = tiling.l1_buffers
    if isinstance(tiling, CubeTiling):
        other_l1 = buffers * other_bytes(cube, tiling.base_n, tiling.length_l1)
    else:
        other_l1 = buffers * tiling.x_l1_elements * problem.element_bytes
    parts = {
        "L0A": (("grad_output tile", tiling.l0a_bytes, L0_BUFFERS),),
        "L0B": ((Text("{other} tile", other=other), tiling.l0b_bytes, L0_BUFFERS),),
        "L0C": (("accumulator", tiling.l0c_bytes, tiling.l0c_buffers),),
        "L1": (("grad_output", tiling.l1_bytes - other_l1, buffers), (other, other_l1, buffers)),
    }
    for name, areas in parts.items():
        yield Memory(
            name=name,
            phase=gradient,
            capacity_bytes=getattr(case.device, f"{name.lower()}_bytes"),
            allocations=tuple(
                Allocation(
                    name=area, bytes=size, note="two buffers" if number == 2 else "one buffer"
                )
                for area, size, number in areas
            ),
            evidence=evidence,
        )


PATHS = {
    ROUTE_MATMUL: "batched matrix products",
    ROUTE_PLANNER: "convolution, gradWeight by the deterministic planner",
    ROUTE_GATE_FAILED: "convolution, gradWeight without a split over cores",
    ROUTE_MODEL: "convolution",
}


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
            *_beyond_document(case),
            caveat(
                "grad_bias_constant",
                "input",
                "input or weight is empty: gradBias is the constant B * To = {batch} * {out_time} "
                "= {rows}, not the sum of grad_output",
                batch=batch,
                out_time=out_time,
                rows=batch * out_time,
            ),
        ),
    )


def _beyond_document(case: Case) -> Iterator[Caveat]:
    """Yield that an axis of 0 is outside the documented ranges, on products that have some."""
    if case.rules.dim_at_most < 0:
        return
    row = case.row
    empty = [name for name, size in (("T", row.T), ("Cin", row.Cin), ("L", row.K)) if size == 0]
    yield caveat(
        "axis_beyond_documented",
        "weight" if row.K == 0 else "input",
        "{axes} is 0: the product document asks for axes from 1 to {most}, and for L from 1 to "
        "{taps}; the product runs all the same",
        axes=joined(empty),
        most=case.rules.dim_at_most,
        taps=case.rules.kernel_width_at_most,
    )


def describe(case: Case) -> Description:
    """Return what the operator states of a plan."""
    tiling, launches = case.tiling, launches_of(case)
    if tiling.route == ROUTE_MATMUL:
        description = Description(
            path=_path(case),
            kernel=product_kernels(case),
            cores_note="how the products are spread over cores is not published",
            tiling={"route": ROUTE_NAMES[ROUTE_MATMUL]},
            evidence=Evidence.UNKNOWN,
        )
    else:
        description = _convolution_description(case)
    return replace(
        description,
        block_dim=tiling.block_dim,
        path_reason=_reason(case),
        decisions=lambda: _decisions(case),
        workspace=executor_workspace(launches, tiling.workspace_bytes),
        launches=launches,
        order=lambda: _order(case),
        caveats=tuple(_caveats(case)),
    )


def _path(case: Case) -> str:
    return Text(
        "{paths} in {compute_names}",
        paths=PATHS[case.tiling.route],
        compute_names=SHORT_NAMES.get(computed_in(case), "hf32"),
    )


def _reason(case: Case) -> str:
    route = case.tiling.route
    if route == ROUTE_MATMUL:
        return Text("pad 0 and K = T = {k}: the output has length 1", k=case.row.K)
    if route == ROUTE_PLANNER:
        return (
            "deterministic computation is on"
            if case.deterministic
            else "a shape that the product computes deterministically in any mode"
        )
    if route == ROUTE_GATE_FAILED:
        return "deterministic computation is on, but its planner does not take this shape"
    return Text(
        "cubeMathType {cube_math_type}, {kind}",
        cube_math_type=case.row.cube_math_type,
        kind="cores share gradWeight tiles"
        if is_split(case.tiling)
        else "one core for every gradWeight tile",
    )


def _convolution_description(case: Case) -> Description:
    tiling, published = case.tiling, case.tiling.route == ROUTE_PLANNER
    input_model, weight_model = tiling.input_model, tiling.weight_model
    if published:
        weight_note, weight_fields = planner_note(case), vendor_fields(tiling.published)
    else:
        weight_note, weight_fields = model_note(weight_model), weight_model._asdict()
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
            planner_note=weight_note,
        ),
        tiling={
            "route": ROUTE_NAMES[tiling.route],
            "gradInput": input_model._asdict(),
            "gradWeight": weight_fields,
        },
        cores=lambda: core_works(core_ranges(case), tiling.block_dim),
        memories=lambda: (*_memories(case, "gradInput"), *_memories(case, "gradWeight")),
        evidence=Evidence.MODEL,
    )


def _order(case: Case) -> tuple[OutputOrder, ...]:
    weight_is_fixed = not weight_depends_on_arrival(case.row, case.tiling)
    bias_is_fixed = case.tiling.bias_cores < ORDERED_ADDITIONS
    reason = (
        "one product for every element, nothing is added"
        if "gradInput" in elementwise_gradients(case)
        else "one accumulator for every element, no split across cores"
    )
    return (
        OutputOrder(output="grad_input", fixed=True, reason=reason),
        OutputOrder(output="grad_weight", fixed=weight_is_fixed, reason=_weight_order(case)),
        OutputOrder(output="grad_bias", fixed=bias_is_fixed, reason=_bias_order(case)),
    )


def _bias_order(case: Case) -> str:
    if case.tiling.bias_cores > 1:
        rows, cores = case.tiling.bias_rows, case.tiling.bias_cores
        if cores < ORDERED_ADDITIONS:
            return Text(
                "two cores add the sums of {rows} rows of grad_output atomically (model): two "
                "additions commute",
                rows=rows,
            )
        return Text(
            "{cores} cores add the sums of {rows} rows of grad_output atomically (model); fixed "
            "when deterministic",
            cores=cores,
            rows=rows,
        )
    if case.profile.npu_arch == NPU_ARCH_A2_A3:
        return (
            "fp32 sum of grad_output in a fixed order, rounded once (model: how cores share it is "
            "not published)"
        )
    return "fp32 sum of grad_output by one core, rounded once"


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
        shared = Condition(
            "gradBias split over cores",
            Text(
                "fp32, default mode, and more than {bias_unit_rows} rows of grad_output",
                bias_unit_rows=BIAS_UNIT_ROWS,
            ),
            lambda row, device, rules: tile_row(row, device, rules).bias_cores > 1,
            Text("{cores} cores add to every element atomically", cores=case.tiling.bias_cores),
            "one core adds every element",
        )
        yield decision(
            case,
            shared,
            dtype=case.specs["input"].dtype,
            deterministic=case.deterministic,
            rows=row.B * row.To,
        )


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
    return decision(
        case, converted, **{"dtype": dtype, "cubeMathType": chosen, "computed in": compute}
    )


def _elementwise_decision(case: Case, gradient: str, axis: str) -> Decision:
    """Return the decision for a matrix product that may have a contraction of length 1."""
    return decision(
        case,
        Condition(
            Text("{gradient} element by element", gradient=gradient),
            f"{axis} == 1",
            lambda row, device, rules: getattr(row, axis) <= 1,
            "every product of elements is rounded once, to the dtype of the operands",
            "a matrix product on the cube unit",
            (axis,),
        ),
        **{axis: getattr(case.row, axis)},
    )


def _is_white_listed(case: Case) -> bool:
    """Return whether the shape takes the deterministic route in default mode."""
    return case.tiling.route == ROUTE_PLANNER and not case.deterministic


def _weight_decisions(case: Case) -> Iterator[Decision]:
    row, route = case.row, case.tiling.route
    fixed, shared = (
        "no output depends on timing",
        "cores may share a gradWeight tile and add atomically",
    )
    yield decision(
        case,
        Condition(
            "deterministic",
            "deterministic",
            lambda row, device, rules: row.deterministic == 1,
            fixed,
            fixed if _is_white_listed(case) else shared,
            ("deterministic",),
        ),
        deterministic=case.deterministic,
    )
    if case.deterministic and route in (ROUTE_PLANNER, ROUTE_GATE_FAILED):
        sizes = {
            "smallest operands in L1": gate_bytes(problem_of(row, case.rules)),
            "L1": case.device.l1_bytes,
        }
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
        yield decision(
            case,
            split,
            tiles=model.m_blocks * model.n_blocks,
            cores=model.cores,
            B=row.B,
            To=row.To,
        )


def _gate_pads(row: Any, device: Device, rules: Any) -> Iterator[int]:
    """Yield the values of pad on both sides of pad < K with which the call can be planned."""
    problem = problem_of(row, rules)
    return (
        pad for pad in (problem.taps - 1, problem.taps) if is_plannable(problem._replace(pad=pad))
    )


def _gate_times(row: Any, device: Device, rules: Any) -> Iterator[int]:
    """Yield the values of T, nearest first, at which the deterministic planner may change."""
    problem = problem_of(row, rules)
    rows = device.l1_bytes // gate_row_bytes(problem)
    times: Iterable[int] = ()
    if published_planner_takes(problem, device):
        # T passes without a search if To >= 16 and 16 rows of grad_output and 2 * T rows of x fit.
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
    if case.deterministic and (case.profile.npu_arch == NPU_ARCH_A2_A3) and route == ROUTE_MODEL:
        yield caveat(
            "deterministic_planner_unpublished",
            "deterministic",
            "the planner of deterministic gradWeight is not published for release {release}: "
            "planned by the model, one core for every tile",
            release=case.profile.release,
        )
    if (
        case.profile.npu_arch == NPU_ARCH_ATLAS_TRAIN
        and case.rules.training_series_matrix == TRAINING_SERIES_UNKNOWN
        and case.row.pad == 0
        and case.row.K == case.row.T
    ):
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
        but = (
            Text(" ({exact}, multiplied element by element, is not rounded)", exact=exact[0])
            if exact
            else ""
        )
        yield caveat(
            "hf32_precision",
            "cube_math_type",
            "operands are rounded to hf32, 11 explicit mantissa bits: gradients in fp32 carry "
            "about 3 decimal digits{but}",
            but=but,
        )
    if converts_to_fp16(case):
        yield caveat(
            "fp16_conversion",
            "cube_math_type",
            "operands and gradInput are rounded to fp16: 10 explicit mantissa bits, {range}, "
            "below 2^-24 they vanish; gradBias is summed from the original grad_output",
            range="values beyond 65504 become 65504"
            if case.profile.saturates
            else "values beyond 65504 become inf",
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
    tiling = case.tiling.published
    for name in ("l0a", "l0b", "l0c", "l1"):
        if getattr(tiling, f"exceeds_{name}"):
            yield caveat(
                f"hardware_limit_{name}",
                "deterministic",
                "hardware limit: the deterministic planner's base block {base} needs {needed} "
                "bytes of {name}, there are {available}; the call may fail on the device (it fits "
                "when not deterministic)",
                base=f"{tiling.base_m} x {tiling.base_n} x {tiling.base_k}",
                needed=getattr(tiling, f"{name}_bytes"),
                name=name.upper(),
                available=getattr(case.device, f"{name}_bytes"),
            )
