"""MoeTokenPermuteGrad on Ascend 950: computation in the product's order.

Source: specification page ``moe_token_permute_grad_950``, "Order".
"""

from typing import TYPE_CHECKING

import numpy as np

from npu_sim.framework.case import Case
from npu_sim.language import Text
from npu_sim.plans.model import Caveat

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
    run.caveats += _negative_indices(run.tensors["sorted_indices"])


def _negative_indices(indices: np.ndarray) -> tuple[Caveat, ...]:
    """Warn of negative indices, which A2 and A3 refuse."""
    found = int(np.count_nonzero(indices < 0))
    if not found:
        return ()
    message = Text(
        "{found} negative indices count as dropped rows, the first one at "
        "sorted_indices[{position}]; A2 and A3 refuse them with 361001",
        found=found,
        position=int(np.argmax(indices < 0)),
    )
    return (Caveat(code="negative_indices", argument="sorted_indices", message=message),)
