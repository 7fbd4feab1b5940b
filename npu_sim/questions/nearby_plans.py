"""The nearest changes of a call that take another path: the flips of its decisions, with what comes of them."""

from dataclasses import dataclass
from typing import Any

from npu_sim.cores import Profile
from npu_sim.framework.axes import DETERMINISTIC, Axis, Number, distance
from npu_sim.framework.fixed_calls import FixedCall
from npu_sim.framework.planning import axis_of, with_results
from npu_sim.framework.target import Limits, Target
from npu_sim.plans.model import Plan


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
    outcome
        Outcome of the changed call.
    refusal
        Why the changed call is refused; empty when it runs.
    """

    decision: str
    axis: Axis
    now: int | str | bool
    value: int | str | bool
    path: str
    changes_path: bool
    outcome: str
    refusal: str = ""

    @property
    def distance(self) -> float:
        """How far the change is, relative to the value; switches and words are no distance and come last."""
        return distance(self.axis, self.now, self.value)

    @property
    def step_text(self) -> str:
        """Return the change in words: ``one more column``, ``deterministic on``."""
        if not isinstance(self.axis, Number):
            state = (
                ("on" if self.value else "off") if isinstance(self.value, bool) else str(self.value)
            )
            return f"{self.axis.name} {state}"
        difference = int(self.value) - int(self.now)
        count = "one" if abs(difference) == 1 else str(abs(difference))
        unit = (self.axis.unit or self.axis.name) + (
            "s" if abs(difference) != 1 and self.axis.unit else ""
        )
        return f"{count} more {unit}" if difference > 0 else f"{count} fewer {unit}"

    def as_dict(self) -> dict[str, Any]:
        """Return the change as plain data."""
        return {
            "decision": self.decision,
            "argument": self.axis.name,
            "now": self.now,
            "value": self.value,
            "path": self.path,
            "changes_path": self.changes_path,
            "outcome": self.outcome,
            "refusal": self.refusal,
        }


def nearby_plans(plan: Plan, call: FixedCall, profile: Profile, limits: Limits) -> list[NearbyPlan]:
    """Return what comes of every flip of a plan's decisions; nearest first."""
    found: dict[tuple[str, Any], NearbyPlan] = {}
    target = Target(profile, call.deterministic, limits=limits)
    for decision in with_results(plan, plan.decisions, call, target):
        for flip in decision.flips:
            axis = axis_of(call.operator, flip.argument)
            assert axis is not None  # others have no result
            value = axis.value(axis.code(flip.value))
            now = call.deterministic if axis is DETERMINISTIC else call.values[axis.name]
            one = NearbyPlan(
                decision.name,
                axis,
                now,
                value,
                flip.path,
                flip.changes_path,
                flip.outcome,
                flip.refusal,
            )
            found.setdefault((axis.name, value), one)
    return sorted(found.values(), key=lambda one: one.distance)
