"""Maps of a sweep over two sizes: which path is taken where, and where paths change.

An :class:`Area` replans part of a sweep: one device with one or two open axes, all other axes at
their first value. :class:`Columns` finds the borders between paths. An axis of at most
``PLANNED_VALUES`` values is planned at every value; on longer axes, probes are planned and every
change between two neighbouring probes is bisected. Paths that differ only in their names are
compared at both ends of a run and bisected between them. Maps of at most ``MOST_CALLS`` calls are
computed completely; of larger ones some columns are, and bisection adds columns wherever the order
of paths changes.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from npu_sim.cores import Profile
from npu_sim.framework.axes import Number
from npu_sim.framework.fixed_calls import fixed_call
from npu_sim.framework.planning import plan_of
from npu_sim.framework.target import LIMITS
from npu_sim.operators.timelines import timeline
from npu_sim.plans.model import Plan
from npu_sim.questions.limits import find_bound
from npu_sim.status import AclnnError
from npu_sim.sweeps.engine import LocalEngine
from npu_sim.sweeps.records import RecordColumn, record_columns
from npu_sim.sweeps.space import AxisValues, Space

LOGARITHMIC_SPAN = 64
"""Largest over smallest value from which an axis is drawn logarithmic."""


@dataclass(frozen=True)
class Area:
    """One device of a sweep, with ``axes`` open.

    Attributes
    ----------
    space
        The sweep.
    profile
        The device.
    axes
        Axes that vary, in the order in which results have them.
    """

    space: Space
    profile: Profile
    axes: tuple[AxisValues, ...]

    @cached_property
    def columns(self) -> tuple[RecordColumn, ...]:
        """Every field of the sweep's records."""
        return record_columns(self.space)

    @property
    def fixed(self) -> dict[str, Any]:
        """Values of the other axes."""
        return {
            values.axis.name: values.axis.value(values.at(0))
            for values in self.space.axes
            if values not in self.axes
        }

    def records(self, *positions: Sequence[int]) -> np.ndarray:
        """Return the records at positions of every axis, an array with one dimension for each."""
        chosen = dict(zip((values.axis.name for values in self.axes), positions, strict=True))
        axes = []
        for values in self.space.axes:
            codes = [values.at(position) for position in chosen.get(values.axis.name, (0,))]
            axes.append(AxisValues(values.axis, table=tuple(codes), count=len(codes)))
        part = replace(self.space, profiles=(self.profile,), axes=tuple(axes), sample=None)
        engine = LocalEngine(part, self.columns)
        out = np.empty(part.rows, engine.dtype)
        engine.fill(out, 0)
        order = [values.axis.name for values in self.space.axes if values.axis.name in chosen]
        shaped = out.reshape([len(chosen[name]) for name in order])
        return shaped.transpose([order.index(values.axis.name) for values in self.axes])

    def planned(self, *positions: int) -> Any:
        """Return the whole plan at one position of every axis, or its refusal."""
        own = {
            values.axis.name: values.at(position)
            for values, position in zip(self.axes, positions, strict=True)
        }
        operator = self.space.operator
        call = operator.plan_arguments({**self.fixed, **own})
        deterministic, limits = call.pop("deterministic"), call.pop("limits")
        try:
            return plan_of(
                operator.check(operator.build(call), self.profile, deterministic, limits)
            )
        except AclnnError as error:
            return error


def open_numbers(space: Space) -> list[AxisValues]:
    """Return the axes of several numbers, those with the most values first."""
    numbers = [
        values for values in space.axes if isinstance(values.axis, Number) and values.count > 1
    ]
    return sorted(numbers, key=lambda values: -values.count)


def is_logarithmic(values: AxisValues) -> bool:
    """Whether an axis is drawn logarithmic."""
    codes = values.table or (values.at(0), values.at(values.count - 1))
    return min(codes) > 0 and max(codes) / min(codes) >= LOGARITHMIC_SPAN


def ascending(values: AxisValues) -> AxisValues:
    """Return an axis with its values in ascending order, which listed ones need not have."""
    return replace(values, table=tuple(sorted(values.table))) if values.table else values


