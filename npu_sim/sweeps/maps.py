"""Maps of a sweep over two sizes: which path is taken where, and where paths change.

An :class:`Area` replans part of a sweep: one device with one or two open axes, every other axis at
one value. A sweep has an area for every combination of these, and its map begins with the one in
which most calls run. :class:`Columns` finds the borders between paths. An axis of at most
``PLANNED_VALUES`` values is planned at every value; on longer axes, probes are planned and every
change between two neighbouring probes is bisected. Paths that differ only in their names are
compared at both ends of a run and bisected between them. Maps of at most ``MOST_CALLS`` calls are
computed completely; of larger ones some columns are, and bisection adds columns wherever the order
of paths changes.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import groupby, pairwise, product
from math import prod
from typing import Any

import numpy as np

from npu_sim.cores import Profile
from npu_sim.framework.arguments import Number
from npu_sim.framework.operator import PROGRAM
from npu_sim.framework.planning import fixed_call
from npu_sim.framework.target import LIMITS
from npu_sim.language import Text, with_changed_fields
from npu_sim.numbers.arrays import Array
from npu_sim.operators.timelines import timeline
from npu_sim.plans.model import Plan
from npu_sim.questions.limits import find_bound, last_equal
from npu_sim.status import AclnnError, NpuSimError
from npu_sim.sweeps.runner import LocalEngine
from npu_sim.sweeps.space import AxisValues, RecordColumn, Space, record_columns, workspace_column
from npu_sim.sweeps.summary import plan_at

LOGARITHMIC_SPAN = 64
"""Ratio of the largest to the smallest value from which an axis is logarithmic."""

PLANNED_VALUES = 4096
"""Axes of up to this many values are planned at every value."""
PROBES = 512
"""Values that are planned of longer axes before bisection."""
NAMED_COLUMNS = 64
"""Columns whose paths are named by plans. A column between two of these with the same paths takes
its names from them."""
MOST_SEARCHED = 192
"""Columns that bisection adds where the order of paths changes."""
MOST_CALLS = 1 << 20
"""Maps of up to this many calls are computed completely; larger ones in fewer columns."""
PATH_FIELDS = ("status", "kernel", "tiling_key")
"""Fields of a record that identify a path, where an operator has them."""

NUMBER = re.compile(r"(?<![\w.])\d+(?:[.,x]\d+)*(?![-A-Z\d])")
"""A number or a shape in a sentence; not the digits of ``bfloat16``, ``Atlas A2``, ``910B1`` or
``16-bit``."""

PathKey = tuple[Any, ...]
"""Values of ``PATH_FIELDS``, then the name of the path; a status other than 0 is a refusal."""
Run = tuple[int, int, PathKey]
"""First and last position of a path along a column, and the path."""

CELLS = (48, 32)
"""Columns and rows of the maps of cores and workspace: sampled."""
BOUND_CELLS = (8, 6)
"""Columns and rows of the map of lower bounds, each one planned and timed."""
MOST_SLICES = 16
"""Maps of one sweep: each takes about a second."""
SIZES_OF_SLICES = 3
"""Values of a third size that has maps of its own."""


@dataclass(frozen=True)
class Area:
    """One device of a sweep with open axes; every other axis has one value."""

    space: Space
    """The sweep."""
    profile: Profile
    """The device."""
    axes: tuple[AxisValues, ...]
    """The open axes, in the order of the dimensions of results."""
    chosen: Mapping[str, int] = field(default_factory=dict)
    """Codes of the other axes; the first one of an axis that is not named."""

    @cached_property
    def columns(self) -> tuple[RecordColumn, ...]:
        """Every field of the sweep's records."""
        return record_columns(self.space)

    @property
    def fixed(self) -> dict[str, Any]:
        """Values of the other axes."""
        names = [axis.name for axis in self.axes]
        return {
            axis.name: axis.axis.value(self.chosen.get(axis.name, axis.codes[0]))
            for axis in self.space.axes
            if axis.name not in names
        }

    def records(self, *positions: Sequence[int]) -> Array:
        """Return the records at positions of every axis, an array with one dimension per axis."""
        names = [axis.name for axis in self.axes]
        codes = {
            axis.name: tuple(map(axis.codes.__getitem__, chosen))
            for axis, chosen in zip(self.axes, positions, strict=True)
        }
        single = {axis.name: axis.codes[0] for axis in self.space.axes} | dict(self.chosen)
        axes = tuple(
            AxisValues(axis.axis, codes.get(axis.name, (single[axis.name],)))
            for axis in self.space.axes
        )
        part = replace(self.space, profiles=(self.profile,), axes=axes, sample=None)
        engine = LocalEngine(part, self.columns)
        out = np.empty(part.rows, engine.dtype)
        engine.fill(out, 0)
        order = [axis.name for axis in self.space.axes if axis.name in codes]
        shaped = out.reshape([len(codes[name]) for name in order])
        return shaped.transpose([order.index(name) for name in names])

    def planned(self, *positions: int) -> Plan | NpuSimError:
        """Return the plan at one position of every axis, or the error that refuses the call."""
        values = {
            axis.name: axis.codes[position]
            for axis, position in zip(self.axes, positions, strict=True)
        }
        return plan_at(self.space.operator, self.profile, {**self.fixed, **values})

    def running(self) -> int:
        """Return how many of a sample of the calls run."""
        places = [
            spread_positions(axis, most) for axis, most in zip(self.axes, CELLS, strict=False)
        ]
        return int(np.count_nonzero(self.records(*places)["status"] == 0))


