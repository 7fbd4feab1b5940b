"""Explanation of a plan: decisions, nearby plans, limits, and the other determinism mode.

- :func:`nearby_plans`: the flips of a plan's decisions.
- :func:`nearest_calls`: changes of one value that make a refused call run.
- :func:`mode_prices`: the call in both determinism modes.
- :func:`with_changes`: changes that remove or shrink launches.
- :func:`explain`: all of a call together.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from npu_sim.cores import Profile, load_profile
from npu_sim.framework.arguments import (
    COMMON_AXES,
    DETERMINISTIC_AXIS,
    LIMITS_AXIS,
    Axis,
    Number,
    Value,
    Word,
    distance,
    plain_text,
)
from npu_sim.framework.checking import check, checked_call
from npu_sim.framework.inference import arguments_of
from npu_sim.framework.operator import PROGRAM, UNFUSED, VARIANTS, Operator
from npu_sim.framework.planning import FixedCall, axis_of, fixed_call, plan_of, try_flips
from npu_sim.framework.target import Limits, Target, require_bool, require_limits
from npu_sim.numbers.formats import TensorSpec, numpy_dtype
from npu_sim.operators.loading import load_operator
from npu_sim.operators.shared.study import StudyCall, UnfusedCall
from npu_sim.operators.timelines import estimator, timeline, with_reads
from npu_sim.plans.answers import Printed
from npu_sim.plans.model import Plan
from npu_sim.questions.limits import MANY_PROBES, Interval, ProductLimits, both_bounds, find_bound
from npu_sim.status import AclnnError, NpuSimError, without_internal_frames
from npu_sim.timelines.model import Change, Estimate, ModePrice, Timeline

MOST_CHANGES = 4
"""Number of changes reported, best first."""
LEAST_SAVING = 0.001
"""Changes that save a smaller part of the bound are not reported."""


@dataclass(frozen=True)
class ChangedValue:
    """A change of one argument, or of ``limits`` or ``deterministic``."""

    axis: Axis
    """Changed argument."""
    now: Value
    """Value in the call."""
    value: Value
    """Value after the change."""

    @property
    def distance(self) -> float:
        """Relative distance of the change; changes of switches and names come last."""
        return distance(self.axis, self.now, self.value)


@dataclass(frozen=True)
class NearbyPlan(ChangedValue):
    """A change of one argument that flips a decision, and its outcome."""

    decision: str
    """Name of the flipped decision."""
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
    def change(self) -> str:
        """The changed argument: ``col = 6080``."""
        return f"{self.axis.name} = {plain_text(self.value)}"

    @property
    def before(self) -> str:
        """Value in the call: ``7168``, ``false``."""
        return plain_text(self.now)

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
    """Return the outcome of every flip of a plan's decisions, nearest first."""
    nearby: dict[tuple[str, Any], NearbyPlan] = {}
    for decision in try_flips(
        plan, plan.decisions, call, Target(profile, call.deterministic, limits=limits)
    ):
        for flip in decision.flips:
            axis = axis_of(call.operator, flip.argument)
            assert axis is not None  # flips of other arguments are not planned
            value = axis.value(axis.code(flip.value))
            now = call.deterministic if axis is DETERMINISTIC_AXIS else call.values[axis.name]
            change = NearbyPlan(
                decision=decision.name,
                axis=axis,
                now=now,
                value=value,
                path=flip.path,
                changes_path=flip.changes_path,
                outcome=flip.outcome,
                refusal=flip.refusal,
                effect=flip.effect,
            )
            nearby.setdefault((axis.name, value), change)
    return sorted(nearby.values(), key=lambda change: change.distance)


@dataclass(frozen=True)
class NearestCall(ChangedValue):
    """One change that makes a refused call run."""

    plan: Plan
    """Plan of the changed call."""
    ranges: tuple[Interval, ...] = ()
    """For a number, all legal values as intervals with both ends included."""


def nearest_calls(call: FixedCall, profile: Profile, limits: Limits) -> list[NearestCall]:
    """Return changes of one value that make a refused call run, nearest first."""
    now = {**call.values, LIMITS_AXIS.name: limits, DETERMINISTIC_AXIS.name: call.deterministic}
    return sorted(
        (
            change
            for axis in (*call.operator.axes, *COMMON_AXES)
            for change in _changes(call, axis, now[axis.name], profile, limits)
        ),
        key=lambda change: change.distance,
    )


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


