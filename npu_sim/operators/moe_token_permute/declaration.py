"""MoeTokenPermute: sort copies of tokens by expert.

Its sorted indices are an input of MoeTokenPermuteGrad.

Source: product document aclnnMoeTokenPermute; specification page ``moe_token_permute``.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from npu_sim.framework.vocabulary import (
    ASCEND_950,
    FLOAT_DTYPES,
    INT64_MAX,
    TILING_FAILURE,
    AclnnError,
    Argument,
    Attribute,
    Case,
    Caveat,
    Condition,
    Decision,
    Derived,
    Description,
    Evidence,
    Inspection,
    Memory,
    Number,
    Operator,
    Output,
    OutputOrder,
    Run,
    Tensor,
    Text,
    Word,
    WorkspacePart,
    align,
    caveat,
    checks,
    core_works,
    counted,
    decision,
    element_bytes,
    numpy_dtype,
    runtime_failure,
    spread,
    ub_memory,
    vector_plan,
)
from npu_sim.numbers.values import normal
from npu_sim.tiling import moe_token_permute as tiler

ID_DTYPES = ("int32", "int64")
AXES = (
    Word("dtype", "dtype of tokens", FLOAT_DTYPES, "bfloat16"),
    Word("indices_dtype", "dtype of indices", ID_DTYPES, "int32"),
    Number(
        "num_out_tokens",
        "numOutTokens",
        0,
        low=-INT64_MAX - 1,
        high=INT64_MAX,
        unit="row",
        aliases=("numOutTokens",),
    ),
    Number(
        "num_topk",
        "experts of a token, second axis of indices",
        8,
        unit="expert",
        aliases=("topk", "K"),
    ),
    Number(
        "hidden",
        "product of the axes of tokens but the first",
        1024,
        unit="column",
        aliases=("cols", "H", "hidden_size"),
    ),
    Number(
        "num_tokens",
        "tokens, first axis of tokens and indices",
        1024,
        unit="token",
        aliases=("n", "T"),
    ),
)


def buffer_message(case: Case) -> tuple[str, str, str]:
    """Return argument, message and hint of a call that does not fit the Unified Buffer."""
    tiling = tiler.tile(case.row, case.device, case.rules)
    ub_bytes, title = case.device.ub_bytes, case.profile.title
    if tiling.status != 0:
        least = tiler.SORT_STEP_BYTES + tiler.SORTER_BYTES * tiler.sorters(
            case.row.entries, case.device.vector_cores
        )
        message = Text(
            "nothing can be sorted in the Unified Buffer of {title}: {ub_bytes} usable bytes",
            title=title,
            ub_bytes=ub_bytes,
        )
        hint = Text(
            "{sort_entries} ids need {least} bytes", sort_entries=tiler.SORT_ENTRIES, least=least
        )
        return "indices", message, hint
    if not tiler.leaves_room(tiling):
        row_bytes, top_k = tiling.copies.row_bytes, case.row.num_topk
        message = Text(
            "two rows of {aligned} bytes and {token_position_bytes} * {top_k} bytes for the "
            "places of a token exceed the Unified Buffer of {title}, {ub_bytes} usable bytes: "
            "the product plans on with no buffers, and the kernel copies over itself",
            aligned=tiler.aligned_row_bytes(row_bytes),
            token_position_bytes=tiler.TOKEN_POSITION_BYTES,
            top_k=top_k,
            title=title,
            ub_bytes=ub_bytes,
        )
        hint = Text(
            "nearest legal value: {most_topk} experts; rows of more than {longer} bytes are "
            "split, and take every number of experts again",
            most_topk=tiler.most_topk(row_bytes, ub_bytes),
            longer=(ub_bytes - tiler.SPLIT_POSITIONS_BYTES) // tiler.ROW_BUFFERS,
        )
        return "indices", message, hint
    message = Text(
        "a stage needs {stage_bytes} bytes of the Unified Buffer of {title}, {ub_bytes} are usable",
        stage_bytes=tiler.stage_bytes(tiling),
        title=title,
        ub_bytes=ub_bytes,
    )
    return "indices", message, "fewer ids, or a larger buffer"


def check_padding(call: Inspection) -> None:
    """Reject padding, which is not supported yet: 561002, unlike in MoeTokenPermuteGrad."""
    if call.arguments.padded_mode:
        raise AclnnError(
            TILING_FAILURE,
            "padded_mode",
            "padded_mode = True is not supported yet",
            "padded_mode = False",
        )


OPERATOR = Operator(
    name="moe_token_permute",
    title="MoeTokenPermute",
    summary="Sort copies of tokens by expert as the product does.",
    arguments=(
        Tensor("tokens", "num_tokens hidden+", "tokens, (tokens, columns ...)", "dtype"),
        Tensor(
            "indices",
            "num_tokens num_topk*",
            "experts of every token, (tokens, experts), or (tokens,) for one each",
            "indices_dtype",
            addresses=True,
        ),
        Attribute(
            "num_out_tokens",
            int,
            "rows of permuted_tokens; 0 and negative numbers count from the end",
            0,
        ),
        Attribute("padded_mode", bool, "not supported yet: False", False),
        Output(
            "permuted_tokens",
            "kept_rows hidden~",
            "copies of the tokens sorted by expert, (num_out_tokens, columns ...)",
            "dtype",
            document="permuteTokensOut",
        ),
        Output(
            "sorted_indices",
            "entries",
            "place of every copy, (tokens * experts,), int32",
            "int32",
            document="sortedIndicesOut",
            parts="element",
        ),
    ),
    axes=AXES,
    derived=(
        Derived("entries", "num_tokens * num_topk"),
        Derived(
            "kept_rows", "max(0, min(num_out_tokens + entries * (num_out_tokens <= 0), entries))"
        ),
    ),
    checks=(
        checks.Given(),
        checks.Supported(),
        checks.Dtypes("tokens", checks.product_dtypes),
        checks.SameDtype("permuted_tokens", "tokens"),
        checks.Dtypes("indices", ID_DTYPES),
        checks.Dtypes("sorted_indices", ("int32",)),
        checks.Formats(checks.ND),
        checks.Attributes("num_out_tokens padded_mode"),
        check_padding,
        checks.Ranks("tokens permuted_tokens", 2, status=TILING_FAILURE),
        checks.Ranks("indices", 1, 2, TILING_FAILURE),
        checks.Shapes("tokens indices permuted_tokens sorted_indices", TILING_FAILURE),
        checks.Holds(f"num_topk <= {tiler.MOST_TOPK}", "indices"),
        checks.Holds(f"entries <= {tiler.MOST_ENTRIES}", "indices"),
        checks.NothingToDo("entries == 0"),
    ),
    tiling=tiler.Tiling,
    tile=tiler.tile_row,
    evidence=Evidence.EXACT,
    empty="empty: no ids, nothing runs",
    planner_message=buffer_message,
    families=(ASCEND_950,),
    package=__package__,
)


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
        order=fixed_order(),
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


def fixed_order() -> tuple[OutputOrder, ...]:
    """Return the orders of the outputs: rows are copies, and the sort is stable."""
    reasons = {
        "permuted_tokens": "every row is a copy, written once",
        "sorted_indices": "the sort is stable, however it is split over cores",
    }
    return tuple(
        OutputOrder(output=name, fixed=True, reason=reason) for name, reason in reasons.items()
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


LARGEST_ID = 16777214
"""Largest documented id (page, "Contract" 8)."""

FEWEST_EXPERTS = 64
"""Smallest number of experts in generated data."""


def check_ids(ids: np.ndarray) -> None:
    """Check the values of ids (page, "Contract" 8).

    Raises
    ------
    AclnnError
        361001 for an id outside [0, 16777215) that is not an extreme value of an integer type, with
        position and value of the first one.
    """
    if not ids.size or (ids.min() >= 0 and ids.max() <= LARGEST_ID):
        return
    ends = [
        end
        for dtype in ID_DTYPES
        for end in (np.iinfo(dtype).min, np.iinfo(dtype).max)
        if np.can_cast(dtype, ids.dtype)
    ]
    outside = ((ids < 0) | (ids > LARGEST_ID)) & ~np.isin(ids, ends)
    if outside.any():
        index = np.unravel_index(int(outside.argmax()), ids.shape)
        hint = Text(
            "0 <= id <= {largest_id}, or an end of its type: {ends}; {hardware} sorts ids as fp32",
            largest_id=LARGEST_ID,
            ends=", ".join(map(str, ends)),
            hardware=Argument("limits", "hardware"),
        )
        raise runtime_failure(
            "indices",
            Text(
                "indices[{index}] = {id} is outside the documented ids",
                index=", ".join(map(str, index)),
                id=ids[index],
            ),
            Text("{hint}; nothing was written", hint=hint),
        )


def compute(run: Run) -> None:
    """Sort the ids and copy the rows of the tokens."""
    with run.watch.stage("check"):
        if run.case.limits == "documented":
            check_ids(run.tensors["indices"])
    with run.watch.stage("load"):
        from npu_sim.kernels import moe_token_permute as kernels
    with run.watch.stage("compute"):
        row, ids = run.case.row, run.stored("indices").reshape(-1)
        places, permuted = run.written("sorted_indices"), run.written("permuted_tokens")
        kernels.sort_ids(ids, places)
        if row.hidden:
            kernels.copy_rows(
                run.stored("tokens").reshape(row.num_tokens, -1),
                places,
                permuted.reshape(-1, row.hidden),
                row.num_topk,
            )
        if run.case.limits == "hardware":
            run.caveats = _rounded_ids(np.flatnonzero(kernels.are_rounded(ids)), ids, places)


def _rounded_ids(rounded: np.ndarray, ids: np.ndarray, places: np.ndarray) -> tuple[Caveat, ...]:
    """Warn of ids that are not exact in fp32, given their positions (page, "Ids as fp32")."""
    if not rounded.size:
        return ()
    exact = np.empty_like(places)
    exact[np.argsort(ids, kind="stable")] = np.arange(ids.size, dtype=places.dtype)
    return (
        caveat(
            "ids_rounded",
            "indices",
            "{size} ids are not representable in fp32 and were rounded, the first at position "
            "{rounded} of the flattened indices; {moved} of them moved to another place than "
            "integer sorting gives",
            size=rounded.size,
            rounded=rounded[0],
            moved=int(np.count_nonzero(exact[rounded] != places[rounded])),
        ),
    )


def top_k_of(indices: tuple[int, ...]) -> int:
    """Return the number of experts per token, from the shape of indices."""
    return indices[1] if len(indices) == 2 else 1


def formula(
    arguments: Any, tensors: Mapping[str, np.ndarray], precision: np.dtype[Any]
) -> dict[str, np.ndarray]:
    """Return stably sorted indices and the kept rows (page, "Formula")."""
    indices = tensors["indices"]
    first = np.argsort(indices, axis=None, kind="stable")
    sorted_indices = np.empty(first.size, precision)
    sorted_indices[first] = np.arange(first.size)
    kept = first[: tiler.kept_rows(arguments.num_out_tokens, first.size)]
    tokens = tensors["tokens"][kept // top_k_of(indices.shape)]
    return {"permuted_tokens": tokens.astype(precision), "sorted_indices": sorted_indices}


def data(arguments: Any, seed: int) -> dict[str, np.ndarray]:
    """Return normal tokens and distinct experts for each token, as a router chooses them."""
    random, spec = np.random.default_rng(seed), arguments.indices
    tokens, top_k = spec.shape[0], top_k_of(spec.shape)
    experts = FEWEST_EXPERTS
    while experts < top_k:
        experts *= 2
    # An odd step modulo a power of two visits distinct experts.
    start = random.integers(0, experts, (tokens, 1))
    step = 2 * random.integers(0, experts // 2, (tokens, 1)) + 1
    chosen = (start + step * np.arange(top_k)) % experts
    return {
        "tokens": normal(random, arguments.tokens),
        "indices": chosen.reshape(spec.shape).astype(numpy_dtype(spec.dtype)),
    }
