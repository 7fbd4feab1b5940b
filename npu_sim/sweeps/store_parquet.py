"""A sweep as a Parquet file (extra ``parquet``): one row group a chunk, codes stored as dictionaries of words.

A Parquet file cannot be continued, so every chunk is a file of its own until all are there; then they are joined.
"""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from npu_sim.files.writing import remove_own
from npu_sim.status import UsageError
from npu_sim.sweeps.columns import RecordColumn
from npu_sim.sweeps.space import Space

JOINING, WHOLE = "joining.parquet", "whole.parquet"
"""The file that the chunks are joined in, and its name when all of them are."""


class ParquetWriter:
    """Writes every chunk to a file of its own and joins them at the end."""

    def __init__(self, partial: Path, space: Space, columns: tuple[RecordColumn, ...]) -> None:
        try:
            import pyarrow.parquet
        except ImportError:
            raise UsageError(
                "out",
                "out: .parquet needs pyarrow, which is not installed",
                "pip install 'npu_sim[parquet]'",
            ) from None
        self._pyarrow = pyarrow
        self.partial = partial
        self.columns = columns
        self.chunks = 0
        self.least_bytes = 0  # dictionaries and compression may make nearly nothing of it
        fields = [
            pyarrow.field(column.name, self._type(column), nullable=False) for column in columns
        ]
        self.schema = pyarrow.schema(
            fields, metadata={"npu_sim.sweep": json.dumps(space.as_dict())}
        )

    def is_own(self, name: str) -> bool:
        """The files of the chunks, and those they are joined in."""
        return name in (JOINING, WHOLE) or re.fullmatch(r"[0-9]{6,}\.parquet", name) is not None

    def start(self) -> None:
        """Make the folder of the chunks."""
        self.partial.mkdir()
        self.go_on({"chunks": 0})

    def go_on(self, state: dict[str, Any]) -> None:
        """Go on after the complete chunks; a file beyond them is written again."""
        self.chunks = int(state["chunks"])
        missing = [chunk for chunk in range(self.chunks) if not self._file(chunk).is_file()]
        joined = (self.partial / WHOLE).is_file() or not any(self.partial.iterdir())
        if missing and not joined:
            raise ValueError(f"{self._file(missing[0]).name} is missing")

    def write(self, chunk: np.ndarray) -> dict[str, Any]:
        """Write a chunk."""
        arrays = [
            self._array(column, np.ascontiguousarray(chunk[column.name])) for column in self.columns
        ]
        table = self._pyarrow.Table.from_arrays(arrays, schema=self.schema)
        self._pyarrow.parquet.write_table(table, self._file(self.chunks), row_group_size=len(chunk))
        self.chunks += 1
        return {"chunks": self.chunks}

    def finish(self, target: Path) -> None:
        """Join the chunks, one row group each; one that died on the way goes on where it was."""
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

    def close(self) -> None:
        """Nothing stays open between chunks."""

    def _file(self, chunk: int) -> Path:
        return self.partial / f"{chunk:06}.parquet"

    def _type(self, column: RecordColumn) -> Any:
        plain = self._pyarrow.from_numpy_dtype(column.dtype)
        return self._pyarrow.dictionary(plain, self._pyarrow.string()) if column.words else plain

    def _array(self, column: RecordColumn, values: np.ndarray) -> Any:
        if not column.words:
            return self._pyarrow.array(values)
        return self._pyarrow.DictionaryArray.from_arrays(
            self._pyarrow.array(values), self._pyarrow.array(column.words)
        )
