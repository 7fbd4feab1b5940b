"""The output of a sweep on disk, written chunk by chunk; a killed sweep resumes to the same bytes.

While a sweep runs, ``OUT.partial`` holds the written chunks and ``OUT.progress.json`` records how
many are complete. Bytes beyond them belong to a chunk that was being written when the sweep died;
they are cut off when it resumes. At the end the partial file gets its final name. ``OUT.lock`` is
locked meanwhile, so that a second process that would write the same output is refused.

Only files that a sweep wrote are ever removed. Anything else at one of the names, and a folder with
other files in it, is an error.

Formats are a folder of ``.npy`` columns, CSV, and Parquet (extra ``parquet``). A writer of a format
writes chunks in order to a partial file or folder. It has ``least_bytes``, a lower bound of the
size of the whole output, and these methods:

- ``is_own(name)`` returns whether it creates a file of this name in a partial folder.
- ``start()`` creates an empty partial file or folder.
- ``resume(state)`` truncates it to the chunks in ``state``; ValueError when it is shorter.
- ``write(chunk)`` appends a chunk of records, and returns the state that includes it.
- ``finish(target)`` renames the complete file to ``target``.
- ``close()`` releases open files.
"""

import io
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any

import numpy as np
from filelock import FileLock, Timeout

from npu_sim.files.reading import JSON_BYTES, read_limited
from npu_sim.files.writing import (
    cannot_write,
    empty_own,
    foreign_entry,
    link_target,
    remove_own,
    require_room,
    require_target,
    schema,
    write_text,
)
from npu_sim.language import Argument, Text
from npu_sim.numbers.arrays import Array
from npu_sim.plans.answers import arrow_array
from npu_sim.status import UsageError
from npu_sim.sweeps.reader import DESCRIPTION, read_description
from npu_sim.sweeps.space import RecordColumn, Space
from npu_sim.system import usable_cores

PIECE_ROWS = 1 << 13
"""Lines written as text at a time by one thread."""
LONGEST_NUMBER = 20
"""Characters of the longest 64-bit number, sign included."""

JOINING, WHOLE = "joining.parquet", "whole.parquet"
"""The file into which chunks are joined, and its name once it is complete."""


@dataclass(eq=False)
class _Writer:
    """Base of the writers."""

    partial: Path
    """File or folder that is written."""
    space: Space
    columns: tuple[RecordColumn, ...]
    """``space`` and ``columns``: the sweep."""

    def __post_init__(self) -> None:
        """Set ``least_bytes``, the least size, and what the writer keeps."""

    def is_own(self, name: str) -> bool:
        """Return False: without a folder no other file is created."""
        return False

    def close(self) -> None:
        """Release open files; none stays open between chunks."""


class ColumnsWriter(_Writer):
    """Appends chunks to one file per column, whose header has the final length from the start."""

    def __post_init__(self) -> None:
        self.rows = 0
        self.least_bytes = self.space.rows * sum(column.dtype.itemsize for column in self.columns)
        self._files: list[IO[bytes]] = []

    def is_own(self, name: str) -> bool:
        """Return whether the file is the description or a column."""
        return name == DESCRIPTION or name in {f"{column.name}.npy" for column in self.columns}

    def start(self) -> None:
        """Write headers and description."""
        self.partial.mkdir()
        (self.partial / DESCRIPTION).write_text(
            json.dumps(description(self.space, self.columns), indent=1) + "\n", encoding="utf-8"
        )
        for column in self.columns:
            (self.partial / f"{column.name}.npy").write_bytes(self._header(column))
        self.resume({"rows": 0})

    def resume(self, state: dict[str, Any]) -> None:
        """Truncate every column to the complete rows."""
        self.rows = int(state["rows"])
        for column in self.columns:
            file = (self.partial / f"{column.name}.npy").open("r+b")
            self._files.append(file)
            truncate_to(file, len(self._header(column)) + self.rows * column.dtype.itemsize)

    def write(self, chunk: Array) -> dict[str, Any]:
        """Append a chunk."""
        for column, file in zip(self.columns, self._files, strict=True):
            file.write(np.ascontiguousarray(chunk[column.name]).data)
            file.flush()
        self.rows += len(chunk)
        return {"rows": self.rows}

    def finish(self, target: Path) -> None:
        """Rename the folder; an older sweep's is emptied first, because only then can it go."""
        self.close()
        if target.exists():
            empty_own(target, written_names(target).__contains__, last=DESCRIPTION)
        self.partial.rename(target)

    def close(self) -> None:
        """Close the files."""
        for file in self._files:
            file.close()
        self._files.clear()

    def _header(self, column: RecordColumn) -> bytes:
        buffer = io.BytesIO()
        np.lib.format.write_array_header_1_0(
            buffer,
            {
                "descr": np.lib.format.dtype_to_descr(column.dtype),
                "fortran_order": False,
                "shape": (self.space.rows,),
            },
        )
        return buffer.getvalue()


