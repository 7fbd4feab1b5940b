"""Changes of a call that remove or shrink its launches, each with its plan and bound."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from npu_sim.cores import Profile
from npu_sim.framework.fixed_calls import FixedCall, fixed_call
from npu_sim.framework.operator import Operator
from npu_sim.framework.planning import plan_of
from npu_sim.framework.target import Target, require_limits
from npu_sim.numbers.formats import TensorSpec
from npu_sim.operators.timelines import timeline, with_reads
from npu_sim.plans.model import Plan
from npu_sim.questions.determinism_price import mode_prices
from npu_sim.registry import load_operator
from npu_sim.status import NpuSimError
from npu_sim.timelines.model import Change, ModePrice, Timeline

MOST_CHANGES = 4
"""Number of changes reported, best first."""
LEAST_SAVING = 0.001
"""Changes that save a smaller part of the bound are not reported."""


def with_changes(found: Timeline, plan: Plan, profile: Profile) -> Timeline:
    """Return a timeline with faster changes, the cost of both modes, and reads by tensor.

    Candidates are every other dtype of the tensors, contiguous tensors, and half of each axis that
    the declaration allows to be split over devices. A change is reported if it launches fewer or
    smaller kernels and lowers the bound.

    - ``found``: timeline of the plan.
    - ``plan``, ``profile``: the plan, and the product it was made for.
    """
    if not found.bound_us:
        return found
    found = with_reads(found, plan)
    operator: Operator = load_operator(plan.operator)
    call = fixed_call(operator, plan.arguments, plan.deterministic)
    best: dict[str, Change] = {}  # the best change of every axis
    for axis, value, arguments in _changed_calls(operator, call, plan):
        changed = _planned(plan, profile, arguments, plan.deterministic)
        if changed is None or not _has_less_overhead(changed, plan):
            continue
        description = f"{axis} = {value}" if value else axis
        change = _change(description, changed, profile, plan, found)
        beaten = axis in best and best[axis].bound_us <= change.bound_us
        if change.saved_share >= LEAST_SAVING and not beaten:
            best[axis] = change
    changes = sorted(best.values(), key=lambda change: change.bound_us)[:MOST_CHANGES]
    return found.model_copy(
        update={"changes": tuple(changes), "determinism": _both_modes(found, plan, profile)}
    )


def _both_modes(found: Timeline, plan: Plan, profile: Profile) -> tuple[ModePrice, ...]:
    """Return the cost of both determinism modes; empty when one of them is refused."""
    other = _planned(plan, profile, plan.arguments, not plan.deterministic)
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


def _planned(
    plan: Plan, profile: Profile, arguments: dict[str, Any], deterministic: bool
) -> Plan | None:
    """Return the plan of a changed call; None when it is refused."""
    operator: Operator = load_operator(plan.operator)
    try:
        target = Target(profile, deterministic, limits=require_limits(plan.limits))
        return plan_of(operator.check(operator.build(arguments), target))
    except NpuSimError:
        return None


def _has_less_overhead(changed: Plan, plan: Plan) -> bool:
    """Return whether a changed call has fewer launches, or less traffic in the other launches."""
    if len(changed.launches) != len(plan.launches):
        return len(changed.launches) < len(plan.launches)
    return _other_traffic(changed) < _other_traffic(plan)


def _other_traffic(plan: Plan) -> int:
    """Return the bytes moved by launches other than the operator's kernel."""
    others = (launch for launch in plan.launches if launch.kernel != plan.kernel)
    return sum(launch.read_bytes + launch.written_bytes for launch in others)


def _change(
    description: str, changed: Plan, profile: Profile, plan: Plan, found: Timeline
) -> Change:
    bound = timeline(changed, profile).bound_us
    removed = Counter(launch.kernel for launch in plan.launches) - Counter(
        launch.kernel for launch in changed.launches
    )
    return Change(
        change=description,
        bound_us=bound,
        saved_share=1 - bound / found.bound_us,
        without=tuple(sorted(removed.elements())),
    )
