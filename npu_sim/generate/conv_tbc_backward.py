"""Data for ConvTbcBackward as a speech model has it: activations of order 1, small weights, gradients of a loss averaged over tokens."""

from typing import Any

import numpy as np

from npu_sim.formats import numpy_dtype


def generate(arguments: Any, seed: int) -> dict[str, np.ndarray]:
    """Return the four input tensors of a call.

    Parameters
    ----------
    arguments
        ``npu_sim.ops.conv_tbc_backward.Arguments`` with specs for all of them.
    seed
        Seed of the data.
    """
    rng = np.random.default_rng(seed)
    taps, in_channels, _ = arguments.weight.shape
    tokens = max(arguments.grad_output.shape[0] * arguments.grad_output.shape[1], 1)
    scales = {
        "grad_output": 1.0 / np.sqrt(tokens),
        "input": 1.0,
        "weight": 1.0 / np.sqrt(max(taps * in_channels, 1)),
        "bias": 0.02,
    }
    return {name: _normal(rng, getattr(arguments, name), scale) for name, scale in scales.items()}


def _normal(rng: np.random.Generator, spec: Any, scale: float) -> np.ndarray:
    values = rng.standard_normal(spec.shape, np.float32)
    values *= np.float32(scale)
    rounded: np.ndarray = values.astype(numpy_dtype(spec.dtype), copy=False)
    return rounded
