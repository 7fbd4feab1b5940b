"""Study of MoeTokenUnpermute on Ascend 950: rows whose probs are 0 are added as well."""

from collections.abc import Iterator

import numpy as np

from npu_sim.framework.execution import Result
from npu_sim.operators.moe_token_unpermute.ascend_950.compute import sums_stale_rows
from npu_sim.operators.moe_token_unpermute.study import in_range, sum_claims, sum_terms
from npu_sim.operators.shared.study import StudyCall
from npu_sim.orders.claims import Claim, OpenRule


def claims(call: StudyCall) -> Iterator[Claim]:
    """Yield the tree of a token's sum, one claim per number of rows that were not dropped."""
    yield from sum_claims(call, in_range(call))


def terms(call: StudyCall, output: str, index: tuple[int, ...]) -> list[tuple[str, float]]:
    """Return the terms of an output element in float64, by name."""
    return sum_terms(call, in_range(call), index)


def open_rules(call: StudyCall, first: Result) -> Iterator[OpenRule]:
    """Yield that tokens whose one row was dropped hold anything (page, ``one_expert_dropped``)."""
    dropped = ~in_range(call).any(axis=1, keepdims=True)
    if call.case.empty or not dropped.any() or not sums_stale_rows(call.case):
        return
    # An empty interval allows nothing.
    lowest = np.where(dropped, -np.inf, np.inf)
    reason = "the token has no row: the product adds what its place in the Unified Buffer held"
    yield OpenRule("unpermuted_tokens", lowest, -lowest, reason)
