"""Kernels of ConvTbcBackward: what they compute in, their launches, cores and on-chip memories.

Source: product document aclnnConvTbcBackward; specification pages ``conv_tbc_backward``, table of
step 8 of "Contract", and ``workspace``.
"""

from functools import cache
from itertools import product
from typing import Any

from npu_sim.cores import NPU_ARCH_A2_A3, Device, Profile
from npu_sim.framework.axes import FLOAT_DTYPES
from npu_sim.framework.case import Case
from npu_sim.framework.describing import Range, kernel_parts
from npu_sim.language import Text
from npu_sim.plans.answers import Evidence
from npu_sim.plans.model import (
    Allocation,
    Launch,
    LaunchTensor,
    Memory,
    WorkspacePart,
    contiguous_copy,
    intermediate,
)
from npu_sim.tiling.common import ceil_div
from npu_sim.tiling.conv_tbc_backward import COMPUTE_BITS, COMPUTE_DTYPES, MATH_TYPES, problem_of
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
from npu_sim.tiling.conv_tbc_backward.problem import (
    CHANNEL_BLOCK_BYTES,
    CUBE_EDGE,
    ROUTE_MATMUL,
    ROUTE_PLANNER,
    ConvTbcProblem,
    multiplies_elements,
)

ENTRY_ORDER = ("self", "weight", "input", "bias")
OPERANDS = ("self", "input", "weight")
INPUT_KERNEL, WEIGHT_KERNEL = "Conv2DBackpropInput", "Conv2DBackpropFilter"
"""Kernels of both gradients in cube layout; types of the vendor's operators with these layouts."""
TRANSPOSE_BYTES = 1024
"""Workspace of every Transpose (page: published for an older release, still declared)."""
PUBLISHED_BEFORE = "published for an older release"

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


Shape = tuple[int, ...]


def _part(name: str, size: int, evidence: Evidence, note: str) -> WorkspacePart:
    return WorkspacePart(
        name=Text("workspace of {name}", name=name),
        bytes=size,
        kind="kernel",
        evidence=evidence,
        note=note,
    )


def _weight_kernel_parts(case: Case) -> tuple[WorkspacePart, ...]:
    """Return the workspace of the gradWeight kernel; only the published planner has one."""
    if case.tiling.route != ROUTE_PLANNER:
        return ()
    slots = case.tiling.workspace_bytes - case.device.system_workspace_bytes
    sizes = {"slots of split tiles": slots} if case.tiling.published.stream_k else {}
    return kernel_parts(case, sizes)