def spread_positions(values: AxisValues, most: int) -> list[int]:
    """Choose positions of an axis: all, or the ends and evenly between them, by factors where it is drawn logarithmic."""
    last = values.count - 1
    if last < most:
        return list(range(last + 1))
    if not values.table and is_logarithmic(values):
        found = {min(round((last + 1) ** (step / (most - 1))) - 1, last) for step in range(most)}
    else:
        found = {round(step * last / (most - 1)) for step in range(most)}
    return sorted(found)


def edge(values: AxisValues, position: int) -> int:
    """Return where the place of a value begins on an axis; that of the position after the last one is where the axis ends."""
    if position < values.count:
        return values.at(position)
    last, before = values.at(values.count - 1), values.at(max(values.count - 2, 0))
    return last + max(last - before, 1)


ASKED_THROUGH = 4096
"""Axes of up to this many values are planned at every one of them."""
PROBES = 512
NAMED_COLUMNS = 64
"""Columns whose paths are named, spread over the map; between two of the same paths the others are
named like them."""
MOST_SEARCHED = 192
"""Columns that a search adds where the order of paths changes."""
MOST_CALLS = 1 << 20
"""Calls of which every one is planned; of larger maps as many columns as this allows."""
PATH_FIELDS = ("status", "kernel", "tiling_key")
"""Fields of a record that tell one path from another, where an operator has them."""

NUMBER = re.compile(r"\d+")

Path = tuple[Any, ...]
"""Values of ``PATH_FIELDS``, and the name of the path; a status other than 0 is a refusal."""
Run = tuple[int, int, Path]
"""First and last position of equal paths along a column, and the path."""


