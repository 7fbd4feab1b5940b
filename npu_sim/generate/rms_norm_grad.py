"""Data for RmsNormGrad as a trained network has it: activations and gradients of order 1, scales near 1."""

from typing import Any

import numpy as np

from npu_sim.formats import numpy_dtype

EPSILON = np.float32(1e-6)
"""What the forward operator adds to the mean square."""
GAMMA_SPREAD = np.float32(0.1)


def generate(arguments: Any, seed: int) -> dict[str, np.ndarray]:
    """Return the four input tensors of a call.

    Parameters
    ----------
    arguments
        ``npu_sim.ops.rms_norm_grad.Arguments`` with specs for all of them.
    seed
        Seed of the data.
    """
    rng = np.random.default_rng(seed)
    dy, x = (_normal(rng, spec) for spec in (arguments.dy, arguments.x))
    gamma = 1 + GAMMA_SPREAD * rng.standard_normal(arguments.gamma.shape, np.float32)
    # The mean square of what is stored, not of what was drawn, as the forward operator computed it.
    rows = x.reshape(arguments.rstd.numel, -1)
    squares = np.array([np.mean(np.square(row.astype(np.float32))) for row in rows], np.float32)
    return {
        "dy": dy,
        "x": x,
        "rstd": (1 / np.sqrt(squares + EPSILON)).reshape(arguments.rstd.shape),
        "gamma": gamma.astype(numpy_dtype(arguments.gamma.dtype), copy=False),
    }


def _normal(rng: np.random.Generator, spec: Any) -> np.ndarray:
    values: np.ndarray = rng.standard_normal(spec.shape, np.float32).astype(numpy_dtype(spec.dtype), copy=False)
    return values
