"""MoeTokenUnpermuteGrad: the gradients of the expert outputs and of their weights.

Source: product document aclnnMoeTokenUnpermuteGrad; specification page
``moe_token_unpermute_grad``.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from npu_sim.framework.vocabulary import (
    ASCEND_950,
    BLOCK_BYTES,
    FLOAT_DTYPES,
    NULL_POINTER,
    TILING_FAILURE,
    Case,
    Caveat,
    Condition,
    Decision,
    Derived,
    Description,
    Evidence,
    Inspection,
    Operator,
    Order,
    Output,
    OutputOrder,
    Run,
    Switch,
    Tensor,
    TensorSpec,
    Text,
    align,
    caveat,
    checks,
    counted,
    decision,
    vector_plan,
)
from npu_sim.operators.moe_token_unpermute.declaration import probs_code
from npu_sim.operators.shared import token_sums
from npu_sim.tiling import moe_token_unpermute_grad as tiler
from npu_sim.tiling.moe_token_unpermute import MOST_TOPK


def _rows_of(specs: Mapping[str, TensorSpec]) -> int:
    """Return the number of expert rows; one per index when they are not given."""
    return specs["permuted_tokens" if "permuted_tokens" in specs else "sorted_indices"].shape[0]


def _missing_message(call: Inspection) -> tuple[str, str]:
    return (
        "permuted_tokens is missing",
        Text(
            "permuted_tokens: rows of the experts, (tokens * num_topk, hidden); {why}",
            why="with probs the gradient of probs is made of it"
            if "probs" in call.specs
            else "up to release 9.0 it gives the ends of rows",
        ),
    )


def _rows_message(call: Inspection) -> tuple[str, str]:
    rows, entries = call.size("rows"), call.size("entries")
    message = Text(
        "permuted_tokens has {rows} rows, sorted_indices {entries} elements",
        rows=rows,
        entries=entries,
    )
    if rows > entries:
        return message, Text("at most {entries} rows, one for every index", entries=entries)
    return message, Text(
        "{entries} rows: from release 9.1 on the kernel takes the length of sorted_indices "
        "for the rows, and reads and writes behind permuted_tokens and its gradient for "
        "every index of a dropped token; up to 9.0 it omits such tokens",
        entries=entries,
    )


def _buffer_message(case: Case) -> tuple[str, str, str]:
    ub_bytes, title = case.device.ub_bytes, case.profile.title
    return (
        "unpermuted_tokens_grad",
        Text(
            "no piece of a row fits the Unified Buffer of {title}: {ub_bytes} usable bytes",
            title=title,
            ub_bytes=ub_bytes,
        ),
        "a smaller num_topk, or a SoC with a larger Unified Buffer",
    )


TOKENS = Switch(
    "has_tokens",
    "whether permuted_tokens is given",
    True,
    aliases=("permuted_tokens_given",),
    tensor="permuted_tokens",
)


OPERATOR = Operator(
    name="moe_token_unpermute_grad",
    title="MoeTokenUnpermuteGrad",
    summary="Compute the gradients of the rows of the experts and of probs, as the product does.",
    arguments=(
        Tensor(
            "permuted_tokens",
            "rows hidden",
            "rows of the experts, (tokens * num_topk, hidden); "
            "without probs it may be None from release 9.1 on",
            "dtype",
            document="permutedTokensOptional",
            optional=True,
        ),
        Tensor(
            "unpermuted_tokens_grad",
            "tokens hidden",
            "gradient of the tokens, (tokens, hidden)",
            "dtype",
            samples=0,
        ),
        token_sums.SORTED_INDICES,
        token_sums.PROBS,
        *token_sums.ATTRIBUTES,
        Output(
            "permuted_tokens_grad",
            "rows hidden",
            "gradient of permuted_tokens",
            "dtype",
            document="permutedTokensGradOut",
        ),
        Output(
            "probs_grad",
            "tokens num_topk",
            "gradient of probs; None without probs",
            "probs_dtype",
            document="probsGradOut",
            samples=0,
            given_with="probs",
        ),
    ),
    axes=(TOKENS, *token_sums.axes("unpermuted_tokens_grad")),
    derived=(*token_sums.DERIVED, Derived("rows", "entries", _rows_of)),
    checks=(
        checks.Given(),
        checks.Holds(
            "has_tokens == 1 or (has_probs == 0 and counts_rows == 0)",
            "permuted_tokens",
            _missing_message,
            NULL_POINTER,
        ),
        checks.Supported(),
        checks.Dtypes("unpermuted_tokens_grad", checks.product_dtypes),
        checks.SameDtype("permuted_tokens permuted_tokens_grad", "unpermuted_tokens_grad"),
        checks.Dtypes("sorted_indices", ("int32",)),
        checks.Dtypes("probs probs_grad", FLOAT_DTYPES),
        checks.SameDtype("probs_grad", "probs"),
        checks.Formats(checks.ND),
        checks.Attributes("padded_mode restore_shape"),
        token_sums.check_padding,
        checks.Ranks("unpermuted_tokens_grad", 2, 2, TILING_FAILURE),
        checks.Ranks("sorted_indices", 1, 1, TILING_FAILURE),
        checks.Ranks("probs permuted_tokens", 2, 2, TILING_FAILURE),
        checks.Shapes("unpermuted_tokens_grad", TILING_FAILURE),
        checks.Holds("hidden >= 1", "unpermuted_tokens_grad"),
        checks.Shapes("probs", TILING_FAILURE),
        checks.Holds("top_k >= 1", "probs"),
        checks.Holds(f"top_k <= {MOST_TOPK}", "probs", token_sums.topk_message),
        checks.Shapes("sorted_indices permuted_tokens", TILING_FAILURE),
        checks.Holds(
            "rows == entries or (rows < entries and counts_rows == 1)",
            "permuted_tokens",
            _rows_message,
        ),
        checks.Shapes("permuted_tokens_grad probs_grad", TILING_FAILURE),
        checks.NothingToDo("tokens == 0"),
    ),
    tiling=tiler.Tiling,
    tile=tiler.tile_row,
    data=token_sums.data,
    evidence=Evidence.EXACT,
    empty="empty: no tokens, nothing runs",
    planner_message=_buffer_message,
    families=(ASCEND_950,),
    package=__package__,
)


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
        ranges=[tiler.token_range(tiling, core) for core in range(tiling.block_dim)],
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
    yield from token_sums.dropped_tokens(row)
    if row.has_probs and tiling.pieces > 1:
        yield caveat(
            "hidden_split_changes_sums",
            "probs_grad",
            "rows are summed in pieces of {piece_columns} columns, whose length follows from the "
            "tokens of a core: the last bit of probs_grad can change with the SoC and with the "
            "number of tokens",
            piece_columns=tiling.piece_columns,
        )


NO_ENTRY = -1
"""Marks a row that no entry writes."""


@dataclass(frozen=True)
class LastWriters:
    """For each row of permuted_tokens_grad, the entry whose write survives.

    Attributes
    ----------
    entries : int32 (rows,)
        Entry whose write arrives last; `NO_ENTRY` if no entry writes the row.
    order_dependent_rows : bool (rows,)
        Rows written by more than one core: their values depend on the order of arrival.
    repeated
        Number of rows written more than once.
    """

    entries: np.ndarray
    order_dependent_rows: np.ndarray
    repeated: int


def find_last_writers(
    indices: np.ndarray, rows: int, stops: Sequence[int], order: Order
) -> LastWriters:
    """Return the entry that writes each row last, for one order of arrival.

    Entries of one core arrive in order; the order between cores is not fixed.

    Parameters
    ----------
    indices : int32 (tokens * top_k,)
        Indices of rows; those out of range are dropped.
    rows
        Number of rows.
    stops
        For every core the entry behind its last one.
    order
        Order of arrival. Only the entries at `LastWriters.order_dependent_rows` depend on it;
        these rows themselves do not.
    """
    # Without repeated indices, each row has at most one writer, whatever the order.
    kept = np.flatnonzero((indices >= 0) & (indices < rows)).astype(np.int32)
    entries = np.full(rows, NO_ENTRY, np.int32)
    entries[indices[kept]] = kept  # of several entries, the last in order
    order_dependent_rows = np.zeros(rows, np.bool_)
    if np.count_nonzero(entries != NO_ENTRY) == kept.size:
        return LastWriters(entries, order_dependent_rows, 0)
    # Rows written more than once: the last entry of the core that arrives last.
    times_written = np.bincount(indices[kept], minlength=rows)
    of_repeated = kept[times_written[indices[kept]] > 1]
    for row, places in _by_row(indices[of_repeated], of_repeated):
        cores = np.searchsorted(stops, places, side="right")
        order_dependent_rows[row] = cores[0] != cores[-1]
        entries[row] = places[cores == _last_core(cores, row, order)][-1]
    return LastWriters(entries, order_dependent_rows, int(np.count_nonzero(times_written > 1)))


def _by_row(rows: np.ndarray, places: np.ndarray) -> list[tuple[int, np.ndarray]]:
    """Return rows and their entries in order."""
    by_row = np.argsort(rows, kind="stable")
    starts = np.flatnonzero(np.diff(rows[by_row], prepend=-1))  # rows are >= 0: the first starts
    return list(
        zip(rows[by_row][starts].tolist(), np.split(places[by_row], starts[1:]), strict=True)
    )


def _last_core(cores: np.ndarray, row: int, order: Order) -> int:
    """Return the core whose write to a row arrives last; ``cores`` are sorted, one per entry."""
    if order.core_order == "reverse":
        return int(cores[0])
    if order.core_order == "round_robin":
        # All cores' first writes, then all second ones, and so on: the core with most
        # writes is last; of several, the highest core.
        counts = np.bincount(cores)
        return int(np.flatnonzero(counts == counts.max())[-1])
    if order.core_order == "random":
        return int(np.random.default_rng([order.seed, row]).choice(np.unique(cores)))
    return int(cores[-1])


def compute(run: Run) -> None:
    """Compute both gradients; unwritten rows are +0 (on a device they keep old memory)."""
    tiling, indices = run.case.tiling, run.tensors["sorted_indices"]
    with run.watch.stage("check"):
        token_sums.check_indices(indices, "permuted_tokens")
        stops = [
            tiler.token_range(tiling, core)[1] * tiling.top_k for core in range(tiling.block_dim)
        ]
        writers = find_last_writers(indices, tiling.rows, stops, run.order)
    sums = write_gradients(run, writers, tiling.piece_columns)
    run.caveats = (
        *dropped_indices(indices, tiling.rows),
        *lost_rows(writers),
        *_sums_of_dropped(indices, tiling.rows, sums),
    )


def write_gradients(
    run: Run,
    writers: LastWriters,
    piece_columns: int,
    folds_once: bool = False,
    cut: tuple[int, int] = (0, 0),
) -> np.ndarray:
    """Write both gradients, and return that of probs before its rounding; empty without probs.

    ``piece_columns``, ``folds_once`` and ``cut`` are those of
    :class:`npu_sim.kernels.moe_token_unpermute_grad.Summation`.
    """
    case, sums = run.case, np.empty(0, np.float32)
    with run.watch.stage("load"):
        from npu_sim.kernels.elementwise import narrow_array, widen_array
        from npu_sim.kernels.moe_token_permute import gather_rows
        from npu_sim.kernels.moe_token_unpermute_grad import Cut, Summation, weigh_and_multiply
    with run.watch.stage("compute"):
        g, out = run.stored("unpermuted_tokens_grad"), run.written("permuted_tokens_grad")
        if case.row.has_probs:
            probs = widen_array(run.stored("probs")).reshape(-1)
            rows, indices = run.stored("permuted_tokens"), run.stored("sorted_indices")
            sums = np.empty(indices.size, np.float32)
            order = Summation(piece_columns, folds_once, Cut(*cut))
            weigh_and_multiply(rows, g, indices, probs, writers.entries, order, out, sums)
            out[writers.entries < 0] = 0
            run.outputs["probs_grad"][...] = narrow_array(sums, case.specs["probs"].dtype).reshape(
                case.specs["probs"].shape
            )
        else:
            gather_rows(g, writers.entries, out)
    run.masks["permuted_tokens_grad"] = writers.order_dependent_rows
    return sums


def dropped_indices(indices: np.ndarray, rows: int) -> Iterator[Caveat]:
    """Yield the warning that indices are beyond the rows."""
    if count := int(np.count_nonzero(indices >= rows)):
        yield caveat(
            "tokens_dropped",
            "sorted_indices",
            "{count} indices are at or beyond {rows}: they were dropped",
            count=count,
            rows=rows,
        )


def lost_rows(writers: LastWriters) -> Iterator[Caveat]:
    """Yield the warnings about rows that are named by no index, or by several."""
    if unwritten := int(np.count_nonzero(writers.entries < 0)):
        yield caveat(
            "rows_not_written",
            "permuted_tokens_grad",
            "{unwritten} rows are named by no index: +0 here, on the device they keep what "
            "memory held",
            unwritten=unwritten,
        )
    if writers.repeated:
        yield caveat(
            "duplicate_indices",
            "sorted_indices",
            "{repeated} rows are named more than once, {across}",
            repeated=writers.repeated,
            across=Text(
                "{count} of them by two cores: the last one to write wins",
                count=int(np.count_nonzero(writers.order_dependent_rows)),
            ),
        )


def _sums_of_dropped(indices: np.ndarray, rows: int, sums: np.ndarray) -> Iterator[Caveat]:
    """Yield the warning that gradients of dropped entries are nan."""
    if sums.size and (count := int(np.count_nonzero(np.isnan(sums[indices >= rows])))):
        yield caveat(
            "dropped_prob_grad_not_zero",
            "unpermuted_tokens_grad",
            "probs_grad of {count} dropped entries would be 0, but is nan because 0 * inf and "
            "0 * nan are nan",
            count=count,
        )


def formula(
    arguments: Any, tensors: Mapping[str, np.ndarray], precision: np.dtype[Any]
) -> dict[str, np.ndarray]:
    """Return the gradients in ``precision``; of several indices of a row the last wins."""
    g = tensors["unpermuted_tokens_grad"].astype(precision)
    probs, rows = tensors.get("probs"), tensors.get("permuted_tokens")
    indices = tensors["sorted_indices"].reshape(g.shape[0], -1)
    count = indices.size if rows is None else rows.shape[0]
    tokens_grad = np.zeros((count, g.shape[1]), precision)
    if probs is None or rows is None:  # top_k is 1: every entry copies the row of its token
        kept = np.flatnonzero((indices[:, 0] >= 0) & (indices[:, 0] < count))
        tokens_grad[indices[kept, 0]] = g[kept]
        return {"permuted_tokens_grad": tokens_grad}
    probs_grad = np.zeros(probs.shape, precision)
    for token, named in enumerate(indices):
        kept = np.flatnonzero((named >= 0) & (named < count))
        tokens_grad[named[kept]] = g[token] * probs[token, kept, None].astype(precision)
        probs_grad[token, kept] = rows[named[kept]].astype(precision) @ g[token]
    return {"permuted_tokens_grad": tokens_grad, "probs_grad": probs_grad}