def mode_prices(
    modes: tuple[tuple[Plan, Timeline], tuple[Plan, Timeline]],
) -> tuple[ModePrice, ...]:
    """Return launches, workspace and bound of a call in both modes, the default mode first.

    A mode has no bound if it launches kernels that the other mode does not and of which only the
    traffic is known. Its bound would lack their computation and make the mode look fast.

    - ``modes``: the plan and the timeline in both modes.
    """
    launched = [Counter(launch.kernel for launch in plan.launches) for plan, _ in modes]
    prices = []
    for (plan, bound), times, others in zip(modes, launched, reversed(launched), strict=True):
        planned = {launch.kernel for launch in bound.launches if launch.planned}
        unbounded = tuple(sorted((times - others).keys() - planned))
        prices.append(
            ModePrice(
                deterministic=plan.deterministic,
                launches=len(plan.launches),
                workspace_bytes=plan.workspace.total_bytes,
                workspace_unknown=tuple(part.name for part in plan.workspace.unknown),
                bound_us=None if unbounded else bound.bound_us,
                coverage="" if unbounded else bound.coverage,
                unbounded=unbounded,
            )
        )
    return tuple(sorted(prices, key=lambda price: price.deterministic))


def with_changes(found: Timeline, plan: Plan, profile: Profile) -> Timeline:
    """Return a timeline with faster changes, the cost of both modes, and reads by tensor.

    Candidates are every other dtype of the tensors, contiguous tensors, and half of each axis that
    the declaration allows to be split over devices. A change is reported if it launches fewer or
    smaller kernels and lowers the bound, which must cover the same work.

    - ``found``: timeline of the plan.
    - ``plan``, ``profile``: the plan, and the product it was made for.
    """
    if not found.bound_us:
        return found
    found = with_reads(found, plan)
    operator = load_operator(plan.operator)
    call = fixed_call(operator, plan.arguments, plan.deterministic)
    best: dict[str, Change] = {}  # the best change of every axis
    for axis, value, arguments in _changed_calls(operator, call, plan):
        changed = _plan_of_changed(plan, profile, arguments, plan.deterministic)
        if changed is None or not _has_less_overhead(changed, plan):
            continue
        bound = timeline(changed, profile)
        if bound.coverage != found.coverage:
            continue
        change = _change(
            f"{axis} = {value}" if value else axis, changed, bound.bound_us, plan, found
        )
        beaten = axis in best and best[axis].bound_us <= change.bound_us
        if change.saved_share >= LEAST_SAVING and not beaten:
            best[axis] = change
    changes = sorted(best.values(), key=lambda change: change.bound_us)[:MOST_CHANGES]
    return found.model_copy(
        update={"changes": tuple(changes), "determinism": _both_modes(found, plan, profile)}
    )


def _both_modes(found: Timeline, plan: Plan, profile: Profile) -> tuple[ModePrice, ...]:
    """Return the cost of both determinism modes; empty when one of them is refused."""
    other = _plan_of_changed(plan, profile, plan.arguments, not plan.deterministic)
    return () if other is None else mode_prices(((plan, found), (other, timeline(other, profile))))


def _changed_calls(
    operator: Operator, call: FixedCall, plan: Plan
) -> Iterator[tuple[str, int | str, dict[str, Any]]]:
    """Yield axis, its value, and the arguments of every changed call."""
    if call.marks:
        plain = {name: TensorSpec.parse(plan.arguments[name]).plain() for name in call.marks}
        yield "contiguous tensors", "", {**plan.arguments, **plain}
    if any(output.name in call.marks for output in operator.outputs):
        return  # a changed call would lack the strided output and its copy
    for axis in operator.dtype_axes:
        for word in axis.words:
            if word != call.values[axis.name]:
                yield axis.name, word, call.arguments({axis.name: word})
    for name in operator.shards:
        size = int(call.values[name])
        if size > 1:
            yield name, size // 2, call.arguments({name: size // 2})


def _plan_of_changed(
    plan: Plan, profile: Profile, arguments: dict[str, Any], deterministic: bool
) -> Plan | None:
    """Return the plan of a changed call; None when it is refused."""
    try:
        target = Target(profile, deterministic, limits=require_limits(plan.limits))
        return plan_of(checked_call(load_operator(plan.operator), arguments, target))
    except NpuSimError:
        return None


def _has_less_overhead(changed: Plan, plan: Plan) -> bool:
    """Return whether a changed call has fewer launches, or less traffic in the other launches."""
    return (len(changed.launches), _other_traffic(changed)) < (
        len(plan.launches),
        _other_traffic(plan),
    )


