"""The plan of EmbeddingDenseGrad, the kernel of the Atlas training series, and of A2/A3 beyond INT32_MAX.

Source: specification pages ``embedding_dense_backward`` and ``workspace``.
"""

from typing import Any

from npu_sim.cores import NPU_ARCH_ATLAS_A2
from npu_sim.plan_model import Caveat, CoreWork, Decision, Evidence, Flip, Memory, OutputOrder
from npu_sim.planning.embedding_dense_backward_case import INT32_MAX, Case, buffer, caveats_of, executor_nodes, spread
from npu_sim.tiling import embedding_dense_grad as v1
from npu_sim.tiling.integers import align
from npu_sim.workspace import executor_workspace


def plan_fields(case: Case) -> dict[str, Any]:
    """Return the fields of the plan that depend on the case."""
    tiling = v1.tile(case.v1_problem(), case.profile.device)
    total = case.num_weights if tiling.splits_weights else case.rows
    name = "weight rows" if tiling.splits_weights else "rows"
    ranges = [v1.split_range(tiling, total, core) for core in range(tiling.block_dim)]
    pieces = f", each row in {tiling.dim_pieces} pieces of {tiling.dim_piece} columns" if tiling.dim_pieces > 1 else ""
    return {
        "kernel": "EmbeddingDenseGrad",
        "path": "counted, weight rows split" if tiling.splits_weights else "atomic rows",
        "path_reason": _reason(case, tiling),
        "block_dim": tiling.block_dim,
        "cores_note": spread([stop - start for start, stop in ranges], name),
        "per_core": f"{tiling.batch_rows} rows in the Unified Buffer at a time{pieces}",
        "tiling": tiling._asdict(),
        "cores": tuple(CoreWork(core=core, ranges={name: rows}) for core, rows in enumerate(ranges)),
        "memories": (_memory(case, tiling),),
        "decisions": _decisions(case, tiling),
        "workspace": executor_workspace(executor_nodes(case, (), sorts=False), 0),
        "order": (_order(case, tiling),),
        "caveats": (*caveats_of(case), *_caveats(case, tiling)),
        "evidence": Evidence.MODEL,
    }


def _reason(case: Case, tiling: v1.Tiling) -> str:
    if tiling.splits_weights:
        return "scaleGradByFreq: every core counts and adds the rows of its own weights"
    if case.deterministic and case.rows > 1:
        return "deterministic computation is on: one core"
    return "every row is added to its weight by itself"


def _memory(case: Case, tiling: v1.Tiling) -> Memory:
    buffers = [buffer("indices", align(case.index_bytes * tiling.batch_rows, 32))]
    if tiling.splits_weights and tiling.counters_fit:
        buffers.append(buffer("counters", case.index_bytes * tiling.counters))
    buffers.append(buffer("gradient rows", 4 * tiling.dim_piece * tiling.batch_rows))
    if tiling.splits_weights:
        buffers.append(buffer("accumulator row", 4 * tiling.dim_piece))
    fits = tiling.counters_fit == 1
    return Memory(
        name="UB",
        capacity_bytes=case.profile.device.ub_bytes,
        allocations=tuple(buffers),
        evidence=Evidence.MODEL if fits else Evidence.UNKNOWN,
    )


def _decisions(case: Case, tiling: v1.Tiling) -> tuple[Decision, ...]:
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


def _order(case: Case, tiling: v1.Tiling) -> OutputOrder:
    if tiling.splits_weights:
        return OutputOrder(
            output="grad_weight", deterministic=True, reason="every weight row belongs to one core, which adds in index order"
        )
    if tiling.block_dim == 1:
        return OutputOrder(output="grad_weight", deterministic=True, reason="one core adds all rows in index order")
    reason = "a row depends on timing when its index occurs in the rows of two cores or more, which add atomically"
    return OutputOrder(output="grad_weight", deterministic=False, reason=reason)


def _caveats(case: Case, tiling: v1.Tiling) -> tuple[Caveat, ...]:
    caveats = []
    if tiling.dim_pieces > 1:
        message = f"dim {case.dim} is too long for the Unified Buffer and is split into {tiling.dim_pieces} pieces (model, not published)"
        caveats.append(Caveat(code="dim_split", argument="grad", message=message))
    if not tiling.counters_fit:
        message = f"{tiling.counters} counters do not fit the Unified Buffer; how the product keeps them is not published"
        caveats.append(Caveat(code="counters_layout_unknown", argument="num_weights", message=message))
    return tuple(caveats)
