"""Plans near a call: the flips of its decisions, each planned."""

from dataclasses import dataclass
from typing import Any

from npu_sim.cores import Profile
from npu_sim.framework.axes import DETERMINISTIC, Axis, Number, distance
from npu_sim.framework.describing import nearest_change
from npu_sim.framework.fixed_calls import FixedCall
from npu_sim.framework.planning import axis_of, try_flips
from npu_sim.framework.target import Limits, Target
from npu_sim.plans.model import REFUSED, Plan
from npu_sim.status import AclnnError


@dataclass(frozen=True)
class NearbyPlan:
    """A change of one argument that flips a decision, and its outcome."""

    decision: str
    """Name of the flipped decision."""
    axis: Axis
    """Changed argument."""
    now: int | str | bool
    """Value in the call."""
    value: int | str | bool
    """Value after the change."""
    path: str
    """Path after the change; empty if the changed call is refused."""
    changes_path: bool
    """Whether path or tiling key differ from those of the call."""
    outcome: str
    """Outcome of the changed call."""
    refusal: str = ""
    """Why the changed call is refused; empty when it runs."""
    effect: str = ""
    """Consequence of the flipped decision."""

    @property
    def distance(self) -> float:
        """Relative distance of the change; changes of switches and names come last."""
        return distance(self.axis, self.now, self.value)

    @property
    def change(self) -> str:
        """The changed argument: ``col = 6080``."""
        return f"{self.axis.name} = {_plain(self.value)}"

    @property
    def before(self) -> str:
        """Value in the call: ``7168``, ``false``."""
        return _plain(self.now)

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


def _plain(value: int | str | bool) -> str:
    """Return a value as on the command line."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def nearby_plans(plan: Plan, call: FixedCall, profile: Profile, limits: Limits) -> list[NearbyPlan]:
    """Return the outcome of every flip of a plan's decisions, nearest first."""
    nearby: dict[tuple[str, Any], NearbyPlan] = {}
    target = Target(profile, call.deterministic, limits=limits)
    for decision in try_flips(plan, plan.decisions, call, target):
        for flip in decision.flips:
            axis = axis_of(call.operator, flip.argument)
            assert axis is not None  # flips of other arguments are not planned
            value = axis.value(axis.code(flip.value))
            now = call.deterministic if axis is DETERMINISTIC else call.values[axis.name]
            refusal = flip.refusal
            if flip.outcome == REFUSED and isinstance(axis, Number):
                value, refusal = _nearest_refusal(call, axis, int(now), int(value), target)
            result = (flip.path, flip.changes_path, flip.outcome, refusal, flip.effect)
            change = NearbyPlan(decision.name, axis, now, value, *result)
            nearby.setdefault((axis.name, value), change)
    return sorted(nearby.values(), key=lambda change: change.distance)


def _nearest_refusal(
    call: FixedCall, axis: Number, now: int, refused: int, target: Target
) -> tuple[int, str]:
    """Return the refused value nearest to the call's, and why: a limit may come before a flip."""

    def refusal(value: int) -> str:
        try:
            call.checked_with(axis, value, target)
        except AclnnError as error:
            return error.message
        return ""

    value = nearest_change(lambda value: bool(refusal(value)), now, refused)
    assert value is not None  # ``refused`` at the latest
    return value, refusal(value)
