"""MoeTokenPermuteGrad: computation and formula.

Source: specification page ``moe_token_permute_grad``.
"""

from typing import Any

from npu_sim.framework.vocabulary import Arrays, Dtype, Run
from npu_sim.operators.shared.routed_tokens.compute import check_indices, draw, sum_rows, summed


def compute(run: Run) -> None:
    """Sum the rows of every token; the result does not depend on the order of arrival."""
    with run.watch.stage("check"):
        check_indices(run.tensors["sorted_indices"], "the gradient")
    sum_rows(run, "permuted_output_grad", "input_grad", run.case.row.num_topk)


def formula(arguments: Any, tensors: Arrays, precision: Dtype) -> Arrays:
    """Return the sum of the rows of every token; dropped rows count as 0."""
    indices = tensors["sorted_indices"].reshape(-1, arguments.num_topk)
    return {"input_grad": summed(tensors["permuted_output_grad"], indices, precision)}


data = draw
