"""Plan of MoeTokenPermute: the sort, the moves of rows, buffers and workspace.

Source: specification page ``moe_token_permute``.
"""

from collections.abc import Iterator
from typing import Any

from npu_sim.framework.vocabulary import (
    Case,
    Caveat,
    Condition,
    Decision,
    Description,
    Memory,
    OutputOrder,
    Text,
    WorkspacePart,
    align,
    caveat,
    core_works,
    counted,
    decision,
    element_bytes,
    spread,
    ub_memory,
    vector_plan,
)
from npu_sim.tiling import moe_token_permute as tiler

MULTI_CORE_ALIGNMENT = 8
"""A sort on several cores pads each half of its workspace to a multiple of this."""


def _entries(row: Any) -> int:
    return int(row.num_tokens * row.num_topk)


def _row_bytes(row: Any) -> int:
    return int(row.hidden * element_bytes(row.dtype))


AT_ONCE = Condition(
    "one-core sort",
    "ids <= what a core sorts at a time",
    lambda row, device, rules: _entries(row) <= tiler.most_entries(_entries(row), device),
    "core 0 alone sorts, twice, while all others wait",
    "pieces are sorted on several cores and merged, four lists at a time",
    ("num_tokens",),
)
WHOLE = Condition(
    "whole rows",
    Text(
        "2 * aligned row <= Unified Buffer - {split_positions_bytes}",
        split_positions_bytes=tiler.SPLIT_POSITIONS_BYTES,
    ),
    lambda row, device, rules: tiler.moves_whole_rows(_row_bytes(row), device.ub_bytes),
    "rows pass through the buffer whole, several at a time",
    "rows pass through the buffer in pieces, token by token",
    ("hidden",),
)
ROOM = Condition(
    "positions of a token fit",
    Text(
        "num_topk <= (Unified Buffer - 2 * aligned row) // {token_position_bytes}",
        token_position_bytes=tiler.TOKEN_POSITION_BYTES,
    ),
    lambda row, device, rules: row.num_topk <= tiler.most_topk(_row_bytes(row), device.ub_bytes),
    "the kernel can work",
    "the planner would go on without buffers: refused",
    ("num_topk",),
)
KEPT = Condition(
    "all rows kept",
    "rows of permuted_tokens = ids",
    lambda row, device, rules: tiler.kept_rows(row.num_out_tokens, _entries(row)) == _entries(row),
    "every copy has a row",
    "copies whose place is at or beyond the rows of permuted_tokens are dropped; "
    "sorted_indices still has all places",
    ("num_out_tokens",),
)


def describe(case: Case) -> Description:
    """Return what the operator states of a plan."""
    tiling, ub_bytes = case.tiling, case.device.ub_bytes
    whole = tiler.moves_whole_rows(tiling.copies.row_bytes, ub_bytes)
    ranges = [tiler.token_range(tiling.copies, core) for core in range(tiling.copies.cores)]
    sorting_only = [(tiling.tokens, tiling.tokens)] * (tiling.block_dim - tiling.copies.cores)
    return vector_plan(
        case,
        path=Text(
            "{sort} sort, {manner} rows",
            sort="one-core" if tiler.sorts_at_once(tiling.sort) else "multi-core",
            manner="whole" if whole else "split",
        ),
        path_reason=Text(
            "{entries} ids, {most_entries} fit a core; rows of {row_bytes} bytes",
            entries=case.row.entries,
            most_entries=tiling.sort.most_entries,
            row_bytes=tiling.copies.row_bytes,
        ),
        per_core=_per_core(tiling, whole),
        memories=lambda: _memories(case),
        ranges=ranges,
        unit="token",
        cores=lambda: core_works(
            {
                "tokens": ranges + sorting_only,
                "ids": [tiler.sort_range(tiling.sort, core) for core in range(tiling.sort.cores)],
            }
        ),
        fields=tiler.vendor_structure(tiling, case.arguments, case.rules),
        workspace=_workspace(case),
        conditions=lambda: _decisions(case, whole),
        order=orders_of(),
        caveats=_caveats(case, whole),
    )


def _decisions(case: Case, whole: bool) -> Iterator[Decision]:
    copies, sort, ids = case.tiling.copies, case.tiling.sort, case.row.entries
    sizes = {
        "aligned row": tiler.aligned_row_bytes(copies.row_bytes),
        "Unified Buffer": case.device.ub_bytes,
    }
    yield decision(case, AT_ONCE, **{"ids": ids, "what a core sorts at a time": sort.most_entries})
    yield decision(case, WHOLE, **sizes)
    if whole and tiler.most_topk(copies.row_bytes, case.device.ub_bytes) < tiler.MOST_TOPK:
        yield decision(case, ROOM, **sizes)
    yield decision(case, KEPT, **{"rows of permuted_tokens": copies.kept_rows, "ids": ids})