def _other_traffic(plan: Plan) -> int:
    """Return the bytes moved by launches other than the operator's kernel."""
    return sum(
        launch.read_bytes + launch.written_bytes
        for launch in plan.launches
        if launch.kernel != plan.kernel
    )


def _change(
    description: str, changed: Plan, bound_us: float, plan: Plan, found: Timeline
) -> Change:
    removed = Counter(launch.kernel for launch in plan.launches) - Counter(
        launch.kernel for launch in changed.launches
    )
    return Change(
        change=description,
        bound_us=bound_us,
        saved_share=1 - bound_us / found.bound_us,
        without=tuple(sorted(removed.elements())),
    )


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
    limits: tuple[ProductLimits, ...]
    """Legal values of every size, with the rest of the call unchanged."""
    other_mode: Plan | None
    """Plan in the other determinism mode; None when that is refused."""
    estimates: tuple[tuple[str, Estimate], ...] = ()
    """Estimates by kernel, where there are any."""
    determinism: tuple[ModePrice, ...] = ()
    """Cost of both determinism modes; empty when one of them is refused."""
    unfused: tuple[tuple[str, str], ...] = ()
    """What frameworks compute in several kernels with other roundings: output and sentence."""

    def as_dict(self) -> dict[str, Any]:
        """Return the explanation as plain data, the form ``--json`` prints."""
        return {
            "outcome": self.plan.outcome if self.plan else "refused",
            "plan": self.plan.as_dict() if self.plan else None,
            "error": self.refusal.as_dict() if self.refusal else None,
            "nearest_changes": [change.as_dict() for change in self.nearby],
            "size_limits": [
                {
                    "name": size.size,
                    "now": self.call.values[size.size],
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
            "unfused": [{"output": output, "form": form} for output, form in self.unfused],
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
    declared = load_operator(operator)
    built = arguments_of(declared, arguments, infer=True)
    loaded = load_profile(product, soc, release)
    target = Target(
        loaded, require_bool("deterministic", deterministic), limits=require_limits(limits)
    )
    call = fixed_call(declared, arguments, deterministic)
    plan = other = refusal = None
    try:
        plan = plan_of(check(declared, built, target), plans_flips=True)
    except AclnnError as error:
        refusal = error
    if plan is not None:
        with suppress(AclnnError):
            other = plan_of(
                check(declared, built, replace(target, deterministic=not deterministic))
            )
    prices: tuple[ModePrice, ...] = ()
    if plan is not None and other is not None and declared.has_hook(PROGRAM):
        prices = mode_prices(((plan, timeline(plan, loaded)), (other, timeline(other, loaded))))
    return Explanation(
        profile=loaded,
        call=call,
        plan=plan,
        refusal=refusal,
        nearby=tuple(nearby_plans(plan, call, loaded, limits) if plan is not None else []),
        limits=tuple(
            ProductLimits(
                loaded.name,
                (loaded.soc,),
                *both_bounds(call, axis, loaded, MANY_PROBES),
                size=axis.name,
            )
            for axis in declared.sizes
        ),
        other_mode=other,
        estimates=estimator(plan, loaded).estimates() if plan is not None else (),
        determinism=prices,
        unfused=tuple(unfused_forms(call, loaded)) if plan is not None and plan.kernel else (),
    )


def unfused_forms(call: FixedCall, profile: Profile) -> Iterator[tuple[str, str]]:
    """Yield the forms in which frameworks compute an output in several kernels, as sentences.

    They depend on dtypes and attributes, not on sizes and values.
    """
    operator, arguments = call.operator, call.arguments()
    tensors = {
        name: np.zeros([min(size, 1) for size in spec.shape], numpy_dtype(spec.dtype))
        for name in operator.input_names
        if isinstance(spec := arguments.get(name), TensorSpec)
    }
    attributes = {
        one.name: arguments[one.name] for one in operator.attributes if one.name in arguments
    }
    studied = StudyCall(operator.on(profile), tensors, attributes, profile, {})
    for output in operator.result_names:
        if operator.has_hook(UNFUSED):
            for form, _ in operator.hook(UNFUSED)(studied, output):
                yield output, form
        if operator.has_hook(VARIANTS):
            variants = operator.hook(VARIANTS)(studied)
            yield from ((output, form) for form, _, one in variants if isinstance(one, UnfusedCall))
