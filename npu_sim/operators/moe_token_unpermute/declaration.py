"""MoeTokenUnpermute: weighted sum of the expert outputs of every token.

Source: product document aclnnMoeTokenUnpermute; specification page ``moe_token_unpermute``.
"""

from npu_sim.framework.vocabulary import (
    ASCEND_950,
    FLOAT_DTYPES,
    TILING_FAILURE,
    Case,
    Derived,
    Evidence,
    Inspection,
    MessageAndHint,
    Operator,
    Output,
    PlannerMessage,
    Text,
    checks,
)
from npu_sim.operators.shared.routed_tokens.declaration import (
    ATTRIBUTES,
    ENTRY_COUNTS,
    PROBS,
    SORTED_INDICES,
    axes,
    buffer_message,
    check_padding,
    permuted_tokens,
    probs_code,
    topk_message,
)
from npu_sim.tiling import moe_token_unpermute as tiler


def _topk_message(call: Inspection) -> MessageAndHint:
    """Return message and hint for num_topk beyond the limit (page, "Where 512 comes from")."""
    size, hidden = call.specs["permuted_tokens"].itemsize, call.size("hidden")
    ub_bytes, entry = call.device.ub_bytes, tiler.bytes_of_entry(probs_code(call))
    message, hint = topk_message(call)
    return (
        message,
        Text(
            "{hint}; capacity of the buffers on {title}: {largest} at hidden {hidden}, "
            "{largest_everywhere} at every hidden size",
            hint=hint,
            title=call.profile.title,
            largest=tiler.largest_topk(ub_bytes, hidden, size, entry),
            hidden=hidden,
            largest_everywhere=tiler.largest_topk_of_every_hidden(ub_bytes, size, entry),
        ),
    )


def _rows_message(call: Inspection) -> MessageAndHint:
    rows, entries = call.size("rows"), call.size("entries")
    return Text(
        "permuted_tokens has {rows} rows, sorted_indices only {entries} elements",
        rows=rows,
        entries=entries,
    ), Text(
        "at most {entries} rows: one for every index, fewer when tokens were dropped",
        entries=entries,
    )


def _buffer_message(case: Case) -> PlannerMessage:
    return buffer_message(
        case, entry_name(case), tiler.bytes_of_entry(probs_code(case)), case.row.top_k, "probs"
    )


OPERATOR = Operator(
    name="moe_token_unpermute",
    title="MoeTokenUnpermute",
    summary="Gather the rows that experts returned, weight them with probs "
    "and sum them for every token, as the product does.",
    arguments=(
        permuted_tokens(
            "rows of the experts, (tokens * num_topk, hidden), or fewer when tokens were dropped"
        ),
        SORTED_INDICES,
        PROBS,
        *ATTRIBUTES,
        Output(
            "out",
            "tokens hidden",
            "sum of every token",
            "dtype",
            samples=0,
            result="unpermuted_tokens",
        ),
    ),
    axes=axes("permuted_tokens"),
    derived=(*ENTRY_COUNTS, Derived("rows", "entries")),
    checks=(
        checks.Given(),
        checks.Supported(),
        checks.Dtypes("permuted_tokens", checks.product_dtypes),
        checks.SameDtype("out", "permuted_tokens"),
        checks.Dtypes("sorted_indices"),
        checks.Dtypes("probs", FLOAT_DTYPES),
        checks.Formats(checks.ND),
        checks.Attributes("padded_mode restore_shape"),
        check_padding,
        checks.Ranks("permuted_tokens", 2, 2, TILING_FAILURE),
        checks.Ranks("sorted_indices", 1, 1, TILING_FAILURE),
        checks.Ranks("probs", 2, 2, TILING_FAILURE),
        checks.Shapes("permuted_tokens probs sorted_indices", TILING_FAILURE),
        checks.Holds(f"top_k <= {tiler.MOST_TOPK}", "probs", _topk_message),
        checks.Holds("top_k >= 1 or tokens == 0", "probs"),
        checks.Holds("hidden >= 1", "permuted_tokens"),
        checks.Holds("rows <= entries", "permuted_tokens", _rows_message),
        checks.Shapes("out", TILING_FAILURE),
        checks.NothingToDo("tokens == 0"),
    ),
    tiling=tiler.Tiling,
    tile=tiler.tile_row,
    evidence=Evidence.EXACT,
    empty="empty: no tokens, nothing runs",
    planner_message=_buffer_message,
    families=(ASCEND_950,),
    package=__package__,
)


def entry_name(case: Case) -> str:
    """Return the name of the entries of a token."""
    return "indices and probs" if case.row.has_probs else "indices"
