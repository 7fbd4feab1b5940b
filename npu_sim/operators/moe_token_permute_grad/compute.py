"""MoeTokenPermuteGrad: computation, formula and generated data.

Source: specification page ``moe_token_permute_grad``.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from npu_sim.numbers.values import normal
from npu_sim.operators.shared.token_sums import check_indices

if TYPE_CHECKING:
    from npu_sim.framework.execution import Run


def compute(run: "Run") -> None:
    """Sum the rows of every token; the result does not depend on the order of arrival."""
    with run.watch.stage("check"):
        check_indices(run.tensors["sorted_indices"], "the gradient")
    with run.watch.stage("load"):
        from npu_sim.kernels.token_sums import sum_tokens
    with run.watch.stage("compute"):
        grad, indices = run.stored("permuted_output_grad"), run.stored("sorted_indices")
        out = run.written("input_grad")
        sum_tokens(
            grad.reshape(-1), indices, out.reshape(-1), run.case.row.num_topk, run.case.row.hidden
        )


def formula(
    arguments: Any, tensors: Mapping[str, np.ndarray], precision: np.dtype[Any]
) -> dict[str, np.ndarray]:
    """Return the sum of the rows of every token; dropped rows count as 0."""
    grad = tensors["permuted_output_grad"]
    indices = tensors["sorted_indices"].reshape(-1, arguments.num_topk)
    out = np.zeros((indices.shape[0], grad.shape[1]), precision)
    for rows in indices.T:
        live = np.flatnonzero((rows >= 0) & (rows < grad.shape[0]))
        out[live] += grad[rows[live]].astype(precision)
    return {"input_grad": out}


def data(arguments: Any, seed: int) -> dict[str, np.ndarray]:
    """Return normal gradients and a random permutation; dropped tokens are random too."""
    random, entries = np.random.default_rng(seed), arguments.sorted_indices.numel
    return {
        "permuted_output_grad": normal(random, arguments.permuted_output_grad),
        "sorted_indices": random.permutation(np.arange(entries, dtype=np.int32)),
    }
