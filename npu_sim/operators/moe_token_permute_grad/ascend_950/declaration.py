"""Contract of MoeTokenPermuteGrad on Ascend 950.

Source: specification page ``moe_token_permute_grad_950``.
"""

from npu_sim.framework.vocabulary import TILING_FAILURE, Inspection, MessageAndHint, Text, checks
from npu_sim.operators.moe_token_permute_grad.declaration import check_entries
from npu_sim.operators.shared.routed_tokens.declaration import check_padding


def check_top_k(call: Inspection) -> None:
    """Check that num_topk is an integer; its planner checks the range."""
    checks.require_integer("num_topk", call.arguments.num_topk)


def _rows_message(call: Inspection) -> MessageAndHint:
    return (
        Text("permuted_output_grad has no rows: Ascend 950 refuses it"),
        Text("at least 1 row, at most {entries}", entries=call.size("entries")),
    )


CHECKS = (
    checks.Given(),
    checks.Supported(),
    checks.Dtypes("permuted_output_grad", checks.product_dtypes),
    checks.Dtypes("sorted_indices"),
    checks.SameDtype("out", "permuted_output_grad"),
    checks.Formats(checks.ND),
    checks.Attributes("padded_mode"),
    check_padding,
    check_top_k,
    checks.Holds("num_topk >= 1", "num_topk"),
    checks.Ranks("permuted_output_grad", 2, 2, TILING_FAILURE),
    checks.Ranks("sorted_indices", 1, 1, TILING_FAILURE),
    check_entries,
    checks.Holds("tokens >= 1", "sorted_indices"),
    checks.Holds("grad_rows >= 1", "permuted_output_grad", _rows_message),
    checks.Holds("hidden >= 1", "permuted_output_grad"),
    checks.Shapes("out", TILING_FAILURE),
)
