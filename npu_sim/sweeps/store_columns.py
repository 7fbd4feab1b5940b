"""A sweep as a folder: one ``.npy`` file a column, and ``sweep.json`` with what the columns mean."""

import io
import json
import os
import shutil
from pathlib import Path
from typing import IO, Any

import numpy as np

from npu_sim.files.schemas import schema
from npu_sim.status import INVALID, AclnnError
from npu_sim.sweeps.columns import RecordColumn
from npu_sim.sweeps.space import Space

DESCRIPTION = "sweep.json"


class ColumnsWriter:
    """Appends every chunk to the column files; their headers say the final length from the start."""

    def __init__(self, partial: Path, space: Space, columns: tuple[RecordColumn, ...]) -> None:
        self.partial = partial
        self.space = space
        self.columns = columns
        self.rows = 0
        self._files: list[IO[bytes]] = []

    def start(self) -> None:
        """Write headers and description."""
        self.partial.mkdir()
        (self.partial / DESCRIPTION).write_text(json.dumps(description(self.space, self.columns), indent=1) + "\n", encoding="utf-8")
        for column in self.columns:
            (self.partial / f"{column.name}.npy").write_bytes(self._header(column))
        self.go_on({"rows": 0})

    def go_on(self, state: dict[str, Any]) -> None:
        """Cut every column back to the complete rows."""
        self.rows = int(state["rows"])
        for column in self.columns:
            file = (self.partial / f"{column.name}.npy").open("r+b")
            self._files.append(file)
            file.truncate(len(self._header(column)) + self.rows * column.dtype.itemsize)
            file.seek(0, os.SEEK_END)

    def write(self, chunk: np.ndarray) -> dict[str, Any]:
        """Append a chunk."""
        for column, file in zip(self.columns, self._files, strict=True):
            file.write(np.ascontiguousarray(chunk[column.name]).data)
            file.flush()
        self.rows += len(chunk)
        return {"rows": self.rows}

    def finish(self, target: Path) -> None:
        """Give the folder its final name, in place of an older sweep."""
        self.close()
        if target.exists():
            shutil.rmtree(target)
        self.partial.rename(target)

    def close(self) -> None:
        """Close the files."""
        for file in self._files:
            file.close()
        self._files.clear()

    def _header(self, column: RecordColumn) -> bytes:
        buffer = io.BytesIO()
        header = {"descr": np.lib.format.dtype_to_descr(column.dtype), "fortran_order": False, "shape": (self.space.rows,)}
        np.lib.format.write_array_header_1_0(buffer, header)
        return buffer.getvalue()


def description(space: Space, columns: tuple[RecordColumn, ...]) -> dict[str, Any]:
    """Return what was swept and what the columns mean, as plain data."""
    described = {
        column.name: {"dtype": str(column.dtype), "help": column.help} | ({"words": list(column.words)} if column.words else {})
        for column in columns
    }
    return {"schema": schema("columns"), **space.as_dict(), "columns": described}


def open_columns(folder: str | Path) -> dict[str, np.ndarray]:
    """Open the columns of a sweep without reading them: they are mapped, and read when they are used.

    Parameters
    ----------
    folder
        What ``npu-sim sweep ... --out FOLDER`` wrote.

    Raises
    ------
    AclnnError
        161002 when it is no such folder.
    """
    path = Path(folder)
    try:
        described = json.loads((path / DESCRIPTION).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise AclnnError(INVALID, "folder", f"{path} holds no sweep: {error}", "give a folder that npu-sim sweep --out wrote") from None
    return {name: np.load(path / f"{name}.npy", mmap_mode="r") for name in described["columns"]}
