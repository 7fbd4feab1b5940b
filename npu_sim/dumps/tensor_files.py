"""Tensors in ``.pt`` and ``.npy`` files of a dump, read without PyTorch and without running code.

A ``.pt`` file is a zip archive: a pickle that describes the tensor, and the raw bytes of its
storage. Only the few names that PyTorch and torch_npu write for a tensor are accepted in the
pickle; they are mapped to functions of this module.

Source: specification page ``msprobe_dump``, section ".pt without torch_npu".
"""

import io
import pickle
import zipfile
from collections import OrderedDict
from math import prod
from pathlib import Path
from typing import IO, Any, ClassVar, NamedTuple

import numpy as np

from npu_sim.files.reading import open_plain
from npu_sim.files.tensors import read_tensor
from npu_sim.language import Text
from npu_sim.numbers.formats import numpy_dtype
from npu_sim.status import UsageError, shown

PICKLE_BYTES = 1 << 16
"""Largest description of a tensor that is read; msprobe writes less than 1 KiB."""
STORAGES = {
    "DoubleStorage": "float64",
    "FloatStorage": "float32",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
}
"""Storage classes of PyTorch, and the dtypes of their elements."""
HINT = "give a tensor file as msprobe writes it"


class _Storage(NamedTuple):
    key: str
    dtype: str
    size: int
    """Number of elements."""


class _Tensor(NamedTuple):
    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def read_dumped_tensor(path: Path) -> np.ndarray:
    """Return the tensor of a ``.pt`` or ``.npy`` file; bfloat16 has the dtype of ``ml_dtypes``.

    Raises
    ------
    UsageError
        When the file is neither, is damaged, contains anything but one tensor, or an expanded
        tensor, whose storage has fewer elements than its shape.
    """
    if path.suffix == ".npy":
        return read_tensor("dump", str(path))
    with open_plain("dump", path, HINT) as file:
        try:
            return _read_archive(file)
        except UsageError:
            raise
        except Exception as error:  # an untrusted pickle can raise any error
            raise UsageError(
                "dump",
                Text("{path}: is not a tensor file: {error}", path=path, error=shown(error)),
                HINT,
            ) from None


def _read_archive(file: IO[bytes]) -> np.ndarray:
    with zipfile.ZipFile(file) as archive:
        named = [name for name in archive.namelist() if name.endswith("/data.pkl")]
        if len(named) != 1:
            raise ValueError("it has no data.pkl, or several")
        (described,) = named
        folder = described.removesuffix("data.pkl")
        order = _stored(archive, folder + "byteorder", 16) or b"little"
        if order.strip() != b"little":
            raise ValueError(Text("its byte order is {order}", order=shown(order)))
        tensor = _TensorUnpickler(io.BytesIO(_stored(archive, described, PICKLE_BYTES))).load()
        if not isinstance(tensor, _Tensor):
            raise ValueError("it contains an object that is not a tensor")
        storage = tensor.storage
        dtype = numpy_dtype(storage.dtype)
        size = storage.size * dtype.itemsize
        data = _stored(archive, f"{folder}data/{storage.key}", size)
        if len(data) != size:
            raise ValueError(
                Text("its storage has {found} of {size} bytes", found=len(data), size=size)
            )
        if prod(tensor.shape) > storage.size:
            raise ValueError(
                Text(
                    "its shape {shape} needs more elements than its storage has", shape=tensor.shape
                )
            )
        strides = tuple(stride * dtype.itemsize for stride in tensor.strides)
        # NumPy checks that shape and strides lie within the data.
        return np.ndarray(tensor.shape, dtype, data, tensor.offset * dtype.itemsize, strides)


def _stored(archive: zipfile.ZipFile, name: str, most_bytes: int) -> bytes:
    """Return a member of the archive, which PyTorch stores uncompressed; empty if it is missing.

    Raises
    ------
    ValueError
        When it is compressed, or larger than ``most_bytes``.
    """
    try:
        member = archive.getinfo(name)
    except KeyError:
        return b""
    if member.compress_type != zipfile.ZIP_STORED or member.file_size > most_bytes:
        raise ValueError(Text("{name} is compressed or too large", name=shown(name)))
    return archive.read(member)


def _rebuild_tensor(
    storage: _Storage, offset: int, shape: Any, strides: Any, *_others: Any
) -> _Tensor:
    """Stand for PyTorch's functions of this name; gradients, hooks and metadata are dropped."""
    return _Tensor(storage, offset, tuple(shape), tuple(strides))


def _rebuild_npu_tensor(*arguments: Any) -> _Tensor:
    """Stand for the function of old torch_npu, whose last argument describes the NPU storage."""
    if "FRACTAL_NZ" in repr(arguments[-1]):
        raise ValueError("it is stored in FRACTAL_NZ, which is not read")
    return _rebuild_tensor(*arguments)


GLOBALS: dict[tuple[str, str], Any] = {
    ("torch._utils", "_rebuild_tensor"): _rebuild_tensor,
    ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor,
    ("torch_npu.utils.storage", "_rebuild_npu_tensor"): _rebuild_npu_tensor,
    ("collections", "OrderedDict"): OrderedDict,
}


class _Memo(dict[int, Any]):
    """Objects that a pickle may use again: names and storages.

    Tuples in tuples, each used twice, would take exponential time to print or to hash.
    """

    def __getitem__(self, key: int) -> Any:
        value = super().__getitem__(key)
        if isinstance(value, str | _Storage) or callable(value):
            return value
        raise pickle.UnpicklingError("it uses an object twice")


# The C unpickler allocates memory for indices that a pickle merely states; the Python one does not.
class _TensorUnpickler(pickle._Unpickler):
    """Unpickler that knows the names in ``GLOBALS`` and ``STORAGES`` only.

    It neither copies the last object (DUP) nor sets attributes (BUILD), which no tensor needs.
    """

    dispatch: ClassVar = {
        code: handler
        for code, handler in pickle._Unpickler.dispatch.items()
        if code not in (*pickle.DUP, *pickle.BUILD)
    }

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__(file)
        self.memo = _Memo()

    def find_class(self, module: str, name: str) -> Any:
        """Return what stands for a name, or raise ``UnpicklingError``."""
        if module == "torch" and name in STORAGES:
            return STORAGES[name]
        try:
            return GLOBALS[module, name]
        except KeyError:
            raise pickle.UnpicklingError(
                Text("it names {name}, which is not loaded", name=shown(f"{module}.{name}"))
            ) from None

    def persistent_load(self, identity: Any) -> _Storage:
        """Return the description of a storage; the device that it was on does not matter."""
        kind, dtype, key, _device, size = identity
        if kind != "storage" or not isinstance(dtype, str) or not isinstance(size, int):
            raise pickle.UnpicklingError("its storage is of an unknown kind")
        return _Storage(str(key), dtype, size)
