"""The output of a sweep on disk, written chunk by chunk; a killed sweep resumes to the same bytes.

While a sweep runs, ``OUT.partial`` holds the written chunks and ``OUT.progress.json`` records how
many are complete. Bytes beyond them belong to a chunk that was being written when the sweep died;
they are cut off when it resumes. At the end the partial file gets its final name. ``OUT.lock`` is
locked meanwhile, so that a second process that would write the same output is refused.

Only files that a sweep wrote are ever removed. Anything else at one of the names, and a folder with
other files in it, is an error.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from filelock import FileLock, Timeout

from npu_sim.files.reading import JSON_BYTES, read_limited
from npu_sim.files.writing import (
    cannot_write,
    foreign_entry,
    link_target,
    remove_own,
    require_room,
    require_target,
    write_text,
)
from npu_sim.language import Argument, Text
from npu_sim.status import UsageError
from npu_sim.sweeps.records import RecordColumn
from npu_sim.sweeps.space import Space
from npu_sim.sweeps.writers import ColumnsWriter, CsvWriter, ParquetWriter, written_names

Writer = ColumnsWriter | CsvWriter | ParquetWriter
"""What writes chunks in order to a partial file or folder; see `npu_sim.sweeps.writers`."""
WRITERS: Mapping[str, Callable[[Path, Space, tuple[RecordColumn, ...]], Writer]] = MappingProxyType(
    {"": ColumnsWriter, ".csv": CsvWriter, ".parquet": ParquetWriter}
)
"""Formats by the ending of the output."""


class Store:
    """The output of one sweep: a writer, and the file that records its progress.

    - ``target``: final file or folder. The ending selects the format: none for a folder of ``.npy``
      columns, ``.csv``, or ``.parquet``.
    - ``space``, ``columns``: the sweep.
    - ``overwrite``: whether a new sweep may replace the output of an earlier one.
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
                        Text("{target} exists already", self),
                        "replace it with --overwrite, or name another",
                    )
                if self.partial.exists() or self.partial.is_symlink():
                    raise UsageError(
                        "out",
                        Text("{partial} exists and is not an unfinished sweep", self),
                        "remove it, or choose another name",
                    )
                require_room(self.target, self.writer.least_bytes)
                self._save(0, {}, {})  # first: it marks the partial file as one of a sweep
                self.writer.start()
                return 0, {}
            return self._resume(self._progress(), resume)

    def _resume(self, progress: dict[str, Any], resume: bool) -> tuple[int, dict[str, Any]]:
        again = Text(
            "remove {name} and {progress_file} to start again",
            self.partial,
            progress_file=self.progress_file.name,
        )
        if not resume:
            raise UsageError(
                "out",
                Text(
                    "{target}: an interrupted sweep lies there, {chunks} chunks complete",
                    self,
                    chunks=progress["chunks"],
                ),
                Text(
                    "go on with {resume}, or {again}", resume=Argument("resume", True), again=again
                ),
            )
        different = [name for name, value in self.identity.items() if progress.get(name) != value]
        if different:
            raise UsageError(
                "resume",
                Text(
                    "{target}: the interrupted sweep there is another one: its {different} differ",
                    self,
                    different=", ".join(different),
                ),
                Text("repeat the sweep's own options, or {again}", again=again),
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
                    Text("{partial} is not what was written: {error}", self, error=error),
                    again,
                ) from None
        elif chunks * self.chunk_rows < self.total:
            raise UsageError("resume", Text("{partial} is gone", self), again)
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
                Text(
                    "{progress_file} does not state the progress of the sweep: it is damaged", self
                ),
                hint,
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
                "out", Text("{target} is a file; a folder of columns is expected there", self), hint
            )
        names = written_names(self.target)
        if not names and not (resuming and not any(self.target.iterdir())):
            raise UsageError("out", Text("{target} is a folder, but no sweep", self), hint)
        foreign = foreign_entry(self.target, names.__contains__)
        if foreign is not None:
            raise UsageError(
                "out",
                Text(
                    "{target} contains {foreign}, which no sweep wrote", self, foreign=repr(foreign)
                ),
                "move it elsewhere, or " + hint,
            )

    def append(self, chunk: np.ndarray, chunks_done: int, summary: dict[str, Any]) -> None:
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
                    Text("{partial} was emptied by something else", self),
                    Text("remove {name}", self.progress_file),
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
                Text("{target}: another process writes it", self),
                "wait for its end, or name another output",
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
