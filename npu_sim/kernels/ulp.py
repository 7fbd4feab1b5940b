"""Distance between arrays in units of the last place."""

from __future__ import annotations

from typing import Any

import numpy as np

from npu_sim.kernels.engine.compile import kernel
from npu_sim.numbers.formats import FORMATS
from npu_sim.numbers.scalars import widen
from npu_sim.numbers.storage import BLOCK, UNSIGNED, Array, floating, magnitude_patterns, stored_as

NAN_DISTANCE = np.iinfo(np.int64).max
"""What `ulp_distance` gives between nan and a number."""


@kernel
def _distance_all(block, first, second, magnitude_mask, infinity, shift, out):
    left = first[block * BLOCK : (block + 1) * BLOCK]
    right = second[block * BLOCK : (block + 1) * BLOCK]
    target = out[block * BLOCK : (block + 1) * BLOCK]
    for index in range(target.size):
        one, other = np.int64(left[index]), np.int64(right[index])
        one_magnitude, other_magnitude = one & magnitude_mask, other & magnitude_mask
        # Patterns grow with the magnitude: with the sign put on, neighbours differ by one, across 0
        # too.
        one_place = one_magnitude >> shift if one == one_magnitude else -(one_magnitude >> shift)
        other_place = (
            other_magnitude >> shift if other == other_magnitude else -(other_magnitude >> shift)
        )
        one_is_nan, other_is_nan = one_magnitude > infinity, other_magnitude > infinity
        distance = abs(one_place - other_place)
        if one_is_nan or other_is_nan:
            distance = np.int64(0 if one_is_nan and other_is_nan else NAN_DISTANCE)
        target[index] = distance


def ulp_distance(first: Any, second: Any, dtype: Any) -> Array:
    """Count the representable steps between two arrays of the same shape.

    Parameters
    ----------
    first, second : array
        Of ``dtype``, or of its storage dtype; float32 for ``"hf32"``.
    dtype : str or dtype
        float16, bfloat16, float32, or ``"hf32"``, whose steps are coarser: both sides are taken as
        hf32 values.

    Returns
    -------
    array of int64
        0 for equal values, for +0 and -0, and for nan and nan; `NAN_DISTANCE` between nan and a
        number; inf is one step from the largest finite value.
    """
    one = FORMATS["hf32" if dtype == "hf32" else floating(dtype)]
    left, right = stored_as(first, one), stored_as(second, one)
    if left.shape != right.shape:
        raise ValueError(f"shapes differ: {left.shape} and {right.shape}")
    out = np.empty(left.shape, np.int64)
    unsigned = UNSIGNED[one.itemsize]
    shift = 23 - one.mantissa_bits if one.name == "hf32" else 0
    patterns = magnitude_patterns(one)
    blocks = (out.size + BLOCK - 1) // BLOCK
    _distance_all.over(
        blocks,
        left.view(unsigned).reshape(-1),
        right.view(unsigned).reshape(-1),
        *patterns,
        shift,
        out.reshape(-1),
    )
    return out


@kernel
def _error_all(
    block, stored, reference, reference_bits, lowest_exponent, ulps_per_unit, largest, out
):
    highest = ulps_per_unit.size - 1
    part = stored[block * BLOCK : (block + 1) * BLOCK]
    wanted = reference[block * BLOCK : (block + 1) * BLOCK]
    bits = reference_bits[block * BLOCK : (block + 1) * BLOCK]
    target = out[block * BLOCK : (block + 1) * BLOCK]
    for index in range(part.size):
        value, right = np.float64(widen(part[index])), wanted[index]
        exponent = ((bits[index] >> 52) & 0x7FF) - 1023
        scale = ulps_per_unit[min(max(exponent - lowest_exponent, 0), highest)]
        if np.isnan(value) or np.isnan(right):
            target[index] = 0.0 if np.isnan(value) and np.isnan(right) else np.inf
        elif np.isinf(value) and (value > 0) == (right > 0) and abs(right) >= largest + 0.5 / scale:
            target[index] = 0.0  # this reference rounds to inf
        else:
            target[index] = abs(value - right) * scale


def ulp_error(array: Any, reference: Any, dtype: Any) -> Array:
    """Measure the distance to a fp64 reference in units of the last place of ``dtype`` at the reference.

    Below the smallest normal value the unit is the smallest subnormal; above the largest finite
    value it is the unit of that. Correct rounding gives at most 0.5.

    Parameters
    ----------
    array : array
        Of ``dtype``, or of its storage dtype; float32 for ``"hf32"``.
    reference : array of float64
        Same shape.
    dtype : str or dtype
        float16, bfloat16, float32 or ``"hf32"``.

    Returns
    -------
    array of float64
        0 for nan and nan, and for inf where the reference rounds to that inf; inf for nan against a
        number and for inf against a reference that does not round to it.
    """
    one = FORMATS["hf32" if dtype == "hf32" else floating(dtype)]
    stored, right = (stored_as(array, one), np.require(reference, np.float64, ["C", "A"]))
    if stored.shape != right.shape:
        raise ValueError(f"shapes differ: {stored.shape} and {right.shape}")
    out = np.empty(stored.shape, np.float64)
    exponents = np.arange(1 - one.bias, one.bias + 1)
    scales = np.ldexp(1.0, one.mantissa_bits - exponents)
    flat, bits = right.reshape(-1), right.view(np.int64).reshape(-1)
    blocks = (out.size + BLOCK - 1) // BLOCK
    _error_all.over(
        blocks,
        stored.reshape(-1),
        flat,
        bits,
        1 - one.bias,
        scales,
        one.largest_finite,
        out.reshape(-1),
    )
    return out
