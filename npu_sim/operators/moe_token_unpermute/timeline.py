"""Timeline of MoeTokenUnpermute.

Source: specification page ``moe_token_unpermute``, "Instructions and copies of a tile".
"""

from dataclasses import replace

from npu_sim.framework.vocabulary import Plan
from npu_sim.operators.shared.routed_tokens.timeline import BatchedSums
from npu_sim.timelines import Program


def program(plan: Plan) -> Program:
    """Return the work of every core."""
    return WeightedSums(plan, "permuted_tokens", "unpermuted_tokens").program()


class WeightedSums(BatchedSums):
    """The kernel of MoeTokenUnpermute."""

    copies_first = True

    def program(self) -> Program:
        """Return the work of every core; the row of a probability of 0 is not read."""
        found = super().program()
        if not self.probs:
            return found
        return replace(
            found,
            assumptions=(self.dropped, "no probs is 0"),
            otherwise=(("every probs is 0", (self.phase(0),)),),
        )
