"""The nearest changes of a call that take another path: the flips of its decisions, each one planned to see what it does."""

from dataclasses import dataclass
from typing import Any

from npu_sim.cores import Profile
from npu_sim.operators.contract.axes import Axis, Number
from npu_sim.operators.contract.case import Limits
from npu_sim.operators.contract.operator import Operator
from npu_sim.operators.contract.planning import plan_of
from npu_sim.plans.model import Plan
from npu_sim.questions.varied_calls import FixedCall
from npu_sim.status import AclnnError, UsageError


@dataclass(frozen=True)
class NearbyPlan:
    """One change of one argument, and what comes of it.

    Attributes
    ----------
    decision
        Name of the decision that it turns around.
    axis
        What is changed.
    now, value
        Its value in the call, and after the change.
    path
        Path taken after the change; empty when the call is then refused.
    changes_path
        Whether path or tiling key differ from those of the call.
    refusal
        Why the changed call is refused; empty when it runs.
    """

    decision: str
    axis: Axis
    now: int | str | bool
    value: int | str | bool
    path: str
    changes_path: bool
    refusal: str = ""

    @property
    def distance(self) -> float:
        """How far the change is, relative to the value; switches and words are no distance and come last."""
        if isinstance(self.axis, Number):
            return abs(int(self.value) - int(self.now)) / max(abs(int(self.now)), 1)
        return float("inf")

    @property
    def step_text(self) -> str:
        """Return the change in words: ``one more column``, ``deterministic on``."""
        if not isinstance(self.axis, Number):
            state = ("on" if self.value else "off") if isinstance(self.value, bool) else str(self.value)
            return f"{self.axis.name} {state}"
        difference = int(self.value) - int(self.now)
        count = "one" if abs(difference) == 1 else str(abs(difference))
        unit = (self.axis.unit or self.axis.name) + ("s" if abs(difference) != 1 and self.axis.unit else "")
        return f"{count} {'more' if difference > 0 else 'fewer'} {unit}"

    def as_dict(self) -> dict[str, Any]:
        """Return the change as plain data."""
        return {
            "decision": self.decision,
            "argument": self.axis.name,
            "now": self.now,
            "value": self.value,
            "path": self.path,
            "changes_path": self.changes_path,
            "refusal": self.refusal,
        }


def nearby_plans(plan: Plan, call: FixedCall, profile: Profile, limits: Limits) -> list[NearbyPlan]:
    """Plan every flip of a plan's decisions; nearest first."""
    found: dict[tuple[str, Any], NearbyPlan] = {}
    for decision in plan.decisions:
        for flip in decision.flips:
            axis = _axis(call.operator, flip.argument)
            if axis is None:
                continue
            try:
                value = axis.value(axis.code(flip.value))
            except UsageError:
                continue  # beyond what makes sense, such as 0 rows or fewer
            now = plan.deterministic if axis.name == "deterministic" else call.values[axis.name]
            if value != now:
                found.setdefault((axis.name, value), _planned(plan, call, profile, limits, decision.name, axis, now, value))
    return sorted(found.values(), key=lambda one: one.distance)


def _axis(operator: Operator, name: str) -> Axis | None:
    """Return what a flip names; None for anything that cannot be varied."""
    try:
        axis = operator.axis(name)
    except UsageError:
        return None
    return axis if axis.name != "limits" else None


def _planned(plan: Plan, call: FixedCall, profile: Profile, limits: Limits, decision: str, axis: Axis, now: Any, value: Any) -> NearbyPlan:
    deterministic = bool(value) if axis.name == "deterministic" else plan.deterministic
    arguments = call.arguments({} if axis.name == "deterministic" else {axis.name: value})
    try:
        changed = plan_of(call.operator.check(call.operator.build(arguments), profile, deterministic, limits))
    except AclnnError as error:
        return NearbyPlan(decision, axis, now, value, "", True, error.message)
    differs = (changed.path, changed.tiling_key, changed.kernel) != (plan.path, plan.tiling_key, plan.kernel)
    return NearbyPlan(decision, axis, now, value, changed.path, differs)