def areas_of(space: Space, axes: tuple[AxisValues, ...]) -> list[Area]:
    """Return the areas of a sweep with open axes, the one in which most calls run first.

    A third size has ``SIZES_OF_SLICES`` values. Of more than ``MOST_SLICES`` areas, those with the
    first values of the longest lists are left.
    """
    names = [axis.name for axis in axes]
    others = [axis for axis in space.axes if axis.name not in names]
    lists: list[list[Any]] = [[*space.profiles], *map(_codes_of_slices, others)]
    while prod(map(len, lists)) > MOST_SLICES:
        del max(lists, key=len)[-1]
    areas = [
        Area(
            space,
            profile,
            axes,
            {axis.name: code for axis, code in zip(others, codes, strict=True)},
        )
        for profile, *codes in product(*lists)
    ]
    first = max(areas, key=Area.running)
    return [first, *(area for area in areas if area is not first)]


def _codes_of_slices(axis: AxisValues) -> list[int]:
    most = SIZES_OF_SLICES if isinstance(axis.axis, Number) else len(axis.codes)
    return [axis.codes[position] for position in spread_positions(axis, most)]


def open_numbers(space: Space) -> list[AxisValues]:
    """Return the number axes that vary, those with the most values first."""
    numbers = [axis for axis in space.axes if isinstance(axis.axis, Number) and len(axis.codes) > 1]
    return sorted(numbers, key=lambda axis: -len(axis.codes))


def is_logarithmic(axis: AxisValues) -> bool:
    """Return whether an axis is shown on a logarithmic scale."""
    low, high = axis.extremes
    return low > 0 and high / low >= LOGARITHMIC_SPAN


def ascending(axis: AxisValues) -> AxisValues:
    """Return an axis with its listed values in ascending order."""
    return replace(axis, codes=tuple(sorted(axis.codes))) if isinstance(axis.codes, tuple) else axis


def spread_positions(axis: AxisValues, most: int) -> list[int]:
    """Return all positions of an axis, or ``most`` of them spread evenly on its scale."""
    last = len(axis.codes) - 1
    if last < most:
        return list(range(last + 1))
    fractions = [step / (most - 1) for step in range(most)]
    if isinstance(axis.codes, range) and is_logarithmic(axis):
        return sorted({min(round((last + 1) ** part) - 1, last) for part in fractions})
    return sorted({round(part * last) for part in fractions})