def truncate_to(file: IO[bytes], size: int) -> None:
    """Truncate an open file and seek to its end; ValueError when it is shorter."""
    present = file.seek(0, os.SEEK_END)
    if present < size:
        raise ValueError(
            Text(
                "{name} has {found} bytes, {size} were written",
                name=file.name,
                found=present,
                size=size,
            )
        )
    file.truncate(size)
    file.seek(0, os.SEEK_END)


def written_names(folder: Path) -> frozenset[str]:
    """Return the files of a sweep that the description in its folder lists; none without it."""
    try:
        described = read_description(folder)
    except UsageError:
        return frozenset()
    return frozenset({DESCRIPTION, *(f"{name}.npy" for name in described["columns"])})


def description(space: Space, columns: tuple[RecordColumn, ...]) -> dict[str, Any]:
    """Return the sweep and its columns as plain data."""
    return {
        "schema": schema("columns"),
        **space.as_dict(),
        "columns": {
            column.name: {"dtype": str(column.dtype), "help": column.help}
            | ({"words": list(column.words)} if column.words else {})
            for column in columns
        },
    }


class CsvWriter(_Writer):
    """Appends every chunk as CSV: one line per plan, codes written as names."""

    def __post_init__(self) -> None:
        # A digit and a comma per value.
        self.least_bytes = 2 * len(self.columns) * self.space.rows
        self._file: IO[bytes] | None = None

    def start(self) -> None:
        """Write the header."""
        line = ",".join(column.name for column in self.columns) + "\n"
        self.partial.write_bytes(line.encode())
        self.resume({"bytes": len(line)})

    def resume(self, state: dict[str, Any]) -> None:
        """Truncate the file to the complete lines."""
        self._file = self.partial.open("r+b")
        truncate_to(self._file, int(state["bytes"]))

    def write(self, chunk: Array) -> dict[str, Any]:
        """Append a chunk."""
        assert self._file is not None
        pieces = [chunk[start : start + PIECE_ROWS] for start in range(0, len(chunk), PIECE_ROWS)]
        with ThreadPoolExecutor(usable_cores()) as pool:
            for text in pool.map(self._text, pieces):
                self._file.write(text.data)
        self._file.flush()
        return {"bytes": self._file.tell()}

    def finish(self, target: Path) -> None:
        """Rename the file."""
        self.close()
        self.partial.replace(target)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def _text(self, records: Array) -> Array:
        from npu_sim.sweeps.compile import write_lines  # loads Numba

        values = np.empty((len(self.columns), len(records)), np.int64)
        words: list[bytes] = []
        first_words = np.full(len(self.columns), -1)
        longest = 0
        for position, column in enumerate(self.columns):
            codes, texts = _as_codes(column, records[column.name])
            values[position] = codes
            if texts:
                first_words[position] = len(words)
                words += texts
            longest += 1 + (max(map(len, texts)) if texts else LONGEST_NUMBER)
        ends = np.cumsum([0, *map(len, words)])
        text = np.empty(longest * len(records), np.uint8)
        size = write_lines(
            text, values, first_words, np.frombuffer(b"".join(words) or b" ", np.uint8), ends
        )
        return text[:size]


