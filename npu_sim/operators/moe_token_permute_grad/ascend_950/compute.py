"""MoeTokenPermuteGrad on Ascend 950: computation in the product's order.

Source: specification page ``moe_token_permute_grad_950``, "Order".
"""

from typing import TYPE_CHECKING

from npu_sim.framework.case import Case
from npu_sim.operators.shared.token_sums import negative_indices

if TYPE_CHECKING:
    from npu_sim.framework.execution import Run


def chunk_rows(case: Case) -> int:
    """Return the rows of a token after which the groups of four restart."""
    return int(case.tiling.ub_rows or case.row.num_topk)


def compute(run: "Run") -> None:
    """Sum the rows of every token; a negative index is a dropped row here."""
    case = run.case
    with run.watch.stage("load"):
        from npu_sim.kernels.ascend_950.moe_token_permute_grad import sum_tokens
    with run.watch.stage("compute"):
        sum_tokens(
            run.stored("permuted_output_grad").reshape(-1),
            run.stored("sorted_indices"),
            run.written("input_grad").reshape(-1),
            case.row.num_topk,
            case.row.hidden,
            chunk_rows(case),
        )
    run.caveats = tuple(negative_indices(run.tensors["sorted_indices"]))
