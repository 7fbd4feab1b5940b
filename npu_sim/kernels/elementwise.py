"""Rounding of arrays, and the saturation mode.

The functions accept any shape and strides, and give the same bits for any number of threads.
Arrays that are not C-contiguous are copied first. `npu_sim.numbers.scalars` rounds one element.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from npu_sim.kernels.engine.compile import Kernel, kernel
from npu_sim.language import Text
from npu_sim.numbers.formats import FORMATS, as_array, numpy_dtype
from npu_sim.numbers.scalars import fp32_to_hf32, fp32_to_hf32_towards_zero, narrow, widen
from npu_sim.numbers.storage import (
    BLOCK,
    FORMAT_OF_STORAGE,
    STORAGE,
    UNSIGNED,
    Array,
    floating,
    kernel_input,
    magnitude_patterns,
)


@kernel
def _widen_all(block, stored, out):
    source = stored[block * BLOCK : (block + 1) * BLOCK]
    target = out[block * BLOCK : (block + 1) * BLOCK]
    for index in range(source.size):
        target[index] = widen(source[index])


@kernel
def _narrow_all(block, values, out):
    source = values[block * BLOCK : (block + 1) * BLOCK]
    target = out[block * BLOCK : (block + 1) * BLOCK]
    for index in range(source.size):
        target[index] = narrow(source[index], target)


@kernel
def _hf32_nearest_all(block, values, out):
    source = values[block * BLOCK : (block + 1) * BLOCK]
    target = out[block * BLOCK : (block + 1) * BLOCK]
    for index in range(source.size):
        target[index] = fp32_to_hf32(source[index])


@kernel
def _hf32_towards_zero_all(block, values, out):
    source = values[block * BLOCK : (block + 1) * BLOCK]
    target = out[block * BLOCK : (block + 1) * BLOCK]
    for index in range(source.size):
        target[index] = fp32_to_hf32_towards_zero(source[index])


def widen_array(array: Any, out: Array | None = None) -> Array:
    """Return a float16, bfloat16 or float32 array as float32, in ``out`` or a new array; exact."""
    stored = kernel_input(array)
    target = _target(out, stored.shape, "float32")
    if stored.dtype == np.float32:
        np.copyto(target, stored)
    else:
        _apply(_widen_all, stored, target)
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
    target = _target(out, values.shape, name)
    if name == "float32":
        np.copyto(target, values)
    else:
        _apply(_narrow_all, kernel_input(values), target.view(STORAGE[name]))
    if saturate:
        _saturate(target)
    return target


def round_to_hf32(array: Any, towards_zero: bool = False, out: Array | None = None) -> Array:
    """Round a float32 array to hf32 (11 explicit mantissa bits), to nearest even or towards zero.

    Returns a new float32 array, or ``out``, which may be the input. The 12 low mantissa bits of its
    elements are zero.
    """
    values = kernel_input(_float32(array))
    target = _target(out, values.shape, "float32")
    _apply(_hf32_towards_zero_all if towards_zero else _hf32_nearest_all, values, target)
    return target


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


def _target(out: Array | None, shape: tuple[int, ...], name: str) -> Array:
    """Return ``out`` when it can hold the result, a new array when there is none."""
    if out is None:
        return np.empty(shape, numpy_dtype(name))
    if out.shape != shape or (out.dtype != STORAGE[name] and out.dtype != numpy_dtype(name)):
        raise ValueError(
            Text(
                "out is {shape} {dtype}, the result {result_shape} {result_dtype}",
                shape=out.shape,
                dtype=out.dtype,
                result_shape=shape,
                result_dtype=name,
            )
        )
    _check_writable(out)
    return out


def _check_writable(out: Array) -> None:
    if not (out.flags.writeable and out.dtype.isnative):
        raise ValueError("out is read-only or in foreign byte order")


def _blocks(array: Array) -> int:
    return (array.size + BLOCK - 1) // BLOCK


def _apply(compiled: Kernel, source: Array, target: Array) -> None:
    """Run an elementwise kernel; a ``target`` with gaps is written through a temporary array."""
    direct = target.flags.c_contiguous and target.flags.aligned
    result = target if direct else np.empty(target.shape, target.dtype)
    compiled.over(_blocks(source), source.reshape(-1), result.reshape(-1))
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
