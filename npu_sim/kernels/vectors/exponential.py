"""exp in fp32, at most 1 ulp from the exact value, in a form that compilers vectorise.

x = k*ln2 + r with an integer k and |r| <= ln2/2, then exp(x) = 2^k * exp(r) with a polynomial of
degree 6. Here, unlike everywhere else, multiplications and additions are fused, with the same bits
on every processor (`multiply_add`): the device's exp is only known to 1 ulp, and fused it takes
three fifths of the instructions. No library function is called. Largest error over all fp32
numbers: 0.891 ulp, at 5.199101 and -5.848642 (from an exhaustive test;
``tests/kernels/test_exponential.py`` tests a sample).
"""

import math
from typing import Any

import numpy as np

from npu_sim.kernels.engine.compile import device_function
from npu_sim.kernels.vectors.lane_blocks import power_of_two
from npu_sim.kernels.vectors.lane_type import multiply_add

LOWEST_MODERATE = -87.0
"""Lowest argument of :func:`exp_moderate`: 2^k stays a normal number."""

# Beyond these the result is 0 or inf; between them k is bounded.
_LOWEST = np.float32(-104.0)
_HIGHEST = np.float32(89.0)

_LOG2_E = np.float32(1.44269504)
# ln2 in two parts (the fdlibm split): the first has 15 bits, so that its product with k, of at most
# 8 bits, is exact.
_MINUS_LN2_HIGH = np.float32(-0.693145751953125)
_MINUS_LN2_LOW = np.float32(-1.4286067653e-06)

# exp(r) = 1 + r + r^2 * (C2 + r*C3 + ...): minimax in ulps of the result. The coefficients were
# rounded to fp32 one by one, and the others fitted again each time; largest error before rounding
# 0.037 ulp.
_C2 = np.float32(0.49999991)
_C3 = np.float32(0.16666521)
_C4 = np.float32(0.041668896)
_C5 = np.float32(0.008368689)
_C6 = np.float32(0.0013789239)
_ONE = np.float32(1)
_ZERO = np.float32(0)

# Adding 1.5 * 2^23 to a number below 2^22 in magnitude rounds it to an integer, in the low bits of
# the pattern. With the exponent bias 127 added, these bits shifted into the exponent field are a
# power of two.
_MODERATE_POWER = np.float32(1.5 * 2.0**23 + 127)

# 2^k leaves the range of normal numbers at both ends; 2^(k + 63) * 2^-63 and 2^(k - 63) * 2^63 do
# not, and round once.
_NEGATIVE_POWER = np.float32(1.5 * 2.0**23 + 127 + 63)
_POSITIVE_POWER = np.float32(1.5 * 2.0**23 + 127 - 63)
_TWO_TO_MINUS_63 = np.float32(2.0**-63)
_TWO_TO_63 = np.float32(2.0**63)


@device_function
def _polynomial(x: Any, k: Any) -> Any:
    """Return exp(x - k*ln2), of numbers or of lanes."""
    r = multiply_add(k, _MINUS_LN2_LOW, multiply_add(k, _MINUS_LN2_HIGH, x))
    tail = multiply_add(multiply_add(multiply_add(_C6, r, _C5), r, _C4), r, _C3)
    return multiply_add(multiply_add(multiply_add(tail, r, _C2), r, _ONE), r, _ONE)


@device_function
def exp_fp32(x: np.float32) -> np.float32:
    """Return exp(x) for any fp32 number; results may be 0, subnormal, inf or nan."""
    x = _LOWEST if x < _LOWEST else x
    x = _HIGHEST if x > _HIGHEST else x
    power = _NEGATIVE_POWER if x < _ZERO else _POSITIVE_POWER
    rest = _TWO_TO_MINUS_63 if x < _ZERO else _TWO_TO_63
    shifted = multiply_add(x, _LOG2_E, power)
    return (_polynomial(x, shifted - power) * power_of_two(shifted)) * rest


@device_function
def exp_moderate(x: Any) -> Any:
    """Return exp(x) for -87 <= x <= -0, in two thirds of the instructions of :func:`exp_fp32`.

    The bits are the same. ``x`` is a fp32 number or a block of lanes
    (:mod:`npu_sim.kernels.vectors.lane_blocks`).
    """
    shifted = multiply_add(x, _LOG2_E, _MODERATE_POWER)
    return _polynomial(x, shifted - _MODERATE_POWER) * power_of_two(shifted)


_LOG2_E_FP64 = 1.4426950408889634
_MINUS_LN2_HIGH_FP64, _MINUS_LN2_LOW_FP64 = -0.6931471805599453, -2.3190468138462996e-17
_FP64_POWER = 1.5 * 2.0**52 + 1023
_HIGHEST_FP64, _LOWEST_BESIDE_ONE = 89.0, -40.0
"""e^89 is inf in fp32; e^-40 is lost when 1 is added in fp32."""


@device_function
def exp_plus_one(x: np.float32) -> np.float32:
    """Return fp32(e^x) + 1 in fp32, with e^x computed in fp64, in a form that LLVM vectorises.

    e^x is within 2e-15 of the exact value, so that the fp32 number is the nearest one but for a few
    arguments in 10^8. The polynomial interpolates (e^r - 1 - r) / r^2 in the Chebyshev nodes of
    |r| <= ln2/2.
    """
    wide = np.float64(x)
    wide = _HIGHEST_FP64 if wide > _HIGHEST_FP64 else wide
    wide = _LOWEST_BESIDE_ONE if wide < _LOWEST_BESIDE_ONE else wide
    shifted = multiply_add(wide, _LOG2_E_FP64, _FP64_POWER)
    k = shifted - _FP64_POWER
    r = multiply_add(k, _MINUS_LN2_LOW_FP64, multiply_add(k, _MINUS_LN2_HIGH_FP64, wide))
    tail = multiply_add(2.7613810696022455e-07, r, 2.762512018118723e-06)
    tail = multiply_add(tail, r, 2.4801536381780756e-05)
    tail = multiply_add(tail, r, 0.0001984120872424167)
    tail = multiply_add(tail, r, 0.0013888888905885)
    tail = multiply_add(tail, r, 0.00833333335373355)
    tail = multiply_add(tail, r, 0.04166666666665135)
    tail = multiply_add(tail, r, 0.16666666666648283)
    tail = multiply_add(tail, r, 0.5)
    power = multiply_add(r * r, tail, 1.0 + r) * power_of_two(shifted)
    return np.float32(power) + _ONE


@device_function
def exp_rounded(x: np.float32) -> np.float32:
    """Return exp(x) computed in fp64, where cancellation would turn 1 ulp into many."""
    if _LOWEST < x < _HIGHEST:
        return np.float32(math.exp(np.float64(x)))
    return exp_fp32(x)
