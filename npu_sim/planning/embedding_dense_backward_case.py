"""A checked call of EmbeddingDenseBackward, and what the plans of both its kernels share.

Source: specification pages ``embedding_dense_backward`` and ``workspace``.
"""

from dataclasses import dataclass

from npu_sim.cores import NPU_ARCH_ATLAS_A2, Profile
from npu_sim.plan_model import Allocation, Caveat, Evidence, WorkspacePart
from npu_sim.tiling import embedding_dense_backward as v2
from npu_sim.tiling import embedding_dense_grad as v1
from npu_sim.workspace import KernelNode, TensorArea

INT32_MAX = 2147483647
SORTABLE_INDICES = 2139095040
"""0x7F800000: int32 indices are sorted as if their bits were fp32 (page, "Documented limits")."""
EXACT_COUNT = 16777216
"""2^24: fp32 counters stop here (page, "scale")."""


@dataclass(frozen=True)
class Case:
    """A checked call, reduced to what planning needs."""

    rows: int
    dim: int
    num_weights: int
    padding_idx: int
    scale_grad_by_freq: bool
    grad_dtype: str
    indices_dtype: str
    grad_contiguous: bool
    indices_contiguous: bool
    out_contiguous: bool
    deterministic: bool
    profile: Profile

    @property
    def is_16_bit(self) -> bool:
        """Whether gradient and output have 16 bits an element."""
        return self.grad_dtype != "float32"

    @property
    def needs_cast(self) -> bool:
        """Whether a 16-bit gradient is cast to fp32 before the kernel; the Atlas training kernel always casts."""
        if not self.takes_v2:
            return True
        return v2.needs_cast(self.rows, self.dim, self.num_weights, self.scale_grad_by_freq)

    @property
    def takes_v2(self) -> bool:
        """Whether EmbeddingDenseGradV2 runs, not EmbeddingDenseGrad."""
        in_range = self.rows <= INT32_MAX and self.num_weights <= INT32_MAX
        return self.profile.npu_arch == NPU_ARCH_ATLAS_A2 and in_range

    @property
    def native_16_bit(self) -> bool:
        """Whether the kernel reads 16-bit rows itself."""
        return self.is_16_bit and not self.needs_cast

    @property
    def index_bytes(self) -> int:
        """Bytes of one index as the kernel sees it: EmbeddingDenseGradV2 takes int32, the older kernel int64 too."""
        return 8 if self.indices_dtype == "int64" and not self.takes_v2 else 4

    def v2_problem(self) -> v2.Problem:
        """What EmbeddingDenseGradV2 sees."""
        element_bytes = 2 if self.native_16_bit else 4
        return v2.Problem(self.rows, self.dim, self.num_weights, element_bytes, self.scale_grad_by_freq, self.deterministic)

    def v1_problem(self) -> v1.Problem:
        """What EmbeddingDenseGrad sees."""
        return v1.Problem(self.rows, self.dim, self.num_weights, self.index_bytes, self.scale_grad_by_freq, self.deterministic)


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


def executor_nodes(case: Case, kernel_parts: tuple[WorkspacePart, ...], sorts: bool) -> tuple[KernelNode, ...]:
    """Return the kernels that run, in launch order (page ``workspace``, "EmbeddingDenseBackward")."""
    nodes: list[KernelNode] = []
    grad, indices = "grad", "indices"
    casts = case.is_16_bit and case.needs_cast
    kept_indices = ("int32",) if case.takes_v2 else ("int32", "int64")
    grad_bytes = 2 if case.is_16_bit else 4

    def step(name: str, inputs: tuple[str, ...], *outputs: TensorArea) -> str:
        nodes.append(KernelNode(name=name, inputs=inputs, outputs=outputs))
        return outputs[0].name if outputs else "out"

    if not case.grad_contiguous:
        grad = step("Contiguous", (grad,), TensorArea("contiguous grad", case.rows * case.dim * grad_bytes))
    if casts:
        grad = step("Cast", (grad,), TensorArea("grad as fp32", case.rows * case.dim * 4))
    if not case.indices_contiguous:
        index_size = {"float64": 8, "int64": 8, "int32": 4, "float32": 4, "float16": 2, "int16": 2}.get(case.indices_dtype, 1)
        indices = step("Contiguous", (indices,), TensorArea("contiguous indices", case.rows * index_size))
    if case.indices_dtype not in kept_indices:
        indices = step("Cast", (indices,), TensorArea("indices as int32", case.rows * 4))
    kernel_inputs: tuple[str, ...] = (grad, indices)
    result = TensorArea("result", case.num_weights * case.dim * (2 if case.native_16_bit else 4))
    written = () if not casts and case.out_contiguous else (result,)
    if sorts and case.rows > 1:
        unknown = WorkspacePart(name="workspace of Sort", bytes=0, kind="kernel", evidence=Evidence.UNKNOWN, note="not published")
        areas = (TensorArea("sorted indices", case.rows * 4), TensorArea("positions", case.rows * 4))
        nodes.append(KernelNode(name="Sort", inputs=(indices,), outputs=areas, workspace=(unknown,)))
        kernel_inputs = (grad, "sorted indices", "positions")
    if sorts:
        nodes.append(KernelNode(name="ZerosLike", outputs=written))
        nodes.append(KernelNode(name="EmbeddingDenseGradV2", inputs=(*kernel_inputs, "result"), workspace=kernel_parts))
    else:
        kernel = "EmbeddingDenseGradV2" if case.takes_v2 else "EmbeddingDenseGrad"
        nodes.append(KernelNode(name=kernel, inputs=kernel_inputs, outputs=written, workspace=kernel_parts))
    if casts:
        rounded = TensorArea("result in the dtype of out", case.num_weights * case.dim * 2)
        nodes.append(KernelNode(name="Cast", inputs=("result",), outputs=() if case.out_contiguous else (rounded,)))
    if not case.out_contiguous:
        nodes.append(KernelNode(name="ViewCopy", inputs=(nodes[-1].outputs[0].name if nodes[-1].outputs else "result",)))
    return tuple(nodes)


def caveats_of(case: Case) -> tuple[Caveat, ...]:
    """Return the warnings that depend on the call alone, not on its tiling."""
    caveats = []
    slow = " nor high performance in deterministic mode" if case.deterministic else ""
    if case.profile.npu_arch == NPU_ARCH_ATLAS_A2:
        for code, name, value in (("rows_above_int32", "grad", case.rows), ("weights_above_int32", "num_weights", case.num_weights)):
            if value > INT32_MAX:
                message = f"{name}: {value} exceeds INT32_MAX ({INT32_MAX}): high precision is not guaranteed{slow}"
                caveats.append(Caveat(code=code, argument=name, message=message))
        if case.rows > SORTABLE_INDICES:
            message = f"{case.rows} indices exceed {SORTABLE_INDICES}, beyond which int32 does not sort as fp32: no high performance"
            caveats.append(Caveat(code="indices_above_sortable", argument="indices", message=message))
    if case.scale_grad_by_freq and case.rows > EXACT_COUNT and case.takes_v2:
        message = f"fp32 counters stop at {EXACT_COUNT}; an index that occurs more often is scaled by 1/{EXACT_COUNT}"
        caveats.append(Caveat(code="counter_stops", argument="scale_grad_by_freq", message=message))
    if case.padding_idx >= case.num_weights:
        message = f"padding_idx {case.padding_idx} is beyond num_weights {case.num_weights} and matches nothing"
        caveats.append(Caveat(code="padding_matches_nothing", argument="padding_idx", message=message))
    return tuple(caveats)
