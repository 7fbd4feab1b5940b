"""Rotation, axes and generated angles of RotaryPositionEmbedding and its gradient."""

from typing import Any

import numpy as np

from npu_sim.framework.vocabulary import Array, Arrays, numpy_dtype
from npu_sim.tiling.rotary_position_embedding import INTERLEAVE

WAVELENGTH = 10000.0
"""Base of the angles of generated data, as in most models."""


def four_axes(array: Array) -> Array:
    """Return a tensor with four axes; a 3-D one has a first axis of 1."""
    return array if array.ndim == 4 else array[None]


def rotated(x: Array, mode: int) -> Array:
    """Return rot(x) of a mode; 0 for the last of an odd number of columns, without a partner."""
    if mode == INTERLEAVE:
        turned, paired = np.zeros_like(x), x.shape[-1] // 2 * 2
        turned[..., :paired:2], turned[..., 1::2] = -x[..., 1::2], x[..., :paired:2]
        return turned
    low, high = np.split(x, 2, axis=-1)
    return np.concatenate((-high, low), axis=-1)


def angles(spec: Any) -> Arrays:
    """Return cos and sin of positions along the longest axis, as models compute them."""
    positions = np.arange(int(np.prod(spec.shape[:-1]))).reshape(*spec.shape[:-1], 1)
    pairs = np.arange(spec.shape[-1]) % max(spec.shape[-1] // 2, 1)
    angle = positions * WAVELENGTH ** (-2 * pairs / max(spec.shape[-1], 1))
    dtype = numpy_dtype(spec.dtype)
    return {"cos": np.cos(angle).astype(dtype), "sin": np.sin(angle).astype(dtype)}
