"""MoeTokenPermuteGrad: sum of the gradients of the copies of every token.

Source: product document aclnnMoeTokenPermuteGrad; specification page ``moe_token_permute_grad``.
"""

from npu_sim.framework.vocabulary import (
    ASCEND_950,
    FLOAT_DTYPES,
    INVALID,
    TILING_FAILURE,
    AclnnError,
    Argument,
    Attribute,
    Case,
    Derived,
    Evidence,
    Inspection,
    MessageAndHint,
    Operator,
    Output,
    PlannerMessage,
    Tensor,
    Text,
    Word,
    bound_sizes,
    checks,
)
from npu_sim.operators.shared.routed_tokens.declaration import (
    buffer_message,
    check_padding,
    hidden_axis,
    tokens_axis,
    topk_axis,
)
from npu_sim.tiling import moe_token_permute_grad as tiler
from npu_sim.tiling import moe_token_unpermute as moe


def check_entries(call: Inspection) -> None:
    """Check num_topk indices per token and at most one row per index; set the sizes."""
    call.sizes = bound_sizes(call.operator, call.arguments)
    entries, rows, top_k = (call.size(name) for name in ("entries", "grad_rows", "num_topk"))
    tokens = entries // top_k
    if entries % top_k:
        raise AclnnError(
            TILING_FAILURE,
            "sorted_indices",
            "sorted_indices has {entries} elements, not a multiple of num_topk = {top_k}",
            "{below} or {above} elements" if tokens else "{top_k} elements",
            entries=entries,
            top_k=top_k,
            below=tokens * top_k,
            above=(tokens + 1) * top_k,
        )
    if rows > entries:
        raise AclnnError(
            TILING_FAILURE,
            "permuted_output_grad",
            "permuted_output_grad has {rows} rows, sorted_indices only {entries} elements",
            "at most {entries} rows: one for every index, fewer when tokens were dropped",
            rows=rows,
            entries=entries,
        )


def _documented_message(call: Inspection) -> MessageAndHint:
    """Return message and hint for num_topk beyond its documented bound.

    Source: page, "The real breaking point".
    """
    profile, grad, top_k = call.profile, call.specs["permuted_output_grad"], call.size("num_topk")
    documented, ub_bytes = call.rules.num_topk_at_most, call.device.ub_bytes
    really = Text(
        "numTopk <= {largest_topk_of_every_hidden} at every hidden size",
        largest_topk_of_every_hidden=moe.largest_topk_of_every_hidden(ub_bytes, grad.itemsize),
    )
    if grad.rank == 2 and grad.shape[1] > 0:
        really = Text(
            "numTopk <= {largest} at hidden {shape} {dtype}, {really}",
            largest=moe.largest_topk(ub_bytes, grad.shape[1], grad.itemsize),
            shape=grad.shape[1],
            dtype=grad.dtype,
            really=really,
        )
    return Text(
        "num_topk = {top_k} exceeds the documented limit numTopk <= {documented}; the "
        "planner keeps {reserved_topk} * {reserved_entry_bytes} = {reserved_bytes} bytes of "
        "the Unified Buffer for indices",
        top_k=top_k,
        documented=documented,
        reserved_topk=moe.RESERVED_TOPK,
        reserved_entry_bytes=moe.RESERVED_ENTRY_BYTES,
        reserved_bytes=moe.RESERVED_BYTES,
    ), Text(
        "nearest legal value: {documented}; hardware limit on {title}: {really} ({limits})",
        documented=documented,
        title=profile.title,
        really=really,
        limits=Argument("limits", "hardware"),
    )


def _buffer_message(case: Case) -> PlannerMessage:
    return buffer_message(case, "indices", moe.INDEX_BYTES, case.row.num_topk, "num_topk")


OPERATOR = Operator(
    name="moe_token_permute_grad",
    title="MoeTokenPermuteGrad",
    summary="Sum for every token the gradients that its experts return, as the product does.",
    arguments=(
        Tensor(
            "permuted_output_grad",
            "grad_rows hidden",
            "gradient of the permuted tokens, (tokens * num_topk, hidden), "
            "or fewer rows when tokens were dropped",
            "dtype",
        ),
        Tensor(
            "sorted_indices",
            "entries",
            "row of every token and expert, (tokens * num_topk,), "
            "at or beyond the rows of the gradient where it was dropped",
            "int32",
            samples=0,
            addresses=True,
        ),
        Attribute("num_topk", int, "experts chosen for a token", low=1),
        Attribute(
            "padded_mode", bool, "not supported yet: False", False, document="paddedModeOptional"
        ),
        Output(
            "out",
            "tokens hidden",
            "gradient of the tokens",
            "dtype",
            samples=0,
            result="input_grad",
        ),
    ),
    axes=(
        Word("dtype", "dtype of permuted_output_grad", FLOAT_DTYPES, "bfloat16"),
        topk_axis(Text("experts chosen for a token")),
        hidden_axis("permuted_output_grad"),
        tokens_axis("entries // num_topk"),
    ),
    derived=(Derived("entries", "tokens * num_topk"), Derived("grad_rows", "entries")),
    checks=(
        checks.Given(),
        checks.Supported(),
        checks.Dtypes("permuted_output_grad", checks.product_dtypes),
        checks.Dtypes("sorted_indices"),
        checks.SameDtype("out", "permuted_output_grad"),
        checks.Formats(checks.ND),
        checks.Attributes("padded_mode"),
        check_padding,
        checks.Attributes("num_topk"),
        checks.Holds(
            "num_topk <= num_topk_at_most",
            "num_topk",
            _documented_message,
            INVALID,
            documented=True,
        ),
        checks.Ranks("permuted_output_grad", 2, 2, TILING_FAILURE),
        checks.Ranks("sorted_indices", 1, 1, TILING_FAILURE),
        check_entries,
        checks.Holds("hidden >= 1", "permuted_output_grad"),
        checks.Shapes("out", TILING_FAILURE),
        checks.NothingToDo("tokens == 0"),
    ),
    tiling=moe.Tiling,
    tile=tiler.tile_row,
    evidence=Evidence.EXACT,
    empty="empty: no tokens, nothing runs",
    planner_message=_buffer_message,
    families=(ASCEND_950,),
    package=__package__,
)
