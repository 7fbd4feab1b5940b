"""Studies of MoeTokenUnpermute on Ascend 950.

Source: specification page ``moe_token_unpermute_950``.
"""

from collections.abc import Iterator

import numpy as np

from npu_sim.framework.vocabulary import Result
from npu_sim.operators.moe_token_unpermute.ascend_950.plan import sums_stale_rows
from npu_sim.operators.shared.routed_tokens.study import Sums
from npu_sim.operators.shared.study import OpenRule, StudyCall

SUMS = Sums("permuted_tokens", "unpermuted_tokens", "tokens")
claims, terms = SUMS.claims, SUMS.terms


def open_rules(call: StudyCall, result: Result) -> Iterator[OpenRule]:
    """Yield that tokens whose one row was dropped hold anything (page, ``one_expert_dropped``)."""
    dropped = ~SUMS.in_range(call).any(axis=1, keepdims=True)
    if call.case.empty or not dropped.any() or not sums_stale_rows(call.case):
        return
    # An empty interval allows nothing.
    lowest = np.where(dropped, -np.inf, np.inf)
    reason = "the token has no row: the product adds what its place in the Unified Buffer held"
    yield OpenRule("unpermuted_tokens", lowest, -lowest, reason)
