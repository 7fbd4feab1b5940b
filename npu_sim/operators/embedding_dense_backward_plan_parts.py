"""What the plans of both kernels of EmbeddingDenseBackward share: kernels in launch order, buffers, warnings.

Source: specification pages ``embedding_dense_backward`` and ``workspace``.
"""

from npu_sim.cores import NPU_ARCH_A2_A3
from npu_sim.operators.contract.case import Case
from npu_sim.operators.contract.codes import FLOAT32
from npu_sim.operators.embedding_dense_backward_outcome import GRAD, GRAD_V2, INT32_MAX, KERNELS, casts_indices
from npu_sim.plans.answers import Evidence
from npu_sim.plans.model import Allocation, Caveat
from npu_sim.plans.workspace import KernelNode, TensorArea
from npu_sim.plans.workspace_model import WorkspacePart

SORTABLE_INDICES = 2139095040
"""0x7F800000: int32 indices are sorted as if their bits were fp32 (page, "Documented limits")."""
EXACT_COUNT = 16777216
"""2^24: fp32 counters stop here (page, "scale")."""


def spread(shares: list[int], name: str) -> str:
    """Say how evenly something is spread over cores."""
    if len(set(shares)) == 1:
        return f"{shares[0]} {name if shares[0] != 1 else name.removesuffix('s')} each"
    if len(set(shares[:-1])) == 1:
        return f"{shares[0]} {name} each, the last one {shares[-1]}"
    return f"{max(shares)} {name} on {shares.count(max(shares))} cores, {min(shares)} on {shares.count(min(shares))}"


def buffer(name: str, size: int, note: str = "") -> Allocation:
    """Return one allocation of the Unified Buffer."""
    return Allocation(name=name, bytes=size, note=note)


def casts_grad(case: Case) -> bool:
    """Whether a 16-bit gradient is cast to fp32 before the kernel, and its result back."""
    return case.row.grad_dtype != FLOAT32 and not case.tiling.native_16_bit


def executor_nodes(case: Case, kernel_parts: tuple[WorkspacePart, ...], sorts: bool) -> tuple[KernelNode, ...]:
    """Return the kernels that run, in launch order (page ``workspace``, "EmbeddingDenseBackward")."""
    row, outcome, casts = case.row, case.tiling, casts_grad(case)
    nodes: list[KernelNode] = []
    grad = _prepare(nodes, case, "grad", TensorArea("grad as fp32", 4 * row.rows * row.dim) if casts else None)
    as_int32 = TensorArea("indices as int32", 4 * row.rows) if casts_indices(row, keeps_int64=outcome.kernel == GRAD) else None
    indices = _prepare(nodes, case, "indices", as_int32)
    out_elements, out_contiguous = row.num_weights * row.dim, case.specs["out"].contiguous
    result = TensorArea("result", out_elements * outcome.element_bytes)
    written = () if not casts and out_contiguous else (result,)
    kernel_inputs: tuple[str, ...] = (grad, indices)
    if sorts and row.rows > 1:
        unknown = WorkspacePart(name="workspace of Sort", bytes=0, kind="kernel", evidence=Evidence.UNKNOWN, note="not published")
        areas = (TensorArea("sorted indices", 4 * row.rows), TensorArea("positions", 4 * row.rows))
        nodes.append(KernelNode(name="Sort", inputs=(indices,), outputs=areas, workspace=(unknown,)))
        kernel_inputs = (grad, "sorted indices", "positions")
    if sorts:
        nodes.append(KernelNode(name="ZerosLike", outputs=written))
        kernel_inputs, written = (*kernel_inputs, "result"), ()
    nodes.append(KernelNode(name=KERNELS[outcome.kernel], inputs=kernel_inputs, outputs=written, workspace=kernel_parts))
    if casts:
        rounded = TensorArea("result in the dtype of out", 2 * out_elements)
        nodes.append(KernelNode(name="Cast", inputs=("result",), outputs=() if out_contiguous else (rounded,)))
    if not out_contiguous:
        nodes.append(KernelNode(name="ViewCopy", inputs=(nodes[-1].outputs[0].name if nodes[-1].outputs else "result",)))
    return tuple(nodes)


def _prepare(nodes: list[KernelNode], case: Case, name: str, cast: TensorArea | None) -> str:
    """Add the kernels that make an input contiguous and cast it; return the name of what comes out."""
    spec = case.specs[name]
    copy = None if spec.contiguous else TensorArea(f"contiguous {name}", spec.nbytes)
    for kernel, area in (("Contiguous", copy), ("Cast", cast)):
        if area is not None:
            nodes.append(KernelNode(name=kernel, inputs=(name,), outputs=(area,)))
            name = area.name
    return name


def caveats_of(case: Case) -> tuple[Caveat, ...]:
    """Return the warnings that depend on the call alone, not on its tiling."""
    caveats, row = [], case.row
    slow = " nor high performance in deterministic mode" if case.deterministic else ""
    if case.profile.npu_arch == NPU_ARCH_A2_A3:
        for code, name, value in (("rows_above_int32", "grad", row.rows), ("weights_above_int32", "num_weights", row.num_weights)):
            if value > INT32_MAX:
                message = f"{name}: {value} exceeds INT32_MAX ({INT32_MAX}): high precision is not guaranteed{slow}"
                caveats.append(Caveat(code=code, argument=name, message=message))
        if row.rows > SORTABLE_INDICES:
            message = f"{row.rows} indices exceed {SORTABLE_INDICES}, beyond which int32 does not sort as fp32: no high performance"
            caveats.append(Caveat(code="indices_above_sortable", argument="indices", message=message))
    if row.scale_grad_by_freq and row.rows > EXACT_COUNT and case.tiling.kernel == GRAD_V2:
        message = f"fp32 counters stop at {EXACT_COUNT}; an index that occurs more often is scaled by 1/{EXACT_COUNT}"
        caveats.append(Caveat(code="counter_stops", argument="scale_grad_by_freq", message=message))
    if row.padding_idx >= row.num_weights:
        message = f"padding_idx {row.padding_idx} is beyond num_weights {row.num_weights} and matches nothing"
        caveats.append(Caveat(code="padding_matches_nothing", argument="padding_idx", message=message))
    return tuple(caveats)
