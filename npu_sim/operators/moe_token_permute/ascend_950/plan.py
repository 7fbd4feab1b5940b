"""The plan of MoeTokenPermute on Ascend 950: stages, buffers, launches, conditions and warnings.

Source: specification page ``moe_token_permute_950``.
"""

from collections.abc import Iterator
from typing import Any

from npu_sim.framework.case import Case
from npu_sim.framework.describing import Condition, decision, ub_memory, vector_plan
from npu_sim.language import Text
from npu_sim.operators.moe_token_permute.plan import KEPT, fixed_order
from npu_sim.plans.answers import Evidence
from npu_sim.plans.model import Caveat, Launch, WorkspacePart, intermediate
from npu_sim.plans.workspace import executor_workspace
from npu_sim.tiling.ascend_950 import moe_token_permute as tiler
from npu_sim.tiling.common import SYSTEM_WORKSPACE_BYTES, ceil_div

KERNEL, INT8_KERNEL = "MoeInitRoutingV2", "MoeInitRoutingV3"
COUNT_ITEMS = 10240
"""Elements of the tensor of counts that the int8 kernel has (page, "Launches, V3")."""

ONE_CORE = Condition(
    "one-core sort",
    "ids <= what a core sorts at a time",
    lambda row, device, rules: (
        row.num_tokens * row.num_topk <= tiler.most_entries(tiler.problem_of_row(row), device)
    ),
    "core 0 alone sorts while all others wait",
    "pieces are sorted on several cores and merged, four lists at a time",
    ("num_tokens",),
)
SCATTER = Condition(
    "rows are scattered",
    Text(
        "rows are whole blocks, 2 fit half the Unified Buffer, num_topk <= {most}",
        most=tiler.MOST_SCATTERED,
    ),
    lambda row, device, rules: tiler.scatters(tiler.problem_of_row(row), device),
    "every core writes consecutive rows, each fetched from its token",
    "every core reads its tokens once and writes each row to its places",
    ("num_topk", "hidden"),
)


def describe(case: Case) -> dict[str, Any]:
    """Return the fields of the plan that depend on the case."""
    row, tiling = case.row, case.tiling
    is_int8 = row.dtype == tiler.INT8
    problem = tiler.problem_of_row(row)
    ids = {"ids": row.entries, "what a core sorts at a time": tiling.sort.most_entries}
    conditions = (
        [] if tiling.tiling_key == tiler.KEY_V3_EMPTY else [decision(case, ONE_CORE, **ids)]
    )
    if not is_int8:
        conditions.append(decision(case, SCATTER))
    kept = {"rows of permuted_tokens": row.kept_rows, "ids": row.entries}
    conditions.append(decision(case, KEPT, **kept))
    kernel_bytes = tiling.workspace_bytes - SYSTEM_WORKSPACE_BYTES
    parts = [WorkspacePart(name="system", bytes=SYSTEM_WORKSPACE_BYTES, kind="system")]
    if kernel_bytes:
        parts.append(WorkspacePart(name="sort", bytes=kernel_bytes, kind="kernel"))
    plan = vector_plan(
        case,
        path=_path(case),
        buffers={},
        ranges=_ranges(row.entries, tiling.block_dim),
        unit="row",
        kernel=INT8_KERNEL if is_int8 else KERNEL,
        conditions=conditions,
        workspace=parts,
        order=fixed_order(),
        caveats=tuple(_caveats(case)),
    )
    stages = tiler.stage_buffers(problem, tiling)._asdict().items()
    plan |= {
        "tiling": tiler.vendor_structure(tiling, is_int8),
        "memories": tuple(ub_memory(case, {stage: size}, stage) for stage, size in stages if size),
    }
    if is_int8:
        launches = _int8_launches(case, tuple(parts))
        workspace = executor_workspace(launches, tiling.workspace_bytes)
        plan |= {"launches": launches, "workspace": workspace, "evidence": Evidence.MODEL}
    return plan


def _ranges(entries: int, cores: int) -> list[tuple[int, int]]:
    """Return the entries of every core; the last ones may have none."""
    entries_per_core = ceil_div(entries, cores)
    return [
        (min(core * entries_per_core, entries), min((core + 1) * entries_per_core, entries))
        for core in range(cores)
    ]


def _path(case: Case) -> str:
    tiling = case.tiling
    if tiling.tiling_key == tiler.KEY_V3_EMPTY:
        return "no columns"
    sort = "multi-core"
    if tiling.tiling_key in (tiler.KEY_ONE_CORE, tiler.KEY_V3_ONE_CORE):
        sort = "one-core"
    manner = "scattered" if tiling.moves.scatters else "gathered"
    return Text("{sort} sort, {manner} rows", sort=sort, manner=manner)


def _int8_launches(case: Case, parts: tuple[WorkspacePart, ...]) -> tuple[Launch, ...]:
    """Return the launches of int8 tokens (page, "Launches, V3")."""
    entries, columns = case.row.entries, case.row.hidden
    copied = {copy.inputs[0].name: copy.outputs[0] for copy in case.copies}
    tokens, indices = (copied.get(name) or case.tensor(name) for name in ("tokens", "indices"))
    launches = list(case.copies)
    if indices.dtype != "int32":
        ids = intermediate("indices as int32", indices.shape, "int32")
        launches.append(Launch(kernel="Cast", inputs=(indices,), outputs=(ids,)))
        indices = ids
    rows = intermediate("all rows", (entries, columns), "int8")
    places = intermediate("all places", (entries,), "int32")
    unused = (
        intermediate("counts", (COUNT_ITEMS,), "int64"),
        intermediate("scales, never written", (entries,), "float32"),
    )
    main = Launch(
        kernel=INT8_KERNEL,
        inputs=(tokens, indices),
        outputs=(rows, places, *unused),
        block_dim=case.tiling.block_dim,
        workspace=parts,
    )
    return (
        *launches,
        main,
        Launch(kernel="Slice", inputs=(rows,), outputs=(case.tensor("permuted_tokens"),)),
        Launch(kernel="Slice", inputs=(places,), outputs=(case.tensor("sorted_indices"),)),
    )


def _caveats(case: Case) -> Iterator[Caveat]:
    """Yield the warnings of a plan (page, "Warnings")."""
    row, tiling, moves = case.row, case.tiling, case.tiling.moves
    if moves.core_loops != moves.last_loops and not moves.scatters:
        yield Caveat(
            code="gather_loops_swapped",
            argument="permuted_tokens",
            message=Text(
                "the kernel swaps the number of loops of the last core, {last}, and that of the "
                "others, {others}: rows are never written, and the last core reads and writes "
                "beyond its range; the simulator gives the intended rows. Read in the public "
                "sources; not run on a device",
                last=moves.last_loops,
                others=moves.core_loops,
            ),
        )
    usable = tiler.usable_bytes(tiler.problem_of_row(row), case.device)
    sort = tiler.stage_buffers(tiler.problem_of_row(row), tiling).sort
    if row.dtype != tiler.INT8 and sort > usable:
        yield Caveat(
            code="sort_beyond_local_memory",
            argument="indices",
            message=Text(
                "the sort uses {sort} bytes of the {usable} set as local memory: the rest lies in "
                "the threads' cache, the effect is not known. Read in the public sources; not run "
                "on a device",
                sort=sort,
                usable=usable,
            ),
        )
    if moves.scatters:
        yield Caveat(
            code="scatter_reuses_row_buffer",
            argument="permuted_tokens",
            message="no wait is visible between the copy out of a row buffer and the next fetch "
            "into it: a possible race; the simulator computes as if there were one. Read in the "
            "public sources; not run on a device",
        )
