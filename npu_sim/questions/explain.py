"""Why a call is planned the way it is: the decision record, and what surrounds it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from npu_sim.cores import Profile, load_profile
from npu_sim.framework.fixed_calls import FixedCall, fixed_call
from npu_sim.framework.flips import plan_with_results
from npu_sim.framework.operator import Operator
from npu_sim.framework.planning import plan_of
from npu_sim.framework.target import LIMITS, Limits, require_bool, require_limits
from npu_sim.operators.timelines import estimator, timeline
from npu_sim.plans.model import Plan
from npu_sim.plans.printing import Printed
from npu_sim.questions.determinism_price import mode_prices
from npu_sim.questions.limits import MANY_PROBES, Bound, find_bound
from npu_sim.questions.nearby_plans import NearbyPlan, nearby_plans
from npu_sim.registry import load_operator
from npu_sim.status import AclnnError, straight
from npu_sim.timelines.estimates import Estimate
from npu_sim.timelines.model import ModePrice


@dataclass(frozen=True)
class SizeLimit:
    """Legal values of one size, the rest of the call as it is."""

    name: str
    now: int
    documented: Bound
    hardware: Bound


@dataclass(frozen=True, repr=False)
class Explanation(Printed):
    """A plan with its surroundings, or a refusal with what would be legal.

    Attributes
    ----------
    profile
        Product and SoC.
    call
        The call by its natural names.
    plan, refusal
        One of the two is None.
    nearby
        Nearest changes that turn a decision around, each planned.
    limits
        Legal values of every size, the rest as it is.
    other_mode
        The plan with the determinism switch the other way; None when that is refused.
    estimates
        Kernels whose time can be estimated beyond a bound, each with its estimate.
    determinism
        Launches, workspace and bound with the determinism switch off and on; empty when one of them is refused.
    """

    profile: Profile
    call: FixedCall
    plan: Plan | None
    refusal: AclnnError | None
    nearby: tuple[NearbyPlan, ...]
    limits: tuple[SizeLimit, ...]
    other_mode: Plan | None
    estimates: tuple[tuple[str, Estimate], ...] = ()
    determinism: tuple[ModePrice, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return the explanation as plain data, the form ``--json`` prints."""
        return {
            "outcome": self.plan.outcome if self.plan else "refused",
            "plan": self.plan.as_dict() if self.plan else None,
            "error": self.refusal.as_dict() if self.refusal else None,
            "nearest_changes": [one.as_dict() for one in self.nearby],
            "size_limits": [
                {
                    "name": one.name,
                    "now": one.now,
                    "documented": one.documented.as_dict(),
                    "hardware": one.hardware.as_dict(),
                }
                for one in self.limits
            ],
            "with_the_other_determinism": self.other_mode.as_dict() if self.other_mode else None,
            "estimates": [
                {"kernel": kernel, **estimate.model_dump(mode="json")}
                for kernel, estimate in self.estimates
            ],
            "determinism": [one.model_dump(mode="json") for one in self.determinism],
        }


@straight
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
        When the call cannot even be read: an unknown operator, product or argument, or a missing one.
    """
    declared: Operator = load_operator(operator)
    built = declared.build(arguments, infer=True)
    loaded = load_profile(product, soc, release)
    require_bool("deterministic", deterministic)
    require_limits(limits)
    call = fixed_call(declared, arguments, deterministic)
    plan = other = refusal = None
    try:
        plan = plan_with_results(declared.check(built, loaded, deterministic, limits))
    except AclnnError as error:
        refusal = error
    if plan is not None:
        try:
            other = plan_of(declared.check(built, loaded, not deterministic, limits))
        except AclnnError:
            other = None
    nearby = nearby_plans(plan, call, loaded, limits) if plan is not None else []
    estimates = estimator(plan, loaded).estimates() if plan is not None else ()
    both = (
        ((plan, timeline(plan, loaded)), (other, timeline(other, loaded)))
        if plan is not None and other is not None
        else None
    )
    prices = mode_prices(both) if both is not None else ()
    return Explanation(
        loaded,
        call,
        plan,
        refusal,
        tuple(nearby),
        tuple(_size_limits(call, loaded)),
        other,
        estimates,
        prices,
    )


def _size_limits(call: FixedCall, profile: Profile) -> list[SizeLimit]:
    found = []
    for axis in call.operator.sizes:
        documented, hardware = (
            find_bound(call, axis, profile, limits, MANY_PROBES) for limits in LIMITS
        )
        found.append(SizeLimit(axis.name, int(call.values[axis.name]), documented, hardware))
    return found