def _as_codes(column: RecordColumn, values: Array) -> tuple[Array, list[bytes]]:
    """Return integers and the texts they stand for; an fp32 value becomes a code of its text."""
    if column.dtype.kind != "f":
        return values, [word.encode() for word in column.words]
    unique, codes = np.unique(values, return_inverse=True)
    return codes, [str(value).encode() for value in unique]


class ParquetWriter(_Writer):
    """Writes every chunk to its own file and joins them at the end, because Parquet cannot append.

    Every chunk becomes a row group; codes are stored as dictionaries of names.
    """

    def __post_init__(self) -> None:
        try:
            import pyarrow.parquet
        except ImportError:
            raise UsageError(
                "out",
                "out: .parquet needs pyarrow, which is not installed",
                "pip install 'npu_sim[parquet]'",
            ) from None
        self._pyarrow = pyarrow
        self.chunks = 0
        self.least_bytes = 0  # unknown: dictionaries and compression
        fields = [
            pyarrow.field(column.name, self._type(column), nullable=False)
            for column in self.columns
        ]
        self.schema = pyarrow.schema(
            fields, metadata={"npu_sim.sweep": json.dumps(self.space.as_dict())}
        )

    def is_own(self, name: str) -> bool:
        """Return whether the file is a chunk or a joined file."""
        return name in (JOINING, WHOLE) or re.fullmatch(r"[0-9]{6,}\.parquet", name) is not None

    def start(self) -> None:
        """Create the folder of the chunks."""
        self.partial.mkdir()
        self.resume({"chunks": 0})

    def resume(self, state: dict[str, Any]) -> None:
        """Continue after the complete chunks; a file beyond them is overwritten."""
        self.chunks = int(state["chunks"])
        missing = [chunk for chunk in range(self.chunks) if not self._file(chunk).is_file()]
        joined = (self.partial / WHOLE).is_file() or not any(self.partial.iterdir())
        if missing and not joined:
            raise ValueError(Text("{name} is missing", name=self._file(missing[0]).name))

    def write(self, chunk: Array) -> dict[str, Any]:
        """Write a chunk."""
        arrays = [
            arrow_array(column.decoded(np.ascontiguousarray(chunk[column.name])))
            for column in self.columns
        ]
        table = self._pyarrow.Table.from_arrays(arrays, schema=self.schema)
        self._pyarrow.parquet.write_table(table, self._file(self.chunks), row_group_size=len(chunk))
        self.chunks += 1
        return {"chunks": self.chunks}

    def finish(self, target: Path) -> None:
        """Join the chunks; a process that was killed meanwhile continues here."""
        whole = self.partial / WHOLE
        if any(self.partial.iterdir()):
            if not whole.exists():
                self._join(self.partial / JOINING).replace(whole)
            for chunk in range(self.chunks):
                self._file(chunk).unlink(missing_ok=True)
            whole.replace(target)
        remove_own(self.partial, self.is_own)

    def _join(self, joined: Path) -> Path:
        with self._pyarrow.parquet.ParquetWriter(joined, self.schema) as writer:
            for chunk in range(self.chunks):
                table = self._pyarrow.parquet.read_table(self._file(chunk), schema=self.schema)
                writer.write_table(table, row_group_size=max(len(table), 1))
        return joined

    def _file(self, chunk: int) -> Path:
        return self.partial / f"{chunk:06}.parquet"

    def _type(self, column: RecordColumn) -> Any:
        plain = self._pyarrow.from_numpy_dtype(column.dtype)
        return self._pyarrow.dictionary(plain, self._pyarrow.string()) if column.words else plain


Writer = ColumnsWriter | CsvWriter | ParquetWriter
"""What writes chunks in order to a partial file or folder."""
WRITERS: Mapping[str, Callable[[Path, Space, tuple[RecordColumn, ...]], Writer]] = MappingProxyType(
    {"": ColumnsWriter, ".csv": CsvWriter, ".parquet": ParquetWriter}
)
"""Formats by the ending of the output."""


