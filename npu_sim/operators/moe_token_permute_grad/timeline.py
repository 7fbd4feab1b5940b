"""Timeline of MoeTokenPermuteGrad: work of the cores and descriptions of tiles.

Source: specification page ``moe_token_permute_grad``, "Tiling" and "Kernel and order".
"""

from npu_sim.operators.shared.timelines import TokenSums
from npu_sim.plans.model import Plan
from npu_sim.timelines.program import Program, dropped_tokens


def program(plan: Plan) -> Program:
    """Return the work of every core: batches of tokens, and sums of the rows of each token."""
    sums = TokenSums(plan, "permuted_output_grad", "input_grad", copies_first=False)
    dropped = dropped_tokens(sums.live, sums.top_k)
    return Program((sums.phase(sums.live),), assumptions=(dropped,), views=sums.views())
