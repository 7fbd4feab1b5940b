"""Rounding of arrays, the saturation mode, and distances in units in the last place (ulp).

The functions accept any shape and strides, and give the same bits for any number of threads.
Arrays that are not C-contiguous are copied first. `npu_sim.numbers.scalars` rounds one element.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from npu_sim.kernels.engine.compile import kernel
from npu_sim.language import Text
from npu_sim.numbers.arrays import Array
from npu_sim.numbers.formats import (
    BLOCK,
    FORMAT_OF_STORAGE,
    FORMATS,
    STORAGE,
    UNSIGNED,
    Format,
    as_array,
    floating,
    kernel_input,
    magnitude_patterns,
    numpy_dtype,
    stored_as,
)
from npu_sim.numbers.scalars import (
    FP32_INFINITY,
    FP32_MAGNITUDE,
    FP32_MANTISSA_BITS,
    FP32_QUIET,
    HF32_SHIFT,
    narrow,
    shift_right_to_nearest_even,
    widen,
)


@kernel
def _convert_all(block, stored, out):
    source = stored[block * BLOCK : (block + 1) * BLOCK]
    target = out[block * BLOCK : (block + 1) * BLOCK]
    for index in range(source.size):
        target[index] = narrow(widen(source[index]), target)


def widen_array(array: Any) -> Array:
    """Return a float16, bfloat16 or float32 array as a new float32 array; exact."""
    stored = kernel_input(array)
    target = np.empty(stored.shape, np.float32)
    if stored.dtype == np.float32:
        np.copyto(target, stored)
    else:
        _convert(target, stored)
    return target


def narrow_array(array: Any, dtype: Any, saturate: bool = False, out: Array | None = None) -> Array:
    """Round a float32 array to ``dtype``, nearest even.

    Parameters
    ----------
    array : array of float32
        Values to round.
    dtype : str or dtype
        float16, bfloat16 or float32 (a copy).
    saturate : bool
        Apply the saturation mode of the Atlas training and inference series to the result.
    out : array, optional
        Receives the result: same shape, of ``dtype`` or its storage dtype.

    Returns
    -------
    array of ``dtype``, or ``out`` itself when it is given.
    """
    values, name = _float32(array), floating(dtype)
    target = np.empty(values.shape, numpy_dtype(name)) if out is None else out
    if target.shape != values.shape or target.dtype not in (STORAGE[name], numpy_dtype(name)):
        raise ValueError(
            Text(
                "out is {shape} {dtype}, the result {result_shape} {result_dtype}",
                shape=target.shape,
                dtype=target.dtype,
                result_shape=values.shape,
                result_dtype=name,
            )
        )
    _check_writable(target)
    if name == "float32":
        np.copyto(target, values)
    else:
        _convert(target.view(STORAGE[name]), kernel_input(values))
    if saturate:
        _saturate(target)
    return target


def round_to_hf32(array: Any) -> Array:
    """Round a float32 array to hf32 (11 explicit mantissa bits), nearest even.

    Returns a new float32 array. The 12 low mantissa bits of its elements are zero.
    """
    bits = kernel_input(_float32(array)).view(np.uint32)
    rounded = shift_right_to_nearest_even(bits, HF32_SHIFT)
    is_nan = (bits & FP32_MAGNITUDE) > FP32_INFINITY
    places = np.where(is_nan, (bits | FP32_QUIET) >> HF32_SHIFT, rounded)
    return np.asarray(places << HF32_SHIFT).view(np.float32)


def _float32(array: Any) -> Array:
    values = as_array(array)
    if values.dtype != np.float32:
        raise ValueError(
            Text(
                "rounding starts from float32, not from {dtype}: it would round twice",
                dtype=values.dtype,
            )
        )
    return values


def _check_writable(out: Array) -> None:
    if not (out.flags.writeable and out.dtype.isnative):
        raise ValueError("out is read-only or in foreign byte order")


def _blocks(array: Array) -> int:
    return (array.size + BLOCK - 1) // BLOCK


def _convert(target: Array, source: Array) -> None:
    """Round every element; a ``target`` with gaps is written through a temporary array."""
    direct = target.flags.c_contiguous and target.flags.aligned
    result = target if direct else np.empty(target.shape, target.dtype)
    _convert_all.over(_blocks(source), source.reshape(-1), result.reshape(-1))
    if not direct:
        target[...] = result


# --- Saturation mode ---


@kernel
def _saturate_all(block, bits, magnitude_mask, infinity, counts):
    part = bits[block * BLOCK : (block + 1) * BLOCK]
    overflows = 0
    for index in range(part.size):
        overflows |= (part[index] & magnitude_mask) >= infinity
    counts[block] = 0
    if overflows:  # rare: most blocks are only read
        for index in range(part.size):
            magnitude = part[index] & magnitude_mask
            counts[block] += magnitude >= infinity
            if magnitude > infinity:
                part[index] = 0
            elif magnitude == infinity:
                part[index] -= 1  # the pattern of the largest finite value precedes that of inf


def saturate(out: Array) -> int:
    """Apply the saturation mode in place; return the number of elements replaced.

    inf becomes the largest finite value with its sign, nan becomes 0. ``out`` is float16, bfloat16
    or float32, or a storage array (int16 is float16, uint16 is bfloat16). Source: specification
    page ``numerics``, section Overflow.
    """
    _check_writable(out)
    kind = FORMATS[FORMAT_OF_STORAGE.get(out.dtype) or floating(out.dtype)]
    unsigned = UNSIGNED[kind.itemsize]
    target = out.view(unsigned)
    direct = target.flags.c_contiguous and target.flags.aligned
    bits = target if direct else np.require(target, requirements=["C", "A", "O"])
    counts = np.empty(_blocks(bits), np.int64)
    mask, infinity = map(unsigned.type, magnitude_patterns(kind))
    _saturate_all.over(counts.size, bits.reshape(-1), mask, infinity, counts)
    if not direct:
        target[...] = bits
    return int(counts.sum())


_saturate = saturate  # `narrow_array` has an argument of the name ``saturate``


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
    _require_same_shape(left, right)
    out = np.empty(left.shape, np.int64)
    unsigned = UNSIGNED[kind.itemsize]
    flat_left, flat_right = (side.view(unsigned).reshape(-1) for side in (left, right))
    shift = FP32_MANTISSA_BITS - kind.mantissa_bits if kind.name == "hf32" else 0
    patterns = magnitude_patterns(kind)
    _distance_all.over(_blocks(out), flat_left, flat_right, *patterns, shift, out.reshape(-1))
    return out


def _require_same_shape(first: Array, second: Array) -> None:
    if first.shape != second.shape:
        raise ValueError(
            Text("shapes differ: {shape} and {other}", shape=first.shape, other=second.shape)
        )


def _format(dtype: Any) -> Format:
    return FORMATS["hf32" if dtype == "hf32" else floating(dtype)]


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
    _require_same_shape(stored, right)
    out = np.empty(stored.shape, np.float64)
    exponents = np.arange(1 - kind.bias, kind.bias + 1)
    scales = np.ldexp(1.0, kind.mantissa_bits - exponents)
    flat, bits = right.reshape(-1), right.view(np.int64).reshape(-1)
    largest, target = kind.largest_finite, out.reshape(-1)
    _error_all.over(_blocks(out), stored.reshape(-1), flat, bits, scales, largest, target)
    return out
