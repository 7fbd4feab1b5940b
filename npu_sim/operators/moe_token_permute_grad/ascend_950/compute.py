"""MoeTokenPermuteGrad on Ascend 950: computation.

Source: specification page ``moe_token_permute_grad_950``.
"""

from npu_sim.framework.vocabulary import Run
from npu_sim.operators.moe_token_permute_grad.ascend_950.plan import chunk_rows
from npu_sim.operators.shared.routed_tokens.compute import negative_indices, sum_rows


def compute(run: Run) -> None:
    """Sum the rows of every token; a negative index is a dropped row here."""
    sum_rows(
        run,
        "permuted_output_grad",
        "input_grad",
        run.case.row.num_topk,
        from_zero=True,
        chunk_rows=chunk_rows(run.case),
    )
    run.caveats = tuple(negative_indices(run.tensors["sorted_indices"]))
