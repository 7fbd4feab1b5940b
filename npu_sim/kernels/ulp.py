"""Distance between arrays in units in the last place (ulp)."""

from __future__ import annotations

from typing import Any

import numpy as np

from npu_sim.kernels.engine.compile import kernel
from npu_sim.language import Text
from npu_sim.numbers.formats import FORMATS, Format
from npu_sim.numbers.scalars import widen
from npu_sim.numbers.storage import BLOCK, UNSIGNED, Array, floating, magnitude_patterns, stored_as

NAN_DISTANCE = np.iinfo(np.int64).max
"""Result of `ulp_distance` between nan and a number."""


@kernel
def _distance_all(block, first, second, magnitude_mask, infinity, shift, out):
    left = first[block * BLOCK : (block + 1) * BLOCK]
    right = second[block * BLOCK : (block + 1) * BLOCK]
    target = out[block * BLOCK : (block + 1) * BLOCK]
    for index in range(target.size):
        left_bits, right_bits = np.int64(left[index]), np.int64(right[index])
        left_magnitude, right_magnitude = left_bits & magnitude_mask, right_bits & magnitude_mask
        # Patterns grow with the magnitude. With the sign applied, neighbours differ by one, also
        # across 0.
        left_place, right_place = left_magnitude >> shift, right_magnitude >> shift
        if left_bits != left_magnitude:
            left_place = -left_place
        if right_bits != right_magnitude:
            right_place = -right_place
        left_is_nan, right_is_nan = left_magnitude > infinity, right_magnitude > infinity
        distance = abs(left_place - right_place)
        if left_is_nan or right_is_nan:
            distance = np.int64(0 if left_is_nan and right_is_nan else NAN_DISTANCE)
        target[index] = distance


def ulp_distance(first: Any, second: Any, dtype: Any) -> Array:
    """Count the representable steps between two arrays of the same shape.

    Parameters
    ----------
    first, second : array
        Of ``dtype``, or of its storage dtype; float32 for ``"hf32"``.
    dtype : str or dtype
        float16, bfloat16, float32, or ``"hf32"``, whose steps are coarser: both sides are read as
        hf32 values.

    Returns
    -------
    array of int64
        0 for equal values, for +0 and -0, and for nan and nan; `NAN_DISTANCE` between nan and a
        number; inf is one step from the largest finite value.
    """
    kind = _format(dtype)
    left, right = stored_as(first, kind), stored_as(second, kind)
    if left.shape != right.shape:
        raise ValueError(
            Text("shapes differ: {shape} and {other}", shape=left.shape, other=right.shape)
        )
    out = np.empty(left.shape, np.int64)
    unsigned = UNSIGNED[kind.itemsize]
    flat_left, flat_right = (side.view(unsigned).reshape(-1) for side in (left, right))
    shift = 23 - kind.mantissa_bits if kind.name == "hf32" else 0
    patterns = magnitude_patterns(kind)
    _distance_all.over(_blocks(out), flat_left, flat_right, *patterns, shift, out.reshape(-1))
    return out


def _format(dtype: Any) -> Format:
    return FORMATS["hf32" if dtype == "hf32" else floating(dtype)]


def _blocks(array: Array) -> int:
    return (array.size + BLOCK - 1) // BLOCK


@kernel
def _error_all(block, stored, reference, reference_bits, scales, largest, out):
    bias = scales.size // 2  # exponents 1 - bias .. bias
    part = stored[block * BLOCK : (block + 1) * BLOCK]
    references = reference[block * BLOCK : (block + 1) * BLOCK]
    bits = reference_bits[block * BLOCK : (block + 1) * BLOCK]
    target = out[block * BLOCK : (block + 1) * BLOCK]
    for index in range(part.size):
        value, right = np.float64(widen(part[index])), references[index]
        exponent = ((bits[index] >> 52) & 0x7FF) - 1023
        scale = scales[min(max(exponent + bias - 1, 0), scales.size - 1)]
        if np.isnan(value) or np.isnan(right):
            target[index] = 0.0 if np.isnan(value) and np.isnan(right) else np.inf
        elif np.isinf(value) and (value > 0) == (right > 0) and abs(right) >= largest + 0.5 / scale:
            target[index] = 0.0  # this reference rounds to inf
        else:
            target[index] = abs(value - right) * scale


def ulp_error(array: Any, reference: Any, dtype: Any) -> Array:
    """Measure the distance to a fp64 reference in ulps of ``dtype`` at the reference.

    Below the smallest normal value the unit is the smallest subnormal; above the largest finite
    value it is the unit at that value. Correct rounding gives at most 0.5.

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
    kind = _format(dtype)
    stored, right = stored_as(array, kind), np.require(reference, np.float64, ["C", "A"])
    if stored.shape != right.shape:
        raise ValueError(
            Text("shapes differ: {shape} and {other}", shape=stored.shape, other=right.shape)
        )
    out = np.empty(stored.shape, np.float64)
    exponents = np.arange(1 - kind.bias, kind.bias + 1)
    scales = np.ldexp(1.0, kind.mantissa_bits - exponents)
    flat, bits = right.reshape(-1), right.view(np.int64).reshape(-1)
    largest, target = kind.largest_finite, out.reshape(-1)
    _error_all.over(_blocks(out), stored.reshape(-1), flat, bits, scales, largest, target)
    return out
