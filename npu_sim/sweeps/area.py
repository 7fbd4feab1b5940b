"""Part of a sweep, planned again for pictures: one device, one or two axes, everything else at its first value."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from npu_sim.cores import Profile
from npu_sim.framework.axes import Number
from npu_sim.framework.planning import plan_of
from npu_sim.status import AclnnError
from npu_sim.sweeps.columns import RecordColumn, record_columns
from npu_sim.sweeps.engine import LocalEngine
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
