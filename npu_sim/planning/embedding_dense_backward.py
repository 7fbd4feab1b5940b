"""The plan of EmbeddingDenseBackward: which kernels run, how they are tiled, and why.

Source: specification pages ``embedding_dense_backward`` and ``workspace``.
"""

from dataclasses import dataclass
from typing import Any

from npu_sim.cores import NPU_ARCH_ATLAS_A2, Profile
from npu_sim.plan_model import Allocation, Caveat, CoreWork, Decision, Evidence, Flip, Memory, OutputOrder, Workspace, WorkspacePart
from npu_sim.tiling import embedding_dense_backward as v2
from npu_sim.tiling import embedding_dense_grad as v1
from npu_sim.tiling.integers import align, ceil_div
from npu_sim.workspace import KernelNode, TensorArea, executor_workspace

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


def plan_fields(case: Case) -> dict[str, Any]:
    """Return the fields of the plan that depend on the case; the case has rows, columns and (with scale) weights."""
    return _v2_fields(case, v2.tile(case.v2_problem(), case.profile.device)) if case.takes_v2 else _v1_fields(case)


def _v2_fields(case: Case, tiling: v2.Tiling) -> dict[str, Any]:
    key = tiling.tiling_key
    small_dim = key >= 100
    ranges = [v2.row_range(tiling, core) for core in range(tiling.block_dim)]
    row_name = "rows" if small_dim else "sorted rows"
    cores = []
    for core, rows in enumerate(ranges):
        work = {row_name: rows}
        if case.scale_grad_by_freq:
            work["weight rows"] = v2.weight_range(tiling, core)
        cores.append(CoreWork(core=core, ranges=work))
    return {
        "kernel": "EmbeddingDenseGradV2",
        "path": _v2_path(case, key),
        "path_reason": _small_dim_reason(case, small_dim),
        "tiling_key": key,
        "schedule_mode": tiling.schedule_mode if tiling.schedule_mode == 1 else None,
        "block_dim": tiling.block_dim,
        "cores_note": _spread([stop - start for start, stop in ranges], row_name),
        "per_core": _v2_per_core(tiling),
        "tiling": v2.vendor_fields(tiling, case.padding_idx),
        "cores": tuple(cores),
        "memories": _v2_memories(case, tiling),
        "decisions": _v2_decisions(case, key),
        "workspace": _v2_workspace(case, tiling),
        "order": (_v2_order(case, tiling),),
        "caveats": _caveats(case),
        "evidence": Evidence.EXACT,
    }


def _v2_path(case: Case, key: int) -> str:
    scale = ", then scaled by frequency" if case.scale_grad_by_freq else ""
    if key >= 100:
        return f"small dim, rows added unsorted{scale}"
    if key >= 10:
        return f"sorted, deterministic{scale}"
    return "sorted, native 16-bit" if case.native_16_bit else f"sorted, atomic chunks of 11 rows{scale}"


def _small_dim_reason(case: Case, small_dim: bool) -> str:
    if small_dim:
        return f"dim {case.dim} <= {v2.SMALL_DIM_LIMIT} and numWeights {case.num_weights} <= {v2.SMALL_DIM_WEIGHTS}"
    if case.deterministic:
        return "deterministic computation is on"
    if case.dim > v2.SMALL_DIM_LIMIT:
        return f"dim {case.dim} > {v2.SMALL_DIM_LIMIT}"
    return f"numWeights {case.num_weights} > {v2.SMALL_DIM_WEIGHTS}"


def _spread(shares: list[int], name: str) -> str:
    """Say how evenly something is spread over cores."""
    if len(set(shares)) == 1:
        return f"{shares[0]} {name if shares[0] != 1 else name.removesuffix('s')} each"
    if len(set(shares[:-1])) == 1:
        return f"{shares[0]} {name} each, the last one {shares[-1]}"
    return f"{max(shares)} {name} on {shares.count(max(shares))} cores, {min(shares)} on {shares.count(min(shares))}"


def _v2_per_core(tiling: v2.Tiling) -> str:
    if tiling.tiling_key >= 100:
        small = tiling.small_dim
        batch = min(small.max_row_in_ub, small.tail_copy_row)
        times = small.tail_copy_time
        return f"{times} batches of up to {batch} rows" if times > 1 else f"one batch of {batch} rows"
    if tiling.dim > tiling.former_dim:
        return f"rows in pieces of {tiling.former_dim} columns ({tiling.former_dim_rep_time}, tail {tiling.tail_dim})"
    return f"one row of {tiling.dim} columns at a time"


