"""Timeline of MoeTokenUnpermute.

Source: specification page ``moe_token_unpermute``, "Instructions and copies of a tile".
"""

from npu_sim.framework.vocabulary import Plan
from npu_sim.operators.shared.timelines import WeightedSums
from npu_sim.timelines import Program


def program(plan: Plan) -> Program:
    """Return the work of every core."""
    return WeightedSums(plan, "permuted_tokens", "unpermuted_tokens").program()
