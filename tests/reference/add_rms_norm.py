"""Slow reference of AddRmsNorm, from specification page ``add_rms_norm``: NumPy float32.

Uses no code of the package.
"""

import numpy as np

from tests.reference.rms_norm_grad import lane_strided

F = np.float32


def saturated(values, dtype, is_on):
    """Values with inf as the largest number of a dtype, and 0 for nan."""
    if not is_on:
        return values
    largest = F(65504) if dtype == np.float16 else np.finfo(F).max
    return np.where(np.isnan(values), 0, np.clip(values, -largest, largest)).astype(dtype)


def add_rms_norm(x1, x2, gamma, epsilon, key, piece=0, saturates=False):
    """Return y, rstd and x of rows, by the last digit of the tiling key."""
    dtype, columns = x1.dtype, x1.shape[1]
    piece = piece if key == 1 else columns
    average, is_16_bit = F(1) / F(columns), dtype != F
    with np.errstate(all="ignore"):
        total = x1.astype(F) + x2.astype(F)
        x = saturated(total.astype(dtype), dtype, saturates)
        if dtype == F and key in (0, 1):
            x = x + F(0)
        is_rounded = dtype == np.float16 or (is_16_bit and key not in (0, 1))
        v = x.astype(F) if is_rounded else total
        rstd = np.empty(len(x1), F)
        for row, values in enumerate(v):
            squares = (values * values) * average
            mean = F(0)
            for begin in range(0, columns, piece):
                mean = mean + lane_strided(squares[begin : begin + piece])
            rstd[row] = F(1) / np.sqrt(mean + F(epsilon))
        scaled = (x.astype(F) if key == 1 else v) * rstd[:, None]
        if is_16_bit:
            scaled = saturated(scaled.astype(dtype), dtype, saturates).astype(F)
        y = saturated((scaled * gamma.astype(F)).astype(dtype), dtype, saturates)
    return y, rstd, x
