"""RotaryPositionEmbedding: computation, formula and generated data.

Source: specification page ``rotary_position_embedding``.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from npu_sim.framework.vocabulary import Run, numpy_dtype
from npu_sim.numbers.values import normal
from npu_sim.tiling.rotary_position_embedding import INTERLEAVE

WAVELENGTH = 10000.0
"""Base of the angles of generated data, as in most models."""


def four_axes(array: np.ndarray) -> np.ndarray:
    """Return a tensor with four axes; a 3-D one has a first axis of 1."""
    return array if array.ndim == 4 else array[None]


def compute(run: Run) -> None:
    """Compute out."""
    with run.watch.stage("load"):
        from npu_sim.kernels.shared.rotation import Tensors, rotate
    with run.watch.stage("compute"):
        x, cos, sin = (four_axes(run.stored(name)) for name in ("x", "cos", "sin"))
        tensors = Tensors(x, cos, sin, run.written("y").reshape(-1))
        rotate(tensors, run.case.row.mode == INTERLEAVE)


def rotated(x: np.ndarray, mode: int) -> np.ndarray:
    """Return rot(x) of a mode."""
    if mode == INTERLEAVE:
        return np.stack((-x[..., 1::2], x[..., ::2]), axis=-1).reshape(x.shape)
    low, high = np.split(x, 2, axis=-1)
    return np.concatenate((-high, low), axis=-1)


def formula(
    arguments: Any, tensors: Mapping[str, np.ndarray], precision: np.dtype[Any]
) -> dict[str, np.ndarray]:
    """Return out by its formula (page, "Formula")."""
    x, cos, sin = (tensors[name].astype(precision) for name in ("x", "cos", "sin"))
    return {"y": x * cos + rotated(x, int(arguments.mode)) * sin}


def angles(spec: Any) -> dict[str, np.ndarray]:
    """Return cos and sin of positions along the longest axis, as models compute them."""
    positions = np.arange(int(np.prod(spec.shape[:-1]))).reshape(*spec.shape[:-1], 1)
    pairs = np.arange(spec.shape[-1]) % max(spec.shape[-1] // 2, 1)
    angle = positions * WAVELENGTH ** (-2 * pairs / max(spec.shape[-1], 1))
    dtype = numpy_dtype(spec.dtype)
    return {"cos": np.cos(angle).astype(dtype), "sin": np.sin(angle).astype(dtype)}


def data(arguments: Any, seed: int) -> dict[str, np.ndarray]:
    """Return activations of order 1, and cos and sin of growing angles."""
    return {"x": normal(np.random.default_rng(seed), arguments.x), **angles(arguments.cos)}
