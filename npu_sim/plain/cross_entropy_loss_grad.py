"""CrossEntropyLossGrad by its formula (specification page ``cross_entropy_loss_grad``, "Formulas")."""

from collections.abc import Mapping
from typing import Any

import numpy as np

BLOCK_ELEMENTS = 1 << 22
"""Elements computed at a time, so that temporaries stay small."""


def compute(arguments: Any, tensors: Mapping[str, np.ndarray], precision: np.dtype[Any]) -> dict[str, np.ndarray]:
    """See :func:`npu_sim.plain.plain`."""
    log_prob, target = tensors["log_prob"], tensors["target"]
    kept = target != arguments.ignore_index
    inside = np.where((target >= 0) & (target < log_prob.shape[1]), target, 0)
    weight = np.ones(target.size, precision) if tensors.get("weight") is None else tensors["weight"].astype(precision)[inside]
    weight = np.where(kept, weight, 0).astype(precision)
    gradient = np.broadcast_to(tensors["grad_loss"].astype(precision).reshape(-1), target.shape)
    with np.errstate(divide="ignore", invalid="ignore"):
        nll = gradient * weight / (weight.sum(dtype=precision) if arguments.reduction == "mean" else precision.type(1))
        out = np.empty(log_prob.shape, precision)
        step = max(1, BLOCK_ELEMENTS // log_prob.shape[1])
        for begin in range(0, target.size, step):
            block = slice(begin, begin + step)
            out[block] = np.exp(log_prob[block].astype(precision)) * nll[block, None]
        out[np.flatnonzero(kept), inside[kept]] -= nll[kept]
    return {"x_grad": out}
