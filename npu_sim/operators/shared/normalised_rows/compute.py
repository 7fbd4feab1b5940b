"""Formulas and generated data of RmsNorm and RmsNormGrad."""

import numpy as np

from npu_sim.framework.vocabulary import Array, Caveat, Dtype, TensorSpec, caveat, numpy_dtype

BLOCK_ELEMENTS = 1 << 22
"""Elements of a formula computed at a time; limits the size of temporaries."""
GAMMA_SPREAD = np.float32(0.1)
LARGEST_SQUARED = 1.8446743e19
"""Largest magnitude with a finite square in fp32 (page ``rms_norm``, "Special values")."""


def draw_gamma(random: "np.random.Generator", spec: TensorSpec) -> Array:
    """Return random scales near 1, like those of a trained network."""
    gamma: Array = 1 + GAMMA_SPREAD * random.standard_normal(spec.shape, np.float32)
    return gamma.astype(numpy_dtype(spec.dtype), copy=False)


def normalised_rows(
    x: Array, gamma: Array, epsilon: float, precision: Dtype
) -> tuple[Array, Array]:
    """Return y and rstd of rows of x by their formulas, computed in ``precision``."""
    y, rstd = np.empty(x.shape, precision), np.empty(len(x), precision)
    scale = gamma.astype(precision)
    step = max(1, BLOCK_ELEMENTS // scale.size)
    for begin in range(0, len(x), step):
        rows = slice(begin, begin + step)
        block = x[rows].astype(precision, copy=False)
        rstd[rows] = 1 / np.sqrt(np.mean(block * block, axis=1) + precision.type(epsilon))
        y[rows] = block * rstd[rows, None] * scale
    return y, rstd


def overflowing_rows(x: Array, rstd: Array) -> tuple[Caveat, ...]:
    """Warn of rows whose sum overflows despite finite inputs; rstd is 0 in these rows only."""
    if np.count_nonzero(rstd) == rstd.size:
        return ()
    rows = np.flatnonzero(rstd == 0)
    sizes = np.abs(x[rows].astype(np.float32))
    found = int(np.count_nonzero((np.isfinite(sizes) & (sizes > LARGEST_SQUARED)).any(axis=1)))
    if not found:
        return ()
    return (
        caveat(
            "squares_overflow",
            "x",
            "{found} rows have a finite element above {largest_squared}, whose square is inf: "
            "their rstd is 0",
            found=found,
            largest_squared=f"{LARGEST_SQUARED:g}",
        ),
    )
