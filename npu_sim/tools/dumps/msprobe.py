"""Folders that msprobe writes: ``dump.json`` of every step and rank, and its tensor files.

Tensors in ``.pt`` files are read without PyTorch and without running code. Such a file is a zip
archive: a pickle that describes the tensor, and the raw bytes of its storage. Only the few names
that PyTorch and torch_npu write for a tensor are accepted in the pickle; they are mapped to
functions of this module.

Source: specification page ``msprobe_dump``, sections "Tree", "dump.json", "Names", "md5 = CRC-32"
and ".pt without torch_npu".
"""

import io
import json
import os
import pickle
import re
import zipfile
import zlib
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, ClassVar, NamedTuple

import numpy as np

from npu_sim.files.reading import cannot_read, open_plain, parse_json, read_limited
from npu_sim.files.tensors import read_tensor
from npu_sim.language import Text, grouped
from npu_sim.numbers.arrays import Array, Shape
from npu_sim.numbers.formats import TensorSpec, canonical_dtype, numpy_dtype
from npu_sim.operators.shared.dumped import DumpedTensor
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
TENSOR_HINT = "give a tensor file as msprobe writes it"


class _Storage(NamedTuple):
    key: str
    dtype: str
    size: int
    """Number of elements."""


class _Tensor(NamedTuple):
    storage: _Storage
    offset: int
    shape: Shape
    strides: Shape


def read_dumped_tensor(path: Path) -> Array:
    """Return the tensor of a ``.pt`` or ``.npy`` file; bfloat16 has the dtype of ``ml_dtypes``.

    Raises
    ------
    UsageError
        When the file is neither, is damaged, contains anything but one tensor, or an expanded
        tensor, whose storage has fewer elements than its shape.
    """
    if path.suffix == ".npy":
        return read_tensor("dump", str(path))
    with open_plain("dump", path, TENSOR_HINT) as file:
        try:
            return _read_archive(file)
        except UsageError:
            raise
        except Exception as error:  # an untrusted pickle can raise any error
            raise UsageError(
                "dump",
                "{path}: is not a tensor file: {error}",
                TENSOR_HINT,
                path=path,
                error=shown(error),
            ) from None


def _read_archive(file: IO[bytes]) -> Array:
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


DUMP_BYTES = 1 << 28
"""Largest ``dump.json``."""
MOST_ELEMENTS = 1 << 62
"""Largest number of elements of a tensor; a shape with more is no shape of a tensor."""
HINT = "name a folder that msprobe wrote, with a dump.json for each step and rank"
NAME = re.compile(
    r"(?P<prefix>\w+)\.(?P<api>.+)\.(?P<count>\d+)\.(?P<direction>forward|backward)", re.ASCII
)
"""Name of the entry of a function."""
MODULE = re.compile(
    r"(?P<module>(?P<prefix>Module|Cell)\..+\.(?P<class>\w+))"
    r"\.(?P<direction>forward|backward|parameters_grad)"
    r"(\.(?P<count>\d+))?",
    re.ASCII,
)
"""Name of the entry of a module (MindSpore: cell), or of the gradients of its parameters."""
LONE_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
STATISTICS = ("Max", "Min", "Mean", "Norm")
CHECKSUM = re.compile("(?P<crc>[0-9a-f]{8})|(?P<xor>0x[0-9a-f]{16})")
"""Forms of checksums: a CRC-32, or the XOR of the tensor's 64-bit words.

In place of a XOR, a tensor without axes has its value.
"""


