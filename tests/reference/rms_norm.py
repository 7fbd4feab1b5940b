"""RmsNorm straight from specification page ``rms_norm``: rows one by one, NumPy float32.

Slow on purpose, and shares nothing with the package.
"""

import numpy as np

from tests.reference.rms_norm_grad import halving, lane_strided

F = np.float32


def in_pieces(squares, length):
    """Key 1: the pieces from the left, each by halving."""
    total = F(0)
    for begin in range(0, len(squares), length):
        total = total + halving(squares[begin : begin + length])
    return total


def rms_norm(x, gamma, epsilon, total):
    """y in fp32, to be rounded once, and rstd; ``total`` sums the squares of a row."""
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
"""Name of a path to the sum it takes, given the length of a piece."""
