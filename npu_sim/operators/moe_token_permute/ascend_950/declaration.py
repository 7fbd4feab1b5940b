"""Contract of MoeTokenPermute on Ascend 950.

Source: specification page ``moe_token_permute_950``.
"""

from typing import Any

from npu_sim.framework.vocabulary import (
    FLOAT_DTYPES,
    TILING_FAILURE,
    Argument,
    Derived,
    Inspection,
    MessageAndHint,
    Text,
    Word,
    checks,
)
from npu_sim.operators.moe_token_permute import declaration
from npu_sim.operators.shared.routed_tokens.declaration import check_padding
from npu_sim.tiling.ascend_950 import moe_token_permute as tiler
from npu_sim.tiling.moe_token_permute import MOST_TOPK

DTYPES = (*FLOAT_DTYPES, "int8")


def is_documented(row: Any, device: Any, rules: Any) -> bool:
    """Return whether an int8 call keeps the document's limits."""
    return bool(
        row.limits == 1
        or row.dtype != tiler.INT8
        or max(row.entries, row.num_out_tokens) <= tiler.EXPERTS
    )


def _int8_message(call: Inspection) -> MessageAndHint:
    return Text(
        "indices has {entries} elements, num_out_tokens = {num_out_tokens}: with int8 tokens the "
        "product document allows {most} of each",
        entries=call.size("entries"),
        num_out_tokens=call.size("num_out_tokens"),
        most=tiler.EXPERTS,
    ), Text("{hardware} allows more", hardware=Argument("limits", "hardware"))


def _check_padding_first(call: Inspection) -> None:
    """Refuse padding before missing tensors, where the release does."""
    if not call.rules.checks_tensors_first:
        check_padding(call)


DERIVED = (
    *declaration.OPERATOR.derived,
    Derived("is_int8", f"dtype == {tiler.INT8}", lambda specs: specs["tokens"].dtype == "int8"),
)
"""The kernel of int8 tokens runs without any of them too (page, "Launches, V3")."""
AXES = (Word("dtype", "dtype of tokens", DTYPES, "bfloat16"), *declaration.AXES[1:])
CHECKS = (
    checks.Attributes("num_out_tokens padded_mode"),
    _check_padding_first,
    checks.Given(),
    check_padding,
    checks.Supported(),
    checks.Dtypes("tokens", DTYPES),
    checks.SameDtype("permuted_tokens", "tokens"),
    checks.Dtypes("indices", declaration.ID_DTYPES),
    checks.Dtypes("sorted_indices"),
    checks.Formats(checks.ND),
    checks.Ranks("tokens permuted_tokens", 2, 2, TILING_FAILURE),
    checks.Ranks("indices", 1, 2, TILING_FAILURE),
    checks.Shapes("tokens indices permuted_tokens sorted_indices", TILING_FAILURE),
    checks.Holds(f"num_topk <= {MOST_TOPK}", "indices", documented=True),
    checks.Fits(is_documented, "indices", _int8_message),
    checks.NothingToDo("entries == 0 and is_int8 == 0"),
)
