"""The plan of EmbeddingDenseBackward: which kernels run, how they are tiled, and why.

Source: specification pages ``embedding_dense_backward`` and ``workspace``.
"""

from typing import Any

from npu_sim.framework.case import Case
from npu_sim.framework.codes import FLOAT32
from npu_sim.framework.describing import spread
from npu_sim.operators.embedding_dense_backward import grad_plan as older
from npu_sim.operators.embedding_dense_backward.outcome import (
    CAST_LIMIT_BYTES,
    CAST_LIMIT_ROWS,
    GRAD_V2,
    needs_cast,
    rows_per_flush,
)
from npu_sim.operators.embedding_dense_backward.plan_parts import buffer, caveats_of, launches_of
from npu_sim.plans.model import Allocation, Caveat, CoreWork, Decision, Flip, Memory, OutputOrder
from npu_sim.plans.workspace import executor_workspace
from npu_sim.plans.workspace_model import WorkspacePart
from npu_sim.tiling import embedding_dense_backward as v2
from npu_sim.tiling.common import align, ceil_div

CAST_EFFECT = "the kernel sees fp32 and the result is rounded once at the end"


def describe(case: Case) -> dict[str, Any]:
    """Return the fields of the plan that depend on the case, which has a tiling."""
    return (
        _describe_v2(case, case.tiling.tiling)
        if case.tiling.kernel == GRAD_V2
        else older.describe(case)
    )


def _describe_v2(case: Case, tiling: v2.Tiling) -> dict[str, Any]:
    key = tiling.tiling_key
    launches = launches_of(case, _kernel_parts(case, tiling), tiling.block_dim, sorts=key < 100)
    ranges = [v2.row_range(tiling, core) for core in range(tiling.block_dim)]
    row_name = "row" if key >= 100 else "sorted row"
    return {
        "kernel": "EmbeddingDenseGradV2",
        "path": _path(case, key),
        "path_reason": _path_reason(case, key),
        "tiling_key": key,
        "schedule_mode": tiling.schedule_mode if tiling.schedule_mode == 1 else None,
        "block_dim": tiling.block_dim,
        "cores_note": spread([stop - start for start, stop in ranges], row_name),
        "per_core": _per_core(tiling),
        "tiling": v2.vendor_structure(tiling, case.row.padding_idx, case.rules),
        "cores": lambda: tuple(
            _work(case, tiling, core, {f"{row_name}s": rows}) for core, rows in enumerate(ranges)
        ),
        "memories": lambda: _memories(case, tiling),
        "decisions": lambda: _decisions(case, key),
        "workspace": executor_workspace(launches, tiling.workspace_bytes),
        "launches": launches,
        "order": (_order(case, tiling),),
        "caveats": (*caveats_of(case), *_offset_caveats(case, key)),
    }


def _work(case: Case, tiling: v2.Tiling, core: int, ranges: dict[str, tuple[int, int]]) -> CoreWork:
    weights = {"weight rows": v2.weight_range(tiling, core)} if case.row.scale_grad_by_freq else {}
    return CoreWork(core=core, ranges=ranges | weights)


def _offset_caveats(case: Case, key: int) -> tuple[Caveat, ...]:
    """Warn where the release computes the place of a row in too few bits (page ``releases``, "Warnings a plan gives")."""
    row, elements = case.row, 1 << case.rules.row_offset_bits
    if key < 100 or row.num_weights * row.dim <= elements:
        return ()
    message = (
        f"release {case.profile.release} computes index * dim in {case.rules.row_offset_bits} bits: rows from index "
        f"{ceil_div(elements, row.dim)} on, {elements} elements into the result, go to another row; "
        "the simulator computes as if they did not"
    )
    return (Caveat(code="small_dim_offset_wraps", argument="num_weights", message=message),)


def _path(case: Case, key: int) -> str:
    scale = ", then scaled by frequency" if case.row.scale_grad_by_freq else ""
    if key >= 100:
        return f"small dim, rows added unsorted{scale}"
    if key >= 10:
        return f"sorted, deterministic{scale}"
    if case.tiling.native_16_bit:
        return "sorted, native 16-bit"
    return f"sorted, atomic chunks of {rows_per_flush(key, case.rules)} rows{scale}"


