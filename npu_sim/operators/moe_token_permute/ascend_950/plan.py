"""Plan of MoeTokenPermute on Ascend 950.

Source: specification page ``moe_token_permute_950``.
"""

from collections.abc import Iterator

import numpy as np

from npu_sim.framework.vocabulary import (
    SYSTEM_WORKSPACE_BYTES,
    Case,
    Caveat,
    Condition,
    Decision,
    Description,
    Evidence,
    Launch,
    Text,
    WorkspacePart,
    caveat,
    ceil_div,
    chunk_range,
    decision,
    intermediate,
    kernel_parts,
    release_inferred,
    ub_memory,
    vector_plan,
)
from npu_sim.operators.moe_token_permute.plan import KEPT, orders_of
from npu_sim.operators.shared.launches import Executor
from npu_sim.tiling.ascend_950 import moe_token_permute as tiler

KERNEL, INT8_KERNEL = "MoeInitRoutingV2", "MoeInitRoutingV3"
COUNT_ITEMS = 10240
"""Elements of the tensor of counts that the int8 kernel has (page, "Launches, V3")."""

ONE_CORE = Condition(
    "one-core sort",
    "ids <= what a core sorts at a time",
    lambda row, device, rules: row.num_tokens * row.num_topk <= tiler.most_entries(row, device),
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
    lambda row, device, rules: tiler.scatters(row, device),
    "every core writes consecutive rows, each fetched from its token",
    "every core reads its tokens once and writes each row to its places",
    ("num_topk", "hidden"),
)


def describe(case: Case) -> Description:
    """Return what the operator states of a plan."""
    row, tiling = case.row, case.tiling
    is_int8 = row.dtype == tiler.INT8
    kernel_bytes = tiling.workspace_bytes - SYSTEM_WORKSPACE_BYTES
    parts = kernel_parts(case, {"sort": kernel_bytes} if kernel_bytes else {})
    size = ceil_div(row.entries, tiling.block_dim)
    stages = tiler.stage_buffers(row, tiling)._asdict().items()
    return vector_plan(
        case,
        path=_path(case),
        memories=lambda: [ub_memory(case, {stage: used}, stage) for stage, used in stages if used],
        ranges=[chunk_range(core, size, row.entries) for core in range(tiling.block_dim)],
        unit="row",
        kernel=INT8_KERNEL if is_int8 else KERNEL,
        conditions=lambda: _decisions(case),
        fields=tiler.vendor_structure(tiling, case.arguments, case.rules),
        workspace=parts,
        launches=_int8_launches(case, parts) if is_int8 else None,
        order=orders_of(ROW_OVERWRITTEN if reuses_buffer(case) else ""),
        caveats=_caveats(case),
        evidence=Evidence.MODEL if is_int8 else None,
    )


def _decisions(case: Case) -> Iterator[Decision]:
    row, tiling = case.row, case.tiling
    if tiling.tiling_key != tiler.KEY_V3_EMPTY:
        ids = {"ids": row.entries, "what a core sorts at a time": tiling.sort.most_entries}
        yield decision(case, ONE_CORE, **ids)
    if row.dtype != tiler.INT8:
        yield decision(case, SCATTER, num_topk=row.num_topk)
    yield decision(case, KEPT, **{"rows of permuted_tokens": row.kept_rows, "ids": row.entries})


def _path(case: Case) -> str:
    key, one_core = case.tiling.tiling_key, (tiler.KEY_ONE_CORE, tiler.KEY_V3_ONE_CORE)
    if key == tiler.KEY_V3_EMPTY:
        return Text("no columns") if case.row.entries else Text("no ids")
    return Text(
        "{sort} sort, {manner} rows",
        sort="one-core" if key in one_core else "multi-core",
        manner=Text("scattered") if case.tiling.moves.scatters else Text("gathered"),
    )


