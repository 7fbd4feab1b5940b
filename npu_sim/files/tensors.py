"""Reading tensors from files, and writing files whole or not at all."""

import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from npu_sim.numbers.formats import canonical_dtype, numpy_dtype
from npu_sim.status import INVALID, AclnnError


def write_atomically(path: Path, write: Callable[[IO[bytes]], Any]) -> None:
    """Write a file through a temporary one beside it, so that readers see the old file or the whole new one.

    Raises
    ------
    AclnnError
        161002 when the folder cannot be written.
    """
    try:
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise AclnnError(
            INVALID, "out", f"{path}: cannot be written: {error.strerror}", "name a file in a folder you may write to"
        ) from None
    try:
        with os.fdopen(descriptor, "wb") as file:
            write(file)
        Path(name).chmod(0o666 & ~_umask())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def write_text(path: Path, text: str) -> None:
    """Write a text file whole or not at all."""
    write_atomically(path, lambda file: file.write(text.encode("utf-8")))


def read_tensor(name: str, text: str) -> np.ndarray:
    """Read a tensor from ``file.npy``; ``file.npy:bf16`` takes 16-bit integers as the bits of that dtype.

    Raises
    ------
    AclnnError
        161002 when the file cannot be read as an array of a known dtype.
    """
    path, _, dtype = text.partition(".npy:")
    path = path + ".npy" if dtype else path
    try:
        array = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise AclnnError(
            INVALID, name, f"{name} = {text!r}: cannot be read: {error}", "give a .npy file, as numpy.save writes it"
        ) from None
    if not isinstance(array, np.ndarray):
        raise AclnnError(INVALID, name, f"{name} = {text!r} holds several arrays", "give a .npy file with one array")
    if array.dtype.kind == "V" and array.dtype.itemsize == 2:
        array = array.view(numpy_dtype("bfloat16"))  # what numpy.save leaves of an ml_dtypes array
    try:
        return array.view(numpy_dtype(dtype)) if dtype else array
    except (ValueError, TypeError) as error:
        hint = "bits and dtype must have the same size, e.g. uint16 bits as bf16"
        raise AclnnError(INVALID, name, f"{name} = {text!r}: cannot be taken as {dtype}: {error}", hint) from None


def is_tensor_file(text: str) -> bool:
    """Whether a tensor argument names a file rather than a shape."""
    return text.endswith(".npy") or ".npy:" in text


def write_tensors(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write one array to ``.npy`` or several to ``.npz``.

    Raises
    ------
    AclnnError
        161002 when the ending does not fit.
    """
    if path.suffix == ".npz":
        write_atomically(path, lambda file: np.savez(file, allow_pickle=False, **{name: _savable(array) for name, array in arrays.items()}))
    elif path.suffix == ".npy" and len(arrays) == 1:
        write_atomically(path, lambda file: np.save(file, _savable(next(iter(arrays.values())))))
    else:
        hint = ".npy for one output, .npz for several"
        raise AclnnError(INVALID, "out", f"out = {str(path)!r}: {len(arrays)} outputs ({', '.join(arrays)})", hint)


def _savable(array: np.ndarray) -> np.ndarray:
    canonical_dtype(array.dtype)
    return np.ascontiguousarray(array)
