"""Study of MoeTokenUnpermute on Ascend 950: rows whose probs are 0 are added as well."""

from collections.abc import Iterator

from npu_sim.operators.moe_token_unpermute.study import in_range, sum_claims, sum_terms
from npu_sim.operators.shared.study import StudyCall
from npu_sim.orders.claims import Claim


def claims(call: StudyCall) -> Iterator[Claim]:
    """Yield the tree of a token's sum, one claim per number of rows that were not dropped."""
    yield from sum_claims(call, in_range(call))


def terms(call: StudyCall, output: str, index: tuple[int, ...]) -> list[tuple[str, float]]:
    """Return the terms of an output element in float64, by name."""
    return sum_terms(call, in_range(call), index)
