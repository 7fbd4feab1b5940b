"""EmbeddingDenseBackward by its formula: rows of one index are summed, and divided by their number when scaled."""

from collections.abc import Mapping
from typing import Any

import numpy as np

BLOCK_COLUMNS = 256
"""Columns summed at a time, so that the gathered copy of the gradient stays small."""


def compute(arguments: Any, tensors: Mapping[str, np.ndarray], precision: np.dtype[Any]) -> dict[str, np.ndarray]:
    """See :func:`npu_sim.plain.plain`."""
    indices = np.trunc(tensors["indices"]).astype(np.int64).reshape(-1)
    grad = tensors["grad"].reshape(indices.size, -1) if indices.size else tensors["grad"].reshape(0, tensors["grad"].shape[-1])
    out = np.zeros((arguments.num_weights, grad.shape[1]), precision)
    order = np.argsort(indices, kind="stable")
    kept = order[indices[order] != arguments.padding_idx]
    if kept.size == 0:
        return {"grad_weight": out}
    words, starts, counts = np.unique(indices[kept], return_index=True, return_counts=True)
    for begin in range(0, grad.shape[1], BLOCK_COLUMNS):
        columns = slice(begin, begin + BLOCK_COLUMNS)
        out[words, columns] = np.add.reduceat(grad[kept, columns].astype(precision), starts, axis=0)
    if arguments.scale_grad_by_freq:
        out[words] /= counts.astype(precision)[:, None]
    return {"grad_weight": out}
