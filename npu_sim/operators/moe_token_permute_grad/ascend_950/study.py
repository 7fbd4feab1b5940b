"""Studies of MoeTokenPermuteGrad on Ascend 950.

Source: specification page ``moe_token_permute_grad_950``.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from npu_sim.operators.moe_token_permute_grad.ascend_950.plan import chunk_rows
from npu_sim.operators.moe_token_permute_grad.study import SUMS
from npu_sim.operators.shared.study import Claim, StudyCall, trees


def claims(call: StudyCall) -> Iterator[Claim]:
    """Yield the tree of a token's sum, one claim per number of rows that were not dropped.

    A claim is about the tokens whose rows are dropped at the same places.
    """
    live, chunk = SUMS.in_range(call), chunk_rows(call.case)
    counts = live.sum(axis=1)
    for count in np.unique(counts[counts > 0]).tolist():
        rows = live[int(np.argmax(counts == count))]
        tokens = np.flatnonzero((live == rows).all(axis=1))
        yield SUMS.claim(call, tokens, sum_tree(rows, chunk))


def sum_tree(live: Sequence[bool] | np.ndarray, chunk: int) -> trees.Tree | None:
    """Return the tree of the rows of a token, given which of them are not dropped."""
    numbers = iter(range(len(live)))
    rows = [next(numbers) if term else None for term in live]
    total: trees.Tree | None = None
    for begin in range(0, len(rows), chunk):
        total = trees.fours(rows[begin : begin + chunk], total)
    return total
