"""MoeTokenPermute: sort copies of tokens by expert.

Its sorted indices are an input of MoeTokenPermuteGrad.

Source: product document aclnnMoeTokenPermute; specification page ``moe_token_permute``.
"""

from npu_sim.framework.vocabulary import (
    ASCEND_950,
    FLOAT_DTYPES,
    INT64_MAX,
    TILING_FAILURE,
    AclnnError,
    Attribute,
    Case,
    Derived,
    Evidence,
    Inspection,
    Number,
    Operator,
    Output,
    PlannerMessage,
    Tensor,
    Text,
    Word,
    checks,
)
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


def buffer_message(case: Case) -> PlannerMessage:
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
        checks.Dtypes("sorted_indices"),
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
