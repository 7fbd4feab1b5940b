"""A sweep as a folder: one ``.npy`` file a column, and ``sweep.json`` with what the columns mean."""

import io
import json
import os
from pathlib import Path
from typing import IO, Any

import numpy as np

from npu_sim.files.reading import JSON_BYTES, read_limited
from npu_sim.files.schemas import schema
from npu_sim.files.writing import empty_own
from npu_sim.status import UsageError
from npu_sim.sweeps.columns import RecordColumn
from npu_sim.sweeps.space import Space

DESCRIPTION = "sweep.json"
GIVE = "give a folder that npu-sim sweep --out wrote"


class ColumnsWriter:
    """Appends every chunk to the column files; their headers say the final length from the start."""

    def __init__(self, partial: Path, space: Space, columns: tuple[RecordColumn, ...]) -> None:
        self.partial = partial
        self.space = space
        self.columns = columns
        self.rows = 0
        self.least_bytes = space.rows * sum(column.dtype.itemsize for column in columns)
        self._files: list[IO[bytes]] = []

    def is_own(self, name: str) -> bool:
        """The description and the columns."""
        return name == DESCRIPTION or name in {f"{column.name}.npy" for column in self.columns}

    def start(self) -> None:
        """Write headers and description."""
        self.partial.mkdir()
        (self.partial / DESCRIPTION).write_text(
            json.dumps(description(self.space, self.columns), indent=1) + "\n", encoding="utf-8"
        )
        for column in self.columns:
            (self.partial / f"{column.name}.npy").write_bytes(self._header(column))
        self.go_on({"rows": 0})

    def go_on(self, state: dict[str, Any]) -> None:
        """Cut every column back to the complete rows."""
        self.rows = int(state["rows"])
        for column in self.columns:
            file = (self.partial / f"{column.name}.npy").open("r+b")
            self._files.append(file)
            cut_back(file, len(self._header(column)) + self.rows * column.dtype.itemsize)

    def write(self, chunk: np.ndarray) -> dict[str, Any]:
        """Append a chunk."""
        for column, file in zip(self.columns, self._files, strict=True):
            file.write(np.ascontiguousarray(chunk[column.name]).data)
            file.flush()
        self.rows += len(chunk)
        return {"rows": self.rows}

    def finish(self, target: Path) -> None:
        """Give the folder its final name, in place of an older sweep: a folder may take the name of an empty one."""
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
        header = {
            "descr": np.lib.format.dtype_to_descr(column.dtype),
            "fortran_order": False,
            "shape": (self.space.rows,),
        }
        np.lib.format.write_array_header_1_0(buffer, header)
        return buffer.getvalue()


def cut_back(file: IO[bytes], size: int) -> None:
    """Cut an open file to a size and go to its end; ValueError when it is shorter."""
    found = file.seek(0, os.SEEK_END)
    if found < size:
        raise ValueError(f"{file.name} has {found} bytes, {size} were written")
    file.truncate(size)
    file.seek(0, os.SEEK_END)


def written_names(folder: Path) -> frozenset[str]:
    """Return the names of the files that a sweep wrote into a folder, as its description says them; none without a description."""
    try:
        described = _read_description(folder)
    except UsageError:
        return frozenset()
    return frozenset({DESCRIPTION, *(f"{name}.npy" for name in described["columns"])})


def description(space: Space, columns: tuple[RecordColumn, ...]) -> dict[str, Any]:
    """Return what was swept and what the columns mean, as plain data."""
    described = {
        column.name: {"dtype": str(column.dtype), "help": column.help}
        | ({"words": list(column.words)} if column.words else {})
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
    UsageError
        When it is no such folder.
    """
    path = Path(folder)
    names = _read_description(path)["columns"]
    try:
        return {name: np.load(path / f"{name}.npy", mmap_mode="r") for name in names}
    except (OSError, ValueError) as error:
        raise _no_sweep(path, error) from None


def _read_description(folder: Path) -> dict[str, Any]:
    try:
        described = json.loads(read_limited("folder", folder / DESCRIPTION, JSON_BYTES, GIVE))
    except UsageError as error:
        raise _no_sweep(folder, error.message) from None
    except (ValueError, RecursionError) as error:
        raise _no_sweep(folder, error) from None
    columns = described.get("columns") if isinstance(described, dict) else None
    if not isinstance(columns, dict) or not all(name.isidentifier() for name in columns):
        raise _no_sweep(folder, f"{DESCRIPTION} describes no columns")
    return dict(described)


def _no_sweep(folder: Path, why: Any) -> UsageError:
    return UsageError("folder", f"{folder} holds no sweep: {why}", GIVE)
