"""Launches of ConvTbcBackward, and its workspace: the tensors between its kernels.

Source: specification page ``workspace``.
"""

from npu_sim.cores import NPU_ARCH_A2_A3
from npu_sim.framework.case import Case
from npu_sim.language import Text
from npu_sim.operators.conv_tbc_backward.decisions import (
    computed_in,
    converts_to_fp16,
    elementwise_gradients,
)
from npu_sim.plans.answers import Evidence
from npu_sim.plans.model import Launch, LaunchTensor, WorkspacePart, contiguous_copy, intermediate
from npu_sim.tiling.common import ceil_div
from npu_sim.tiling.conv_tbc_backward.planner import problem_of
from npu_sim.tiling.conv_tbc_backward.problem import (
    CHANNEL_BLOCK_BYTES,
    CUBE_EDGE,
    ROUTE_MATMUL,
    ROUTE_PLANNER,
)

ENTRY_ORDER = ("self", "weight", "input", "bias")
OPERANDS = ("self", "input", "weight")
INPUT_KERNEL, WEIGHT_KERNEL = "Conv2DBackpropInput", "Conv2DBackpropFilter"
"""Kernels of both gradients in cube layout; types of the vendor's operators with these layouts."""
TRANSPOSE_BYTES = 1024
"""Workspace of every Transpose (page: published for an older release, still declared)."""
PUBLISHED_BEFORE = "published for an older release"

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
    system = case.device.system_workspace_bytes
    parts = [WorkspacePart(name="system", bytes=system, kind="system")]
    if case.tiling.published.stream_k:
        slots = case.tiling.workspace_bytes - system
        parts.append(WorkspacePart(name="slots of split tiles", bytes=slots, kind="kernel"))
    return tuple(parts)


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
    ) -> LaunchTensor:
        """Append a kernel; return its output."""
        launch = Launch(kernel=kernel, inputs=inputs, outputs=(output,), workspace=parts)
        self.launches.append(launch)
        return output

    def compute_gradient(
        self,
        kernel: str,
        operands: tuple[LaunchTensor, ...],
        output: LaunchTensor,
        block_dim: int,
        parts: tuple[WorkspacePart, ...],
    ) -> LaunchTensor:
        """Append the kernel of a gradient; its name is a model."""
        launch = Launch(
            kernel=kernel,
            inputs=operands,
            outputs=(output,),
            block_dim=block_dim,
            evidence=Evidence.MODEL,
            workspace=parts,
        )
        self.launches.append(launch)
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
    block_dim = case.tiling.grad_input.block_dim
    executor.compute_gradient(INPUT_KERNEL, operands, result, block_dim, ())
    plain = executor.run(
        "TransData", (result,), intermediate("gradInput", (row.B, row.Cin, 1, row.T), compute)
    )
    grad_input = executor.cast(plain, "gradInput in its dtype", dtype)
    result = intermediate("gradWeight in cube layout", cube["weight"], "float32")
    if not case.deterministic:
        note = "its size is a model; whether deterministic mode clears as well is not published"
        clearing = Launch(
            kernel="MemSet", outputs=(result,), is_node=False, evidence=Evidence.MODEL, note=note
        )
        executor.launches.append(clearing)
    operands = laid_out["self"], laid_out["input"]
    block_dim, parts = case.tiling.grad_weight.block_dim, _weight_kernel_parts(case)
    executor.compute_gradient(WEIGHT_KERNEL, operands, result, block_dim, parts)
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
        launch = Launch(kernel="Mul", inputs=operands, outputs=(output,), evidence=evidence)
    else:
        size_note = "not published; BatchMatMulV3: 20 MiB and more"
        of_product = Text("BatchMatMul of {name}", name=name)
        launch = Launch(
            kernel="BatchMatMul",
            inputs=operands,
            outputs=(output,),
            evidence=Evidence.MODEL,
            note="BatchMatMulV3 or an older BatchMatMul: closed host code decides",
            workspace=(_part(of_product, 0, Evidence.UNKNOWN, size_note),),
        )
    executor.launches.append(launch)
    return executor.cast(output, Text("{name} in its dtype", name=name), executor.dtype)
