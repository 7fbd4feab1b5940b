"""Records of a sweep: their columns, and the structured array that holds them."""

from collections.abc import Collection
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Self

import numpy as np

from npu_sim.cores import Device
from npu_sim.framework.rows import bound_of
from npu_sim.language import Text
from npu_sim.plans.tables import Coded, Columns, Tabular
from npu_sim.releases import default_release
from npu_sim.status import UsageError, closest
from npu_sim.sweeps.space import Space, places_of

SLACK = 1024
"""Safety margin above a declared bound that does not fit 8 bits. Bounds are exact nevertheless:
flags and codes, which are most columns, have no margin."""
PLACES = {"product": "product", "soc": "SoC", "release": "release of the product's software"}
"""Columns that identify the device of a row."""
INTEGERS = (np.int8, np.int16, np.int32, np.int64)


@dataclass(frozen=True)
class RecordColumn:
    """One field of the records."""

    name: str
    """Name of the field."""
    dtype: np.dtype[Any]
    """NumPy dtype of its values."""
    source: str
    """Source of its value: an expression over ``row``, ``record`` and the positions ``product``,
    ``soc`` and ``release``."""
    help: str
    """Description."""
    words: tuple[str, ...] = ()
    """Names of its codes; empty for plain numbers."""

    def decoded(self, values: np.ndarray) -> Coded | np.ndarray:
        """Return values of the field with the names of their codes, as a column of a table."""
        return Coded(values, self.words) if self.words else values


def largest_values(space: Space) -> SimpleNamespace:
    """Return the largest value of every axis and device field, and the architectures."""
    most = {values.name: values.largest for values in space.axes}
    devices = [profile.device for profile in space.profiles]
    for name in Device._fields:
        most[name] = max(getattr(device, name) for device in devices)
    return SimpleNamespace(**most, npu_archs={device.npu_arch for device in devices})


def record_columns(space: Space, wanted: tuple[str, ...] | None = None) -> tuple[RecordColumn, ...]:
    """Return the columns of a sweep: product, SoC, release, the axes, then the plan.

    The release is left out when every row has the default one.

    - ``space``: the sweep.
    - ``wanted``: names of the columns to return; all when None.

    Raises UsageError for an unknown name, or sizes whose products exceed 64 bits.
    """
    columns = [
        RecordColumn(name, _narrowest(name, len(words)), name, PLACES[name], words)
        for name, (words, _) in places_of(space.profiles).items()
        if name != "release" or words != (default_release(),)
    ]
    for values in space.axes:
        axis = values.axis
        words = tuple(getattr(axis, "words", ()))
        dtype = _narrowest(axis.name, max(values.largest, len(words)))
        columns.append(RecordColumn(axis.name, dtype, f"row.{axis.name}", axis.help, words))
    most = largest_values(space)
    for column in space.operator.planner.columns:
        field, bound = column.field, bound_of(space.operator, column.field, most)
        if bound == 0 and not field.words:
            continue
        dtype = np.dtype(np.float32) if bound is None else _narrowest(column.name, bound)
        source = f"record.{column.path}"
        columns.append(RecordColumn(column.name, dtype, source, field.help, field.words))
    return tuple(columns) if wanted is None else _chosen(columns, wanted)


def _chosen(columns: list[RecordColumn], wanted: tuple[str, ...]) -> tuple[RecordColumn, ...]:
    known = {column.name: column for column in columns}
    for name in wanted:
        if name not in known:
            message = Text("columns: {name} is not a column of this sweep", name=repr(name))
            hint = Text("columns: {known}{hint}", known=", ".join(known), hint=closest(name, known))
            raise UsageError("columns", message, hint)
    return tuple(column for name, column in known.items() if name in wanted)


def _narrowest(name: str, bound: int) -> np.dtype[Any]:
    """Return the smallest signed integer dtype for a bound: int8 if it fits, else with `SLACK`."""
    needed = bound if bound <= np.iinfo(np.int8).max else bound + SLACK
    for integer in INTEGERS:
        if needed <= np.iinfo(integer).max:
            return np.dtype(integer)
    message = Text("grid: {name} may reach {bound}, beyond 64 bits", name=name, bound=bound)
    raise UsageError("grid", message, "sweep smaller sizes")


def workspace_column(names: Collection[str]) -> str:
    """Return the column of the bytes that a user allocates, or of a kernel's own; empty if none."""
    columns = ("total_workspace_bytes", "workspace_bytes")
    return next((name for name in columns if name in names), "")


class Records(np.ndarray, Tabular):
    """One record per plan; ``records["block_dim"]`` is a plain array, ``records[7]`` one record."""

    space: Space
    """The calls that were swept."""
    columns: tuple[RecordColumn, ...]
    """The fields: dtype, description, and the names of codes."""

    @classmethod
    def wrap(cls, array: np.ndarray, space: Space, columns: tuple[RecordColumn, ...]) -> Self:
        """View the records of a space."""
        records = array.view(cls)
        records.space, records.columns = space, columns
        return records

    def __array_finalize__(self, other: Any) -> None:
        self.space = getattr(other, "space", None)  # type: ignore[assignment]
        self.columns = getattr(other, "columns", ())

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            return self.view(np.ndarray)[key]
        return super().__getitem__(key)

    def words(self, name: str) -> np.ndarray:
        """Return a field with its codes replaced by their names: ``words("grad_dtype")``."""
        column = next(column for column in self.columns if column.name == name)
        values: np.ndarray = self[name]
        return np.array(column.words)[values] if column.words else values

    def table_columns(self) -> Columns:
        """Return the fields as columns of a table."""
        return {
            column.name: column.decoded(self[column.name])
            for column in self.columns
            if column.name in (self.dtype.names or ())
        }

    def as_columns(self) -> dict[str, np.ndarray]:
        """Return the fields as separate contiguous arrays."""
        return {column.name: np.ascontiguousarray(self[column.name]) for column in self.columns}