def _path_reason(case: Case, key: int) -> str:
    if key >= 100:
        return f"dim {case.row.dim} <= {v2.SMALL_DIM_LIMIT} and numWeights {case.row.num_weights} <= {v2.SMALL_DIM_WEIGHTS}"
    if case.deterministic:
        return "deterministic computation is on"
    if case.row.dim > v2.SMALL_DIM_LIMIT:
        return f"dim {case.row.dim} > {v2.SMALL_DIM_LIMIT}"
    return f"numWeights {case.row.num_weights} > {v2.SMALL_DIM_WEIGHTS}"


def _per_core(tiling: v2.Tiling) -> str:
    if tiling.tiling_key >= 100:
        small = tiling.small_dim
        batch = min(small.max_row_in_ub, small.tail_copy_row)
        times = small.tail_copy_time
        return (
            f"{times} batches of up to {batch} rows" if times > 1 else f"one batch of {batch} rows"
        )
    if tiling.dim > tiling.former_dim:
        return f"rows in pieces of {tiling.former_dim} columns ({tiling.former_dim_rep_time}, tail {tiling.tail_dim})"
    return f"one row of {tiling.dim} columns at a time"


def _memories(case: Case, tiling: v2.Tiling) -> tuple[Memory, ...]:
    capacity = case.device.ub_bytes
    main = (
        _small_dim_buffers(case, tiling)
        if tiling.tiling_key >= 100
        else _sorted_buffers(case, tiling)
    )
    phase = "rows" if case.row.scale_grad_by_freq else ""
    memories = [Memory(name="UB", phase=phase, capacity_bytes=capacity, allocations=main)]
    if case.row.scale_grad_by_freq:
        row_bytes = align(tiling.former_dim, 8) * 4
        scale = (buffer("row in", row_bytes), buffer("counter", 32), buffer("row out", row_bytes))
        memories.append(
            Memory(name="UB", phase="scale", capacity_bytes=capacity, allocations=scale)
        )
    return tuple(memories)


def _sorted_buffers(case: Case, tiling: v2.Tiling) -> tuple[Allocation, ...]:
    columns = align(
        tiling.former_dim, v2.ALIGNED_LANES if tiling.tiling_key >= 10 else case.rules.dim_granule
    )
    row_bytes = columns * 4
    buffers = [buffer("sorted index", 32), buffer("position", 32), buffer("frequency", 32)]
    buffers += [buffer("gradient row", row_bytes), buffer("accumulators", 2 * row_bytes, "two")]
    if case.tiling.native_16_bit:
        buffers.append(buffer("cache row", row_bytes, "second accumulator in fp32"))
    return tuple(buffers)


def _small_dim_buffers(case: Case, tiling: v2.Tiling) -> tuple[Allocation, ...]:
    copy_row = min(tiling.small_dim.max_row_in_ub, tiling.small_dim.tail_copy_row)
    columns = align(case.row.dim, 16 if case.tiling.native_16_bit else 8)
    indices = align(copy_row, 32)
    return (
        buffer("indices", 4 * indices),
        buffer("positions", 4 * indices),
        buffer("indices as fp32", 4 * indices),
        buffer("sort scratch", 12 * indices),
        buffer("sort result", 12 * indices),
        buffer("gradient rows", align(columns * copy_row, case.rules.small_dim_granule) * 4),
        buffer("accumulator", 4 * case.row.dim),
    )


def _decisions(case: Case, key: int) -> tuple[Decision, ...]:
    decisions = []
    if case.row.grad_dtype != FLOAT32:
        decisions.append(_cast_decision(case))
    decisions.append(_small_dim_decision(case, key >= 100))
    decisions.append(_deterministic_decision(case, key))
    return tuple(decisions)


def _deterministic_decision(case: Case, key: int) -> Decision:
    outcome = key in (10, 11)
    if outcome:
        effect = "a run of equal indices belongs to the core where it starts"
    elif case.tiling.native_16_bit and key == 0:
        effect = "native 16-bit is fixed by itself: the slots of every core are summed in order"
    else:
        effect = "every core adds its sums where it finds them"
    return Decision(
        name="deterministic kernel",
        condition="deterministic and the kernel sees fp32",
        values={
            "deterministic": case.deterministic,
            "kernel sees": "16-bit" if case.tiling.native_16_bit else "fp32",
        },
        outcome=outcome,
        effect=effect,
        flips=()
        if case.tiling.native_16_bit
        else (Flip(argument="deterministic", value=str(not case.deterministic).lower()),),
    )