@dataclass(frozen=True)
class StoredTensor(DumpedTensor):
    """A tensor in a dump: its shape, and what the dump holds of its values.

    Attributes
    ----------
    checksum
        CRC-32 of the bytes, or their XOR, both under the key ``md5``.
    name, file
        Name of the file of the values, and its path; empty and None where there is none.
    """

    checksum: str = ""
    name: str = ""
    file: Path | None = None

    @property
    def spec(self) -> TensorSpec:
        """Shape and dtype as planners take them."""
        return TensorSpec(self.shape, self.dtype)

    def values(self) -> Array:
        """Return the values.

        Raises
        ------
        UsageError
            When there is no file, or it is damaged or of another shape.
        """
        if self.file is None:
            raise UsageError(
                "dump",
                "{file} is missing" if self.name else "the dump has no tensor files",
                "dump with task tensor",
                file=self.name,
            )
        array = read_dumped_tensor(self.file)
        if array.shape != self.shape:
            raise UsageError(
                "dump",
                "{path} has the shape {found}; dump.json gives {shape}",
                HINT,
                path=self.file,
                found=array.shape,
                shape=self.shape,
            )
        # MindSpore saves bfloat16 as float32, which is exact.
        return array.astype(numpy_dtype("bfloat16")) if self.dtype == "bfloat16" else array

    def checksums(self, like: str) -> frozenset[str]:
        """Return the checksums of the form of ``like``; from the values if none is recorded.

        Older versions of msprobe took the CRC-32 of bfloat16 values widened to float32: of values,
        both are returned. Raises UsageError when they cannot be read.
        """
        form = _form(like)
        if self.checksum:
            return frozenset([self.checksum] if _form(self.checksum) == form else ())
        array = np.ascontiguousarray(self.values())
        if form == "xor":
            data = array.tobytes()
            words = np.frombuffer(data + bytes(-len(data) % 8), np.uint64)
            return frozenset([f"0x{int(np.bitwise_xor.reduce(words)):016x}"])
        if form == "crc":
            wide = [array.astype(np.float32)] if self.dtype == "bfloat16" else []
            return frozenset(f"{zlib.crc32(values.tobytes()):08x}" for values in (array, *wide))
        return frozenset([str(array.item()).lower()] if array.size == 1 else ())


def _form(checksum: str) -> str | None:
    match = CHECKSUM.fullmatch(checksum)
    return match.lastgroup if match else None


@dataclass(frozen=True)
class Entry:
    """One call in a ``dump.json``, in one direction.

    Values are StoredTensor, tuples of values, Python numbers, strings and None.

    Attributes
    ----------
    inputs, keywords
        Positional and keyword arguments; of a backward entry, the gradients of the outputs.
    parameters
        Parameters of a module by name.
    outputs
        What it returned by name, ``output 0`` for instance; gradients of parameters by theirs.
    """

    name: str
    inputs: tuple[Any, ...]
    keywords: Mapping[str, Any]
    parameters: Mapping[str, Any]
    outputs: Mapping[str, Any]

    @property
    def returned(self) -> tuple[Any, ...]:
        """The outputs in their order."""
        return tuple(self.outputs.values())


@dataclass(frozen=True)
class Dump:
    """One ``dump.json``: calls of one step and rank, in their order.

    Attributes
    ----------
    folder, place
        The given folder, and the one below it, e.g. ``step0/rank1``.
    unreadable
        Entries that are not of msprobe's form, with the reason.
    files
        Names of all tensor files.
    """

    folder: str
    place: str
    task: str
    entries: Mapping[str, Entry]
    unreadable: Mapping[str, str]
    files: tuple[str, ...]

    @property
    def step(self) -> str:
        """The place without the rank."""
        return self.place.rpartition("/")[0]

    @cached_property
    def unnamed_files(self) -> tuple[str, ...]:
        """Tensor files that no entry names: those of calls before a crash, for instance."""
        named = {
            tensor.name
            for entry in self.entries.values()
            for values in (entry.inputs, entry.keywords, entry.parameters, entry.outputs)
            for tensor in tensors_of(values)
        }
        return tuple(name for name in self.files if name not in named)

    @cached_property
    def modules(self) -> Mapping[str, tuple[str, ...]]:
        """Names of the entries of every module."""
        matches = filter(None, map(MODULE.fullmatch, self.entries))
        found = grouped((match["module"], match[0]) for match in matches)
        return {module: tuple(names) for module, names in found.items()}

    def counterpart(self, name: str) -> Entry | None:
        """Return the entry that has a name in another dump.

        The first gradients of parameters have a count in newer versions of msprobe only.
        """
        numbered = (f"{name}.0", name.removesuffix(".0")) if ".parameters_grad" in name else ()
        names = (name, *numbered)
        return next((self.entries[other] for other in names if other in self.entries), None)

    def partner(self, name: str, direction: str) -> Entry | None:
        """Return the entry of the same call in the other direction, ``forward`` or ``backward``."""
        if match := NAME.fullmatch(name):
            return self.entries.get(name.removesuffix(match["direction"]) + direction)
        if (match := MODULE.fullmatch(name)) and match["count"]:
            return self.entries.get(f"{match['module']}.{direction}.{match['count']}")
        return None


