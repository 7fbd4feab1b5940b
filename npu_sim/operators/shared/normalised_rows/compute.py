"""Formulas and generated data of RmsNorm and RmsNormGrad."""

import numpy as np

from npu_sim.framework.vocabulary import TensorSpec, numpy_dtype

BLOCK_ELEMENTS = 1 << 22
"""Elements of a formula computed at a time; limits the size of temporaries."""
GAMMA_SPREAD = np.float32(0.1)


def draw_gamma(random: "np.random.Generator", spec: TensorSpec) -> np.ndarray:
    """Return random scales near 1, like those of a trained network."""
    gamma: np.ndarray = 1 + GAMMA_SPREAD * random.standard_normal(spec.shape, np.float32)
    return gamma.astype(numpy_dtype(spec.dtype), copy=False)
