"""Launches, lower bounds and estimates of a call, and their sums over a file of calls."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from npu_sim.cores import Profile
from npu_sim.operators.timelines import is_timed, timeline
from npu_sim.plans.model import Plan
from npu_sim.timelines.model import LaunchEstimate, LaunchTime


def call_times(plan: Plan, profile: Profile) -> dict[str, Any]:
    """Return launches, lower bound and estimate of one call, times in microseconds.

    ``bound_us`` is None if the operator declares no program. ``estimates`` maps what is estimated
    (``launch``, ``vector pipe``) to the number of launches and the sum of their ranges.
    """
    if plan.block_dim and not is_timed(plan):
        return {"launches": len(plan.launches), "bound_us": None, "estimates": {}}
    found = timeline(plan, profile)
    return {
        "launches": len(found.launches),
        "bound_us": found.bound_us,
        "estimates": _estimates(found.launches),
    }


def _estimates(launches: tuple[LaunchTime, ...]) -> dict[str, Any]:
    sums: dict[str, Any] = {}
    for launch in launches:
        estimate = launch.estimate
        if estimate is None or (isinstance(estimate, LaunchEstimate) and estimate.us is None):
            continue
        part = sums.setdefault(estimate.of, {"launches": 0, "low_us": 0.0, "high_us": 0.0})
        part["launches"] += 1
        part["low_us"] += estimate.low_us
        part["high_us"] += estimate.high_us
    return sums


@dataclass
class Totals:
    """Sums over the calls of one column that run, each weighted by its count."""

    calls: int
    launches: int
    bound_us: float
    """Sum of the lower bounds in microseconds."""
    unbounded: int
    """Calls without a bound, counted as 0: their operator declares no program."""
    estimates: Mapping[str, Mapping[str, Any]]
    """As in :func:`call_times`."""

    def as_dict(self) -> dict[str, Any]:
        """Return the sums as plain data."""
        return dict(vars(self))


def totals(times: list[tuple[Mapping[str, Any], int]]) -> Totals:
    """Return the sums over calls, given as pairs of :func:`call_times` and count."""
    estimates: dict[str, Any] = {}
    for time, count in times:
        for kind, part in time["estimates"].items():
            known = estimates.setdefault(kind, dict.fromkeys(part, 0))
            for name, value in part.items():
                known[name] += count * value
    return Totals(
        calls=sum(count for _, count in times),
        launches=sum(count * time["launches"] for time, count in times),
        bound_us=sum(count * (time["bound_us"] or 0.0) for time, count in times),
        unbounded=sum(count for time, count in times if time["bound_us"] is None),
        estimates=estimates,
    )
