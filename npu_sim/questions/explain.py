"""Explanation of a plan: decisions, nearby plans, limits, and the other determinism mode."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from npu_sim.cores import Profile, load_profile
from npu_sim.framework import hooks
from npu_sim.framework.checking import check
from npu_sim.framework.inference import arguments_of
from npu_sim.framework.operator import Operator
from npu_sim.framework.planning import FixedCall, fixed_call, plan_of
from npu_sim.framework.target import LIMITS, Limits, Target, require_bool, require_limits
from npu_sim.operators.timelines import estimator, timeline
from npu_sim.plans.answers import Printed
from npu_sim.plans.model import Plan
from npu_sim.questions.limits import MANY_PROBES, Bound, find_bound
from npu_sim.questions.nearby_calls import NearbyPlan, mode_prices, nearby_plans
from npu_sim.registry import load_operator
from npu_sim.status import AclnnError, without_internal_frames
from npu_sim.timelines.estimates import Estimate
from npu_sim.timelines.model import ModePrice


@dataclass(frozen=True)
class SizeLimit:
    """Legal values of one size, with the rest of the call unchanged."""

    name: str
    now: int
    documented: Bound
    hardware: Bound


@dataclass(frozen=True, repr=False)
class Explanation(Printed):
    """Explanation of a plan, or of a refusal with legal values."""

    profile: Profile
    """Product and SoC."""
    call: FixedCall
    """Values of the call by axis name."""
    plan: Plan | None
    """The plan; None for a refused call."""
    refusal: AclnnError | None
    """The refusal; None with a plan."""
    nearby: tuple[NearbyPlan, ...]
    """Plans of the nearest changes that flip a decision."""
    limits: tuple[SizeLimit, ...]
    """Legal values of every size, with the rest of the call unchanged."""
    other_mode: Plan | None
    """Plan in the other determinism mode; None when that is refused."""
    estimates: tuple[tuple[str, Estimate], ...] = ()
    """Estimates by kernel, where there are any."""
    determinism: tuple[ModePrice, ...] = ()
    """Cost of both determinism modes; empty when one of them is refused."""

    def as_dict(self) -> dict[str, Any]:
        """Return the explanation as plain data, the form ``--json`` prints."""
        return {
            "outcome": self.plan.outcome if self.plan else "refused",
            "plan": self.plan.as_dict() if self.plan else None,
            "error": self.refusal.as_dict() if self.refusal else None,
            "nearest_changes": [change.as_dict() for change in self.nearby],
            "size_limits": [
                {
                    "name": size.name,
                    "now": size.now,
                    "documented": size.documented.as_dict(),
                    "hardware": size.hardware.as_dict(),
                }
                for size in self.limits
            ],
            "with_the_other_determinism": self.other_mode.as_dict() if self.other_mode else None,
            "estimates": [
                {"kernel": kernel, **estimate.model_dump(mode="json")}
                for kernel, estimate in self.estimates
            ],
            "determinism": [mode.model_dump(mode="json") for mode in self.determinism],
        }


@without_internal_frames
def explain(
    operator: str,
    *,
    product: str | Path | Profile | None = None,
    soc: str | None = None,
    release: str | None = None,
    deterministic: bool = False,
    limits: Limits = "documented",
    **arguments: Any,
) -> Explanation:
    """Explain the plan of a call, or its refusal; parameters as for :func:`npu_sim.plan`.

    Raises
    ------
    UsageError
        For an unknown operator, product or argument, or a missing argument.
    """
    declared: Operator = load_operator(operator)
    built = arguments_of(declared, arguments, infer=True)
    loaded = load_profile(product, soc, release)
    target = Target(
        loaded, require_bool("deterministic", deterministic), limits=require_limits(limits)
    )
    other_target = replace(target, deterministic=not deterministic)
    call = fixed_call(declared, arguments, deterministic)
    plan = other = refusal = None
    try:
        plan = plan_of(check(declared, built, target), tries_flips=True)
    except AclnnError as error:
        refusal = error
    if plan is not None:
        try:
            other = plan_of(check(declared, built, other_target))
        except AclnnError:
            other = None
    nearby = nearby_plans(plan, call, loaded, limits) if plan is not None else []
    estimates = estimator(plan, loaded).estimates() if plan is not None else ()
    prices: tuple[ModePrice, ...] = ()
    if plan is not None and other is not None and declared.has_hook(hooks.PROGRAM):
        prices = mode_prices(((plan, timeline(plan, loaded)), (other, timeline(other, loaded))))
    return Explanation(
        profile=loaded,
        call=call,
        plan=plan,
        refusal=refusal,
        nearby=tuple(nearby),
        limits=tuple(_size_limits(call, loaded)),
        other_mode=other,
        estimates=estimates,
        determinism=prices,
    )


def _size_limits(call: FixedCall, profile: Profile) -> list[SizeLimit]:
    sizes = []
    for axis in call.operator.sizes:
        documented, hardware = (
            find_bound(call, axis, profile, limits, MANY_PROBES) for limits in LIMITS
        )
        sizes.append(SizeLimit(axis.name, int(call.values[axis.name]), documented, hardware))
    return sizes
