"""Timeline of MoeTokenPermuteGrad.

Source: specification page ``moe_token_permute_grad``, "Tiling" and "Kernel and order".
"""

from npu_sim.framework.vocabulary import Plan
from npu_sim.operators.shared.routed_tokens.timeline import BatchedSums
from npu_sim.timelines import Program


def program(plan: Plan) -> Program:
    """Return the work of every core."""
    return BatchedSums(plan, "permuted_output_grad", "input_grad").program()