def edge(axis: AxisValues, position: int) -> int:
    """Return where the cell of a position begins on an axis; position ``count`` is the end."""
    if position < len(axis.codes):
        return axis.codes[position]
    last, before = axis.codes[-1], axis.codes[max(len(axis.codes) - 2, 0)]
    return last + max(last - before, 1)


@dataclass
class Columns:
    """Columns of a map, computed one by one."""

    area: Area
    """The planned area, with two open axes."""
    named: dict[int, list[Run]] = field(default_factory=dict)
    """Runs of equal paths along every column, by its position."""
    unnamed: dict[int, list[Run]] = field(default_factory=dict)
    """The same, but with paths that have no name: the fields of records alone identify them."""

    def search(self) -> list[int]:
        """Compute the map; return the positions of its columns in ascending order."""
        for position in spread_positions(self.area.axes[0], NAMED_COLUMNS):
            self.column(position)
        self._bisect_gaps()
        self._add_between()
        self._bisect_gaps()
        return sorted(self.named)

    def paths(self, position: int) -> list[PathKey]:
        """Return the paths along a column, in order."""
        return [path for _, _, path in self.column(position)]

    def column(self, position: int) -> list[Run]:
        """Return the runs of equal paths along a column."""
        if position not in self.named:
            (self.unnamed[position],) = self._runs([position])
            self.named[position] = [
                part for run in self.unnamed[position] for part in self._with_names(position, run)
            ]
        return self.named[position]

    def _bisect_gaps(self) -> None:
        """Bisect every gap between two columns with different orders of paths."""
        most = len(self.named) + MOST_SEARCHED
        open_pairs = list(pairwise(sorted(self.named)))
        while open_pairs and len(self.named) < most:
            left, right = open_pairs.pop(0)
            if right - left > 1 and self.paths(left) != self.paths(right):
                middle = (left + right) // 2
                self.column(middle)
                open_pairs += [(left, middle), (middle, right)]

    def _add_between(self) -> None:
        """Add intermediate columns within ``MOST_CALLS``, because borders may be oblique."""
        x, y = self.area.axes
        wanted = spread_positions(x, max(NAMED_COLUMNS, MOST_CALLS // len(y.codes)))
        most = len(self.named) + MOST_SEARCHED
        for left, right in pairwise(sorted(self.named)):
            between = [position for position in wanted if left < position < right]
            columns = self._runs(between) if between else []
            for position, runs in zip(between, columns, strict=True):
                named = self._named_as(left, right, runs)
                if named is not None:
                    self.unnamed[position], self.named[position] = runs, named
                elif len(self.named) < most:
                    self.column(position)

    def _named_as(self, left: int, right: int, runs: list[Run]) -> list[Run] | None:
        """Return runs with the names of both neighbours; None where these do not determine them."""
        paths = self.paths(left)
        same_order = [run[2] for run in runs] == [run[2] for run in self.unnamed[left]]
        if paths != self.paths(right) or not same_order:
            return None
        if len(paths) == len(runs):
            return [(first, last, path) for (first, last, _), path in zip(runs, paths, strict=True)]
        same_runs = runs == self.unnamed[left] and self.named[left] == self.named[right]
        return self.named[left] if same_runs else None

    def _with_names(self, position: int, run: Run) -> list[Run]:
        """Name the path of a run; cut the run by bisection where the name changes."""
        first, last, path = run
        name = self.name(position, first)
        if name == self.name(position, last):
            return [(first, last, (*path, name))]
        same = last_equal(partial(self.name, position), first, last, name)
        return [(first, same, (*path, name)), *self._with_names(position, (same + 1, last, path))]

    def name(self, position: int, row: int) -> str:
        """Return path and key of a plan, or the reason of a refusal, with numbers as ``N``."""
        plan = self.area.planned(position, row)
        if isinstance(plan, AclnnError):
            reason = without_numbers(plan.message)
            return Text("{status}, {reason}", status=str(int(plan.status)), reason=reason)
        if not isinstance(plan, Plan):
            return without_numbers(plan.message)
        path = without_numbers(plan.path)
        if plan.tiling_key is None:
            return path
        return Text("{path}, key {tiling_key}", path=path, tiling_key=plan.tiling_key)

    def _runs(self, positions: Sequence[int]) -> list[list[Run]]:
        """Return the runs along columns, without names of paths."""
        y = self.area.axes[1]
        rows = spread_positions(y, PLANNED_VALUES if len(y.codes) <= PLANNED_VALUES else PROBES)
        return [
            _joined(self._bisected(position, known))
            for position, known in zip(positions, self._ends(positions, rows), strict=True)
        ]

    def _ends(self, positions: Sequence[int], rows: Sequence[int]) -> list[dict[int, PathKey]]:
        """Return, for each column, the path at both ends of every run of equal rows."""
        records = self.area.records(positions, rows)
        fields = [records[name] for name in PATH_FIELDS if name in (records.dtype.names or ())]
        ends = []
        for column in zip(*fields, strict=True):
            differs = np.any([values[1:] != values[:-1] for values in column], axis=0)
            changes = np.flatnonzero(differs)
            places = np.unique([0, *changes, *(changes + 1), len(rows) - 1])
            ends.append(
                {rows[place]: tuple(values[place].item() for values in column) for place in places}
            )
        return ends

    def _bisected(self, position: int, known: dict[int, PathKey]) -> dict[int, PathKey]:
        """Bisect every gap between two rows with different paths, all gaps at a time."""
        while middles := [
            (a + b) // 2 for a, b in pairwise(sorted(known)) if b - a > 1 and known[a] != known[b]
        ]:
            (more,) = self._ends([position], middles)
            known |= more
        return known


def without_numbers(text: str) -> str:
    """Return a text with ``N`` in place of its numbers: they differ from call to call."""
    return with_changed_fields(text, lambda part: NUMBER.sub("N", part), numbers=True)


def _joined(known: dict[int, PathKey]) -> list[Run]:
    runs = ((path, [*rows]) for path, rows in groupby(sorted(known), key=known.__getitem__))
    return [(rows[0], rows[-1], path) for path, rows in runs]


def sweep_map(space: Space) -> dict[str, Any]:
    """Return the map of a sweep over its two number axes with the most values.

    Returns
    -------
    dict
        Empty without two such axes. Otherwise the map in which most calls run, with ``others``, the
        maps of other devices and of other values of the other axes, and ``left_out``, the number of
        such maps beyond ``MOST_SLICES``. Each has ``product``, ``soc``, ``release``; ``with``, the
        values of the other axes; ``x`` and ``y``: ``name``, ``first`` and ``last`` value, ``end``
        of the last cell, ``logarithmic``; ``states``: ``label`` of a path, or the reason of a
        refusal; ``columns``: ``start``, ``end`` and ``runs`` (start, end, last value, state);
        ``cells``: grids of ``cores``, ``workspace_bytes`` and ``bound_us``, a grid for every
        ``coverage`` of bounds; ``limits`` of both axes.
    """
    if len(numbers := open_numbers(space)) < 2:
        return {}
    axes = tuple(map(ascending, numbers[:2]))
    areas = areas_of(space, axes)
    others = prod(space.counts) // prod(len(axis.codes) for axis in axes)
    first, *rest = map(_map_of, areas)
    return {**first, "others": rest, "left_out": others - len(areas)}


def _map_of(area: Area) -> dict[str, Any]:
    """Return the map of one area."""
    x, y = area.axes
    search = Columns(area)
    positions = search.search()
    states: dict[PathKey, int] = {}
    columns: list[dict[str, Any]] = []
    for position, following in zip(positions, [*positions[1:], len(x.codes)], strict=True):
        runs = [
            [edge(y, first), edge(y, last + 1), y.codes[last], states.setdefault(path, len(states))]
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
        "release": area.profile.release,
        "with": area.fixed,
        "x": _axis(x),
        "y": _axis(y),
        "states": [{"label": path[-1], "refused": path[0] != 0} for path in states],
        "columns": columns,
        "cells": {
            kind: grid
            for kind, grid in (_cells(area) | _bounds(area)).items()
            if any(value is not None for column in grid["values"] for value in column)
        },
        "limits": [
            {"axis": name, **limit}
            for name, axis in (("x", x), ("y", y))
            for limit in _limits(area, axis)
        ],
    }


def _axis(axis: AxisValues) -> dict[str, Any]:
    return {
        "name": axis.name,
        "first": axis.codes[0],
        "last": axis.codes[-1],
        "end": edge(axis, len(axis.codes)),
        "logarithmic": is_logarithmic(axis),
    }


def _cells(area: Area) -> dict[str, Any]:
    """Return the sampled grids of cores and workspace."""
    places = [spread_positions(axis, most) for axis, most in zip(area.axes, CELLS, strict=True)]
    records = area.records(*places)
    return {
        kind: _field(area, places, np.where(records["status"] == 0, records[name], -1))
        for kind, name in drawn_columns(records).items()
    }


def drawn_columns(records: Array) -> dict[str, str]:
    """Return the columns of ``cores`` and ``workspace_bytes``, where the records have them."""
    names = records.dtype.names or ()
    columns = {"cores": "block_dim", "workspace_bytes": workspace_column(names)}
    return {kind: name for kind, name in columns.items() if name in names}


def _field(area: Area, places: list[list[int]], values: Array) -> dict[str, Any]:
    """Return a grid: numbers by column and row, None where refused, and the edges of its cells."""
    edges = [
        [edge(axis, position) for position in [*chosen, len(axis.codes)]]
        for axis, chosen in zip(area.axes, places, strict=True)
    ]
    return {
        "x": edges[0],
        "y": edges[1],
        "values": [
            [None if number < 0 else number for number in column] for column in values.tolist()
        ],
    }


def _bounds(area: Area) -> dict[str, Any]:
    """Return the sampled grids of bounds: one for those that cover the same work.

    Empty for an operator without a timeline.
    """
    if not area.space.operator.has_hook(PROGRAM):
        return {}
    places = [
        spread_positions(axis, most) for axis, most in zip(area.axes, BOUND_CELLS, strict=True)
    ]
    grids: dict[str, Array] = {}
    for column, x in enumerate(places[0]):
        for row, y in enumerate(places[1]):
            plan = area.planned(x, y)
            if isinstance(plan, Plan):
                found = timeline(plan, area.profile)
                unknown = np.full([len(chosen) for chosen in places], -1.0)
                values = grids.setdefault(found.coverage, unknown)
                values[column, row] = round(found.bound_us, 3)
    return {
        f"bound_us{number or ''}": _field(area, places, values) | {"coverage": coverage}
        for number, (coverage, values) in enumerate(sorted(grids.items()))
    }


def _limits(area: Area, axis: AxisValues) -> list[dict[str, Any]]:
    """Return the largest legal values of an axis, the other axes at their first values."""
    assert isinstance(axis.axis, Number)
    operator = area.space.operator
    first = {open_axis.name: open_axis.axis.value(open_axis.codes[0]) for open_axis in area.axes}
    first |= area.fixed
    sizes = {axis.name: first[axis.name] for axis in operator.axes}
    call = fixed_call(operator, sizes, bool(first["deterministic"]))
    limits = [
        {"name": name, "value": find_bound(call, axis.axis, area.profile, name).largest}
        for name in LIMITS
    ]
    return [limit for limit in limits if limit["value"] is not None]
