"""A sweep of two sizes as a map: which path where, with borders that are searched and not drawn between samples."""

from typing import Any

import numpy as np

from npu_sim.framework.axes import Number
from npu_sim.framework.fixed_calls import fixed_call
from npu_sim.operators import LIMITS
from npu_sim.plans.model import Plan
from npu_sim.questions.limits import find_bound
from npu_sim.sweeps.area import (
    Area,
    ascending,
    edge,
    is_logarithmic,
    open_numbers,
    spread_positions,
)
from npu_sim.sweeps.borders import Columns, Path
from npu_sim.sweeps.space import AxisValues, Space
from npu_sim.timelines import timeline

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