def _v2_memories(case: Case, tiling: v2.Tiling) -> tuple[Memory, ...]:
    capacity = case.profile.device.ub_bytes
    main = _small_dim_buffers(case, tiling) if tiling.tiling_key >= 100 else _sorted_buffers(case, tiling)
    phase = "rows" if case.scale_grad_by_freq else ""
    memories = [Memory(name="UB", phase=phase, capacity_bytes=capacity, allocations=main)]
    if case.scale_grad_by_freq:
        row_bytes = align(tiling.former_dim, 8) * 4
        scale = (_buffer("row in", row_bytes), _buffer("counter", 32), _buffer("row out", row_bytes))
        memories.append(Memory(name="UB", phase="scale", capacity_bytes=capacity, allocations=scale))
    return tuple(memories)


def _sorted_buffers(case: Case, tiling: v2.Tiling) -> tuple[Allocation, ...]:
    columns = align(tiling.former_dim, 8 if tiling.tiling_key >= 10 else 16)
    row_bytes = columns * 4
    buffers = [_buffer("sorted index", 32), _buffer("position", 32), _buffer("frequency", 32)]
    buffers += [_buffer("gradient row", row_bytes), _buffer("accumulators", 2 * row_bytes, "two")]
    if case.native_16_bit:
        buffers.append(_buffer("cache row", row_bytes, "second accumulator in fp32"))
    return tuple(buffers)


def _small_dim_buffers(case: Case, tiling: v2.Tiling) -> tuple[Allocation, ...]:
    copy_row = min(tiling.small_dim.max_row_in_ub, tiling.small_dim.tail_copy_row)
    columns = align(case.dim, 16 if case.native_16_bit else 8)
    indices = align(copy_row, 32)
    return (
        _buffer("indices", 4 * indices),
        _buffer("positions", 4 * indices),
        _buffer("indices as fp32", 4 * indices),
        _buffer("sort scratch", 12 * indices),
        _buffer("sort result", 12 * indices),
        _buffer("gradient rows", align(columns * copy_row, 16) * 4),
        _buffer("accumulator", 4 * case.dim),
    )


def _buffer(name: str, size: int, note: str = "") -> Allocation:
    return Allocation(name=name, bytes=size, note=note)


def _v2_decisions(case: Case, key: int) -> tuple[Decision, ...]:
    decisions = []
    if case.is_16_bit:
        decisions.append(_cast_decision(case))
    decisions.append(_small_dim_decision(case, key >= 100))
    decisions.append(_deterministic_decision(case, key))
    return tuple(decisions)


def _deterministic_decision(case: Case, key: int) -> Decision:
    outcome = key in (10, 11)
    if outcome:
        effect = "a run of equal indices belongs to the core where it starts"
    elif case.native_16_bit and key == 0:
        effect = "native 16-bit is fixed by itself: the slots of every core are summed in order"
    else:
        effect = "every core adds its sums where it finds them"
    return Decision(
        name="deterministic kernel",
        condition="deterministic and the kernel sees fp32",
        values={"deterministic": case.deterministic, "kernel sees": "16-bit" if case.native_16_bit else "fp32"},
        outcome=outcome,
        effect=effect,
        flips=() if case.native_16_bit else (Flip(argument="deterministic", value=str(not case.deterministic).lower()),),
    )


