"""Writing a sweep to disk chunk by chunk, so that a killed one goes on and ends with the same bytes.

While a sweep runs, ``OUT.partial`` holds what is written and ``OUT.progress.json`` says how much of it is complete. What lies beyond
that was being written when the sweep died; it is cut off when the sweep goes on. At the end the partial file takes its final name.
"""

import json
import shutil
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from npu_sim.status import INVALID, AclnnError
from npu_sim.sweeps.columns import RecordColumn
from npu_sim.sweeps.space import Space


class Writer(Protocol):
    """Writes chunks in order to a partial file or folder."""

    def start(self) -> None:
        """Begin an empty partial file."""

    def go_on(self, state: dict[str, Any]) -> None:
        """Cut a partial file back to what ``state`` says is complete."""

    def write(self, chunk: np.ndarray) -> dict[str, Any]:
        """Append a chunk of records; return the state that includes it."""

    def finish(self, target: Path) -> None:
        """Give the complete file its final name."""

    def close(self) -> None:
        """Release open files."""


class Store:
    """The output of one sweep: a writer, and the record of its progress.

    Parameters
    ----------
    target
        Final file or folder; the ending decides the format: none for a folder of ``.npy`` columns, ``.csv``, ``.parquet``.
    space, columns
        The sweep.
    chunk_rows
        Rows of a chunk.
    """

    def __init__(self, target: Path, space: Space, columns: tuple[RecordColumn, ...], chunk_rows: int) -> None:
        self.target = target
        self.partial = target.with_name(target.name + ".partial")
        self.progress_file = target.with_name(target.name + ".progress.json")
        self.writer = _writer(self.partial, target.suffix, space, columns)
        names = [f"{column.name}:{column.dtype}" for column in columns]
        self.identity = {"sweep": space.fingerprint, "format": target.suffix or "columns", "columns": names, "chunk_rows": chunk_rows}
        self.total = space.rows

    def begin(self, resume: bool) -> tuple[int, dict[str, Any]]:
        """Open the output; return how many chunks it holds already, and the summary that was saved with them.

        Raises
        ------
        AclnnError
            161002 when the folder does not exist, something else has the name, or an interrupted sweep lies there: a different
            one, or the same without ``resume``.
        """
        if not self.target.parent.is_dir():
            raise AclnnError(
                INVALID, "out", f"{self.target}: the folder {self.target.parent} does not exist", "name a file in a folder you may write to"
            )
        if self.target.is_dir() and not (self.target / "sweep.json").exists():
            raise AclnnError(
                INVALID, "out", f"{self.target} is a folder, but no sweep", "name a new folder, or a file ending in .csv or .parquet"
            )
        if not self.progress_file.exists():
            _remove(self.partial)
            self.writer.start()
            self._save(0, {}, {})
            return 0, {}
        progress = json.loads(self.progress_file.read_text(encoding="utf-8"))
        if not resume:
            hint = f"go on with --resume, or remove {self.progress_file.name} to start again"
            raise AclnnError(INVALID, "out", f"{self.target}: an interrupted sweep lies there, {progress['chunks']} chunks complete", hint)
        different = [name for name, value in self.identity.items() if progress.get(name) != value]
        if different:
            message = f"{self.target}: the interrupted sweep there is another one: its {', '.join(different)} differ"
            raise AclnnError(
                INVALID, "resume", message, f"repeat the sweep's own options, or remove {self.progress_file.name} to start again"
            )
        if self.partial.exists() and progress["state"]:
            self.writer.go_on(progress["state"])
        elif self.partial.exists() or progress["chunks"] == 0:
            _remove(self.partial)
            self.writer.start()
        return int(progress["chunks"]), dict(progress["summary"])

    def append(self, chunk: np.ndarray, chunks_done: int, summary: dict[str, Any]) -> None:
        """Append a chunk; afterwards it counts as complete."""
        self._save(chunks_done, self.writer.write(chunk), summary)

    def finish(self) -> None:
        """Give the output its final name and forget its progress."""
        if self.partial.exists():
            self.writer.finish(self.target)
        self.progress_file.unlink()

    def close(self) -> None:
        """Release open files; what is complete stays."""
        self.writer.close()

    def _save(self, chunks: int, state: dict[str, Any], summary: dict[str, Any]) -> None:
        text = json.dumps({**self.identity, "rows": self.total, "chunks": chunks, "state": state, "summary": summary}, indent=1)
        fresh = self.progress_file.with_name(self.progress_file.name + ".new")
        fresh.write_text(text, encoding="utf-8")
        fresh.replace(self.progress_file)


def _writer(partial: Path, ending: str, space: Space, columns: tuple[RecordColumn, ...]) -> Writer:
    if ending == "":
        from npu_sim.sweeps.store_columns import ColumnsWriter

        return ColumnsWriter(partial, space, columns)
    if ending == ".csv":
        from npu_sim.sweeps.store_csv import CsvWriter

        return CsvWriter(partial, columns)
    if ending == ".parquet":
        from npu_sim.sweeps.store_parquet import ParquetWriter

        return ParquetWriter(partial, space, columns)
    hint = "no ending for a folder of .npy columns, .csv, or .parquet"
    raise AclnnError(INVALID, "out", f"out: {ending} is not a format of sweeps", hint)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
