"""MoeTokenUnpermute: weighted sum of the expert outputs of every token.

Source: product document aclnnMoeTokenUnpermute; specification page ``moe_token_unpermute``.
"""

from npu_sim.framework import checks
from npu_sim.framework.arguments import Output
from npu_sim.framework.axes import FLOAT_DTYPES, Derived
from npu_sim.framework.case import Case, Inspection
from npu_sim.framework.operator import Operator
from npu_sim.language import Text
from npu_sim.operators.moe_token_unpermute.plan import entry_name, probs_code
from npu_sim.operators.shared import unpermuted_tokens
from npu_sim.operators.shared.token_sums import buffer_message, check_padding
from npu_sim.plans.answers import Evidence
from npu_sim.registry import ASCEND_950
from npu_sim.status import TILING_FAILURE
from npu_sim.tiling import moe_token_unpermute as tiler
from npu_sim.tiling import token_sums


def _topk_message(call: Inspection) -> tuple[str, str]:
    """Return message and hint for num_topk beyond the limit (page, "Where 512 comes from")."""
    tokens, hidden = call.specs["permuted_tokens"], call.size("hidden")
    ub_bytes = call.device.ub_bytes
    entry = tiler.bytes_of_entry(probs_code(call))
    largest = token_sums.largest_topk(ub_bytes, hidden, tokens.itemsize, entry)
    largest_everywhere = token_sums.largest_topk_of_every_hidden(ub_bytes, tokens.itemsize, entry)
    message, hint = unpermuted_tokens.topk_message(call)
    return (
        message,
        Text(
            "{hint}; capacity of the buffers on {title}: {largest} at hidden {hidden}, "
            "{largest_everywhere} at every hidden size",
            hint=hint,
            title=call.profile.title,
            largest=largest,
            hidden=hidden,
            largest_everywhere=largest_everywhere,
        ),
    )


def _rows_message(call: Inspection) -> tuple[str, str]:
    rows, entries = call.size("rows"), call.size("entries")
    message = Text(
        "permuted_tokens has {rows} rows, sorted_indices only {entries} elements",
        rows=rows,
        entries=entries,
    )
    return message, Text(
        "at most {entries} rows: one for every index, fewer when tokens were dropped",
        entries=entries,
    )


def _buffer_message(case: Case) -> tuple[str, str, str]:
    return buffer_message(
        case, entry_name(case), tiler.bytes_of_entry(probs_code(case)), case.row.top_k, "probs"
    )


OPERATOR = Operator(
    name="moe_token_unpermute",
    title="MoeTokenUnpermute",
    summary="Gather the rows that experts returned, weight them with probs "
    "and sum them for every token, as the product does.",
    arguments=(
        unpermuted_tokens.permuted_tokens(
            "rows of the experts, (tokens * num_topk, hidden), or fewer when tokens were dropped"
        ),
        unpermuted_tokens.SORTED_INDICES,
        unpermuted_tokens.PROBS,
        *unpermuted_tokens.ATTRIBUTES,
        Output(
            "out",
            "tokens hidden",
            "sum of every token",
            "dtype",
            samples=0,
            result="unpermuted_tokens",
        ),
    ),
    axes=unpermuted_tokens.axes("permuted_tokens"),
    derived=(*unpermuted_tokens.DERIVED, Derived("rows", "entries")),
    checks=(
        checks.Given(),
        checks.Supported(),
        checks.Dtypes("permuted_tokens", lambda profile: profile.product.dtypes),
        checks.SameDtype("out", "permuted_tokens"),
        checks.Dtypes("sorted_indices", ("int32",)),
        checks.Dtypes("probs", FLOAT_DTYPES),
        checks.Formats(checks.ND),
        checks.Attributes("padded_mode restore_shape"),
        check_padding,
        checks.Ranks("permuted_tokens", 2, 2, TILING_FAILURE),
        checks.Ranks("sorted_indices", 1, 1, TILING_FAILURE),
        checks.Ranks("probs", 2, 2, TILING_FAILURE),
        checks.Shapes("permuted_tokens probs sorted_indices", TILING_FAILURE),
        checks.Holds(f"top_k <= {token_sums.MOST_TOPK}", "probs", _topk_message),
        checks.Holds("top_k >= 1 or tokens == 0", "probs"),
        checks.Holds("hidden >= 1", "permuted_tokens"),
        checks.Holds("rows <= entries", "permuted_tokens", _rows_message),
        checks.Shapes("out", TILING_FAILURE),
        checks.NothingToDo("tokens == 0"),
    ),
    tiling=token_sums.Tiling,
    tile=tiler.tile_row,
    data=unpermuted_tokens.data,
    evidence=Evidence.EXACT,
    empty="empty: no tokens, nothing runs",
    planner_message=_buffer_message,
    families=(ASCEND_950,),
    package=__package__,
)
