"""Records of a sweep: their columns, the structured array that holds them, and their summary."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from math import prod
from types import SimpleNamespace
from typing import Any, Self

import numpy as np

from npu_sim.cores import Device, default_release
from npu_sim.framework.arguments import INT64_MAX
from npu_sim.framework.axes import Number
from npu_sim.framework.checking import bound_of, row_planner
from npu_sim.language import Text
from npu_sim.plans.answers import Coded, Columns, Tabular
from npu_sim.status import UsageError, closest
from npu_sim.sweeps.space import Space, places_of

SLACK = 1024
"""Safety margin above a declared bound that does not fit 8 bits. Bounds are exact nevertheless:
flags and codes, which are most columns, have no margin."""
PLACES = {"product": "product", "soc": "SoC", "release": "release of the product's software"}
"""Columns that identify the device of a row."""
INTEGERS = (np.int8, np.int16, np.int32, np.int64)


def may_be_uncountable(space: Space) -> bool:
    """Return whether a row may have a tensor of more bytes than an int64 counts.

    False only where no product of sizes comes near; derived sizes add up a few others.
    """
    sizes = (values.largest for values in space.axes if isinstance(values.axis, Number))
    return space.operator.is_foreign or prod(max(size, 1) for size in sizes) > INT64_MAX >> 8


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
    devices = [profile.device for profile in space.profiles]
    most = {
        **{values.name: values.largest for values in space.axes},
        **{name: max(getattr(device, name) for device in devices) for name in Device._fields},
    }
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
    for column in row_planner(space.operator).columns:
        field, bound = column.field, bound_of(space.operator, column.field, most)
        if bound == 0 and not field.words:
            continue
        dtype = np.dtype(np.float32) if bound is None else _narrowest(column.name, bound)
        source = f"record.{column.path}"
        uncounted = "; -1 where a tensor has more bytes than an int64 counts"
        help_text = field.help + (uncounted if column.path == "status" else "")
        columns.append(RecordColumn(column.name, dtype, source, help_text, field.words))
    return tuple(columns) if wanted is None else _chosen(columns, wanted)


def _chosen(columns: list[RecordColumn], wanted: tuple[str, ...]) -> tuple[RecordColumn, ...]:
    known = {column.name: column for column in columns}
    for name in wanted:
        if name not in known:
            raise UsageError(
                "columns",
                Text("columns: {name} is not a column of this sweep", name=repr(name)),
                Text("columns: {known}{hint}", known=", ".join(known), hint=closest(name, known)),
            )
    return tuple(column for name, column in known.items() if name in wanted)


def _narrowest(name: str, bound: int) -> np.dtype[Any]:
    """Return the smallest signed integer dtype for a bound: int8 if it fits, else with `SLACK`."""
    needed = bound if bound <= np.iinfo(np.int8).max else bound + SLACK
    for integer in INTEGERS:
        if needed <= np.iinfo(integer).max:
            return np.dtype(integer)
    raise UsageError(
        "grid",
        "grid: {name} may reach {bound}, beyond 64 bits",
        "sweep smaller sizes",
        name=name,
        bound=bound,
    )


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


SHOWN_VALUES = 12
WIDEST_COUNT = 1 << 20
"""Ranges of up to this many values are counted in one pass."""


@dataclass
class SweepSummary:
    """Counts of statuses, kernels, keys and cores, and the call with the largest workspace.

    Kernels, keys and cores are counted where the call runs. ``seconds`` and ``rows_now`` exclude
    the part that an interrupted run computed before.
    """

    space: Space
    columns: tuple[RecordColumn, ...]
    rows: int = 0
    counts: dict[str, Counter[int]] = field(default_factory=dict)
    peak_bytes: int = -1
    peak_row: int = -1
    seconds: float = 0.0
    rows_now: int = 0

    def add(self, chunk: np.ndarray, first_row: int) -> None:
        """Count one chunk."""
        self.rows += len(chunk)
        self.rows_now += len(chunk)
        names = chunk.dtype.names or ()
        running: Any = slice(None)
        if "status" in names:
            self._count("status", chunk["status"])
            accepted = chunk["status"] == 0
            running = slice(None) if accepted.all() else accepted
        for name in ("overflows", "kernel", "tiling_key", "block_dim"):
            if name in names:
                self._count(name, chunk[name][running])
        name = workspace_column(names)
        if name and len(chunk):
            place = int(np.argmax(chunk[name]))
            if int(chunk[name][place]) > self.peak_bytes:
                self.peak_bytes, self.peak_row = int(chunk[name][place]), first_row + place

    def _count(self, name: str, values: np.ndarray) -> None:
        counter = self.counts.setdefault(name, Counter())
        if not len(values):
            return
        low, high = int(values.min()), int(values.max())
        if high - low < WIDEST_COUNT:
            counts = np.bincount(values.astype(np.int64) - low)
            nonzero = np.flatnonzero(counts)
            counter.update({low + int(place): int(counts[place]) for place in nonzero})
        else:
            unique, counts = np.unique(values, return_counts=True)
            counter.update(dict(zip(unique.tolist(), counts.tolist(), strict=True)))

    def state(self) -> dict[str, Any]:
        """Return the counts as plain data for :meth:`restore`."""
        return {
            "rows": self.rows,
            "counts": {name: sorted(counter.items()) for name, counter in self.counts.items()},
            "peak_bytes": self.peak_bytes,
            "peak_row": self.peak_row,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from the counts of an interrupted sweep."""
        self.rows = state["rows"]
        self.peak_bytes, self.peak_row = state["peak_bytes"], state["peak_row"]
        self.counts = {name: Counter(dict(pairs)) for name, pairs in state["counts"].items()}

    def as_dict(self) -> dict[str, Any]:
        """Return the summary as plain data."""
        words = {column.name: column.words for column in self.columns}
        counted = {
            name: {
                words[name][value] if words[name] else str(value): count
                for value, count in sorted(counter.items())
            }
            for name, counter in self.counts.items()
        }
        data: dict[str, Any] = {
            "sweep": self.space.as_dict(),
            "rows": self.rows,
            "counts": counted,
            "rules_source": self.rules_source,
            "left_out": [
                {"product": product, "reason": reason} for product, reason in self.space.left_out
            ],
        }
        if self.peak_row >= 0:
            profile, values = self.space.call_at(self.peak_row)
            data["peak_workspace"] = {
                "column": workspace_column(words),
                "bytes": self.peak_bytes,
                "row": self.peak_row,
                "call": {
                    "product": profile.name,
                    "soc": profile.soc,
                    "release": profile.release,
                    **values,
                },
            }
        return data

    @property
    def rules_source(self) -> str:
        """Where the rules of the products come from, as in a plan."""
        sources = dict.fromkeys(profile.product.rules_source for profile in self.space.profiles)
        return "; ".join(filter(None, sources))