def _cast_decision(case: Case) -> Decision:
    row, casts = case.row, needs_cast(case.row)
    if not case.rules.kernel_takes_16_bit:
        return Decision(
            name="cast to fp32",
            condition="the kernel of this release takes fp32 only",
            values={"release": case.profile.release},
            outcome=True,
            effect=CAST_EFFECT,
        )
    if casts:
        rows = max(ceil_div(CAST_LIMIT_BYTES // 2, row.dim) - row.num_weights, CAST_LIMIT_ROWS)
    else:
        rows = max((CAST_LIMIT_BYTES // 2 - 1) // row.dim - row.num_weights, CAST_LIMIT_ROWS - 1)
    return Decision(
        name="cast to fp32",
        condition=f"(numel(grad) + numel(out)) * 2 < {CAST_LIMIT_BYTES} or rows < {CAST_LIMIT_ROWS} or scaleGradByFreq",
        values={
            "(numel(grad) + numel(out)) * 2": (row.rows + row.num_weights) * row.dim * 2,
            "rows": row.rows,
            "scaleGradByFreq": bool(row.scale_grad_by_freq),
        },
        outcome=casts,
        effect=CAST_EFFECT if casts else "the kernel reads 16-bit rows itself",
        flips=() if row.scale_grad_by_freq else (Flip(argument="rows", value=rows),),
    )


def _small_dim_decision(case: Case, outcome: bool) -> Decision:
    flips = []
    if outcome:
        flips = [
            Flip(argument="dim", value=v2.SMALL_DIM_LIMIT + 1),
            Flip(argument="numWeights", value=v2.SMALL_DIM_WEIGHTS + 1),
        ]
        flips.append(Flip(argument="deterministic", value="true"))
    elif (
        case.deterministic
        and case.row.dim <= v2.SMALL_DIM_LIMIT
        and case.row.num_weights <= v2.SMALL_DIM_WEIGHTS
    ):
        flips = [Flip(argument="deterministic", value="false")]
    elif not case.deterministic and case.row.num_weights <= v2.SMALL_DIM_WEIGHTS:
        flips = [Flip(argument="dim", value=v2.SMALL_DIM_LIMIT)]
    elif not case.deterministic and case.row.dim <= v2.SMALL_DIM_LIMIT:
        flips = [Flip(argument="numWeights", value=v2.SMALL_DIM_WEIGHTS)]
    return Decision(
        name="small dim",
        condition=f"not deterministic and dim <= {v2.SMALL_DIM_LIMIT} and numWeights <= {v2.SMALL_DIM_WEIGHTS}",
        values={
            "deterministic": case.deterministic,
            "dim": case.row.dim,
            "numWeights": case.row.num_weights,
        },
        outcome=outcome,
        effect="rows are added in batches without sorting them first"
        if outcome
        else "indices are sorted first",
        flips=tuple(flips),
    )


def _kernel_parts(case: Case, tiling: v2.Tiling) -> tuple[WorkspacePart, ...]:
    parts = [WorkspacePart(name="system", bytes=case.device.system_workspace_bytes, kind="system")]
    if case.row.scale_grad_by_freq:
        parts.append(
            WorkspacePart(
                name="frequency counters",
                bytes=case.rules.counter_bytes * tiling.scale_workspace_length,
                kind="kernel",
            )
        )
    if case.tiling.native_16_bit and tiling.tiling_key >= 100:
        parts.append(
            WorkspacePart(
                name="fp32 copy of out", bytes=4 * tiling.out_casted_workspace_length, kind="kernel"
            )
        )
    elif case.tiling.native_16_bit:
        parts.append(
            WorkspacePart(
                name="stage rows", bytes=4 * tiling.out_stage_workspace_length, kind="kernel"
            )
        )
        parts.append(
            WorkspacePart(
                name="stage indices", bytes=4 * tiling.out_index_workspace_length, kind="kernel"
            )
        )
    return tuple(parts)


def _order(case: Case, tiling: v2.Tiling) -> OutputOrder:
    key, fixed = tiling.tiling_key, True
    if key in (10, 11):
        reason = "every run of equal indices is summed by the core where it starts"
    elif case.tiling.native_16_bit and key == 0:
        reason = "every core stages its first and last index; the slots are summed in core order"
    elif tiling.block_dim == 1:
        reason = "one core does all the work"
    else:
        what, fixed = (
            "index occurs in the rows of" if key >= 100 else "run of equal indices reaches",
            False,
        )
        reason = f"a row depends on timing when its {what} two cores or more, which add atomically"
    return OutputOrder(output="grad_weight", fixed=fixed, reason=reason)
