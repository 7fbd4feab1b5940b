"""The plan of EmbeddingDenseGrad, the kernel of the Atlas training series, and of A2/A3 beyond INT32_MAX.

Source: specification pages ``embedding_dense_backward`` and ``workspace``.
"""

from typing import Any

from npu_sim.cores import NPU_ARCH_A2_A3
from npu_sim.framework.case import Case
from npu_sim.framework.describing import spread
from npu_sim.operators.embedding_dense_backward.outcome import INT32_MAX, older_index_bytes
from npu_sim.operators.embedding_dense_backward.plan_parts import buffer, caveats_of, launches_of
from npu_sim.plans.answers import Evidence
from npu_sim.plans.model import Caveat, CoreWork, Decision, Flip, Memory, OutputOrder
from npu_sim.plans.workspace import executor_workspace
from npu_sim.tiling import embedding_dense_grad as v1
from npu_sim.tiling.common import align


def describe(case: Case) -> dict[str, Any]:
    """Return the fields of the plan that depend on the case, which this kernel computes."""
    tiling = case.tiling.older
    launches = launches_of(case, (), tiling.block_dim, sorts=False)
    total = case.row.num_weights if tiling.splits_weights else case.row.rows
    name = "weight row" if tiling.splits_weights else "row"
    ranges = [v1.split_range(tiling, total, core) for core in range(tiling.block_dim)]
    pieces = (
        f", each row in {tiling.dim_pieces} pieces of {tiling.dim_piece} columns"
        if tiling.dim_pieces > 1
        else ""
    )
    return {
        "kernel": "EmbeddingDenseGrad",
        "path": "counted, weight rows split" if tiling.splits_weights else "atomic rows",
        "path_reason": _reason(case, tiling),
        "block_dim": tiling.block_dim,
        "cores_note": spread([stop - start for start, stop in ranges], name),
        "per_core": f"{tiling.batch_rows} rows in the Unified Buffer at a time{pieces}",
        "tiling": tiling._asdict(),
        "cores": lambda: tuple(
            CoreWork(core=core, ranges={f"{name}s": rows}) for core, rows in enumerate(ranges)
        ),
        "memories": lambda: (_memory(case, tiling),),
        "decisions": lambda: _decisions(case, tiling),
        "workspace": executor_workspace(launches, 0),
        "launches": launches,
        "order": (_order(tiling),),
        "caveats": (*caveats_of(case), *_caveats(case, tiling)),
        "evidence": Evidence.MODEL,
    }


def _reason(case: Case, tiling: v1.Tiling) -> str:
    if tiling.splits_weights:
        return "scaleGradByFreq: every core counts and adds the rows of its own weights"
    if case.deterministic and case.row.rows > 1:
        return "deterministic computation is on: one core"
    return "every row is added to its weight by itself"


def _memory(case: Case, tiling: v1.Tiling) -> Memory:
    buffers = [buffer("indices", align(older_index_bytes(case.row) * tiling.batch_rows, 32))]
    if tiling.splits_weights and tiling.counters_fit:
        buffers.append(buffer("counters", older_index_bytes(case.row) * tiling.counters))
    buffers.append(buffer("gradient rows", 4 * tiling.dim_piece * tiling.batch_rows))
    if tiling.splits_weights:
        buffers.append(buffer("accumulator row", 4 * tiling.dim_piece))
    fits = tiling.counters_fit == 1
    return Memory(
        name="UB",
        capacity_bytes=case.device.ub_bytes,
        allocations=tuple(buffers),
        evidence=Evidence.MODEL if fits else Evidence.UNKNOWN,
    )


def _decisions(case: Case, tiling: v1.Tiling) -> tuple[Decision, ...]:
    decisions, scale = [], bool(case.row.scale_grad_by_freq)
    if case.profile.npu_arch == NPU_ARCH_A2_A3:
        values: dict[str, int | float | str | bool] = {
            "rows": case.row.rows,
            "numWeights": case.row.num_weights,
        }
        flip = Flip(argument="rows" if case.row.rows > INT32_MAX else "numWeights", value=INT32_MAX)
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
            values={"scaleGradByFreq": scale},
            outcome=scale,
            effect="weight rows are split over cores"
            if tiling.splits_weights
            else "gradient rows are split over cores",
            flips=(Flip(argument="scaleGradByFreq", value=str(not scale).lower()),),
        )
    )
    return tuple(decisions)


def _order(tiling: v1.Tiling) -> OutputOrder:
    fixed = bool(tiling.splits_weights) or tiling.block_dim == 1
    if tiling.splits_weights:
        reason = "every weight row belongs to one core, which adds in index order"
    elif fixed:
        reason = "one core adds all rows in index order"
    else:
        reason = "a row depends on timing when its index occurs in the rows of two cores or more, which add atomically"
    return OutputOrder(output="grad_weight", fixed=fixed, reason=reason)


def _caveats(case: Case, tiling: v1.Tiling) -> tuple[Caveat, ...]:
    caveats = []
    if tiling.dim_pieces > 1:
        message = f"dim {case.row.dim} is too long for the Unified Buffer and is split into {tiling.dim_pieces} pieces (model, not published)"
        caveats.append(Caveat(code="dim_split", argument="grad", message=message))
    if not tiling.counters_fit:
        message = f"{tiling.counters} counters do not fit the Unified Buffer; how the product keeps them is not published"
        caveats.append(
            Caveat(code="counters_layout_unknown", argument="num_weights", message=message)
        )
    return tuple(caveats)
