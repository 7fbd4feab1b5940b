"""Plan of the operators that sum the rows of every token.

Sources: specification pages ``moe_token_permute_grad`` and ``moe_token_unpermute``.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from npu_sim.framework.vocabulary import (
    Case,
    Caveat,
    Condition,
    Decision,
    Description,
    Evidence,
    Memory,
    OutputOrder,
    Text,
    WorkspacePart,
    align,
    caveat,
    core_ranges,
    counted,
    decision,
    ub_memory,
    vector_plan,
)
from npu_sim.operators.shared.routed_tokens.declaration import element_bytes
from npu_sim.tiling import moe_token_unpermute as moe


@dataclass(frozen=True)
class Entries:
    """The entries of a token: an index each, and its factor if there are probs."""

    name: str
    """Name of the entries in texts."""
    bytes: int
    """Bytes of an entry in the Unified Buffer."""
    buffers: Mapping[str, int]
    """Bytes of the buffers of a batch by name: the indices, then those placed after the rows."""
    rows: str
    """Name of the rows that are summed, in texts."""
    most: int = -1
    """Largest number of entries of a token that the contract takes; -1 if it has no bound."""


def describe_sums(case: Case, entries: Entries, caveats: Iterable[Caveat]) -> Description:
    """Return what the operators state of a plan."""
    tiling, (path, path_reason) = case.tiling, _path(case)
    return vector_plan(
        case,
        path=path,
        path_reason=path_reason,
        per_core=_per_core(tiling, entries),
        ranges=core_ranges(moe.token_range, tiling),
        unit="token",
        memories=lambda: (memory(case, entries),),
        conditions=lambda: _decisions(case, entries),
        workspace=(_workspace(case, tiling),),
        order=(
            OutputOrder(
                output=case.outputs[0].output,
                fixed=True,
                reason="every token is summed by one core, its rows in k order; nothing is added "
                "atomically",
            ),
        ),
        caveats=caveats,
    )


def _path(case: Case) -> tuple[str, str]:
    """Return the path of a plan and its reason."""
    tiling = case.tiling
    longest = moe.max_hidden(case.device.ub_bytes, moe.FEWEST_BUFFERS, element_bytes(case))
    if tiling.hidden_length >= tiling.hidden:
        return "whole rows", Text(
            "hidden {hidden} <= {longest}", hidden=case.row.hidden, longest=longest
        )
    return "rows in pieces", Text(
        "hidden {hidden} > {longest}; {hidden_pieces} of {hidden_length} columns{rest}",
        hidden=case.row.hidden,
        longest=longest,
        hidden_pieces=tiling.hidden_pieces,
        hidden_length=tiling.hidden_length,
        rest=Text(", then {hidden_remainder}", hidden_remainder=tiling.hidden_remainder)
        if tiling.hidden_remainder
        else "",
    )


def _per_core(tiling: moe.Tiling, entries: Entries) -> str:
    rows = Text("{buffers} rows of {rows} in flight", buffers=tiling.buffers, rows=entries.rows)
    name, count = entries.name, counted(tiling.batch_tokens, "token")
    if tiling.batches == 1 and tiling.batch_remainder == 0:
        return Text("{name} of {count} at once; {rows}", name=name, count=count, rows=rows)
    return Text(
        "{name} in {batches} of {count}{rest}; {rows}",
        name=name,
        batches=Text("{batches} batches", batches=tiling.batches)
        if tiling.batches != 1
        else "one batch",
        count=count,
        rest=Text(" and one of {batch_remainder}", batch_remainder=tiling.batch_remainder)
        if tiling.batch_remainder
        else "",
        rows=rows,
    )


def memory(case: Case, entries: Entries) -> Memory:
    """Return the Unified Buffer of a core."""
    tiling, size = case.tiling, element_bytes(case)
    length = align(tiling.hidden_length, moe.HIDDEN_ALIGNMENT)
    first = next(iter(entries.buffers))
    buffers = {"token rows": tiling.buffers * length * size, first: 0, "result row": length * size}
    if size == 2:
        buffers["sum in fp32"] = 4 * length + moe.MARGIN_BYTES
        buffers["row in fp32"] = 4 * length
    count = Text("of {count}", count=counted(tiling.batch_tokens, "token"))
    notes = {
        **dict.fromkeys(entries.buffers, count),
        "token rows": Text("{buffers} input rows", buffers=tiling.buffers),
    }
    found = ub_memory(case, {**buffers, **entries.buffers}, notes=notes)
    return found.model_copy(update={"margin_bytes": case.profile.product.ub_reserved_bytes})


def _decisions(case: Case, entries: Entries) -> Iterator[Decision]:
    tiling, rows = case.tiling, entries.rows
    longest = moe.max_hidden(case.device.ub_bytes, moe.FEWEST_BUFFERS, element_bytes(case))
    whole = Condition(
        "whole rows",
        "align(hidden, 512) <= longest piece that fits with 2 input rows",
        lambda row, device, rules: row.hidden <= longest,
        Text("a row of {rows} is summed in one piece", rows=rows),
        Text("rows are summed in pieces of {longest} columns, to the same sums", longest=longest),
        ("hidden",),
    )
    aligned = align(case.row.hidden, moe.HIDDEN_ALIGNMENT)
    yield decision(case, whole, **{"align(hidden, 512)": aligned, "longest": longest})
    for buffers in range(moe.MOST_BUFFERS, max(tiling.buffers, moe.FEWEST_BUFFERS + 1) - 1, -1):
        yield _buffer_decision(case, rows, buffers)
    yield from _entry_decisions(case, entries)


def _buffer_decision(case: Case, rows: str, buffers: int) -> Decision:
    """Return the decision for a number of input rows that the planner tried."""
    ub_bytes, size = case.device.ub_bytes, element_bytes(case)
    longest = moe.max_hidden(ub_bytes, buffers, size)
    condition = Condition(
        Text("{buffers} input rows", buffers=buffers),
        Text("length <= longest piece that fits with {buffers} input rows", buffers=buffers),
        lambda row, device, rules: moe.piece_length(ub_bytes, row.hidden, size) <= longest,
        Text("{buffers} rows of {rows} are in flight", buffers=buffers, rows=rows),
        Text("fewer than {buffers} rows of {rows} are in flight", buffers=buffers, rows=rows),
        ("hidden",),
    )
    return decision(case, condition, length=case.tiling.hidden_length, longest=longest)


def _entry_decisions(case: Case, entries: Entries) -> Iterator[Decision]:
    """Yield what depends on the bytes that the rows leave for the entries of a core."""
    tiling, cores, name = case.tiling, case.device.vector_cores, entries.name
    left = moe.bytes_for_entries(case.device.ub_bytes, case.row.hidden, element_bytes(case))
    token_bytes = tiling.top_k * entries.bytes
    fit = Condition(
        Text("{name} of a token fit", name=name),
        Text("{bytes} * numTopk <= bytes left beside the rows", bytes=entries.bytes),
        lambda row, device, rules: entries.bytes * row.num_topk <= left,
        "the kernel can work",
        vary=("num_topk",) if entries.most < 0 or left // entries.bytes < entries.most else (),
    )
    yield decision(case, fit, **{"numTopk": tiling.top_k, "bytes left": left})
    count = counted(tiling.batch_tokens, "token")
    at_once = Condition(
        Text("{name} in one batch", name=name),
        Text(
            "tokens of a core * numTopk * {bytes} <= bytes left beside the rows",
            bytes=entries.bytes,
        ),
        lambda row, device, rules: (
            row.tokens // max(min(row.tokens, cores), 1) * token_bytes <= left
        ),
        Text("{name} are copied at once", name=name),
        Text("{name} are copied for {count} at a time", name=name, count=count),
        ("tokens",),
    )
    values = {
        "tokens of a core": tiling.core_tokens,
        "bytes needed": tiling.core_tokens * token_bytes,
        "bytes left": left,
    }
    yield decision(case, at_once, **values)


def _workspace(case: Case, tiling: moe.Tiling) -> WorkspacePart:
    if tiling.workspace_bytes:
        return WorkspacePart(name="system", bytes=tiling.workspace_bytes, kind="system")
    return WorkspacePart(
        name="system",
        bytes=0,
        kind="system",
        evidence=Evidence.UNKNOWN,
        note="the planner does not request it at this release; whether the framework adds it is "
        "not published",
    )


def dropped_tokens(row: Any) -> Iterator[Caveat]:
    """Yield the warning that permuted_tokens has fewer rows than there are indices."""
    if row.rows < row.entries:
        yield caveat(
            "tokens_dropped",
            "permuted_tokens",
            "permuted_tokens has {rows} rows for {entries} indices: at least {dropped} point "
            "to rows that were dropped",
            rows=row.rows,
            entries=row.entries,
            dropped=row.entries - row.rows,
        )
