"""Contract of MoeTokenUnpermuteGrad on Ascend 950.

Source: specification page ``moe_token_unpermute_grad_950``.
"""

from npu_sim.framework.vocabulary import (
    FLOAT_DTYPES,
    NULL_POINTER,
    TILING_FAILURE,
    Derived,
    Inspection,
    MessageAndHint,
    TensorSpec,
    Text,
    checks,
)
from npu_sim.operators.shared.routed_tokens.declaration import ENTRY_COUNTS, check_padding

MOST_COLUMNS = 65535 * 10400
"""Columns up to which the sums of fp32 rows are described (page, "Order": 65536 slots are not)."""


def _missing_message(call: Inspection) -> MessageAndHint:
    return (
        "permuted_tokens is missing",
        "permuted_tokens: rows of the experts, (tokens * num_topk, hidden); Ascend 950 needs it "
        "without probs too",
    )


def check_tokens(call: Inspection) -> None:
    """Check the shape of permuted_tokens; without probs the product does not look at it."""
    if "probs" in call.specs:
        checks.Shapes("permuted_tokens", TILING_FAILURE)(call)
    elif "permuted_tokens_grad" not in call.specs:
        shape = call.size("entries"), call.size("hidden")
        dtype = call.specs["unpermuted_tokens_grad"].dtype
        call.specs["permuted_tokens_grad"] = TensorSpec.known(shape, dtype)


def _rows_message(call: Inspection) -> MessageAndHint:
    rows, entries = call.size("rows"), call.size("entries")
    return Text(
        "permuted_tokens has {rows} rows, sorted_indices {entries} elements",
        rows=rows,
        entries=entries,
    ), Text("{entries} rows, one for every index: Ascend 950 refuses dropped rows", entries=entries)


DERIVED = (*ENTRY_COUNTS, Derived("rows", "entries"))
CHECKS = (
    checks.Attributes("padded_mode restore_shape"),
    check_padding,
    checks.Given(),
    checks.Holds("has_tokens == 1", "permuted_tokens", _missing_message, NULL_POINTER),
    checks.Supported(),
    checks.Dtypes("unpermuted_tokens_grad", checks.product_dtypes),
    checks.SameDtype("permuted_tokens permuted_tokens_grad", "unpermuted_tokens_grad"),
    checks.Dtypes("sorted_indices"),
    checks.Dtypes("probs probs_grad", FLOAT_DTYPES),
    checks.Ranks("sorted_indices", 1),
    checks.Formats(checks.ND),
    checks.Ranks("unpermuted_tokens_grad", 2, 2, TILING_FAILURE),
    checks.Ranks("sorted_indices", 1, 1, TILING_FAILURE),
    checks.Ranks("probs", 2, 2, TILING_FAILURE),
    checks.Shapes("unpermuted_tokens_grad", TILING_FAILURE),
    checks.Shapes("probs", TILING_FAILURE),
    checks.Shapes("sorted_indices", TILING_FAILURE),
    check_tokens,
    checks.SameDtype("probs_grad", "probs", TILING_FAILURE),
    checks.Holds("rows == entries", "permuted_tokens", _rows_message),
    checks.Shapes("permuted_tokens_grad probs_grad", TILING_FAILURE),
    checks.NothingToDo("entries == 0 or (hidden == 0 and has_probs == 0)"),
    checks.Holds("hidden >= 1", "unpermuted_tokens_grad"),
    checks.Holds(f"hidden <= {MOST_COLUMNS} or has_probs == 0", "unpermuted_tokens_grad"),
)
