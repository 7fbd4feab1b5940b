"""Timeline of MoeTokenUnpermute: work of the cores and descriptions of tiles.

Source: specification page ``moe_token_unpermute``, "Instructions and copies of a tile".
"""

from npu_sim.operators.shared.timelines import TokenSums
from npu_sim.plans.model import Plan
from npu_sim.timelines.program import Program, dropped_tokens


def program(plan: Plan) -> Program:
    """Return the work of every core: batches of entries, and weighted sums of each token."""
    sums = TokenSums(plan, "permuted_tokens", "unpermuted_tokens", copies_first=True)
    phases, dropped = (sums.phase(sums.live),), dropped_tokens(sums.live, sums.top_k)
    if not sums.probs:
        return Program(phases, assumptions=(dropped,), views=sums.views())
    # The row of a probability of 0 is not read.
    otherwise = (("every probs is 0", (sums.phase(0),)),)
    return Program(phases, (), (dropped, "no probs is 0"), otherwise, sums.views())