def tensors_of(value: Any) -> Iterator[StoredTensor]:
    """Yield the tensors in a value or in the values of a map, in order."""
    if isinstance(value, StoredTensor):
        yield value
    elif isinstance(value, tuple | Mapping):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from tensors_of(part)


def read_dumps(folder: str | os.PathLike[str]) -> tuple[Dump, ...]:
    """Return the dumps in a folder, by step and rank.

    Raises
    ------
    UsageError
        When there is no such folder, a folder in it cannot be read, or it has no ``dump.json``, or
        one of them is no JSON of msprobe, or larger than DUMP_BYTES.
    """
    root = Path(folder)
    if not root.is_dir():
        raise UsageError(
            "folder",
            "{folder} is not a folder" if root.exists() else "{folder}: no such folder",
            HINT,
            folder=root,
        )
    paths = sorted(_dump_files(root))
    if not paths:
        raise UsageError("folder", "{folder} contains no dump.json", HINT, folder=root)
    return tuple(_read_dump(str(folder), path) for path in paths)


def _dump_files(root: Path) -> Iterator[Path]:
    """Yield every ``dump.json`` in a folder; links to folders are followed, to each folder once."""

    def refuse(error: OSError) -> None:
        raise cannot_read("folder", error.filename, error, HINT) from None

    known: set[str] = set()
    for parent, folders, names in os.walk(root, followlinks=True, onerror=refuse):
        real = os.path.realpath(parent)
        if real in known:
            folders.clear()
        elif "dump.json" in names:
            yield Path(parent) / "dump.json"
        known.add(real)
        folders.sort()


def _read_dump(folder: str, path: Path) -> Dump:
    content = read_limited("folder", path, DUMP_BYTES, HINT)
    tensors = path.parent / "dump_tensor_data"
    try:
        files = tuple(sorted(file.name for file in tensors.iterdir())) if tensors.is_dir() else ()
        document = parse_json(content.decode("utf-8-sig", "replace"))
        if LONE_SURROGATE.search(content):  # no character of a name or string; "?" takes its place
            readable = json.dumps(document, ensure_ascii=False).encode("utf-8", "replace")
            document = json.loads(readable)
        if not isinstance(document, dict) or not isinstance(document.get("data"), dict):
            raise ValueError("data is not a map of entries")
    except OSError as error:
        raise cannot_read("folder", tensors, error, HINT) from None
    except ValueError as error:
        raise UsageError(
            "folder", "{path} is not a dump: {error}", HINT, path=path, error=error
        ) from None
    data, task = document["data"], str(document.get("task", ""))
    parser = _Parser(tensors, frozenset(files))
    entries, unreadable = {}, {}
    for name, values in data.items():
        try:
            entries[name] = parser.entry(name, values)
        except ValueError as error:
            unreadable[name] = error.args[0]
        except RecursionError:
            unreadable[name] = Text("nested too deeply")
    place = path.parent.relative_to(folder).as_posix().encode("utf-8", "replace").decode()
    return Dump(folder, place, task, MappingProxyType(entries), MappingProxyType(unreadable), files)


