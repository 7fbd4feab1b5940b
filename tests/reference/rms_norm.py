"""Slow reference of RmsNorm, from specification page ``rms_norm``: row by row, NumPy float32.

Uses no code of the package.
"""

import numpy as np

from tests.reference.rms_norm_grad import halving, lane_strided

F = np.float32


def in_pieces(squares, length):
    """Key 1: sum pieces from the left, each by halving."""
    total = F(0)
    for begin in range(0, len(squares), length):
        total = total + halving(squares[begin : begin + length])
    return total


def rms_norm(x, gamma, epsilon, total):
    """Return unrounded y in fp32, and rstd; ``total`` sums the squares of a row."""
    rows, columns = x.shape
    average, y, rstd = F(1) / F(columns), np.empty_like(x), np.empty(rows, F)
    with np.errstate(all="ignore"):
        for row in range(rows):
            mean = total(x[row] * x[row]) * average
            root = np.sqrt(mean + F(epsilon))
            rstd[row] = F(1) / root
            y[row] = (x[row] * rstd[row]) * gamma
    return y, rstd


TOTALS = {
    "lanes": lambda length: lane_strided,
    "halving": lambda length: halving,
    "pieces": lambda length: lambda v: in_pieces(v, length),
}
"""Summation by name of the path, given the length of a piece."""
