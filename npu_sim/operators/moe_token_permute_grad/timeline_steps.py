"""What the tiles of MoeTokenPermuteGrad hold and add."""

from npu_sim.numbers.formats import TensorSpec
from npu_sim.operators.shared.token_sums_timeline import token_sums
from npu_sim.plans.model import Plan
from npu_sim.timelines.steps import StepTable


def steps(plan: Plan) -> StepTable:
    """Return what every tile of the program holds and adds."""
    rows, columns = TensorSpec.parse(plan.arguments["permuted_output_grad"]).shape
    top_k = plan.tiling["top_k"]
    tokens = TensorSpec.parse(plan.arguments["sorted_indices"]).numel // top_k
    return token_sums(
        ("permuted_output_grad", rows), ("input_grad", tokens), columns, top_k, weighted=False
    )
