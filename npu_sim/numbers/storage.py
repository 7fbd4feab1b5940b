"""Storage dtypes: the dtype of a kernel's array names the format of its elements.

float16 is stored as int16 and bfloat16 as uint16 (their bit patterns), float32 as itself. This
module does not import Numba.
"""

from __future__ import annotations

from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np

from npu_sim.language import Text
from npu_sim.numbers.formats import Format, as_array, canonical_dtype, numpy_dtype

Array = np.ndarray[Any, Any]

STORAGE: MappingProxyType[str, np.dtype[Any]] = MappingProxyType(
    {
        "float16": np.dtype(np.int16),
        "bfloat16": np.dtype(np.uint16),
        "float32": np.dtype(np.float32),
    }
)
"""Name of a format to its storage dtype."""

FORMAT_OF_STORAGE: MappingProxyType[np.dtype[Any], str] = MappingProxyType(
    {storage: name for name, storage in STORAGE.items()}
)

UNSIGNED: MappingProxyType[int, np.dtype[Any]] = MappingProxyType(
    {size: np.dtype(f"u{size}") for size in (2, 4, 8)}
)
"""Bytes of an element to the dtype of its bit pattern."""

BLOCK = 16384
"""Elements of a chunk: 32 KiB of 16-bit elements, so that a block fits the first-level cache.

Kernels loop over slices of a block. With an index that starts at ``block * BLOCK``, the compiler
cannot rule out negative values, and the wrap-around check prevents vector instructions.
"""


def storage_view(array: Any) -> Array:
    """Return the storage array of an array, without a copy.

    float16 becomes int16 and bfloat16 becomes uint16, same shape and strides; float32 stays.
    """
    values = as_array(array)
    floating(values.dtype)
    return _as_stored(values)


def from_storage(bits: Array, dtype: Any) -> Array:
    """Return a stored array as ``dtype`` (float16, bfloat16 or float32), without a copy."""
    name = floating(dtype)
    if bits.dtype not in (STORAGE[name], numpy_dtype(name)):
        raise ValueError(
            Text(
                "{name} is stored as {storage}, not as {dtype}",
                bits,
                name=name,
                storage=STORAGE[name],
            )
        )
    return bits.view(numpy_dtype(name))


def kernel_input(array: Any) -> Array:
    """Return an array that a kernel only reads: its storage view, C-contiguous and aligned.

    Other dtypes stay. Copies only arrays with another memory layout. Nothing may be written through
    the result.
    """
    stored = _as_stored(as_array(array))
    return stored if stored.flags.carray else np.require(stored, requirements=["C", "A"])


def _as_stored(values: Array) -> Array:
    dtype = _stored_dtype(values.dtype)
    return values if dtype is None else values.view(dtype)


@lru_cache(maxsize=64)
def _stored_dtype(dtype: np.dtype[Any]) -> np.dtype[Any] | None:
    """Return the storage dtype of a dtype; None where it is the same."""
    stored = STORAGE.get(dtype.name, dtype)
    return None if stored == dtype else stored


@lru_cache(maxsize=64)
def floating(dtype: Any) -> str:
    """Return the canonical name of a dtype kernels compute on, or raise ValueError."""
    name = canonical_dtype(dtype)
    if name not in STORAGE:
        raise ValueError(
            Text("dtype {name} is not one of {storage}", name=name, storage=", ".join(STORAGE))
        )
    return name


def stored_as(array: Any, kind: Format) -> Array:
    """Return the storage array, for reading, of an array of a format or of its storage dtype."""
    values = as_array(array)
    if values.dtype not in (STORAGE[kind.storage], numpy_dtype(kind.storage)):
        raise ValueError(
            Text("expected an array of {storage}, not of {dtype}", kind, dtype=values.dtype)
        )
    return kernel_input(values)


def magnitude_patterns(kind: Format) -> tuple[int, int]:
    """Return the mask of all bits but the sign, and the pattern of inf, in a format's storage."""
    mask = (1 << (8 * kind.itemsize - 1)) - 1
    return mask, mask & ~((1 << (8 * kind.itemsize - 1 - kind.exponent_bits)) - 1)
