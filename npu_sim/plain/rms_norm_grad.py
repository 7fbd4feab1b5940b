"""RmsNormGrad by its formula (specification page ``rms_norm_grad``, "Formulas")."""

from collections.abc import Mapping
from typing import Any

import numpy as np

BLOCK_ELEMENTS = 1 << 22
"""Elements computed at a time, so that temporaries stay small."""


def compute(arguments: Any, tensors: Mapping[str, np.ndarray], precision: np.dtype[Any]) -> dict[str, np.ndarray]:
    """See :func:`npu_sim.plain.plain`."""
    shape, gamma = tensors["x"].shape, tensors["gamma"].astype(precision).reshape(-1)
    rows = tensors["x"].size // gamma.size
    dy, x, rstd = tensors["dy"].reshape(rows, -1), tensors["x"].reshape(rows, -1), tensors["rstd"].reshape(rows, 1)
    dx, dgamma = np.empty((rows, gamma.size), precision), np.zeros(gamma.size, precision)
    step = max(1, BLOCK_ELEMENTS // gamma.size)
    for begin in range(0, rows, step):
        block = slice(begin, begin + step)
        scale, gradient = rstd[block].astype(precision), dy[block].astype(precision)
        normed = x[block].astype(precision) * scale
        dgamma += (gradient * normed).sum(axis=0)
        mean = (gradient * gamma * normed).mean(axis=1, keepdims=True)
        dx[block] = (gradient * gamma - normed * mean) * scale
    return {"dx": dx.reshape(shape), "dgamma": dgamma.reshape(tensors["gamma"].shape)}
