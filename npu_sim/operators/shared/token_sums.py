"""Contract checks and plan of the operators that sum the rows of every token.

Source: specification pages ``moe_token_permute_grad`` and ``moe_token_unpermute``.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from npu_sim.framework.case import Case, Inspection
from npu_sim.framework.describing import decided, spread
from npu_sim.framework.execution import runtime_failure
from npu_sim.language import Text
from npu_sim.plans.answers import Evidence
from npu_sim.plans.model import (
    Allocation,
    Caveat,
    CoreWork,
    Decision,
    Memory,
    OutputOrder,
    Workspace,
    WorkspacePart,
)
from npu_sim.plans.workspace import kernel_workspace
from npu_sim.status import INVALID, AclnnError
from npu_sim.tiling import token_sums as moe
from npu_sim.tiling.common import align
from npu_sim.tiling.fields import vendor_fields


def check_padding(call: Inspection) -> None:
    """Refuse padding, which the product does not support yet."""
    if call.arguments.padded_mode:
        raise AclnnError(
            INVALID, "padded_mode", "padded_mode = True is not supported yet", "padded_mode = False"
        )


def check_indices(indices: np.ndarray, rows: str) -> None:
    """Check that no index is negative; ``rows`` names the tensor of the rows, for the hint.

    Raises
    ------
    AclnnError
        361001 for a negative index; the message gives the position and value of the first one.
    """
    if indices.size and np.minimum.reduce(indices) < 0:
        position = int(np.argmax(indices < 0))
        message = Text(
            "sorted_indices[{position}] = {indices} is negative",
            position=position,
            indices=indices[position],
        )
        hint = Text(
            "index >= 0, at or beyond the rows of {rows} for a dropped token; nothing was written",
            rows=rows,
        )
        raise runtime_failure("sorted_indices", message, hint)


def negative_indices(indices: np.ndarray) -> Iterator[Caveat]:
    """Yield the warning about negative indices, which A2 and A3 refuse and Ascend 950 drops."""
    found = int(np.count_nonzero(indices < 0))
    if found:
        message = Text(
            "{found} negative indices count as dropped rows, the first one at "
            "sorted_indices[{position}]; A2 and A3 refuse them with 361001",
            found=found,
            position=int(np.argmax(indices < 0)),
        )
        yield Caveat(code="negative_indices", argument="sorted_indices", message=message)


def buffer_message(
    case: Case, entries: str, entry_bytes: int, top_k: int, blamed: str
) -> tuple[str, str, str]:
    """Return argument, message and hint if a piece of a row or the entries of a token do not fit.

    - ``entries``, ``entry_bytes``, ``top_k``: name of the entries, bytes of an entry, and entries
      of a token.
    - ``blamed``: argument that sets the number of entries of a token.
    """
    rows, hidden = case.operator.inputs[0].name, case.row.hidden
    ub_bytes, size, dtype = case.device.ub_bytes, element_bytes(case), case.specs[rows].dtype
    length = moe.piece_length(ub_bytes, hidden, size)
    if length <= 0:
        column_bytes = moe.bytes_per_column(moe.FEWEST_BUFFERS, size)
        smallest = moe.RESERVED_BYTES + (moe.HIDDEN_ALIGNMENT + 1) * column_bytes
        message = Text(
            "no piece of a row fits the Unified Buffer of {title}: {ub_bytes} usable bytes",
            title=case.profile.title,
            ub_bytes=ub_bytes,
        )
        hint = Text(
            "the smallest piece of {dtype} needs {smallest} bytes", dtype=dtype, smallest=smallest
        )
        return rows, message, hint
    unit = moe.bytes_per_column(moe.buffers_of(ub_bytes, length, size), size)
    needed, left = entry_bytes * top_k, moe.bytes_for_entries(ub_bytes, hidden, size)
    message = Text(
        "num_topk = {top_k}: the {entries} of one token need {entry_bytes} * {top_k} = "
        "{needed} bytes, the rows leave {ub_bytes} - {align} * {unit} - {margin_bytes} = "
        "{left} of the Unified Buffer",
        top_k=top_k,
        entries=entries,
        entry_bytes=entry_bytes,
        needed=needed,
        ub_bytes=ub_bytes,
        align=align(length, moe.HIDDEN_ALIGNMENT),
        unit=unit,
        margin_bytes=moe.MARGIN_BYTES,
        left=left,
    )
    always = moe.largest_topk_of_every_hidden(ub_bytes, size, entry_bytes)
    largest = moe.largest_topk(ub_bytes, hidden, size, entry_bytes)
    hint = Text(
        "nearest legal value: {largest} at hidden {hidden} {dtype}; {always} fits at every "
        "hidden size",
        largest=largest,
        hidden=hidden,
        dtype=dtype,
        always=always,
    )
    return blamed, message, hint


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


def describe(case: Case, entries: Entries, caveats: Sequence[Caveat]) -> dict[str, Any]:
    """Return the fields of the plan that depend on the case, which has a tiling."""
    tiling = case.tiling
    ranges = [moe.token_range(tiling, core) for core in range(tiling.block_dim)]
    return {
        "kernel": case.operator.title,
        "path": _path(tiling),
        "path_reason": _path_reason(case, tiling),
        "tiling_key": tiling.tiling_key,
        "block_dim": tiling.block_dim,
        "cores_note": spread([stop - start for start, stop in ranges], "token"),
        "per_core": _per_core(tiling, entries),
        "tiling": vendor_fields(tiling),
        "cores": lambda: tuple(
            CoreWork(core=core, ranges={"tokens": tokens}) for core, tokens in enumerate(ranges)
        ),
        "memories": (_memory(case, tiling, entries),),
        "decisions": lambda: (
            _split_decision(case, tiling, entries),
            *_buffer_decisions(case, tiling, entries),
            _topk_decision(case, tiling, entries),
            _batch_decision(case, tiling, entries),
        ),
        "workspace": _workspace(case, tiling),
        "order": lambda: (_order(case),),
        "caveats": tuple(caveats),
    }


def element_bytes(case: Case) -> int:
    """Return the bytes of one element of the rows and of the output."""
    return case.specs[case.operator.outputs[0].name].itemsize


def _longest(case: Case, buffers: int = moe.FEWEST_BUFFERS) -> int:
    """Return the longest piece of a row that fits with ``buffers`` input rows."""
    return moe.max_hidden(case.device.ub_bytes, buffers, element_bytes(case))


def _bytes_left(case: Case) -> int:
    """Return the bytes of the Unified Buffer that the rows leave for entries."""
    return moe.bytes_for_entries(case.device.ub_bytes, case.row.hidden, element_bytes(case))


def _is_split(tiling: moe.Tiling) -> bool:
    return tiling.hidden_length < tiling.hidden


def _path(tiling: moe.Tiling) -> str:
    return "rows in pieces" if _is_split(tiling) else "whole rows"


def _path_reason(case: Case, tiling: moe.Tiling) -> str:
    longest = _longest(case)
    if not _is_split(tiling):
        return Text("hidden {hidden} <= {longest}", hidden=case.row.hidden, longest=longest)
    rest: str = ""
    if tiling.hidden_remainder:
        rest = Text(", then {hidden_remainder}", hidden_remainder=tiling.hidden_remainder)
    return Text(
        "hidden {hidden} > {longest}; {hidden_pieces} of {hidden_length} columns{rest}",
        hidden=case.row.hidden,
        longest=longest,
        hidden_pieces=tiling.hidden_pieces,
        hidden_length=tiling.hidden_length,
        rest=rest,
    )


def _count(tokens: int) -> str:
    return "1 token" if tokens == 1 else Text("{tokens} tokens", tokens=tokens)


def _per_core(tiling: moe.Tiling, entries: Entries) -> str:
    rows = Text("{buffers} rows of {rows} in flight", buffers=tiling.buffers, rows=entries.rows)
    name, count = entries.name, _count(tiling.batch_tokens)
    if tiling.batches == 1 and tiling.batch_remainder == 0:
        return Text("{name} of {count} at once; {rows}", name=name, count=count, rows=rows)
    batches: str = "one batch"
    if tiling.batches != 1:
        batches = Text("{batches} batches", batches=tiling.batches)
    rest: str = ""
    if tiling.batch_remainder:
        rest = Text(" and one of {batch_remainder}", batch_remainder=tiling.batch_remainder)
    return Text(
        "{name} in {batches} of {count}{rest}; {rows}",
        name=name,
        batches=batches,
        count=count,
        rest=rest,
        rows=rows,
    )


def _memory(case: Case, tiling: moe.Tiling, entries: Entries) -> Memory:
    length = align(tiling.hidden_length, moe.HIDDEN_ALIGNMENT)
    row_bytes = length * element_bytes(case)
    note = Text("of {count}", count=_count(tiling.batch_tokens))
    indices, *others = (
        Allocation(name=name, bytes=size, note=note) for name, size in entries.buffers.items()
    )
    buffers = [
        Allocation(
            name="token rows",
            bytes=tiling.buffers * row_bytes,
            note=Text("{buffers} input rows", buffers=tiling.buffers),
        ),
        indices,
        Allocation(name="result row", bytes=row_bytes),
    ]
    if element_bytes(case) == 2:
        buffers.append(Allocation(name="sum in fp32", bytes=4 * length + moe.MARGIN_BYTES))
        buffers.append(Allocation(name="row in fp32", bytes=4 * length))
    return Memory(
        name="UB",
        capacity_bytes=case.device.ub_bytes,
        margin_bytes=case.profile.product.ub_reserved_bytes,
        allocations=(*buffers, *others),
    )


def _split_decision(case: Case, tiling: moe.Tiling, entries: Entries) -> Decision:
    longest, whole = _longest(case), not _is_split(tiling)
    in_pieces = Text(
        "rows are summed in pieces of {longest} columns, to the same sums", longest=longest
    )
    return decided(
        "whole rows",
        "align(hidden, 512) <= longest piece that fits with 2 input rows",
        {"align(hidden, 512)": align(case.row.hidden, moe.HIDDEN_ALIGNMENT), "longest": longest},
        whole,
        (Text("a row of {rows} is summed in one piece", rows=entries.rows), in_pieces),
        ("hidden", longest + whole),
    )


def _buffer_decisions(case: Case, tiling: moe.Tiling, entries: Entries) -> Iterator[Decision]:
    """Yield a decision for every number of input rows that the planner tried."""
    for buffers in range(moe.MOST_BUFFERS, max(tiling.buffers, moe.FEWEST_BUFFERS + 1) - 1, -1):
        longest = _longest(case, buffers)
        fits = tiling.hidden_length <= longest
        yes = Text("{buffers} rows of {rows} are in flight", buffers=buffers, rows=entries.rows)
        no = Text(
            "fewer than {buffers} rows of {rows} are in flight", buffers=buffers, rows=entries.rows
        )
        condition = Text(
            "length <= longest piece that fits with {buffers} input rows", buffers=buffers
        )
        yield decided(
            Text("{buffers} input rows", buffers=buffers),
            condition,
            {"length": tiling.hidden_length, "longest": longest},
            fits,
            (yes, no),
            ("hidden", longest + fits),
        )


def _topk_decision(case: Case, tiling: moe.Tiling, entries: Entries) -> Decision:
    left = _bytes_left(case)
    beyond = left // entries.bytes + 1
    return decided(
        Text("{name} of a token fit", name=entries.name),
        Text("{bytes} * numTopk <= bytes left beside the rows", bytes=entries.bytes),
        {"numTopk": tiling.top_k, "bytes left": left},
        True,
        ("the kernel can work", ""),
        *([("num_topk", beyond)] if entries.most < 0 or beyond <= entries.most else []),
    )


def _batch_decision(case: Case, tiling: moe.Tiling, entries: Entries) -> Decision:
    name, left, token_bytes = entries.name, _bytes_left(case), tiling.top_k * entries.bytes
    needed = tiling.core_tokens * token_bytes
    largest = (left // token_bytes + 1) * case.device.vector_cores - 1
    at_a_time = _count(tiling.batch_tokens)
    in_batches = Text("{name} are copied for {count} at a time", name=name, count=at_a_time)
    condition = Text(
        "tokens of a core * numTopk * {bytes} <= bytes left beside the rows", bytes=entries.bytes
    )
    return decided(
        Text("{name} in one batch", name=name),
        condition,
        {"tokens of a core": tiling.core_tokens, "bytes needed": needed, "bytes left": left},
        needed <= left,
        (Text("{name} are copied at once", name=name), in_batches),
        ("tokens", largest + (needed <= left)),
    )


def _workspace(case: Case, tiling: moe.Tiling) -> Workspace:
    system = WorkspacePart(name="system", bytes=tiling.workspace_bytes, kind="system")
    if tiling.workspace_bytes == 0:
        note = (
            "the planner does not request it at this release; whether the framework adds it is "
            "not published"
        )
        system = system.model_copy(update={"evidence": Evidence.UNKNOWN, "note": note})
    return kernel_workspace((system,), case.copies, case.operator.title)


def _order(case: Case) -> OutputOrder:
    reason = "every token is summed by one core, its rows in k order; nothing is added atomically"
    return OutputOrder(output=case.operator.outputs[0].output, fixed=True, reason=reason)
