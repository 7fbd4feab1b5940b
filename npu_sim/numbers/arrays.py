"""Arrays of other libraries as NumPy arrays, without a copy where memory can be shared."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from math import prod
from types import MappingProxyType
from typing import Any

import numpy as np

from npu_sim.language import Text

Shape = tuple[int, ...]
Index = tuple[int, ...]
"""Position of an element."""
Dtype = np.dtype[Any]
Array = np.ndarray[Any, Any]
Arrays = Mapping[str, Array]
"""Arrays by the names of tensors."""
LINE_BYTES = 64
"""Size of a cache line. A vector store that crosses the end of a line takes twice as long."""
_FP32 = np.dtype(np.float32)
_FIRST_BYTE: Any = ctypes.c_char.from_buffer


@cache
def bfloat16() -> Dtype:
    """Return the NumPy dtype of bfloat16; ml_dtypes is imported only when it is needed."""
    import ml_dtypes

    dtype: Dtype = np.dtype(ml_dtypes.bfloat16)
    return dtype


@cache
def dtype_of_name(name: str) -> Dtype:
    """Return the NumPy dtype of a canonical name."""
    return bfloat16() if name == "bfloat16" else np.dtype(name)


@lru_cache(maxsize=64)
def dtype_name(dtype: Dtype) -> str:
    """Return the name of a dtype, cached: NumPy builds it at every access."""
    return dtype.name


def as_array(obj: Any) -> Array:
    """Return ``obj`` as a NumPy array, without a copy where its memory can be shared.

    Accepts NumPy and ml_dtypes arrays, objects with ``__array_interface__``, CPU tensors with
    DLPack (bfloat16 included, which NumPy itself refuses), objects with ``__array__``, numbers and
    nested sequences. Arrays in foreign byte order are copied to the native one, which kernels need.

    Raises TypeError when the memory cannot be reached, for instance a tensor on another device.
    """
    array = obj if type(obj) is np.ndarray else _as_given(obj)
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def memory_of(obj: Any) -> Array:
    """Return the memory of ``obj`` as an array in its own byte order; writes reach the owner.

    Accepts what :func:`as_array` accepts without a copy. No attribute tells for certain that an
    object gives copies, so it is converted twice: two copies have different addresses.

    Raises TypeError for an object that gives copies, such as a list, or whose memory cannot be
    reached.
    """
    array = _as_given(obj)
    if isinstance(obj, np.ndarray) or array.size == 0:
        return array
    again = _as_given(obj)
    if array.__array_interface__["data"] != again.__array_interface__["data"]:
        raise TypeError(
            Text(
                "this {module}.{class_name} gives copies of its memory",
                module=type(obj).__module__,
                class_name=type(obj).__qualname__,
            )
        )
    return array


def mark_written(obj: Any) -> None:
    """Tell the library that owns the memory of ``obj`` that its contents were changed.

    PyTorch counts the changes of a tensor: autograd refuses the backward pass of a call that saved
    one with other contents.
    """
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(obj, torch.Tensor):
        torch.autograd.graph.increment_version(obj)


def _as_given(obj: Any) -> Array:
    if (
        isinstance(obj, np.ndarray)
        or not hasattr(obj, "__dlpack__")
        or hasattr(obj, "__array_interface__")
    ):
        return np.asarray(obj)
    return _from_dlpack(obj)


def address_of(array: Array) -> int:
    """Return the address of an array's first element; 0 of an array without elements.

    A buffer of ctypes takes a third of the time of ``array.ctypes``, which is two thirds of laying
    out a kernel's array; it needs a writable, contiguous array.
    """
    if not array.size:
        return 0
    try:
        return ctypes.addressof(_FIRST_BYTE(array))
    except (TypeError, ValueError):
        return int(array.ctypes.data)


def aligned(shape: Shape, dtype: Dtype = _FP32) -> Array:
    """Return an uninitialised array that starts on a cache line."""
    memory = np.empty(prod(shape) * dtype.itemsize + LINE_BYTES, np.uint8)
    return np.ndarray(shape, dtype, memory, -address_of(memory) % LINE_BYTES)


def have_own_memory(arrays: Iterable[Any]) -> bool:
    """Return whether NumPy allocated memory for each of the arrays alone (a fast check)."""
    owners = set()
    for array in arrays:
        base = getattr(array, "base", None)
        owner = array if base is None else base
        if type(owner) is not np.ndarray or not owner.flags.owndata or id(owner) in owners:
            return False
        owners.add(id(owner))
    return True


def overlaps_itself(array: Array) -> bool:
    """Return whether elements of an array may overlap in memory, as in a broadcast array."""
    reach = array.itemsize
    for step, size in sorted(
        (abs(step), size) for step, size in zip(array.strides, array.shape, strict=True) if size > 1
    ):
        if step < reach:
            return array.size > 0
        reach += step * (size - 1)
    return False


def _from_dlpack(obj: Any) -> Array:
    kind = f"{type(obj).__module__}.{type(obj).__qualname__}"
    if not _has_memory(obj):
        message = Text(
            "this {kind} has no memory for its elements: it is fake, functional or freed", kind=kind
        )
        raise TypeError(message)
    if getattr(obj, "requires_grad", False) and hasattr(obj, "detach"):
        obj = obj.detach()  # libraries refuse to export a tensor that records gradients
    try:
        if hasattr(obj, "resolve_neg"):
            # PyTorch negates and conjugates lazily, by a bit that DLPack does not carry.
            obj = obj.resolve_conj().resolve_neg()
        if str(getattr(obj, "dtype", "")).endswith("bfloat16"):
            return np.from_dlpack(_BfloatAsInteger(obj)).view(bfloat16())
        return np.from_dlpack(obj)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        try:
            if hasattr(obj, "__array__"):
                return np.asarray(obj)  # some libraries copy from another device here
        except (RuntimeError, TypeError, ValueError):
            pass
        message = Text(
            "cannot reach the memory of this {kind} over DLPack: {error}", kind=kind, error=error
        )
        raise TypeError(message) from error


def _has_memory(tensor: Any) -> bool:
    """Return whether all elements of a PyTorch tensor lie in its storage; True for other objects.

    NumPy gives new, uninitialised memory for a null pointer.
    """
    try:
        storage, itemsize = tensor.untyped_storage(), tensor.element_size()
        if storage.device.type == "meta":  # of a FakeTensor, which warns about data_ptr
            return False
        sizes, strides = tuple(tensor.shape), tensor.stride()
        offset = tensor.storage_offset()
        start = tensor.data_ptr() - offset * itemsize
    except (AttributeError, NotImplementedError, RuntimeError):
        return True  # a tensor without a storage, which DLPack refuses
    if 0 in sizes:
        return True
    last = offset + sum((size - 1) * step for size, step in zip(sizes, strides, strict=True))
    return bool(start != 0 and (last + 1) * itemsize <= storage.nbytes())


class _BfloatAsInteger:
    """A DLPack exporter that relabels bfloat16 elements as unsigned 16-bit integers.

    The capsule belongs to this one import, so its type code can change before NumPy reads it.
    Exporter and importer manage lifetime and strides.
    """

    # DLPack: DLDataTypeCode; byte offset of DLTensor in DLManagedTensor and in
    # DLManagedTensorVersioned (version 8, manager context 8, deleter 8, flags 8); of
    # DLTensor.dtype.code (data 8, device 8, ndim 4).
    UNSIGNED_INTEGER, BFLOAT = 1, 4
    TENSOR_OFFSETS = MappingProxyType({b"dltensor": 0, b"dltensor_versioned": 32})
    DTYPE_OFFSET = 20

    def __init__(self, tensor: Any) -> None:
        self._tensor = tensor

    def __dlpack_device__(self) -> Any:
        return self._tensor.__dlpack_device__()

    def __dlpack__(self, **arguments: Any) -> Any:
        capsule = self._tensor.__dlpack__(**arguments)
        get_name = ctypes.pythonapi.PyCapsule_GetName
        get_name.restype, get_name.argtypes = ctypes.c_char_p, [ctypes.py_object]
        get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
        get_pointer.restype, get_pointer.argtypes = (
            ctypes.c_void_p,
            [ctypes.py_object, ctypes.c_char_p],
        )
        name = get_name(capsule)
        address = get_pointer(capsule, name) + self.TENSOR_OFFSETS[name] + self.DTYPE_OFFSET
        code = ctypes.c_uint8.from_address(address)
        if code.value == self.BFLOAT:
            code.value = self.UNSIGNED_INTEGER
        return capsule
