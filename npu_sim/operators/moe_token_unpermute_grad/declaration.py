"""MoeTokenUnpermuteGrad: the gradients of the expert outputs and of their weights.

Source: product document aclnnMoeTokenUnpermuteGrad; specification page
``moe_token_unpermute_grad``.
"""

from collections.abc import Mapping

from npu_sim.framework.vocabulary import (
    ASCEND_950,
    FLOAT_DTYPES,
    NULL_POINTER,
    TILING_FAILURE,
    Case,
    Derived,
    Evidence,
    Inspection,
    MessageAndHint,
    Operator,
    Output,
    PlannerMessage,
    Switch,
    Tensor,
    TensorSpec,
    Text,
    checks,
)
from npu_sim.operators.shared.routed_tokens.declaration import (
    ATTRIBUTES,
    ENTRY_COUNTS,
    PROBS,
    SORTED_INDICES,
    axes,
    check_padding,
    topk_message,
)
from npu_sim.tiling import moe_token_unpermute_grad as tiler
from npu_sim.tiling.moe_token_unpermute import MOST_TOPK


def _rows_of(specs: Mapping[str, TensorSpec]) -> int:
    """Return the number of expert rows; one per index when they are not given."""
    return specs["permuted_tokens" if "permuted_tokens" in specs else "sorted_indices"].shape[0]


def _missing_message(call: Inspection) -> MessageAndHint:
    return (
        "permuted_tokens is missing",
        Text(
            "permuted_tokens: rows of the experts, (tokens * num_topk, hidden); {why}",
            why="with probs the gradient of probs is made of it"
            if "probs" in call.specs
            else "up to release 9.0 it gives the ends of rows",
        ),
    )


def _rows_message(call: Inspection) -> MessageAndHint:
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


def _buffer_message(case: Case) -> PlannerMessage:
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
        SORTED_INDICES,
        PROBS,
        *ATTRIBUTES,
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
    axes=(TOKENS, *axes("unpermuted_tokens_grad")),
    derived=(*ENTRY_COUNTS, Derived("rows", "entries", _rows_of)),
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
        checks.Dtypes("sorted_indices"),
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
        checks.Holds(f"top_k <= {MOST_TOPK}", "probs", topk_message),
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
    evidence=Evidence.EXACT,
    empty="empty: no tokens, nothing runs",
    planner_message=_buffer_message,
    families=(ASCEND_950,),
    package=__package__,
)