def _cast_decision(case: Case) -> Decision:
    size = (case.rows * case.dim + case.num_weights * case.dim) * 2
    if case.scale_grad_by_freq:
        flips: tuple[Flip, ...] = ()
    elif case.needs_cast:
        rows = max(ceil_div(v2.CAST_LIMIT_BYTES // 2, case.dim) - case.num_weights, v2.CAST_LIMIT_ROWS)
        flips = (Flip(argument="rows", value=rows),)
    else:
        rows = (v2.CAST_LIMIT_BYTES // 2 - 1) // case.dim - case.num_weights
        flips = (Flip(argument="rows", value=max(rows, v2.CAST_LIMIT_ROWS - 1)),)
    return Decision(
        name="cast to fp32",
        condition="(numel(grad) + numel(out)) * 2 < 104857600 or rows < 512 or scaleGradByFreq",
        values={"(numel(grad) + numel(out)) * 2": size, "rows": case.rows, "scaleGradByFreq": case.scale_grad_by_freq},
        outcome=case.needs_cast,
        effect="the kernel sees fp32 and the result is rounded once at the end"
        if case.needs_cast
        else "the kernel reads 16-bit rows itself",
        flips=flips,
    )


def _small_dim_decision(case: Case, outcome: bool) -> Decision:
    flips = []
    if outcome:
        flips = [Flip(argument="dim", value=v2.SMALL_DIM_LIMIT + 1), Flip(argument="numWeights", value=v2.SMALL_DIM_WEIGHTS + 1)]
        flips.append(Flip(argument="deterministic", value="true"))
    elif case.deterministic and case.dim <= v2.SMALL_DIM_LIMIT and case.num_weights <= v2.SMALL_DIM_WEIGHTS:
        flips = [Flip(argument="deterministic", value="false")]
    elif not case.deterministic and case.num_weights <= v2.SMALL_DIM_WEIGHTS:
        flips = [Flip(argument="dim", value=v2.SMALL_DIM_LIMIT)]
    elif not case.deterministic and case.dim <= v2.SMALL_DIM_LIMIT:
        flips = [Flip(argument="numWeights", value=v2.SMALL_DIM_WEIGHTS)]
    return Decision(
        name="small dim",
        condition=f"not deterministic and dim <= {v2.SMALL_DIM_LIMIT} and numWeights <= {v2.SMALL_DIM_WEIGHTS}",
        values={"deterministic": case.deterministic, "dim": case.dim, "numWeights": case.num_weights},
        outcome=outcome,
        effect="rows are added in batches without sorting them first" if outcome else "indices are sorted first",
        flips=tuple(flips),
    )


def _v2_kernel_parts(case: Case, tiling: v2.Tiling) -> tuple[WorkspacePart, ...]:
    parts = [WorkspacePart(name="system", bytes=case.profile.device.system_workspace_bytes, kind="system")]
    if case.scale_grad_by_freq:
        parts.append(WorkspacePart(name="frequency counters", bytes=4 * tiling.scale_workspace_length, kind="kernel"))
    if case.native_16_bit and tiling.tiling_key >= 100:
        parts.append(WorkspacePart(name="fp32 copy of out", bytes=4 * tiling.out_casted_workspace_length, kind="kernel"))
    elif case.native_16_bit:
        parts.append(WorkspacePart(name="stage rows", bytes=4 * tiling.out_stage_workspace_length, kind="kernel"))
        parts.append(WorkspacePart(name="stage indices", bytes=4 * tiling.out_index_workspace_length, kind="kernel"))
    return tuple(parts)


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


def _v2_workspace(case: Case, tiling: v2.Tiling) -> Workspace:
    nodes = executor_nodes(case, _v2_kernel_parts(case, tiling), sorts=tiling.tiling_key < 100)
    return executor_workspace(nodes, tiling.workspace_bytes)


def _v2_order(case: Case, tiling: v2.Tiling) -> OutputOrder:
    key = tiling.tiling_key
    if key in (10, 11):
        return OutputOrder(
            output="grad_weight", deterministic=True, reason="every run of equal indices is summed by the core where it starts"
        )
    if case.native_16_bit and key == 0:
        reason = "every core stages its first and last index; the slots are summed in core order"
        return OutputOrder(output="grad_weight", deterministic=True, reason=reason)
    if tiling.block_dim == 1:
        return OutputOrder(output="grad_weight", deterministic=True, reason="one core does all the work")
    what = "index occurs in the rows of" if key >= 100 else "run of equal indices reaches"
    return OutputOrder(
        output="grad_weight", deterministic=False, reason=f"a row depends on timing when its {what} two cores or more, which add atomically"
    )


def _v1_fields(case: Case) -> dict[str, Any]:
    tiling = v1.tile(case.v1_problem(), case.profile.device)
    total = case.num_weights if tiling.splits_weights else case.rows
    name = "weight rows" if tiling.splits_weights else "rows"
    ranges = [v1.split_range(tiling, total, core) for core in range(tiling.block_dim)]
    pieces = f", each row in {tiling.dim_pieces} pieces of {tiling.dim_piece} columns" if tiling.dim_pieces > 1 else ""
    return {
        "kernel": "EmbeddingDenseGrad",
        "path": "counted, weight rows split" if tiling.splits_weights else "atomic rows",
        "path_reason": _v1_reason(case, tiling),
        "block_dim": tiling.block_dim,
        "cores_note": _spread([stop - start for start, stop in ranges], name),
        "per_core": f"{tiling.batch_rows} rows in the Unified Buffer at a time{pieces}",
        "tiling": tiling._asdict(),
        "cores": tuple(CoreWork(core=core, ranges={name: rows}) for core, rows in enumerate(ranges)),
        "memories": (_v1_memory(case, tiling),),
        "decisions": _v1_decisions(case, tiling),
        "workspace": executor_workspace(executor_nodes(case, (), sorts=False), 0),
        "order": (_v1_order(case, tiling),),
        "caveats": (*_caveats(case), *_v1_caveats(case, tiling)),
        "evidence": Evidence.MODEL,
    }


def _v1_reason(case: Case, tiling: v1.Tiling) -> str:
    if tiling.splits_weights:
        return "scaleGradByFreq: every core counts and adds the rows of its own weights"
    if case.deterministic and case.rows > 1:
        return "deterministic computation is on: one core"
    return "every row is added to its weight by itself"


def _v1_memory(case: Case, tiling: v1.Tiling) -> Memory:
    buffers = [_buffer("indices", align(case.index_bytes * tiling.batch_rows, 32))]
    if tiling.splits_weights and tiling.counters_fit:
        buffers.append(_buffer("counters", case.index_bytes * tiling.counters))
    buffers.append(_buffer("gradient rows", 4 * tiling.dim_piece * tiling.batch_rows))
    if tiling.splits_weights:
        buffers.append(_buffer("accumulator row", 4 * tiling.dim_piece))
    fits = tiling.counters_fit == 1
    return Memory(
        name="UB",
        capacity_bytes=case.profile.device.ub_bytes,
        allocations=tuple(buffers),
        evidence=Evidence.MODEL if fits else Evidence.UNKNOWN,
    )


def _v1_decisions(case: Case, tiling: v1.Tiling) -> tuple[Decision, ...]:
    decisions = []
    if case.profile.npu_arch == NPU_ARCH_ATLAS_A2:
        values: dict[str, int | float | str | bool] = {"rows": case.rows, "numWeights": case.num_weights}
        flip = Flip(argument="rows" if case.rows > INT32_MAX else "numWeights", value=INT32_MAX)
        decisions.append(
            Decision(
                name="beyond INT32_MAX",
                condition=f"rows > {INT32_MAX} or numWeights > {INT32_MAX}",
                values=values,
                outcome=True,
                effect="EmbeddingDenseGrad runs instead of EmbeddingDenseGradV2",
                flips=(flip,),
            )
        )
    decisions.append(
        Decision(
            name="scale by frequency",
            condition="scaleGradByFreq",
            values={"scaleGradByFreq": case.scale_grad_by_freq},
            outcome=case.scale_grad_by_freq,
            effect="weight rows are split over cores" if tiling.splits_weights else "gradient rows are split over cores",
            flips=(Flip(argument="scaleGradByFreq", value=str(not case.scale_grad_by_freq).lower()),),
        )
    )
    return tuple(decisions)


def _v1_order(case: Case, tiling: v1.Tiling) -> OutputOrder:
    if tiling.splits_weights:
        return OutputOrder(
            output="grad_weight", deterministic=True, reason="every weight row belongs to one core, which adds in index order"
        )
    if tiling.block_dim == 1:
        return OutputOrder(output="grad_weight", deterministic=True, reason="one core adds all rows in index order")
    reason = "a row depends on timing when its index occurs in the rows of two cores or more, which add atomically"
    return OutputOrder(output="grad_weight", deterministic=False, reason=reason)


def _v1_caveats(case: Case, tiling: v1.Tiling) -> tuple[Caveat, ...]:
    caveats = []
    if tiling.dim_pieces > 1:
        message = f"dim {case.dim} is too long for the Unified Buffer and is split into {tiling.dim_pieces} pieces (model, not published)"
        caveats.append(Caveat(code="dim_split", argument="grad", message=message))
    if not tiling.counters_fit:
        message = f"{tiling.counters} counters do not fit the Unified Buffer; how the product keeps them is not published"
        caveats.append(Caveat(code="counters_layout_unknown", argument="num_weights", message=message))
    return tuple(caveats)


def _caveats(case: Case) -> tuple[Caveat, ...]:
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
