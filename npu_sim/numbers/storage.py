"""How kernels see arrays: the storage dtype carries the format.

float16 is stored as int16 and bfloat16 as uint16 (their bit patterns), float32 as itself. Nothing here needs Numba.
"""

from __future__ import annotations

from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np

from npu_sim.numbers.formats import Format, as_array, canonical_dtype, numpy_dtype

Array = np.ndarray[Any, Any]

STORAGE: MappingProxyType[str, np.dtype[Any]] = MappingProxyType(
    {
        "float16": np.dtype(np.int16),
        "bfloat16": np.dtype(np.uint16),
        "float32": np.dtype(np.float32),
    }
)
"""Name of a format to the dtype its elements have in a kernel."""

FORMAT_OF_STORAGE: MappingProxyType[np.dtype[Any], str] = MappingProxyType(
    {storage: name for name, storage in STORAGE.items()}
)

UNSIGNED: MappingProxyType[int, np.dtype[Any]] = MappingProxyType(
    {size: np.dtype(f"u{size}") for size in (2, 4, 8)}
)
"""Bytes of an element to the dtype that shows its bit pattern."""

BLOCK = 16384
"""Elements a thread takes at once: 32 KiB of 16-bit elements, so that a block fits the first-level cache.

Kernels loop over slices of a block: an index that starts at ``block * BLOCK`` might be negative as far as the
compiler can tell, and the check for wrapping around keeps it from using vector instructions.
"""


def storage_view(array: Any) -> Array:
    """Return the array as kernels see it, without a copy.

    float16 becomes int16 and bfloat16 becomes uint16, same shape and strides; float32 stays.
    """
    values = as_array(array)
    _format_of(values.dtype)
    return _as_stored(values)


def from_storage(bits: Array, dtype: Any) -> Array:
    """Return a stored array as ``dtype`` (float16, bfloat16 or float32), without a copy."""
    name = floating(dtype)
    if bits.dtype not in (STORAGE[name], numpy_dtype(name)):
        raise ValueError(f"{name} is stored as {STORAGE[name]}, not as {bits.dtype}")
    return bits.view(numpy_dtype(name))


class _Memory:
    """The memory of an array, described once more; keeps the array alive."""

    def __init__(self, array: Array) -> None:
        self.array = array
        self.__array_interface__ = array.__array_interface__ | {"data": (array.ctypes.data, False)}


def kernel_input(array: Any) -> Array:
    """Return an array a kernel only reads: its storage view, C-contiguous and aligned; other dtypes stay.

    Copies only what is not. A read-only array comes back as a writable view of the same memory: Numba would
    otherwise compile every kernel once more for it. Nothing may be written through the result.
    """
    stored = _as_stored(as_array(array))
    if stored.flags.carray:
        return stored
    stored = np.require(stored, requirements=["C", "A"])
    return stored if stored.flags.writeable or stored.size == 0 else np.asarray(_Memory(stored))


def _as_stored(values: Array) -> Array:
    dtype = _stored_dtype(values.dtype)
    return values if dtype is None else values.view(dtype)


@lru_cache(maxsize=64)
def _stored_dtype(dtype: np.dtype[Any]) -> np.dtype[Any] | None:
    """Return the dtype in which kernels see another one; None where that is itself."""
    stored = STORAGE.get(dtype.name, dtype)
    return None if stored == dtype else stored


def floating(dtype: Any) -> str:
    """Return the canonical name of a dtype kernels compute on, or raise ValueError."""
    name = canonical_dtype(dtype)
    if name not in STORAGE:
        raise ValueError(f"dtype {name} is not one of {', '.join(STORAGE)}")
    return name


@lru_cache(maxsize=64)
def _format_of(dtype: np.dtype[Any]) -> str:
    """Remember what :func:`floating` says of an array's dtype."""
    return floating(dtype)


def stored_as(array: Any, one: Format) -> Array:
    """Return an array of a format, or of its storage dtype, as the storage array for reading."""
    values = as_array(array)
    if values.dtype not in (STORAGE[one.storage], numpy_dtype(one.storage)):
        raise ValueError(f"expected an array of {one.storage}, not of {values.dtype}")
    return kernel_input(values)


def magnitude_patterns(one: Format) -> tuple[int, int]:
    """Return the mask of everything but the sign, and the pattern of inf, of the storage of a format."""
    mask = (1 << (8 * one.itemsize - 1)) - 1
    return mask, mask & ~((1 << (8 * one.itemsize - 1 - one.exponent_bits)) - 1)