class _Executor:
    """Collects the launches in order."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.launches: list[Launch] = []
        self.dtype = case.specs["input"].dtype
        self.compute = "float32" if computed_in(case) == "hf32" else computed_in(case)

    def run(
        self,
        kernel: str,
        inputs: tuple[LaunchTensor, ...],
        output: LaunchTensor,
        *parts: WorkspacePart,
        **fields: Any,
    ) -> LaunchTensor:
        """Append a kernel, with other fields of its launch; return its output."""
        self.launches.append(
            Launch(kernel=kernel, inputs=inputs, outputs=(output,), workspace=parts, **fields)
        )
        return output

    def transpose(self, source: LaunchTensor, output: LaunchTensor) -> LaunchTensor:
        """Append a Transpose, which has its own workspace."""
        name = Text("Transpose to {name}", name=output.name)
        part = _part(name, TRANSPOSE_BYTES, Evidence.MODEL, PUBLISHED_BEFORE)
        return self.run("Transpose", (source,), output, part)

    def cast(self, source: LaunchTensor, name: str, dtype: str) -> LaunchTensor:
        """Append a Cast if the dtype differs."""
        if source.dtype == dtype:
            return source
        return self.run("Cast", (source,), intermediate(name, source.shape, dtype))

    def transposed_operands(self) -> dict[str, LaunchTensor]:
        """Append the first launches of both routes: copies, transposes, and gradBias.

        Transposes give (batch or out, channels, time or taps).
        """
        specs = {x.parameter: self.case.specs[x.name] for x in self.case.operator.inputs}
        for name in ENTRY_ORDER:
            if not specs[name].contiguous:
                copy = Text("entry copy of {name}", name=name)
                self.launches.append(contiguous_copy(name, specs[name].shape, self.dtype, copy))
        transposed = {}
        for name in OPERANDS:
            first, middle, last = shape = specs[name].shape
            source = LaunchTensor(name=name, shape=shape, dtype=self.dtype)
            if not specs[name].contiguous:
                self.launches.append(contiguous_copy(name, shape, self.dtype))
                source = self.launches[-1].outputs[0]
            shape = (last, middle, first) if name == "weight" else (middle, last, first)
            transposed[name] = self.transpose(
                source, intermediate(Text("transposed {name}", name=name), shape, self.dtype)
            )
        unknown = _part("ReduceSum", 0, Evidence.UNKNOWN, "not published; 32 bytes at least")
        parts = (unknown,) if self.case.profile.npu_arch == NPU_ARCH_A2_A3 else ()
        self.run("ReduceSum", (transposed["self"],), self.case.tensor("grad_bias"), *parts)
        return transposed

    def transpose_results(self, grad_input: LaunchTensor, grad_weight: LaunchTensor) -> None:
        """Append the transposes back, which write the outputs of the call."""
        self.transpose(grad_input, self.case.tensor("grad_input"))
        self.transpose(grad_weight, self.case.tensor("grad_weight"))


def launches_of(case: Case) -> tuple[Launch, ...]:
    """Return the launches of a call, in launch order (page ``workspace``, "ConvTbcBackward")."""
    executor = _Executor(case)
    transposed = executor.transposed_operands()
    gradients = _products if case.tiling.route == ROUTE_MATMUL else _convolutions
    executor.transpose_results(*gradients(executor, transposed))
    return tuple(executor.launches)


def _convolutions(
    executor: _Executor, transposed: dict[str, LaunchTensor]
) -> tuple[LaunchTensor, LaunchTensor]:
    """Append both gradients in cube layout, and the conversions to it and back."""
    case, row, compute, dtype = executor.case, executor.case.row, executor.compute, executor.dtype
    channel_block = CHANNEL_BLOCK_BYTES // problem_of(row, case.rules).element_bytes
    in_blocks, out_blocks = ceil_div(row.Cin, channel_block), ceil_div(row.Cout, channel_block)
    cube: dict[str, Shape] = {
        "self": (row.B, out_blocks, 1, row.To, channel_block),
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
    operands = laid_out["self"], laid_out["weight"]
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
    operands, parts = (laid_out["self"], laid_out["input"]), _weight_kernel_parts(case)
    block_dim = tiling.grad_weight.block_dim
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
    gradient, weight, x = (transposed[name] for name in ("self", "weight", "input"))
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
        cast_names = (
            Text("{name} as fp16 for {product}", name=operand.name, product=name)
            for operand in operands
        )
        pairs = zip(operands, cast_names, strict=True)
        operands = tuple(
            executor.cast(operand, cast_name, "float16") for operand, cast_name in pairs
        )
    output = intermediate(name, shape, operands[0].dtype)
    if name in elementwise_gradients(executor.case):
        evidence = Evidence.MODEL if executor.compute == "bfloat16" else Evidence.EXACT
        executor.run("Mul", operands, output, evidence=evidence)
    else:
        size_note = "not published; BatchMatMulV3: 20 MiB and more"
        part = _part(Text("BatchMatMul of {name}", name=name), 0, Evidence.UNKNOWN, size_note)
        note = "BatchMatMulV3 or an older BatchMatMul: closed host code decides"
        executor.run("BatchMatMul", operands, output, part, evidence=Evidence.MODEL, note=note)
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
    firsts = [block_range(weight, core) for core in range(weight.block_dim)]
    time = [(first.reduction_start, min(first.reduction_stop, case.row.To)) for first in firsts]
    return ranges | _block_ranges(GRAD_WEIGHT_RANGES, weight) | {"gradWeight time": time}


def _block_ranges(names: tuple[str, str, str, str], tiling: CubeTiling) -> dict[str, list[Range]]:
    """Return the number of blocks of every core, and rows, columns and samples of the first."""
    cores = range(tiling.block_dim)
    firsts = [block_range(tiling, core) for core in cores]
    ranges = (
        [(0, ceil_div(tiling.blocks - core, tiling.block_dim)) for core in cores],
        [(first.m_start, first.m_stop) for first in firsts],
        [(first.n_start, first.n_stop) for first in firsts],
        [(first.sample_start, first.sample_stop) for first in firsts],
    )
    return dict(zip(names, ranges, strict=True))


def tail_of(case: Case) -> TailSplit | None:
    """Return how the samples of the planner's last tiles are split; None if they are not."""
    return tail_split(case.tiling.published, problem_of(case.row, case.rules))


def _planner_ranges(case: Case) -> dict[str, list[Range]]:
    tiling, tail, batch = case.tiling.published, tail_of(case), case.row.B
    whole = tiling.tiles if tail is None else tail.first
    cores = range(min(tiling.block_dim, whole))
    ranges = {"gradWeight tiles": [(0, ceil_div(whole - core, tiling.block_dim)) for core in cores]}
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
    split = Text("reduction split {parts} ways ({pieces})", parts=parts, pieces=pieces)
    return Text("{blocks}; {split}", blocks=blocks_text(tiling), split=split)


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
