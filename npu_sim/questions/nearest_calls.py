"""Nearest legal calls of a refused one.

For every size the nearest accepted values; every other accepted dtype, mode and switch.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from npu_sim.cores import Profile
from npu_sim.framework.axes import (
    COMMON_AXES,
    DETERMINISTIC,
    LIMITS,
    Axis,
    Number,
    Value,
    Word,
    distance,
)
from npu_sim.framework.fixed_calls import FixedCall
from npu_sim.framework.planning import plan_of
from npu_sim.framework.target import Limits, Target
from npu_sim.plans.model import Plan
from npu_sim.questions.legal_ranges import Interval
from npu_sim.questions.limits import find_bound
from npu_sim.status import NpuSimError


@dataclass(frozen=True)
class NearestCall:
    """One change that makes a refused call run."""

    axis: Axis
    """Changed argument, or ``limits`` or ``deterministic``."""
    now: Value
    """Value in the refused call."""
    value: Value
    """Value after the change."""
    plan: Plan
    """Plan of the changed call."""
    ranges: tuple[Interval, ...] = ()
    """For a number, all legal values as intervals with both ends included."""

    @property
    def distance(self) -> float:
        """Relative distance of the change; changes of switches and names come last."""
        return distance(self.axis, self.now, self.value)


def nearest_calls(call: FixedCall, profile: Profile, limits: Limits) -> list[NearestCall]:
    """Return changes of one value that make a refused call run, nearest first."""
    now = {**call.values, LIMITS.name: limits, DETERMINISTIC.name: call.deterministic}
    nearest = [
        change
        for axis in (*call.operator.axes, *COMMON_AXES)
        for change in _changes(call, axis, now[axis.name], profile, limits)
    ]
    return sorted(nearest, key=lambda change: change.distance)


def _changes(
    call: FixedCall, axis: Axis, now: Value, profile: Profile, limits: Limits
) -> Iterator[NearestCall]:
    ranges: tuple[Interval, ...] = ()
    values: list[Value]
    if isinstance(axis, Number):
        ranges, size = find_bound(call, axis, profile, limits).ranges, int(now)
        below = max((min(last, size) for first, last in ranges if first <= size), default=None)
        above = min((max(first, size) for first, last in ranges if last >= size), default=None)
        values = [value for value in (below, above) if value is not None]
    else:
        values = list(axis.words if isinstance(axis, Word) else (False, True))
    for value in values:
        if value != now and (plan := _planned(call, axis, value, profile, limits)):
            yield NearestCall(axis, now, value, plan, ranges)


def _planned(
    call: FixedCall, axis: Axis, value: Value, profile: Profile, limits: Limits
) -> Plan | None:
    try:
        return plan_of(call.checked_with(axis, value, Target(profile, limits=limits)))
    except NpuSimError:
        return None
