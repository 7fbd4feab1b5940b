"""MoeTokenUnpermuteGrad: the gradients of the expert outputs and of their weights.

Source: product document aclnnMoeTokenUnpermuteGrad; specification page
``moe_token_unpermute_grad``.
"""

from collections.abc import Iterator, Mapping
from typing import Any

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
    Output,
    OutputOrder,
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
from npu_sim.operators.shared.token_sums import check_padding, dropped_tokens
from npu_sim.tiling import moe_token_unpermute_grad as tiler
from npu_sim.tiling.moe_token_unpermute import MOST_TOPK


def _rows_of(specs: Mapping[str, TensorSpec]) -> int:
    """Return the number of expert rows; one per index when they are not given."""
    return specs["permuted_tokens" if "permuted_tokens" in specs else "sorted_indices"].shape[0]


def _missing_message(call: Inspection) -> tuple[str, str]:
    why = (
        "with probs the gradient of probs is made of it"
        if "probs" in call.specs
        else "up to release 9.0 it gives the ends of rows"
    )
    return (
        "permuted_tokens is missing",
        Text("permuted_tokens: rows of the experts, (tokens * num_topk, hidden); {why}", why=why),
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
        checks.Dtypes("unpermuted_tokens_grad", lambda profile: profile.product.dtypes),
        checks.SameDtype("permuted_tokens permuted_tokens_grad", "unpermuted_tokens_grad"),
        checks.Dtypes("sorted_indices", ("int32",)),
        checks.Dtypes("probs probs_grad", FLOAT_DTYPES),
        checks.SameDtype("probs_grad", "probs"),
        checks.Formats(checks.ND),
        checks.Attributes("padded_mode restore_shape"),
        check_padding,
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
