"""Tensors in ``.npy`` and ``.npz`` files."""

import warnings
import zipfile
from math import prod
from pathlib import Path
from typing import IO

import numpy as np

from npu_sim.files.reading import open_plain
from npu_sim.files.writing import require_room, write_atomically
from npu_sim.language import Text
from npu_sim.numbers.arrays import Array, Arrays
from npu_sim.numbers.formats import canonical_dtype, numpy_dtype
from npu_sim.status import UsageError


def names_tensor_file(value: object) -> bool:
    """Return whether a tensor argument names a file rather than a shape."""
    return isinstance(value, str) and (value.endswith(".npy") or ".npy:" in value)


def read_tensor(name: str, text: str, most_bytes: int | None = None) -> Array:
    """Return the tensor in ``file.npy``.

    With ``file.npy:bf16`` integers are bits of bfloat16, and floating-point numbers of another
    dtype, as which other tools save them, are bfloat16 numbers.

    Raises UsageError when the file cannot be read as an array of a known dtype, its numbers are
    none of the given one, or it is larger than ``most_bytes``.
    """
    path, _, dtype = text.partition(".npy:")
    path = path + ".npy" if dtype else path
    hint = "give a .npy file, as numpy.save writes it"
    # Files of Python 2 are read as any other, without NumPy's warning.
    with open_plain(name, Path(path), hint) as file, warnings.catch_warnings(action="ignore"):
        try:
            _require_whole(file, most_bytes)
            array = np.lib.format.read_array(file, allow_pickle=False)
        except Exception as error:
            raise UsageError(
                name,
                "{name} = {text}: cannot be read: {error}",
                hint,
                name=name,
                text=repr(text),
                error=error,
            ) from None
    if array.dtype.kind == "V" and array.dtype.itemsize == 2:
        array = array.view(numpy_dtype("bfloat16"))  # numpy.save stores ml_dtypes as void
    if array.dtype == np.uint16 and not dtype:
        raise UsageError(
            name,
            "{name} = {text}: uint16 is no dtype of a tensor",
            "for bits of bfloat16 write {text}:bf16, of float16 {text}:fp16",
            name=name,
            text=text,
        )
    try:
        return _taken_as(array, numpy_dtype(dtype)) if dtype else array
    except (ValueError, TypeError) as error:
        raise UsageError(
            name,
            "{name} = {text}: cannot be taken as {dtype}: {error}",
            "bits and dtype must have the same size, e.g. uint16 bits as bf16",
            name=name,
            text=repr(text),
            dtype=dtype,
            error=error,
        ) from None


def _taken_as(array: Array, dtype: np.dtype) -> Array:
    """Return bits (integers) or numbers of another dtype in a dtype.

    Raises ValueError when the bits have another size, or a number is not exact.
    """
    if array.dtype.kind in "iu":
        if array.itemsize != dtype.itemsize:
            raise ValueError(Text("it holds {given}", given=str(array.dtype)))
        return array.view(dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        numbers = array.astype(dtype)
        same = np.array_equal(numbers.astype(np.float64), array.astype(np.float64), equal_nan=True)
    if not same:
        raise ValueError(Text("not all its numbers are exact in {dtype}", dtype=str(dtype)))
    return numbers


def _require_whole(file: IO[bytes], most_bytes: int | None) -> None:
    """Check that a .npy file holds as many bytes as its header states, before allocating them.

    Raises ValueError when it is not a .npy file, contains Python objects, is truncated, or has more
    than ``most_bytes``.
    """
    readers = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    try:
        version = np.lib.format.read_magic(file)
    except ValueError:
        raise ValueError("it is not a .npy file") from None
    if version not in readers:
        raise ValueError(
            Text("version {version} of the .npy format holds no tensors", version=version)
        )
    try:
        shape, _, dtype = readers[version](file)
    except Exception:  # NumPy evaluates the header as Python, so any error is possible
        raise ValueError("its header is damaged") from None
    if dtype.hasobject:
        raise ValueError("it holds Python objects")
    if min(shape, default=0) < 0:
        raise ValueError(Text("its header gives the shape {shape}", shape=shape))
    promised, begin = prod(shape) * dtype.itemsize, file.tell()
    if most_bytes is not None and promised > most_bytes:
        raise ValueError(Text("more than {most} bytes of data", most=most_bytes))
    present = file.seek(0, 2) - begin
    if promised > present:
        raise ValueError(
            Text(
                "its header promises {promised} bytes of data, there are {found}",
                promised=promised,
                found=present,
            )
        )
    file.seek(0)


def write_tensors(path: Path, arrays: Arrays) -> None:
    """Write one array to ``.npy`` or several to ``.npz``.

    Raises UsageError when the ending does not fit, or the file cannot be written.
    """
    require_room(path, sum(array.nbytes for array in arrays.values()))
    if path.suffix == ".npz":
        write_atomically(path, lambda file: _write_archive(file, arrays))
    elif path.suffix == ".npy" and len(arrays) == 1:
        write_atomically(path, lambda file: np.save(file, _savable(next(iter(arrays.values())))))
    else:
        raise UsageError(
            "out",
            "out = {path}: wrong ending for {arrays}",
            ".npy for one output, .npz for several",
            path=repr(str(path)),
            arrays=", ".join(arrays),
        )


def _write_archive(file: IO[bytes], arrays: Arrays) -> None:
    """Write like ``numpy.savez``, which may leave its archive open when the disk is full."""
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, _savable(array), allow_pickle=False)


def _savable(array: Array) -> Array:
    canonical_dtype(array.dtype)
    return np.ascontiguousarray(array)
