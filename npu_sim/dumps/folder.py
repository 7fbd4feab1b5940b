"""Folders that msprobe writes: ``dump.json`` of every step and rank, and its tensor files.

Source: specification page ``msprobe_dump``, sections "Tree", "dump.json" and "Names".
"""

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from npu_sim.dumps.tensor_files import read_dumped_tensor
from npu_sim.files.reading import read_limited
from npu_sim.language import Text
from npu_sim.numbers.formats import TensorSpec, canonical_dtype, numpy_dtype
from npu_sim.status import UsageError

DUMP_BYTES = 1 << 28
"""Largest ``dump.json``."""
HINT = "name a folder that msprobe wrote, with a dump.json for each step and rank"
NAME = re.compile(
    r"(?P<prefix>\w+)\.(?P<api>.+)\.(?P<count>\d+)\.(?P<direction>forward|backward)", re.ASCII
)
"""Name of an entry; that of a module ends with its count and does not name an operator."""


@dataclass(frozen=True)
class DumpedTensor:
    """A tensor in a dump: its shape, and what the dump holds of its values.

    Attributes
    ----------
    dtype, shape
        Canonical dtype, or the tool's name of another one; empty and ``()`` if not recorded.
    statistics
        ``Max``, ``Min``, ``Mean`` and ``Norm``, as far as they are numbers. Mean and Norm were
        computed in the tensor's own dtype.
    checksum
        CRC-32 of the bytes (key ``md5``), or an XOR checksum in newer dumps without statistics.
    file
        File of the values, if there is one.
    """

    dtype: str
    shape: tuple[int, ...]
    statistics: Mapping[str, float] = field(default_factory=dict)
    checksum: str | None = None
    file: Path | None = None

    @property
    def spec(self) -> TensorSpec:
        """Shape and dtype as planners take them."""
        return TensorSpec(self.shape, self.dtype)

    def values(self) -> np.ndarray:
        """Return the values; raises UsageError when the file is damaged or of another shape."""
        if self.file is None:
            raise UsageError("dump", "the dump has no tensor files", "dump with task tensor")
        array = read_dumped_tensor(self.file)
        if array.shape != self.shape:
            raise UsageError(
                "dump",
                Text(
                    "{path} has the shape {found}; dump.json gives {shape}",
                    path=self.file,
                    found=array.shape,
                    shape=self.shape,
                ),
                HINT,
            )
        # MindSpore saves bfloat16 as float32, which is exact.
        return array.astype(numpy_dtype("bfloat16")) if self.dtype == "bfloat16" else array


@dataclass(frozen=True)
class Entry:
    """One call in a ``dump.json``, in one direction.

    Values are DumpedTensor, tuples of values, Python numbers, strings and None.
    """

    name: str
    inputs: tuple[Any, ...]
    keywords: Mapping[str, Any]
    outputs: tuple[Any, ...]


@dataclass(frozen=True)
class Dump:
    """One ``dump.json``: calls of one step and rank, in their order."""

    place: str
    """Folder below the given one, e.g. ``step0/rank1``."""
    task: str
    entries: Mapping[str, Entry]
    files: tuple[str, ...]
    """Names of all tensor files."""

    @cached_property
    def unnamed_files(self) -> tuple[str, ...]:
        """Tensor files that no entry names: those of calls before a crash, for instance."""
        named = {
            tensor.file.name
            for entry in self.entries.values()
            for tensor in tensors_of((entry.inputs, tuple(entry.keywords.values()), entry.outputs))
            if tensor.file is not None
        }
        return tuple(name for name in self.files if name not in named)


def tensors_of(value: Any) -> Iterator[DumpedTensor]:
    """Yield the tensors in a value, in order."""
    if isinstance(value, DumpedTensor):
        yield value
    elif isinstance(value, tuple):
        for part in value:
            yield from tensors_of(part)


def read_dumps(folder: str | os.PathLike[str]) -> tuple[Dump, ...]:
    """Return the dumps in a folder, by step and rank.

    Raises
    ------
    UsageError
        When the folder has no ``dump.json``, or one of them is damaged or larger than DUMP_BYTES.
    """
    root = Path(folder)
    paths = sorted(
        Path(parent) / "dump.json" for parent, _, names in os.walk(root) if "dump.json" in names
    )
    if not paths:
        raise UsageError("folder", Text("{folder} contains no dump.json", folder=root), HINT)
    return tuple(_read_dump(root, path) for path in paths)


def _read_dump(root: Path, path: Path) -> Dump:
    content = read_limited("folder", path, DUMP_BYTES, HINT)
    tensors = path.parent / "dump_tensor_data"
    try:
        files = tuple(sorted(file.name for file in tensors.iterdir())) if tensors.is_dir() else ()
        document = json.loads(content)
        parse = _Parser(tensors, frozenset(files))
        data = document["data"]
        return Dump(
            path.parent.relative_to(root).as_posix(),
            str(document.get("task", "")),
            MappingProxyType({name: parse.entry(name, data[name]) for name in data}),
            files,
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else error
        raise UsageError(
            "folder", Text("{path} is not a dump: {error}", path=path, error=reason), HINT
        ) from None


@dataclass(frozen=True)
class _Parser:
    """Reads the values of entries."""

    folder: Path
    files: frozenset[str]

    def entry(self, name: str, values: Mapping[str, Any]) -> Entry:
        """Return an entry; backward ones have ``input`` in place of ``input_args``."""
        if not isinstance(values, dict):  # parameters' gradients are lists
            return Entry(name, (), {}, self._tuple(values))
        keywords = values.get("input_kwargs") or {}
        return Entry(
            name,
            self._tuple(values.get("input_args", values.get("input"))),
            MappingProxyType({key: self.value(keywords[key]) for key in keywords}),
            self._tuple(values.get("output")),
        )

    def _tuple(self, values: Any) -> tuple[Any, ...]:
        return tuple(self.value(value) for value in values) if isinstance(values, list) else ()

    def value(self, value: Any) -> Any:
        """Return a value; None for kinds that no simulated operator takes."""
        if isinstance(value, list):
            return self._tuple(value)
        if not isinstance(value, dict):
            return value
        if str(value.get("type", "")).rpartition(".")[2] == "Tensor":
            return self._tensor(value)
        plain = value.get("value")
        return plain if isinstance(plain, bool | int | float | str) else None

    def _tensor(self, value: Mapping[str, Any]) -> DumpedTensor:
        # Of the file's name only the last part counts: paths are those of another machine.
        name = Path(str(value.get("data_name", ""))).name
        statistics = {
            key: float(value[key])
            for key in ("Max", "Min", "Mean", "Norm")
            if isinstance(value.get(key), bool | int | float)
        }
        shape = value.get("shape") or []
        return DumpedTensor(
            dtype=_dtype(str(value.get("dtype", ""))),
            shape=tuple(int(size) for size in shape),
            statistics=MappingProxyType(statistics),
            checksum=value.get("md5") if isinstance(value.get("md5"), str) else None,
            file=self.folder / name if name in self.files else None,
        )


def _dtype(name: str) -> str:
    """Return the canonical dtype of ``torch.bfloat16`` or ``BFloat16``; others as they are."""
    try:
        return canonical_dtype(name)
    except ValueError:
        return name
