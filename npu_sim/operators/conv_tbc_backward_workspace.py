"""Workspace of ConvTbcBackward: the tensors between its kernels (specification page ``workspace``)."""

from npu_sim.operators.contract.case import Case
from npu_sim.operators.conv_tbc_backward_math import converts_to_fp16
from npu_sim.plans.answers import Evidence
from npu_sim.plans.workspace import KernelNode, TensorArea, executor_workspace
from npu_sim.plans.workspace_model import Workspace, WorkspacePart
from npu_sim.tiling.conv_tbc_backward import problem_of
from npu_sim.tiling.conv_tbc_problem import CHANNEL_BLOCK_BYTES, CUBE_EDGE, ROUTE_MATMUL, ROUTE_PLANNER
from npu_sim.tiling.integers import ceil_div

ACCUMULATOR_BYTES = 4
ENTRY_ORDER = ("self", "weight", "input", "bias")
OPERANDS = ("self", "input", "weight")


def _unknown(name: str) -> WorkspacePart:
    return WorkspacePart(name=f"workspace of {name}", bytes=0, kind="kernel", evidence=Evidence.UNKNOWN, note="not published")


def _weight_kernel_parts(case: Case) -> tuple[WorkspacePart, ...]:
    if case.tiling.route != ROUTE_PLANNER:
        return (_unknown("gradWeight"),)
    system = case.device.system_workspace_bytes
    parts = [WorkspacePart(name="system", bytes=system, kind="system")]
    if case.tiling.published.stream_k:
        slots = case.tiling.workspace_bytes - system
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


def executor_nodes(case: Case) -> tuple[KernelNode, ...]:
    """Return the kernels that run, in launch order (page ``workspace``, "ConvTbcBackward")."""
    row, converts = case.row, converts_to_fp16(case)
    given = {one.parameter: case.specs[one.name] for one in case.operator.inputs}
    own, element = given["self"].itemsize, problem_of(row, case.rules).element_bytes
    channel_block = CHANNEL_BLOCK_BYTES // element
    in_blocks, out_blocks = ceil_div(row.Cin, channel_block), ceil_div(row.Cout, channel_block)
    sizes = {name: spec.numel for name, spec in given.items()}
    cube = {
        "self": row.B * out_blocks * channel_block * row.To,
        "input": row.B * in_blocks * channel_block * row.T,
        "weight": in_blocks * row.K * ceil_div(row.Cout, CUBE_EDGE) * CUBE_EDGE * channel_block,
    }
    executor = _Executor()
    for name in ENTRY_ORDER:
        if not given[name].contiguous:
            executor.run("Contiguous", (name,), f"entry copy of {name}", given[name].nbytes)
    transposed = {}
    for name in OPERANDS:
        source = name
        if not given[name].contiguous:
            source = executor.run("Contiguous", (name,), f"contiguous {name}", given[name].nbytes)
        transposed[name] = executor.run("Transpose", (source,), f"transposed {name}", given[name].nbytes)
    executor.run("ReduceSum", (transposed["self"],))
    laid_out = {}
    for name in OPERANDS:
        source = transposed[name]
        if converts:
            source = executor.run("Cast", (source,), f"{name} as fp16", sizes[name] * element)
        laid_out[name] = executor.run("TransData", (source,), f"{name} in cube layout", cube[name] * element)
    result = executor.run(
        "gradInput", (laid_out["self"], laid_out["weight"]), "gradInput in cube layout", cube["input"] * element, (_unknown("gradInput"),)
    )
    grad_input = executor.run("TransData", (result,), "gradInput", sizes["input"] * element)
    if converts:
        grad_input = executor.run("Cast", (grad_input,), "gradInput in its dtype", sizes["input"] * own)
    operands, size = (laid_out["self"], laid_out["input"]), cube["weight"] * ACCUMULATOR_BYTES
    result = executor.run("gradWeight", operands, "gradWeight in cube layout", size, _weight_kernel_parts(case))
    grad_weight = executor.run("TransData", (result,), "gradWeight in fp32", sizes["weight"] * ACCUMULATOR_BYTES)
    if own != ACCUMULATOR_BYTES:
        grad_weight = executor.run("Cast", (grad_weight,), "gradWeight in its dtype", sizes["weight"] * own)
    executor.run("Transpose", (grad_input,))
    executor.run("Transpose", (grad_weight,))
    return tuple(executor.nodes)


def workspace(case: Case) -> Workspace:
    """Return size and parts of the workspace."""
    if case.tiling.route == ROUTE_MATMUL:
        return Workspace(total_bytes=0, kernel_bytes=0, parts=(_unknown("the matrix products and the tensors between them"),))
    return executor_workspace(executor_nodes(case), case.tiling.workspace_bytes)
