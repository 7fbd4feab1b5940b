"""What comes of the flips of a plan: each changed call is checked and planned, so that a flip says its result and not only its decision."""

from contextlib import suppress
from functools import partial

from npu_sim.cores import Profile
from npu_sim.framework.axes import DETERMINISTIC, LIMITS, Axis
from npu_sim.framework.case import Case
from npu_sim.framework.fixed_calls import FixedCall, fixed_call
from npu_sim.framework.operator import Operator
from npu_sim.framework.planning import plan_fields, plan_of
from npu_sim.framework.target import Limits
from npu_sim.plans.model import REFUSED, Decision, Flip, Plan
from npu_sim.registry import OPERATOR_NAMES
from npu_sim.status import AclnnError, NpuSimError, UsageError


def plan_with_results(case: Case) -> Plan:
    """Plan a checked call, and every flip of its decisions; remembered as long as a call that is kept."""
    return case.once(_plan_with_results) if case.is_kept else _plan_with_results(case)


def _plan_with_results(case: Case) -> Plan:
    plan = Plan.promise(lambda: plan_fields(case) | {"decisions": partial(_decisions, case)})
    # What is wrong with somebody else's declaration shows at once.
    return plan if case.operator.name in OPERATOR_NAMES else plan.kept()


def _decisions(case: Case) -> tuple[Decision, ...]:
    plan = plan_of(case)
    if any(decision.flips for decision in plan.decisions):
        # A call may have values beyond those that are searched; its flips then have no results, and
        # it is planned all the same.
        with suppress(NpuSimError):
            plan = with_results(
                plan,
                fixed_call(case.operator, plan.arguments, case.deterministic),
                case.profile,
                case.limits,
            )
    return plan.decisions


def with_results(plan: Plan, call: FixedCall, profile: Profile, limits: Limits) -> Plan:
    """Return a plan whose flips say what comes of them; those that change nothing or make no sense are left out.

    Parameters
    ----------
    plan, call
        The plan, and the call that it is for.
    profile, limits
        What it was planned for.
    """
    if all(flip.outcome for decision in plan.decisions for flip in decision.flips):
        return plan
    found = []
    for decision in plan.decisions:
        tried = (_tried(plan, decision, flip, call, profile, limits) for flip in decision.flips)
        found.append(
            decision.model_copy(update={"flips": tuple(flip for flip in tried if flip is not None)})
        )
    return plan.model_copy(update={"decisions": tuple(found)})


def axis_of(operator: Operator, name: str) -> Axis | None:
    """Return what a flip names; None for anything that cannot be varied."""
    try:
        axis = operator.axis(name)
    except UsageError:
        return None
    return axis if axis is not LIMITS else None


def _tried(
    plan: Plan, decision: Decision, flip: Flip, call: FixedCall, profile: Profile, limits: Limits
) -> Flip | None:
    axis = axis_of(call.operator, flip.argument)
    if axis is None:
        return None
    try:
        value = axis.value(axis.code(flip.value))
    except UsageError:
        return None  # beyond what makes sense, such as 0 rows or fewer
    if value == (call.deterministic if axis is DETERMINISTIC else call.values[axis.name]):
        return None
    try:
        changed = plan_of(call.checked_with(axis, value, profile, limits))
    except AclnnError as error:
        return flip.model_copy(
            update={"outcome": REFUSED, "changes_path": True, "refusal": error.message}
        )
    except UsageError:
        return None
    differs = (changed.path, changed.tiling_key, changed.kernel) != (
        plan.path,
        plan.tiling_key,
        plan.kernel,
    )
    effect = next((one.effect for one in changed.decisions if one.name == decision.name), "")
    return flip.model_copy(
        update={
            "outcome": changed.outcome,
            "path": changed.path,
            "tiling_key": changed.tiling_key,
            "changes_path": differs,
            "effect": effect,
        }
    )
