"""Study of MoeTokenPermuteGrad on Ascend 950: the tree of a token's sum."""

from collections.abc import Iterator, Sequence

import numpy as np

from npu_sim.operators.moe_token_permute_grad.ascend_950.compute import chunk_rows
from npu_sim.operators.moe_token_permute_grad.study import live_entries, sum_claim
from npu_sim.operators.shared.study import StudyCall
from npu_sim.orders import ascend_950 as sums
from npu_sim.orders import trees
from npu_sim.orders.claims import Claim


def claims(call: StudyCall) -> Iterator[Claim]:
    """Yield the tree of a token's sum, one claim per number of rows that were not dropped.

    A claim is about the tokens whose rows are dropped at the same places.
    """
    live, chunk = live_entries(call), chunk_rows(call.case)
    counts = live.sum(axis=1)
    for count in np.unique(counts[counts > 0]).tolist():
        rows = live[int(np.argmax(counts == count))]
        tree = sum_tree(rows, chunk)
        tokens = np.flatnonzero((live == rows).all(axis=1))
        yield sum_claim(call, tokens, tree)


def sum_tree(live: Sequence[bool] | np.ndarray, chunk: int) -> trees.Tree:
    """Return the tree of the rows of a token, given which of them are not dropped."""
    numbers = iter(range(len(live)))
    rows = [next(numbers) if term else None for term in live]
    total: trees.Tree | None = None
    for begin in range(0, len(rows), chunk):
        total = sums.fours(rows[begin : begin + chunk], total)
    assert total is not None
    return total
