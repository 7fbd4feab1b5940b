"""Slow reference of SwiGlu and its gradient, from the specification pages: NumPy float32.

Every operation rounds to fp32 by itself. Uses no code of the package.
"""

import numpy as np

F = np.float32


def exp(x):
    """Return e^x computed in fp64 and rounded once to fp32."""
    return np.exp(x.astype(np.float64)).astype(F)


def divide(a, b, flushes):
    """Return a / b; with ``flushes`` (Ascend 950) subnormal inputs and results become zeros."""

    def flushed(value):
        return np.where(np.abs(value) < F(2.0**-126), np.copysign(F(0), value), value)

    return flushed(flushed(a) / flushed(b)) if flushes else a / b


@np.errstate(all="ignore")
def forward(a, b, *, is_fp32, flushes=False):
    """Return out before it is rounded to its dtype."""
    d = exp(a * F(-1)) + F(1)
    if is_fp32:
        return (divide(np.ones_like(d), d, flushes) * a) * b
    return divide(a, d, flushes) * b


@np.errstate(all="ignore")
def gradient(a, b, g, *, is_fp32, flushes=False):
    """Return both halves of the gradient before they are rounded; ``flushes``: Ascend 950."""
    d = exp(a * F(-1)) + F(1)
    s = divide(np.ones_like(d), d, flushes)
    if flushes:
        return (((s * F(-1) + F(1)) * a + F(1)) * (g * s)) * b, (s * g) * a
    t = (s * (s * F(-1) + F(1))) * a + s
    return ((t * b) * g if is_fp32 else (t * g) * b), (s * a) * g