def _int8_launches(case: Case, parts: tuple[WorkspacePart, ...]) -> tuple[Launch, ...]:
    """Return the launches of int8 tokens (page, "Launches, V3")."""
    entries, columns = case.row.entries, case.row.hidden
    executor = Executor(case)
    tokens, indices = (
        executor.contiguous(name, case.specs[name]) for name in ("tokens", "indices")
    )
    ids = executor.cast(indices, "indices as int32", "int32")
    rows = intermediate("all rows", (entries, columns), "int8")
    places = intermediate("all places", (entries,), "int32")
    return (
        *executor.launches,
        Launch(
            kernel=INT8_KERNEL,
            inputs=(tokens, ids),
            outputs=(
                rows,
                places,
                intermediate("counts", (COUNT_ITEMS,), "int64"),
                intermediate("scales, never written", (entries,), "float32"),
            ),
            block_dim=case.tiling.block_dim,
            workspace=parts,
        ),
        Launch(kernel="Slice", inputs=(rows,), outputs=(case.tensor("permuted_tokens"),)),
        Launch(kernel="Slice", inputs=(places,), outputs=(case.tensor("sorted_indices"),)),
    )


def _caveats(case: Case) -> Iterator[Caveat]:
    """Yield the warnings of a plan (page, "Warnings")."""
    row, tiling, moves = case.row, case.tiling, case.tiling.moves
    if moves.core_loops != moves.last_loops and not moves.scatters:
        yield caveat(
            "gather_loops_swapped",
            "permuted_tokens",
            "the kernel swaps the number of loops of the last core, {last}, and that of the "
            "others, {others}: rows are never written, and the last core reads and writes "
            "beyond its range; the simulator gives the intended rows. Read in the public "
            "sources; not run on a device",
            last=moves.last_loops,
            others=moves.core_loops,
            not_modelled="permuted_tokens",
            since="9.1",
        )
    usable, sort = tiler.usable_bytes(row, case.device), tiler.stage_buffers(row, tiling).sort
    if row.dtype != tiler.INT8 and sort > usable:
        yield caveat(
            "sort_beyond_local_memory",
            "indices",
            "the sort uses {sort} bytes of the {usable} set as local memory: the rest lies in "
            "the threads' cache, the effect is not known. Read in the public sources; not run "
            "on a device",
            sort=sort,
            usable=usable,
            not_modelled="*",
            since="9.1",
        )
    if reuses_buffer(case):
        yield caveat(
            "scatter_reuses_row_buffer",
            "permuted_tokens",
            "a race: no wait is visible between the copy out of a row buffer and the next fetch "
            "into it, so a row can hold, in part, the row that its core fetches two rounds later; "
            "the simulator computes as if there were a wait. Read in the public sources; not run "
            "on a device",
            since="9.1",
            until=Text("release {release}", release="9.2"),
        )
    elif fetches_again(case):
        yield release_inferred(
            case,
            "permuted_tokens",
            Text("a fetch into a row buffer waits for the copy out of the row before"),
            "permuted_tokens",
        )


ROW_OVERWRITTEN = "scatter_reuses_row_buffer"


def _rounds(case: Case) -> Iterator[tuple[int, list[tuple[int, int]]]]:
    """Yield every core that scatters, with the rows of each of its rounds of fetches."""
    moves = case.tiling.moves
    for core in range(moves.cores):
        first, count = core * moves.core_rows, moves.core_rows
        count = moves.last_rows if core == moves.cores - 1 else count
        starts = (
            (start, min(start + moves.core_at_once, count))
            for start in range(0, count, moves.core_at_once)
        )
        yield (
            core,
            [
                (first + start, first + min(start + moves.piece, stop))
                for begin, stop in starts
                for start in range(begin, stop, moves.piece)
            ],
        )


def fetches_again(case: Case) -> bool:
    """Return whether a core that scatters fetches into a row buffer more than once."""
    row, moves = case.row, case.tiling.moves
    return bool(
        row.dtype != tiler.INT8
        and moves.scatters
        and moves.cores
        and moves.core_rows > 2 * min(moves.piece, moves.core_at_once)
    )


def reuses_buffer(case: Case) -> bool:
    """Return whether a row buffer is fetched into again while its copy out may not be done."""
    return bool(case.rules.reuses_row_buffer and fetches_again(case))


def overwriting_rows(case: Case) -> np.ndarray:
    """Return, for every row of permuted_tokens, the row that can overwrite it; -1 for none."""
    overwriting = np.full(case.row.kept_rows, -1, np.int64)
    for _, rounds in _rounds(case) if reuses_buffer(case) else ():
        for (start, stop), (later, end) in zip(rounds, rounds[2:], strict=False):
            count = min(stop - start, end - later)
            overwriting[start : start + count] = np.arange(later, later + count)
    return overwriting
