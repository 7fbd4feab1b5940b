"""Slow reference of MoeTokenPermuteGrad: one NumPy fp32 addition per row."""

import numpy as np


def input_grad(grad, indices, top_k):
    """Return the sum of each token's live rows in k order, from row k = 0, or +0 if dropped."""
    result = np.empty((len(indices) // top_k, grad.shape[1]), grad.dtype)
    for token in range(len(result)):
        total = np.zeros(grad.shape[1], np.float32)
        for k in range(top_k):
            row = indices[token * top_k + k]
            if row >= len(grad):
                continue
            values = grad[row].astype(np.float32)
            total = values if k == 0 else total + values
        result[token] = total.astype(grad.dtype)
    return result
