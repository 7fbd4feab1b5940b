"""Reading a sweep that was written to a folder of columns."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from npu_sim.files.reading import JSON_BYTES, parse_json, read_limited
from npu_sim.language import Text
from npu_sim.plans.answers import Coded, Columns, Tabular
from npu_sim.status import UsageError, shown, tip, without_internal_frames

DESCRIPTION = "sweep.json"
FOLDER_HINT = "give a folder that npu-sim sweep --out wrote"


class SavedSweep(Mapping[str, np.ndarray], Tabular):
    """A sweep on disk: its columns by name, read where they are used.

    ``table["block_dim"]`` is a read-only array of the file, of codes where a column has names;
    ``table.words("dtype")`` has the words. ``table.to_pandas()`` and ``table.to_arrow()`` have them
    as well.

    Attributes
    ----------
    folder
        Folder of the columns.
    description
        What ``sweep.json`` states: operator, devices, axes, and of each column dtype, help and
        words.
    """

    def __init__(self, folder: Path, description: Mapping[str, Any]) -> None:
        self.folder = folder
        self.description = description
        self._arrays = {
            name: _column(folder, name, description.get("rows")) for name in description["columns"]
        }

    def __getitem__(self, name: str) -> np.ndarray:
        """Return a column; raise UsageError for an unknown one."""
        try:
            return self._arrays[name]
        except KeyError:
            raise UsageError(
                "columns",
                "{name}: the sweep has no such column",
                "{tip}columns: {known}",
                name=repr(name),
                tip=tip(name, self._arrays),
                known=", ".join(self._arrays),
            ) from None

    def __contains__(self, name: object) -> bool:
        """Return whether the sweep has a column."""
        return name in self._arrays

    def __iter__(self) -> Iterator[str]:
        """Yield the names of the columns."""
        return iter(self._arrays)

    def __len__(self) -> int:
        """Return the number of columns."""
        return len(self._arrays)

    def __repr__(self) -> str:
        """Return folder, operator and size as one line."""
        columns, operator = len(self), self.description.get("operator")
        return f"SavedSweep({str(self.folder)!r}: {operator}, {self.rows} rows, {columns} columns)"

    @property
    def rows(self) -> int:
        """Number of calls."""
        return max(map(len, self._arrays.values()), default=0)

    def words(self, name: str) -> np.ndarray:
        """Return a column with its codes replaced by their names: ``words("dtype")``."""
        values, known = self[name], self._words(name)
        return np.array(known)[values] if known else values

    def table_columns(self) -> Columns:
        """Return the fields as columns of a table."""
        return {
            name: Coded(values, self._words(name)) if self._words(name) else values
            for name, values in self._arrays.items()
        }

    def _words(self, name: str) -> tuple[str, ...]:
        """Return the words of a column; raise UsageError when a code has none."""
        words = self.description["columns"][name].get("words", [])
        if not isinstance(words, list):
            raise _no_sweep(self.folder, Text("words of {name} are no list", name=name))
        codes = self._arrays[name]
        known = np.arange(len(words), dtype=np.int64)
        if words and (codes.dtype.kind not in "iu" or not np.isin(codes, known).all()):
            why = Text(
                "{name}.npy has codes without one of {count} words", name=name, count=len(words)
            )
            raise _no_sweep(self.folder, why)
        return tuple(map(str, words))


@without_internal_frames
def read_sweep(folder: str | Path) -> SavedSweep:
    """Read a sweep that was written to a folder of columns.

    Parameters
    ----------
    folder
        Output of ``npu-sim sweep ... --out FOLDER`` or of :func:`npu_sim.sweep_to` with a name
        without ending. CSV and Parquet have words themselves: ``pandas.read_parquet`` reads them.

    Returns
    -------
    SavedSweep
        The columns by name.

    Raises
    ------
    UsageError
        When the folder holds no sweep, or a column is damaged.
    """
    path = Path(folder)
    if path.is_file():
        raise UsageError(
            "folder",
            "{folder} is a file, not a folder of columns",
            "CSV and Parquet have words themselves: pandas.read_csv, pandas.read_parquet",
            folder=folder,
        )
    return SavedSweep(path, read_description(path))


def _column(folder: Path, name: str, rows: Any) -> np.ndarray:
    """Return a column as a memory-mapped array."""
    path = folder / f"{name}.npy"
    try:
        if not path.is_file():
            raise FileNotFoundError(f"{name}.npy")
        array: np.ndarray = np.load(path, mmap_mode="r")
    except Exception as error:  # NumPy evaluates headers as Python, so any error is possible
        raise _no_sweep(folder, error) from None
    if array.shape != (rows,) or array.dtype.kind not in "biuf":
        why = Text(
            "{name}.npy has the shape {shape} and dtype {dtype}, not numbers of {rows} rows",
            name=name,
            shape=str(array.shape),
            dtype=str(array.dtype),
            rows=shown(rows),
        )
        raise _no_sweep(folder, why)
    return array


def read_description(folder: Path) -> dict[str, Any]:
    """Return what ``sweep.json`` of a folder states; raises UsageError when it holds no sweep."""
    try:
        described = parse_json(
            read_limited("folder", folder / DESCRIPTION, JSON_BYTES, FOLDER_HINT)
        )
    except UsageError as error:
        raise _no_sweep(folder, error.message) from None
    except ValueError as error:
        raise _no_sweep(folder, error) from None
    columns = described.get("columns") if isinstance(described, dict) else None
    if not isinstance(columns, dict) or not all(
        name.isidentifier() and isinstance(column, dict) for name, column in columns.items()
    ):
        raise _no_sweep(folder, Text("{description} describes no columns", description=DESCRIPTION))
    return dict(described)


def _no_sweep(folder: Path, why: Any) -> UsageError:
    return UsageError(
        "folder", "{folder} holds no sweep: {why}", FOLDER_HINT, folder=folder, why=why
    )