@dataclass(frozen=True)
class _Parser:
    """Reads the values of entries; raises ValueError for what msprobe does not write."""

    folder: Path
    files: frozenset[str]

    def entry(self, name: str, values: Any) -> Entry:
        """Return an entry; backward ones have ``input`` in place of ``input_args``."""
        if isinstance(values, list):  # gradients of parameters in older versions
            values = {"output": values}
        if not isinstance(values, dict):
            raise ValueError(Text("it is not a map"))
        match = MODULE.fullmatch(name)
        if match is not None and match["direction"] == "parameters_grad" and "output" not in values:
            gradients = {key: self.value(values[key]) for key in values}
            return Entry(name, (), {}, {}, {key: _single(gradients[key]) for key in gradients})
        outputs = self._list(values, "output")
        return Entry(
            name,
            self._list(values, "input_args" if "input_args" in values else "input"),
            self._map(values, "input_kwargs"),
            self._map(values, "parameters"),
            {f"output {place}": output for place, output in enumerate(outputs)},
        )

    def _list(self, values: Mapping[str, Any], key: str) -> tuple[Any, ...]:
        listed = values.get(key)
        if listed is None:
            return ()
        if not isinstance(listed, list):
            raise ValueError(Text("{key} is not a list", key=key))
        return tuple(self.value(value) for value in listed)

    def _map(self, values: Mapping[str, Any], key: str) -> Mapping[str, Any]:
        mapped = values.get(key) or {}
        if not isinstance(mapped, dict):
            raise ValueError(Text("{key} is not a map", key=key))
        return MappingProxyType({name: self.value(mapped[name]) for name in mapped})

    def value(self, value: Any) -> Any:
        """Return a tensor, a number, a string, None, or a tuple of values."""
        if isinstance(value, list):
            return tuple(self.value(part) for part in value)
        if not isinstance(value, dict):
            return value
        if str(value.get("type", "")).rpartition(".")[2] == "Tensor":
            return self._tensor(value)
        if "type" in value and "value" in value:
            return self.value(value["value"])
        return tuple((key, self.value(value[key])) for key in value)

    def _tensor(self, value: Mapping[str, Any]) -> StoredTensor:
        # Of the file's name only the last part counts: paths are those of another machine.
        name = Path(str(value.get("data_name") or "")).name
        statistics = {
            key: _number(key, value[key]) for key in STATISTICS if value.get(key) is not None
        }
        return StoredTensor(
            dtype=_dtype(str(value.get("dtype") or "")),
            shape=_shape(value.get("shape")),
            statistics=MappingProxyType(statistics),
            checksum=str(value.get("md5") or "").lower(),
            name=name,
            file=self.folder / name if name in self.files else None,
        )


def _single(gradients: Any) -> Any:
    """Return the gradient of a parameter, which stands in a list of one."""
    single = isinstance(gradients, tuple) and len(gradients) == 1
    return gradients[0] if single else gradients


def _shape(sizes: Any) -> Shape:
    if sizes is None:
        return ()
    legal = isinstance(sizes, list) and all(type(size) is int and size >= 0 for size in sizes)
    if not legal or prod(size for size in sizes if size) > MOST_ELEMENTS:
        raise ValueError(Text("shape {shape} is not a shape", shape=shown(sizes)))
    return tuple(sizes)


def _number(key: str, value: Any) -> float:
    """Return a statistic; NaN and infinity may be strings."""
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(
            Text("{key} is not a number: {value}", key=key, value=shown(value))
        ) from None


def _dtype(name: str) -> str:
    """Return the canonical dtype of ``torch.bfloat16`` or ``BFloat16``; others as they are."""
    try:
        return canonical_dtype(name)
    except ValueError:
        return name