@dataclass
class Columns:
    """Columns of a map, found one by one.

    Attributes
    ----------
    area
        What is planned, with two axes open.
    found
        Runs of equal paths along every column, by its position.
    alike
        The same runs as the fields of records alone tell them, by position.
    """

    area: Area
    found: dict[int, list[Run]] = field(default_factory=dict)
    alike: dict[int, list[Run]] = field(default_factory=dict)

    def search(self) -> list[int]:
        """Search the map; return positions of its columns in ascending order."""
        for position in spread_positions(self.area.axes[0], NAMED_COLUMNS):
            self.column(position)
        self._halve()
        self._fill()
        self._halve()
        return sorted(self.found)

    def paths(self, position: int) -> list[Path]:
        """Return the paths along a column, in their order."""
        return [path for _, _, path in self.column(position)]

    def column(self, position: int) -> list[Run]:
        """Return the runs of equal paths along a column."""
        if position not in self.found:
            (self.alike[position],) = self._asked([position])
            self.found[position] = [
                run for whole in self.alike[position] for run in self._named(position, whole)
            ]
        return self.found[position]

    def _halve(self) -> None:
        """Halve every gap between two columns with another order of paths until there is none."""
        most = len(self.found) + MOST_SEARCHED
        open_pairs = list(pairwise(sorted(self.found)))
        while open_pairs and len(self.found) < most:
            left, right = open_pairs.pop(0)
            if right - left > 1 and self.paths(left) != self.paths(right):
                middle = (left + right) // 2
                self.column(middle)
                open_pairs += [(left, middle), (middle, right)]

    def _fill(self) -> None:
        """Add the columns between, as many as there are or as ``MOST_CALLS`` allow: borders need not run along an axis."""
        x, y = self.area.axes
        wanted = spread_positions(x, max(NAMED_COLUMNS, MOST_CALLS // y.count))
        most = len(self.found) + MOST_SEARCHED
        for left, right in pairwise(sorted(self.found)):
            between = [position for position in wanted if left < position < right]
            for position, runs in zip(
                between, self._asked(between) if between else (), strict=True
            ):
                named = self._named_as(left, right, runs)
                if named is not None:
                    self.alike[position], self.found[position] = runs, named
                elif len(self.found) < most:
                    self.column(position)

    def _named_as(self, left: int, right: int, runs: list[Run]) -> list[Run] | None:
        """Return runs with the names that both neighbours have; None where these do not tell them."""
        if self.paths(left) != self.paths(right) or [run[2] for run in runs] != [
            run[2] for run in self.alike[left]
        ]:
            return None
        if len(self.found[left]) == len(runs):
            return [
                (first, last, path)
                for (first, last, _), path in zip(runs, self.paths(left), strict=True)
            ]
        return (
            self.found[left]
            if runs == self.alike[left] and self.found[left] == self.found[right]
            else None
        )

    def _named(self, position: int, run: Run) -> list[Run]:
        """Name a run; one that has different names at its ends is cut where the first one ends, by bisection."""
        first, last, path = run
        name = self.name(position, first)
        if name == self.name(position, last):
            return [(first, last, (*path, name))]
        same, other = first, last
        while other - same > 1:
            middle = (same + other) // 2
            same, other = (middle, other) if self.name(position, middle) == name else (same, middle)
        return [(first, same, (*path, name)), *self._named(position, (other, last, path))]

    def name(self, position: int, row: int) -> str:
        """Return path and key of a plan, or the reason of a refusal, without the numbers that differ from call to call."""
        found = self.area.planned(position, row)
        if not isinstance(found, Plan):
            return f"{int(found.status)}, {NUMBER.sub('N', found.message)}"
        return NUMBER.sub("N", found.path) + (
            "" if found.tiling_key is None else f", key {found.tiling_key}"
        )

    def _asked(self, positions: Sequence[int]) -> list[list[Run]]:
        """Return the runs along columns that the fields of records tell apart."""
        rows = self.area.axes[1]
        asked = spread_positions(rows, ASKED_THROUGH if rows.count <= ASKED_THROUGH else PROBES)
        return [
            _joined(self._bisected(position, known))
            for position, known in zip(positions, self._ends(positions, asked), strict=True)
        ]

    def _ends(self, positions: Sequence[int], rows: Sequence[int]) -> list[dict[int, Path]]:
        """Return the paths of columns at some rows, of equal neighbours the first and the last."""
        records = self.area.records(positions, rows)
        fields = [records[name] for name in PATH_FIELDS if name in (records.dtype.names or ())]
        found = []
        for column in zip(*fields, strict=True):
            changes = np.flatnonzero(np.any([one[1:] != one[:-1] for one in column], axis=0))
            kept = np.unique([0, *changes, *(changes + 1), len(rows) - 1])
            found.append(
                {rows[place]: tuple(one[place].item() for one in column) for place in kept}
            )
        return found

    def _bisected(self, position: int, known: dict[int, Path]) -> dict[int, Path]:
        """Halve every gap between two different neighbours until there is none, all gaps at a time."""
        while middles := [
            (a + b) // 2 for a, b in pairwise(sorted(known)) if b - a > 1 and known[a] != known[b]
        ]:
            (more,) = self._ends([position], middles)
            known |= more
        return known


def _joined(known: dict[int, Path]) -> list[Run]:
    runs: list[Run] = []
    for row, path in sorted(known.items()):
        if runs and runs[-1][2] == path:
            runs[-1] = (runs[-1][0], row, path)
        else:
            runs.append((row, row, path))
    return runs


CELLS = (48, 32)
"""Columns and rows of the maps of cores and workspace: sampled."""
BOUND_CELLS = (8, 6)
"""Columns and rows of the map of lower bounds, each one planned and timed."""


def sweep_map(space: Space) -> dict[str, Any]:
    """Return the map of a sweep's two axes with the most values on its first device; empty without two such axes.

    Returns
    -------
    dict
        ``product``, ``soc``, ``with``: what the others are; ``x`` and ``y``: ``name``, ``first``, ``last`` value, the ``end`` of the last
        one's place, whether ``logarithmic``; ``states``: ``label`` of every path, or of a refusal the reason; ``columns``: ``start`` and
        ``end`` of each, and ``runs`` along it: start, end, last value, state; ``cells``: maps of ``cores``, ``workspace_bytes`` and
        ``bound_us`` by row and column; ``limits`` of both axes.
    """
    if len(numbers := open_numbers(space)) < 2:
        return {}
    area = Area(space, space.profiles[0], tuple(ascending(one) for one in numbers[:2]))
    x, y = area.axes
    search = Columns(area)
    positions = search.search()
    states: dict[Path, int] = {}
    columns: list[dict[str, Any]] = []
    for position, following in zip(positions, [*positions[1:], x.count], strict=True):
        runs = [
            [edge(y, first), edge(y, last + 1), y.at(last), states.setdefault(path, len(states))]
            for first, last, path in search.column(position)
        ]
        start, end = edge(x, position), edge(x, following)
        if columns and columns[-1]["runs"] == runs:
            columns[-1]["end"] = end
        else:
            columns.append({"start": start, "end": end, "runs": runs})
    return {
        "product": area.profile.name,
        "soc": area.profile.soc,
        "with": area.fixed,
        "x": _axis(x),
        "y": _axis(y),
        "states": [{"label": path[-1], "refused": path[0] != 0} for path in states],
        "columns": columns,
        "cells": {
            kind: found
            for kind, found in (*_cells(area).items(), ("bound_us", _bounds(area)))
            if _has_values(found)
        },
        "limits": [
            {"axis": name, **one}
            for name, values in (("x", x), ("y", y))
            for one in _limits(area, values)
        ],
    }


def _axis(values: AxisValues) -> dict[str, Any]:
    first, last = values.at(0), values.at(values.count - 1)
    return {
        "name": values.axis.name,
        "first": first,
        "last": last,
        "end": edge(values, values.count),
        "logarithmic": is_logarithmic(values),
    }


def _cells(area: Area) -> dict[str, Any]:
    """Return what is counted in every call, at sampled places."""
    places = [spread_positions(values, most) for values, most in zip(area.axes, CELLS, strict=True)]
    records = area.records(*places)
    names = records.dtype.names or ()
    workspace = next(
        (name for name in ("total_workspace_bytes", "workspace_bytes") if name in names), ""
    )
    fields = {"cores": "block_dim", "workspace_bytes": workspace}
    return {
        kind: _field(area, places, np.where(records["status"] == 0, records[name], -1))
        for kind, name in fields.items()
        if name in names
    }


def _field(area: Area, places: list[list[int]], values: np.ndarray) -> dict[str, Any]:
    """Return numbers by column and row, None where the call is refused, with the edges of their places."""
    edges = [
        [edge(axis, position) for position in [*chosen, axis.count]]
        for axis, chosen in zip(area.axes, places, strict=True)
    ]
    return {
        "x": edges[0],
        "y": edges[1],
        "values": [[None if one < 0 else one for one in column] for column in values.tolist()],
    }


def _has_values(found: dict[str, Any]) -> bool:
    """Whether any call of a map runs."""
    return any(value is not None for column in found["values"] for value in column)


def _bounds(area: Area) -> dict[str, Any]:
    places = [
        spread_positions(values, most) for values, most in zip(area.axes, BOUND_CELLS, strict=True)
    ]
    values = np.full([len(chosen) for chosen in places], -1.0)
    for column, x in enumerate(places[0]):
        for row, y in enumerate(places[1]):
            found = area.planned(x, y)
            if isinstance(found, Plan):
                values[column, row] = round(timeline(found, area.profile).bound_us, 3)
    return _field(area, places, values)


def _limits(area: Area, values: AxisValues) -> list[dict[str, Any]]:
    """Return the largest legal value of an axis, documented and of the hardware, the others at their first."""
    assert isinstance(values.axis, Number)
    operator, first = (
        area.space.operator,
        {one.axis.name: one.axis.value(one.at(0)) for one in area.space.axes},
    )
    call = fixed_call(
        operator,
        {axis.name: first[axis.name] for axis in operator.axes},
        bool(first["deterministic"]),
    )
    found = [
        (limits, find_bound(call, values.axis, area.profile, limits).largest) for limits in LIMITS
    ]
    return [{"name": name, "value": value} for name, value in found if value is not None]
