"""A sweep of two sizes as a map: which path where, with borders that are searched and not drawn between samples.

Along the second axis every value of a drawn column is planned; an axis of more than ``ASKED_THROUGH`` values is searched: every change
between two neighbouring probes is bisected. Paths that only their names tell apart are told apart at both ends of what else is alike,
and between these bisected. Along the first axis a column is added, by bisection, wherever the order of paths changes.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from npu_sim.operators import LIMITS
from npu_sim.operators.contract.axes import Number
from npu_sim.operators.contract.fixed_calls import fixed_call
from npu_sim.plans.model import Plan
from npu_sim.questions.limits import find_bound
from npu_sim.sweeps.area import Area, ascending, edge, is_logarithmic, open_numbers, spread_positions
from npu_sim.sweeps.space import AxisValues, Space
from npu_sim.timelines import timeline

ASKED_THROUGH = 4096
"""Axes of up to this many values are planned at every one of them."""
PROBES = 512
DRAWN_COLUMNS = 64
MOST_COLUMNS = 256
"""Columns with those that the search adds."""
CELLS = (48, 32)
"""Columns and rows of the maps of cores and workspace: sampled."""
BOUND_CELLS = (8, 6)
"""Columns and rows of the map of lower bounds, each one planned and timed."""
PATH_FIELDS = ("status", "kernel", "tiling_key")
"""Fields of a record that tell one path from another, where an operator has them."""

NUMBER = re.compile(r"\d+")

Path = tuple[Any, ...]
"""Values of ``PATH_FIELDS``, and the name of the path; a status other than 0 is a refusal."""
Run = tuple[int, int, Path]
"""First and last position of equal paths along a column, and the path."""


@dataclass
class _Search:
    """Columns of a map, found one by one."""

    area: Area
    found: dict[int, list[Run]] = field(default_factory=dict)

    def run_all(self) -> list[int]:
        """Search the map; return positions of its columns in ascending order."""
        first = spread_positions(self.area.axes[0], DRAWN_COLUMNS)
        for position in first:
            self.column(position)
        open_pairs = list(pairwise(first))
        while open_pairs and len(self.found) < MOST_COLUMNS:
            left, right = open_pairs.pop(0)
            if right - left > 1 and self.paths(left) != self.paths(right):
                middle = (left + right) // 2
                open_pairs += [(left, middle), (middle, right)]
        return sorted(self.found)

    def paths(self, position: int) -> list[Path]:
        """Return the paths along a column, in their order."""
        return [path for _, _, path in self.column(position)]

    def column(self, position: int) -> list[Run]:
        """Return the runs of equal paths along a column."""
        if position not in self.found:
            rows = self.area.axes[1]
            asked = spread_positions(rows, ASKED_THROUGH if rows.count <= ASKED_THROUGH else PROBES)
            known = self._bisected(position, dict(zip(asked, self._asked(position, asked), strict=True)))
            self.found[position] = [run for whole in _joined(known) for run in self._named(position, whole)]
        return self.found[position]

    def _named(self, position: int, run: Run) -> list[Run]:
        """Name a run; one that has different names at its ends is cut where the first one ends, by bisection."""
        first, last, path = run
        name = self._name(position, first)
        if name == self._name(position, last):
            return [(first, last, (*path, name))]
        same, other = first, last
        while other - same > 1:
            middle = (same + other) // 2
            same, other = (middle, other) if self._name(position, middle) == name else (same, middle)
        return [(first, same, (*path, name)), *self._named(position, (other, last, path))]

    def _name(self, position: int, row: int) -> str:
        """Return path and key of a plan, or the reason of a refusal, without the numbers that differ from call to call."""
        found = self.area.planned(position, row)
        if not isinstance(found, Plan):
            return f"{int(found.status)}, {NUMBER.sub('N', found.message)}"
        return NUMBER.sub("N", found.path) + ("" if found.tiling_key is None else f", key {found.tiling_key}")

    def _asked(self, position: int, rows: Sequence[int]) -> list[Path]:
        records = self.area.records([position], rows)[0]
        fields = [records[name].tolist() for name in PATH_FIELDS if name in (records.dtype.names or ())]
        return list(zip(*fields, strict=True))

    def _bisected(self, position: int, known: dict[int, Path]) -> dict[int, Path]:
        """Halve every gap between two different neighbours until there is none, all gaps at a time."""
        while middles := [(a + b) // 2 for a, b in pairwise(sorted(known)) if b - a > 1 and known[a] != known[b]]:
            known |= dict(zip(middles, self._asked(position, middles), strict=True))
        return known


def _joined(known: dict[int, Path]) -> list[Run]:
    runs: list[Run] = []
    for row, path in sorted(known.items()):
        if runs and runs[-1][2] == path:
            runs[-1] = (runs[-1][0], row, path)
        else:
            runs.append((row, row, path))
    return runs


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
    search = _Search(area)
    positions = search.run_all()
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
        "cells": {kind: found for kind, found in (*_cells(area).items(), ("bound_us", _bounds(area))) if _has_values(found)},
        "limits": [{"axis": name, **one} for name, values in (("x", x), ("y", y)) for one in _limits(area, values)],
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
    workspace = next((name for name in ("total_workspace_bytes", "workspace_bytes") if name in names), "")
    fields = {"cores": "block_dim", "workspace_bytes": workspace}
    return {
        kind: _field(area, places, np.where(records["status"] == 0, records[name], -1)) for kind, name in fields.items() if name in names
    }


def _field(area: Area, places: list[list[int]], values: np.ndarray) -> dict[str, Any]:
    """Return numbers by column and row, None where the call is refused, with the edges of their places."""
    edges = [[edge(axis, position) for position in [*chosen, axis.count]] for axis, chosen in zip(area.axes, places, strict=True)]
    return {"x": edges[0], "y": edges[1], "values": [[None if one < 0 else one for one in column] for column in values.tolist()]}


def _has_values(found: dict[str, Any]) -> bool:
    """Whether any call of a map runs."""
    return any(value is not None for column in found["values"] for value in column)


def _bounds(area: Area) -> dict[str, Any]:
    places = [spread_positions(values, most) for values, most in zip(area.axes, BOUND_CELLS, strict=True)]
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
    operator, first = area.space.operator, {one.axis.name: one.axis.value(one.at(0)) for one in area.space.axes}
    call = fixed_call(operator, {axis.name: first[axis.name] for axis in operator.axes}, bool(first["deterministic"]))
    found = [(limits, find_bound(call, values.axis, area.profile, limits).largest) for limits in LIMITS]
    return [{"name": name, "value": value} for name, value in found if value is not None]
