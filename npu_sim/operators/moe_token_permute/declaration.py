"""MoeTokenPermute: sort copies of tokens by expert.

Its sorted indices are an input of MoeTokenPermuteGrad.

Source: product document aclnnMoeTokenPermute; specification page ``moe_token_permute``.
"""

from npu_sim.framework import checks
from npu_sim.framework.arguments import INT64_MAX, Attribute, Output, Tensor
from npu_sim.framework.axes import FLOAT_DTYPES, Derived, Number, Word
from npu_sim.framework.case import Inspection
from npu_sim.framework.operator import Operator
from npu_sim.operators.moe_token_permute.compute import ID_DTYPES
from npu_sim.operators.moe_token_permute.plan import buffer_message
from npu_sim.plans.answers import Evidence
from npu_sim.registry import ASCEND_950
from npu_sim.status import TILING_FAILURE, AclnnError
from npu_sim.tiling import moe_token_permute as tiler

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


def check_padding(call: Inspection) -> None:
    """Reject padding, which is not supported yet: 561002, unlike in MoeTokenPermuteGrad."""
    if call.arguments.padded_mode:
        message = "padded_mode = True is not supported yet"
        raise AclnnError(TILING_FAILURE, "padded_mode", message, "padded_mode = False")


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
        checks.Dtypes("tokens", lambda profile: profile.product.dtypes),
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
