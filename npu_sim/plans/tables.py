"""Answers that consist of rows, as pandas and pyarrow tables; both libraries are optional."""

from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from types import NoneType
from typing import Any, NamedTuple

from numpy.typing import NDArray

from npu_sim.language import Text
from npu_sim.status import UsageError, without_internal_frames


class Coded(NamedTuple):
    """A column of codes, positions in ``names``."""

    codes: NDArray[Any]
    names: tuple[str, ...]


Columns = dict[str, Any]
"""Columns by name: arrays, lists, or :class:`Coded`."""


class Tabular:
    """Base of answers that consist of rows: sweeps, rows that can differ, preflights, profiles."""

    __slots__ = ()

    def table_columns(self) -> Columns:
        """Return the columns of the table."""
        raise NotImplementedError

    @without_internal_frames
    def to_pandas(self) -> Any:
        """Return the rows as a ``pandas.DataFrame``; codes become categories with their names.

        Raises UsageError when pandas is not installed.
        """
        pandas = required("pandas")
        columns = self.table_columns()
        return pandas.DataFrame({name: _series(pandas, column) for name, column in columns.items()})

    @without_internal_frames
    def to_arrow(self) -> Any:
        """Return the rows as a ``pyarrow.Table``; codes become dictionaries with their names.

        Raises UsageError when pyarrow is not installed.
        """
        pyarrow = required("pyarrow")
        columns = self.table_columns()
        return pyarrow.table({name: arrow_array(column) for name, column in columns.items()})


def required(library: str) -> Any:
    """Return an optional library; raise UsageError when it is not installed."""
    try:
        return import_module(library)
    except ImportError:
        raise UsageError(
            library, Text("{library} is not installed", library=library), f"pip install {library}"
        ) from None


def arrow_array(column: Any) -> Any:
    """Return a column as a ``pyarrow.Array``."""
    pyarrow = required("pyarrow")
    if isinstance(column, Coded):
        return pyarrow.DictionaryArray.from_arrays(*map(pyarrow.array, column))
    return pyarrow.array(column)


def _series(pandas: Any, column: Any) -> Any:
    if isinstance(column, Coded):
        return pandas.Categorical.from_codes(*column)
    if isinstance(column, list) and set(map(type, column)) == {int, NoneType}:
        return pandas.array(column, dtype="Int64")  # a list would become floats
    return column


def columns_of(records: Iterable[Mapping[str, Any]]) -> Columns:
    """Return the columns of records in JSON form; a missing value is None.

    A field of a nested record is a column of its own, such as ``time.bound_us``. Lists of records
    are left out.
    """
    rows = [dict(_flat(record)) for record in records]
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {name: [row.get(name) for row in rows] for name in names}
    nested = {name.rpartition(".")[0] for name in names}  # where a record is missing, it is None
    return {
        name: column
        for name, column in columns.items()
        if name not in nested and not any(map(_has_records, column))
    }


def _flat(record: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in record.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _has_records(value: Any) -> bool:
    return isinstance(value, list) and any(isinstance(entry, Mapping) for entry in value)
