"""Slow reference of ApplyAdamWV2, from the specification pages: NumPy float32.

Every operation rounds to fp32 by itself. Uses no code of the package.
"""

import numpy as np

F = np.float32


@np.errstate(all="ignore")
def power(x, y):
    """Return exp(y * ln|x|) with ln and exp rounded to fp32, for x > 0."""
    if y == 0 or x == 1:
        return F(1)
    return F(np.exp(np.float64(y * F(np.log(np.float64(x))))))


def largest(a, b):
    """Return the maximum; nan stays, and +0 is larger than -0."""
    zeros = (a == 0) & (b == 0)
    return np.where(zeros, a + b, np.maximum(a, b))


def flushed(x):
    """Return x with subnormal numbers as zeros of their sign."""
    return np.where(np.abs(x) < F(2.0**-126), np.copysign(F(0), x), x).astype(F)


@np.errstate(all="ignore")
def step(var, m, v, grad, t, norm, *, lr, beta1, beta2, weight_decay, eps, maximize):
    """Return var', m', v' and the largest second moment on A2 and A3; norm may be None."""
    lr, beta1, beta2, weight_decay, eps, t = map(F, (lr, beta1, beta2, weight_decay, eps, t))
    size = lr / (F(1) - power(beta1, t))
    inv_root = F(1) / np.sqrt(F(1) - power(beta2, t))
    decay, c1, c2 = F(1) - lr * weight_decay, F(1) - beta1, F(1) - beta2
    g = grad * F(-1) if maximize else grad
    new_m = (g - m) * c1 + m
    new_v = v * beta2 + (g * g) * c2
    second = new_v if norm is None else largest(norm, new_v)
    r = np.sqrt(second) * inv_root + eps
    return var * decay - (new_m / r) * size, new_m, new_v, second


@np.errstate(all="ignore")
def step_950(var, m, v, grad, t, norm, *, lr, beta1, beta2, weight_decay, eps, maximize):
    """Return the same on Ascend 950."""
    lr, beta1, beta2, weight_decay, eps, t = map(F, (lr, beta1, beta2, weight_decay, eps, t))
    p1, p2 = (F(np.float64(beta) ** np.float64(t)) for beta in (beta1, beta2))
    g = grad * F(-1 if maximize else 1)
    new_m = m * beta1 - g * (beta1 - F(1))
    new_v = v * beta2 - (g * g) * (beta2 - F(1))
    second = new_v if norm is None else largest(norm, new_v)
    root = flushed(np.sqrt(flushed(F(1) - p2)))
    den = flushed(flushed(np.sqrt(flushed(second))) / root) + eps
    ratio = flushed(flushed(new_m) / flushed(den))
    size = flushed(flushed(lr) / flushed(p1 - F(1)))
    return var * (F(1) - lr * weight_decay) + size * ratio, new_m, new_v, second
