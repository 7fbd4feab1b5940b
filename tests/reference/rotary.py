"""Slow reference of RotaryPositionEmbedding and its gradient, from the specification pages.

NumPy float32: every operation rounds to fp32 by itself. Uses no code of the package.
"""

from itertools import product

import numpy as np

F = np.float32


def partners(columns, interleaves):
    """Return for every column its partner, and the sign of the partner in rot(x)."""
    column = np.arange(columns)
    if interleaves:
        return column ^ 1, np.where(column % 2, F(1), F(-1))
    half = columns // 2
    return (column + half) % columns, np.where(column < half, F(-1), F(1))


@np.errstate(all="ignore")
def forward(x, cos, sin, interleaves):
    """Return y in fp32."""
    partner, sign = partners(x.shape[-1], interleaves)
    return x * cos + x[..., partner] * (sin * sign)


@np.errstate(all="ignore")
def gradient(dy, cos, sin, interleaves):
    """Return dx in fp32."""
    partner, sign = partners(dy.shape[-1], interleaves)
    product_of_sin = dy * sin
    return product_of_sin[..., partner] * -sign + dy * cos


@np.errstate(all="ignore")
def sums(dy, x, shape, interleaves, order):
    """Return dcos and dsin in fp32; ``order`` is "from zero", "from first" or "by head"."""
    partner, sign = partners(dy.shape[-1], interleaves)
    summands = x * dy, (x[..., partner] * sign) * dy
    results = []
    for values in summands:
        result = np.zeros(shape, F)
        for place in product(*map(range, shape[:3])):
            axes = [
                range(size) if own == 1 else [at]
                for size, own, at in zip(values.shape, shape, place, strict=False)
            ]
            result[place] = fold(values, axes[:3], order)
        results.append(result)
    return results


def fold(values, axes, order):
    """Return the sum of rows in an order."""
    if order == "by head":
        heads = []
        for k in axes[2]:
            rows = [values[i, j, k] for i, j in product(*axes[:2])]
            heads.append(left(rows[1:], rows[0]))
        return left(heads[1:], heads[0])
    rows = [values[place] for place in product(*axes)]
    return left(rows, np.zeros_like(rows[0])) if order == "from zero" else left(rows[1:], rows[0])


def left(rows, total):
    """Return a left fold."""
    for row in rows:
        total = total + row
    return total