class Store:
    """The output of one sweep: a writer, and the file that records its progress.

    - ``target``: final file or folder. The ending selects the format: none for a folder of ``.npy``
      columns, ``.csv``, or ``.parquet``.
    - ``space``, ``columns``: the sweep.
    - ``overwrite``: whether a file at ``target``, or the folder of an earlier sweep, may be
      replaced.
    """

    def __init__(
        self,
        target: Path,
        space: Space,
        columns: tuple[RecordColumn, ...],
        chunk_rows: int,
        overwrite: bool = True,
    ) -> None:
        ending = target.suffix
        if ending not in WRITERS:
            raise UsageError(
                "out",
                "out: {ending} is not a format of sweeps",
                "no ending for a folder of .npy columns, .csv, or .parquet",
                ending=ending,
            )
        self.target = target = link_target(target) if ending else target
        self.overwrite = overwrite
        self.partial = target.with_name(target.name + ".partial")
        self.progress_file = target.with_name(target.name + ".progress.json")
        self._lock = FileLock(target.with_name(target.name + ".lock"), blocking=False)
        self.writer = WRITERS[ending](self.partial, space, columns)
        self.identity = {
            "sweep": space.fingerprint,
            "format": ending or "columns",
            "columns": [f"{column.name}:{column.dtype}" for column in columns],
            "chunk_rows": chunk_rows,
        }
        self.total = space.rows
        self.chunk_rows = chunk_rows

    def begin(self, resume: bool) -> tuple[int, dict[str, Any]]:
        """Open the output; return the number of complete chunks and their saved summary.

        Raises UsageError when the folder is not writable or full, one of the names is taken, the
        target exists and may not be overwritten, another process writes it, or an interrupted sweep
        is there: a different one, or the same without ``resume``.
        """
        require_target(self.progress_file)
        with self._reporting_errors(self.partial):
            self._acquire()
            if not self.progress_file.exists():
                self._require_replaceable()
                if self.target.exists() and not self.overwrite:
                    raise UsageError(
                        "out",
                        "{target} exists already",
                        "replace it with --overwrite, or name another",
                        target=self.target,
                    )
                if self.partial.exists() or self.partial.is_symlink():
                    raise UsageError(
                        "out",
                        "{partial} exists and is not an unfinished sweep",
                        "remove it, or choose another name",
                        partial=self.partial,
                    )
                require_room(self.target, self.writer.least_bytes)
                self._save(0, {}, {})  # first: it marks the partial file as one of a sweep
                self.writer.start()
                return 0, {}
            return self._resume(self._progress(), resume)

    def _resume(self, progress: dict[str, Any], resume: bool) -> tuple[int, dict[str, Any]]:
        again = Text(
            "remove {name} and {progress_file} to start again",
            name=self.partial.name,
            progress_file=self.progress_file.name,
        )
        if not resume:
            raise UsageError(
                "out",
                "{target}: an interrupted sweep lies there, {chunks} chunks complete",
                "go on with {resume}, or {again}",
                target=self.target,
                chunks=progress["chunks"],
                resume=Argument("resume", True),
                again=again,
            )
        different = [name for name, value in self.identity.items() if progress.get(name) != value]
        if different:
            raise UsageError(
                "resume",
                "{target}: the interrupted sweep there is another one: its {different} differ",
                "repeat the sweep's own options, or {again}",
                target=self.target,
                different=", ".join(different),
                again=again,
            )
        self._require_replaceable(resuming=True)
        chunks = progress["chunks"]
        if not progress["state"]:
            remove_own(self.partial, self.writer.is_own)
            self.writer.start()
        elif self.partial.exists():
            try:
                self.writer.resume(progress["state"])
            except (KeyError, TypeError, ValueError, FileNotFoundError) as error:
                raise UsageError(
                    "resume",
                    "{partial} is not what was written: {error}",
                    again,
                    partial=self.partial,
                    error=error,
                ) from None
        elif chunks * self.chunk_rows < self.total:
            raise UsageError("resume", "{partial} is gone", again, partial=self.partial)
        return chunks, progress["summary"]

    def _progress(self) -> dict[str, Any]:
        hint = "remove it to start again"
        text = read_limited("out", self.progress_file, JSON_BYTES, hint)
        try:
            progress = json.loads(text)
            valid = (
                isinstance(progress["chunks"], int)
                and isinstance(progress["state"], dict)
                and isinstance(progress["summary"], dict)
            )
        except (ValueError, KeyError, TypeError, RecursionError):
            valid = False
        if not valid:
            raise UsageError(
                "out",
                "{progress_file} does not state the progress of the sweep: it is damaged",
                hint,
                progress_file=self.progress_file,
            )
        return dict(progress)

    def _require_replaceable(self, resuming: bool = False) -> None:
        """Check that the target is free, a file, or a folder with a sweep and nothing else in it.

        A sweep that died while it replaced an older one leaves a folder without its description, or
        an empty one.
        """
        if self.identity["format"] != "columns":
            require_target(self.target)
            return
        if not self.target.exists() and not self.target.is_symlink():
            return
        hint = "name a new folder, or a file ending in .csv or .parquet"
        if not self.target.is_dir() or self.target.is_symlink():
            raise UsageError(
                "out",
                "{target} is a file; a folder of columns is expected there",
                hint,
                target=self.target,
            )
        names = written_names(self.target)
        if not names and not (resuming and not any(self.target.iterdir())):
            raise UsageError("out", "{target} is a folder, but no sweep", hint, target=self.target)
        foreign = foreign_entry(self.target, names.__contains__)
        if foreign is not None:
            raise UsageError(
                "out",
                "{target} contains {foreign}, which no sweep wrote",
                "move it elsewhere, or {hint}",
                hint=hint,
                target=self.target,
                foreign=repr(foreign),
            )

    def append(self, chunk: Array, chunks_done: int, summary: dict[str, Any]) -> None:
        """Append a chunk and record it as complete."""
        with self._reporting_errors(self.partial):
            state = self.writer.write(chunk)
        self._save(chunks_done, state, summary)

    def finish(self) -> None:
        """Rename the output to its final name and remove the progress file."""
        with self._reporting_errors(self.target):
            if self.partial.exists():
                self.writer.finish(self.target)
            if not self.target.exists():
                raise UsageError(
                    "out",
                    "{partial} was emptied by something else",
                    "remove {name}",
                    partial=self.partial,
                    name=self.progress_file.name,
                )
            self.progress_file.unlink()

    def close(self) -> None:
        """Release open files and the lock.

        Its file is removed while it is locked: filelock then locks a new one. Windows, which cannot
        remove an open file, keeps it.
        """
        self.writer.close()
        if self._lock.is_locked:
            with suppress(OSError):
                Path(self._lock.lock_file).unlink()
            self._lock.release()

    def _acquire(self) -> None:
        """Lock the output for the whole sweep."""
        path = Path(self._lock.lock_file)
        # A soft lock, which filelock takes where there is no other, has its process in the file.
        is_soft = getattr(self._lock, "pid", None) is not None
        if not is_soft and path.exists() and path.stat().st_size > 0:
            raise UsageError(
                "out",
                "{path} is not the lock of a sweep",
                "move it elsewhere, or name another output",
                path=path,
            )
        try:
            self._lock.acquire()
        except Timeout:
            raise UsageError(
                "out",
                "{target}: another process writes it",
                "wait for its end, or name another output",
                target=self.target,
            ) from None

    def _save(self, chunks: int, state: dict[str, Any], summary: dict[str, Any]) -> None:
        done = {"rows": self.total, "chunks": chunks, "state": state, "summary": summary}
        write_text(self.progress_file, json.dumps({**self.identity, **done}, indent=1))

    @contextmanager
    def _reporting_errors(self, path: Path) -> Iterator[None]:
        """Turn an OSError into a UsageError; the sweep can resume from its complete chunks."""
        try:
            yield
        except OSError as error:
            raise cannot_write("out", path, error) from None
