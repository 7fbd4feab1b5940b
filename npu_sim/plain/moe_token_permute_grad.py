"""MoeTokenPermuteGrad by its formula: the rows a token was sent to are summed; dropped rows count nothing."""

from collections.abc import Mapping
from typing import Any

import numpy as np


def compute(arguments: Any, tensors: Mapping[str, np.ndarray], precision: np.dtype[Any]) -> dict[str, np.ndarray]:
    """See :func:`npu_sim.plain.plain`."""
    grad = tensors["permuted_output_grad"]
    indices = tensors["sorted_indices"].reshape(-1, arguments.num_topk)
    out = np.zeros((indices.shape[0], grad.shape[1]), precision)
    for rows in indices.T:
        live = np.flatnonzero(rows < grad.shape[0])
        out[live] += grad[rows[live]].astype(precision)
    return {"input_grad": out}
