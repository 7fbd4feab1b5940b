"""Workspace of ConvTbcBackward: the tensors between its kernels (specification page ``workspace``)."""

from typing import TYPE_CHECKING

from npu_sim.formats import itemsize
from npu_sim.plan_model import Evidence, Workspace, WorkspacePart
from npu_sim.tiling.conv_tbc_problem import CHANNEL_BLOCK_BYTES, CUBE_EDGE, ROUTE_MATMUL, ROUTE_PLANNER
from npu_sim.tiling.integers import ceil_div
from npu_sim.workspace import KernelNode, TensorArea, executor_workspace

if TYPE_CHECKING:
    from npu_sim.planning.conv_tbc_backward import Case

ACCUMULATOR_BYTES = 4


def _unknown(name: str) -> WorkspacePart:
    return WorkspacePart(name=f"workspace of {name}", bytes=0, kind="kernel", evidence=Evidence.UNKNOWN, note="not published")


def _weight_kernel_parts(case: "Case") -> tuple[WorkspacePart, ...]:
    if case.route != ROUTE_PLANNER:
        return (_unknown("gradWeight"),)
    system = case.profile.device.system_workspace_bytes
    parts = [WorkspacePart(name="system", bytes=system, kind="system")]
    if case.planner_tiling.stream_k:
        slots = case.planner_tiling.workspace_bytes - system
        parts.append(WorkspacePart(name="slots of split tiles", bytes=slots, kind="kernel"))
    return tuple(parts)


class _Executor:
    """Collects the kernels in launch order."""

    def __init__(self) -> None:
        self.nodes: list[KernelNode] = []

    def run(self, kernel: str, inputs: tuple[str, ...], output: str = "", size: int = 0, parts: tuple[WorkspacePart, ...] = ()) -> str:
        """Append a kernel that writes one intermediate tensor (none when ``output`` is empty); return its name."""
        outputs = (TensorArea(output, size),) if output else ()
        self.nodes.append(KernelNode(name=kernel, inputs=inputs, outputs=outputs, workspace=parts))
        return output


def executor_nodes(case: "Case") -> tuple[KernelNode, ...]:
    """Return the kernels that run, in launch order (page ``workspace``, "ConvTbcBackward")."""
    own, element = itemsize(case.dtype), case.problem.element_bytes
    channel_block = CHANNEL_BLOCK_BYTES // element
    in_blocks, out_blocks = ceil_div(case.in_channels, channel_block), ceil_div(case.out_channels, channel_block)
    sizes = {
        "self": case.batch * case.out_channels * case.output_time,
        "input": case.batch * case.in_channels * case.time,
        "weight": case.out_channels * case.in_channels * case.taps,
    }
    cube = {
        "self": case.batch * out_blocks * channel_block * case.output_time,
        "input": case.batch * in_blocks * channel_block * case.time,
        "weight": in_blocks * case.taps * ceil_div(case.out_channels, CUBE_EDGE) * CUBE_EDGE * channel_block,
    }
    contiguous = {"self": case.self_contiguous, "input": case.input_contiguous, "weight": case.weight_contiguous}
    executor = _Executor()
    for name in ("self", "weight", "input"):
        if not contiguous[name]:
            executor.run("Contiguous", (name,), f"entry copy of {name}", sizes[name] * own)
    if not case.bias_contiguous:
        executor.run("Contiguous", ("bias",), "entry copy of bias", case.out_channels * own)
    transposed = {}
    for name in ("self", "input", "weight"):
        source = name
        if not contiguous[name]:
            source = executor.run("Contiguous", (name,), f"contiguous {name}", sizes[name] * own)
        transposed[name] = executor.run("Transpose", (source,), f"transposed {name}", sizes[name] * own)
    executor.run("ReduceSum", (transposed["self"],))
    laid_out = {}
    for name in ("self", "input", "weight"):
        source = transposed[name]
        if case.converts_to_fp16:
            source = executor.run("Cast", (source,), f"{name} as fp16", sizes[name] * element)
        laid_out[name] = executor.run("TransData", (source,), f"{name} in cube layout", cube[name] * element)
    result = executor.run(
        "gradInput", (laid_out["self"], laid_out["weight"]), "gradInput in cube layout", cube["input"] * element, (_unknown("gradInput"),)
    )
    grad_input = executor.run("TransData", (result,), "gradInput", sizes["input"] * element)
    if case.converts_to_fp16:
        grad_input = executor.run("Cast", (grad_input,), "gradInput in its dtype", sizes["input"] * own)
    operands, size = (laid_out["self"], laid_out["input"]), cube["weight"] * ACCUMULATOR_BYTES
    result = executor.run("gradWeight", operands, "gradWeight in cube layout", size, _weight_kernel_parts(case))
    grad_weight = executor.run("TransData", (result,), "gradWeight in fp32", sizes["weight"] * ACCUMULATOR_BYTES)
    if own != ACCUMULATOR_BYTES:
        grad_weight = executor.run("Cast", (grad_weight,), "gradWeight in its dtype", sizes["weight"] * own)
    executor.run("Transpose", (grad_input,))
    executor.run("Transpose", (grad_weight,))
    return tuple(executor.nodes)


def workspace(case: "Case") -> Workspace:
    """Return size and parts of the workspace."""
    if case.route == ROUTE_MATMUL:
        return Workspace(total_bytes=0, kernel_bytes=0, parts=(_unknown("the matrix products and the tensors between them"),))
    kernel_bytes = case.planner_tiling.workspace_bytes if case.route == ROUTE_PLANNER else 0
    return executor_workspace(executor_nodes(case), kernel_bytes)