def orders_of(race: str = "") -> tuple[OutputOrder, ...]:
    """Return the orders of the outputs: rows are copies, and the sort is stable.

    ``race`` is the code of the warning on a race that can overwrite rows.
    """
    reasons = {
        "permuted_tokens": "every row is a copy, written once",
        "sorted_indices": "the sort is stable, however it is split over cores",
    }
    codes = {"permuted_tokens": race, "sorted_indices": ""}
    return tuple(
        OutputOrder(output=name, fixed=not codes[name], reason=reason, race=codes[name])
        for name, reason in reasons.items()
    )


def _per_core(tiling: tiler.Tiling, whole: bool) -> str:
    sort, copies = tiling.sort, tiling.copies
    if tiler.sorts_at_once(sort):
        sorts = Text(
            "core 0 sorts {core_entries} ids, and then their places, while all others wait",
            core_entries=sort.core.entries,
        )
    else:
        others = [sort.core.entries] * (sort.cores - 1)
        sorts = Text(
            "{cores} cores sort, twice: {spread}, in {pieces}",
            cores=sort.cores,
            spread=spread([*others, sort.last.entries], "id"),
            pieces=Text(
                "{pieces} of up to {core_piece}",
                core_piece=sort.core.piece,
                pieces=counted(sort.core.loops, "piece"),
            ),
        )
    return Text(
        "{sorts}; {places}; {moves}",
        sorts=sorts,
        places=Text("places of {group_tokens} tokens at once", group_tokens=copies.group_tokens),
        moves=Text("{rows} at a time", rows=counted(copies.copy_rows, "row"))
        if whole
        else Text(
            "rows in {pieces} pieces of up to {piece} columns",
            pieces=copies.pieces,
            piece=copies.piece,
        ),
    )


def _memories(case: Case) -> tuple[Memory, ...]:
    """Return the contents of the Unified Buffer while sorting and while moving rows."""
    copies, sort = case.tiling.copies, tiler.sort_buffers(case.tiling.sort)._asdict()
    moving = {
        "rows": tiler.ROW_BUFFERS * copies.row_buffer_bytes,
        "places": copies.position_buffer_bytes,
    }
    notes = {
        "ids": "8 bytes each, whatever their dtype",
        "rows": Text("{row_buffers} buffers", row_buffers=tiler.ROW_BUFFERS),
    }
    return ub_memory(case, sort, "sort", notes), ub_memory(case, moving, "move rows", notes)


def _workspace(case: Case) -> tuple[WorkspacePart, ...]:
    tiling, entries = case.tiling, case.row.entries
    note = (
        Text(
            "{used} bytes of it are used",
            used=2 * tiler.ENTRY_BYTES * align(entries, MULTI_CORE_ALIGNMENT),
        )
        if not tiler.sorts_at_once(tiling.sort)
        else "not used: one core sorts"
    )
    sort, sync = tiler.SORT_WORKSPACE_BYTES * entries, tiler.SYNC_WORKSPACE_BYTES * tiling.sorters
    return (
        WorkspacePart(name="sort", bytes=sort, kind="kernel", note=note),
        WorkspacePart(name="sync", bytes=sync, kind="kernel", note="no kernel touches it"),
        WorkspacePart(name="system", bytes=case.device.system_workspace_bytes, kind="system"),
    )


def _caveats(case: Case, whole: bool) -> Iterator[Caveat]:
    """Yield the warnings of a plan (page, "Warnings a plan gives")."""
    tiling, copies = case.tiling, case.tiling.copies
    if tiling.schedule_mode < 0 and tiling.block_dim > 1:
        yield caveat(
            "barrier_without_schedule_mode",
            "",
            "{block_dim} cores wait for each other, "
            "but no schedule mode promises that they run together",
            block_dim=tiling.block_dim,
        )
    needed = tiler.POSITION_BYTES * copies.group_positions
    if whole and copies.position_buffer_bytes < needed:
        yield caveat(
            "index_buffer_overrun",
            "indices",
            "the buffer of places has {position_buffer_bytes} bytes for {needed}; nothing lies "
            "behind it, so no bit changes",
            position_buffer_bytes=copies.position_buffer_bytes,
            needed=needed,
        )
    if not whole:
        yield caveat(
            "index_read_without_wait",
            "tokens",
            "with split rows the kernel does not wait for the places it loads; "
            "the simulator computes as if it did",
        )
    if case.row.hidden == 0:
        yield caveat(
            "rows_of_no_bytes",
            "tokens",
            "rows of 0 bytes are copied; the simulator takes it that nothing happens",
        )
