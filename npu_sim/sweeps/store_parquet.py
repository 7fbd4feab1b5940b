"""A sweep as a Parquet file (extra ``parquet``): one row group a chunk, codes stored as dictionaries of words.

A Parquet file cannot be continued, so every chunk is a file of its own until all are there; then they are joined.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from npu_sim.status import INVALID, AclnnError
from npu_sim.sweeps.columns import RecordColumn
from npu_sim.sweeps.space import Space


class ParquetWriter:
    """Writes every chunk to a file of its own and joins them at the end."""

    def __init__(self, partial: Path, space: Space, columns: tuple[RecordColumn, ...]) -> None:
        try:
            import pyarrow.parquet
        except ImportError:
            raise AclnnError(
                INVALID, "out", "out: .parquet needs pyarrow, which is not installed", "pip install 'npu_sim[parquet]'"
            ) from None
        self._pyarrow = pyarrow
        self.partial = partial
        self.columns = columns
        self.chunks = 0
        fields = [pyarrow.field(column.name, self._type(column), nullable=False) for column in columns]
        self.schema = pyarrow.schema(fields, metadata={"npu_sim.sweep": json.dumps(space.as_dict())})

    def start(self) -> None:
        """Make the folder of the chunks."""
        self.partial.mkdir()
        self.go_on({"chunks": 0})

    def go_on(self, state: dict[str, Any]) -> None:
        """Go on after the complete chunks; a file beyond them is written again."""
        self.chunks = int(state["chunks"])

    def write(self, chunk: np.ndarray) -> dict[str, Any]:
        """Write a chunk."""
        arrays = [self._array(column, np.ascontiguousarray(chunk[column.name])) for column in self.columns]
        table = self._pyarrow.Table.from_arrays(arrays, schema=self.schema)
        self._pyarrow.parquet.write_table(table, self._file(self.chunks), row_group_size=len(chunk))
        self.chunks += 1
        return {"chunks": self.chunks}

    def finish(self, target: Path) -> None:
        """Join the chunks, one row group each."""
        whole = self.partial / "whole.parquet"
        with self._pyarrow.parquet.ParquetWriter(whole, self.schema) as writer:
            for chunk in range(self.chunks):
                table = self._pyarrow.parquet.read_table(self._file(chunk), schema=self.schema)
                writer.write_table(table, row_group_size=max(len(table), 1))
        whole.replace(target)
        shutil.rmtree(self.partial)

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
        return self._pyarrow.DictionaryArray.from_arrays(self._pyarrow.array(values), self._pyarrow.array(column.words))
