"""ConvTbcBackward by its formulas (specification page ``conv_tbc_backward``, "Formulas"), one tap at a time."""

from collections.abc import Mapping
from typing import Any

import numpy as np


def compute(arguments: Any, tensors: Mapping[str, np.ndarray], precision: np.dtype[Any]) -> dict[str, np.ndarray]:
    """See :func:`npu_sim.plain.plain`."""
    gradient, x, weight = (tensors[name].astype(precision) for name in ("grad_output", "input", "weight"))
    out_time, batch, out_channels = gradient.shape
    time, _, in_channels = x.shape
    grad_input, grad_weight = np.zeros(x.shape, precision), np.zeros(weight.shape, precision)
    for tap in range(weight.shape[0]):
        # Output time t meets input time t + tap - pad where both exist.
        first, stop = max(0, arguments.pad - tap), min(out_time, time + arguments.pad - tap)
        if first >= stop:
            continue
        shift = tap - arguments.pad
        rows = gradient[first:stop].reshape(-1, out_channels)
        grad_input[first + shift : stop + shift] += (rows @ weight[tap].T).reshape(stop - first, batch, in_channels)
        grad_weight[tap] = x[first + shift : stop + shift].reshape(-1, in_channels).T @ rows
    return {"grad_input": grad_input, "grad_weight": grad_weight, "grad_bias": gradient.sum(axis=(0, 1))}
