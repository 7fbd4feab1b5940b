"""Plan of MoeTokenUnpermuteGrad.

Source: specification page ``moe_token_unpermute_grad``.
"""

from collections.abc import Iterator
from typing import Any

from npu_sim.framework.vocabulary import (
    BLOCK_BYTES,
    Case,
    Caveat,
    Condition,
    Decision,
    Description,
    OutputOrder,
    Text,
    align,
    caveat,
    core_ranges,
    counted,
    decision,
    vector_plan,
)
from npu_sim.operators.shared.routed_tokens.declaration import probs_code
from npu_sim.operators.shared.routed_tokens.plan import dropped_tokens
from npu_sim.tiling import moe_token_unpermute_grad as tiler

SAME_ROW = (
    "of several entries that name a row the last one to write wins; "
    "distinct indices leave nothing open"
)


def _is_whole(row: Any, device: Any, rules: Any) -> bool:
    return bool(row.hidden == 0 or tiler.tile_row(row, device, rules).pieces == 1)


def _fits_at_once(row: Any, device: Any, rules: Any) -> bool:
    tiling = tiler.tile_row(row, device, rules)
    return bool(row.hidden == 0 or tiling.input_rows == tiling.top_k)


SUMMED_WHOLE = Condition(
    "whole rows",
    "hidden, padded <= longest piece that fits with one of the experts",
    _is_whole,
    "rows pass through the buffer whole; no bit depends on cores or on the number of tokens",
    "rows are cut into pieces, each summed by itself: "
    "how long they are decides the last bit of probs_grad",
    ("hidden",),
)
COPIED_WHOLE = Condition(
    "whole rows",
    "hidden, padded <= longest piece that fits 8 times twice",
    _is_whole,
    "rows pass through the buffer whole",
    "rows are copied in pieces, to the same bits",
    ("hidden",),
)
AT_ONCE = Condition(
    "rows of a token at once",
    "num_topk <= experts that fit beside the fp32 copies",
    _fits_at_once,
    "the rows of the experts of a token are copied in at once",
    "the rows of the experts of a token are copied in group by group; no bit changes",
    ("hidden",),
)


def describe(case: Case) -> Description:
    """Return what the operator states of a plan."""
    tiling, has_probs = case.tiling, bool(case.row.has_probs)
    size = case.specs["unpermuted_tokens_grad"].itemsize
    return vector_plan(
        case,
        path="products and row sums" if has_probs else "copies",
        path_reason="probs is given" if has_probs else "probs is not given",
        per_core=_per_core(tiling, has_probs),
        buffers=tiler.buffers(tiling, size, probs_code(case)),
        ranges=core_ranges(tiler.token_range, tiling),
        unit="token",
        conditions=lambda: _decisions(case, size),
        order=lambda: orders(case, "every sum is one core's; nothing is added atomically"),
        caveats=_caveats(case),
    )


def _decisions(case: Case, size: int) -> Iterator[Decision]:
    hidden = case.row.hidden
    if not case.row.has_probs:
        longest = tiler.longest_copied(tiler.INDEX_GROUP, size, case.device)
        padded = align(hidden, BLOCK_BYTES // size)
        yield decision(case, COPIED_WHOLE, padded=padded, longest=longest)
        return
    padded, probs = align(hidden, tiler.ROW_BYTES // size), probs_code(case)
    entries = case.tiling.group_entries_aligned, probs, size, case.device
    longest = tiler.longest_summed(*entries)
    whole = decision(case, SUMMED_WHOLE, padded=padded, longest=longest)
    yield whole
    if whole.outcome:
        yield decision(
            case, AT_ONCE, num_topk=case.row.num_topk, fit=tiler.rows_beside(padded, *entries)
        )


def _per_core(tiling: tiler.Tiling, has_probs: bool) -> str:
    pieces = (
        Text(
            "rows in {pieces} pieces of {piece_columns} columns",
            pieces=tiling.pieces,
            piece_columns=tiling.piece_columns,
        )
        if tiling.pieces > 1
        else "whole rows"
    )
    if not has_probs:
        return Text(
            "{pieces}; indices of {group_entries} rows at once",
            pieces=pieces,
            group_entries=tiling.group_entries,
        )
    return Text(
        "{pieces}; probs of {group_entries} entries at once, {rows} of the experts",
        pieces=pieces,
        group_entries=tiling.group_entries,
        rows=counted(tiling.input_rows, "row"),
    )


def orders(case: Case, reason: str) -> Iterator[OutputOrder]:
    """Yield the orders of the outputs; ``reason`` is that of the gradient of probs."""
    yield OutputOrder(output="permuted_tokens_grad", fixed=True, reason=SAME_ROW)
    if case.row.has_probs:
        yield OutputOrder(output="probs_grad", fixed=True, reason=reason)


def _caveats(case: Case) -> Iterator[Caveat]:
    """Yield the warnings of a plan (page, "Warnings a plan or run gives")."""
    row, tiling = case.row, case.tiling
    yield from dropped_tokens(row)
    if row.has_probs and tiling.pieces > 1:
        yield caveat(
            "hidden_split_changes_sums",
            "probs_grad",
            "rows are summed in pieces of {piece_columns} columns, whose length follows from the "
            "tokens of a core: the last bit of probs_grad can change with the SoC and with the "
            "number of tokens",
            piece_columns=tiling.piece_columns,
        )
