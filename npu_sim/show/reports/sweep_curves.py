"""A cut through a sweep for its report: how plans change along the axis with the most values, the other axes at their first."""

from typing import Any

from npu_sim.cores import Profile
from npu_sim.operators import LIMITS, plan
from npu_sim.operators.contract.axes import Number
from npu_sim.operators.contract.fixed_calls import fixed_call
from npu_sim.questions.limits import find_bound
from npu_sim.status import AclnnError
from npu_sim.sweeps.space import AxisValues, Space

MOST_POINTS = 120
MOST_SERIES = 6
LOGARITHMIC_SPAN = 64
"""Largest over smallest value from which an axis is drawn logarithmic."""


def sweep_curves(space: Space) -> dict[str, Any]:
    """Plan a cut through a sweep.

    Parameters
    ----------
    space
        The sweep.

    Returns
    -------
    dict
        ``axis``, the values ``with`` which it is cut, the ``documented`` and ``hardware`` bounds of the axis on the first product
        (None where there is none), and one of ``series`` for every product and SoC; empty without an axis of several numbers.
    """
    numbers = [values for values in space.axes if isinstance(values.axis, Number) and values.count > 1]
    if not numbers:
        return {}
    cut = max(numbers, key=lambda values: values.count)
    others = {values.axis.name: values.axis.value(values.at(0)) for values in space.axes if values is not cut}
    points = _points(cut)
    series = [_series(space, profile, cut, points, others) for profile in space.profiles[:MOST_SERIES]]
    own = {name: value for name, value in others.items() if name not in ("limits", "deterministic")}
    call = fixed_call(space.operator, {**own, cut.axis.name: points[0]})
    assert isinstance(cut.axis, Number)
    bounds: dict[str, int | None] = {limits: find_bound(call, cut.axis, space.profiles[0], limits).largest for limits in LIMITS}
    logarithmic = points[0] > 0 and points[-1] / points[0] >= LOGARITHMIC_SPAN
    return {"axis": cut.axis.name, "with": others, "logarithmic": logarithmic, **bounds, "series": series}


def _points(cut: AxisValues) -> list[int]:
    """Choose values of the axis: all, or evenly among them, by factors where the range is wide."""
    if cut.count <= MOST_POINTS:
        return sorted({cut.at(position) for position in range(cut.count)})
    first, last = cut.at(0), cut.at(cut.count - 1)
    if not cut.table and first >= 0 and last / max(first, 1) >= LOGARITHMIC_SPAN:
        factor = (cut.count + 1) ** (1 / (MOST_POINTS - 1))
        positions = {min(round(factor**step) - 1, cut.count - 1) for step in range(MOST_POINTS)}
    else:
        positions = {round(step * (cut.count - 1) / (MOST_POINTS - 1)) for step in range(MOST_POINTS)}
    return sorted({cut.at(position) for position in positions})


def _series(space: Space, profile: Profile, cut: AxisValues, points: list[int], others: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"product": profile.name, "soc": profile.soc, "capacity_bytes": None, "x": [], "refused": []}
    values: dict[str, list[int]] = {"used_bytes": [], "workspace_bytes": [], "cores": []}
    for point in points:
        arguments = space.operator.plan_arguments({**others, cut.axis.name: point})
        try:
            made = plan(space.operator.name, product=profile, **arguments)
        except AclnnError:
            found["refused"].append(point)
            continue
        memory = max(made.memories, key=lambda one: one.used_bytes / one.capacity_bytes, default=None)
        found["x"].append(point)
        found["capacity_bytes"] = memory.capacity_bytes if memory else found["capacity_bytes"]
        values["used_bytes"].append(memory.used_bytes if memory else 0)
        values["workspace_bytes"].append(made.workspace.total_bytes)
        values["cores"].append(made.block_dim)
    return {**found, **values}
