"""The plan of a checked call, the outcomes of its flips, and profile keys without effect."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from npu_sim.cores import Device, Profile, load_profile
from npu_sim.framework.axes import DETERMINISTIC, LIMITS, Axis
from npu_sim.framework.case import Case
from npu_sim.framework.fixed_calls import FixedCall, fixed_call
from npu_sim.framework.operator import Operator
from npu_sim.framework.target import Target
from npu_sim.language import Text
from npu_sim.plans.answers import Evidence
from npu_sim.plans.model import (
    DEFERRED,
    REFUSED,
    Caveat,
    Decision,
    Flip,
    Plan,
    ProfileKey,
    Workspace,
)
from npu_sim.product import Chip
from npu_sim.registry import OPERATOR_NAMES
from npu_sim.releases import release_assumption
from npu_sim.status import SUCCESS, AclnnError, NotModelledError, NpuSimError, UsageError

EVIDENCE_ORDER = (Evidence.EXACT, Evidence.MODEL, Evidence.UNKNOWN)
"""Surest first."""
PRODUCT_KEYS = ("ub_reserved_bytes", "system_workspace_bytes")
CORE_COUNTS = ("ai_core_count", "cube_core_count", "vector_core_count")
CHIP_KEYS = (*(name for name in Chip.model_fields if name in Device._fields), *CORE_COUNTS)
"""Keys of a SoC that planners read; clock and rates belong to timelines."""


def plan_of(case: Case, *, tries_flips: bool = False) -> Plan:
    """Plan a checked call.

    With ``tries_flips``, reading the plan's decisions also plans the call of every flip; otherwise
    flips have no outcome.
    """
    fields = _plan_fields(case)
    deferred = DeferredFields(case, tries_flips, fields)
    plan = Plan(
        deferred=deferred, **{name: value for name, value in fields.items() if name not in DEFERRED}
    )
    if case.operator.name not in OPERATOR_NAMES:
        # Report errors of declarations from outside the package at once.
        for name in DEFERRED:
            getattr(plan, name)
    return plan


class DeferredFields:
    """The fields of a plan that are computed when they are first read.

    ``fields`` are all fields of the plan; the deferred ones may be functions that return the value.
    Functions are not pickled: after unpickling, the fields come from the case.
    """

    def __init__(self, case: Case, tries_flips: bool, fields: dict[str, Any] | None = None) -> None:
        self.case, self.tries_flips, self.fields = case, tries_flips, fields

    def __reduce__(self) -> tuple[Any, ...]:
        return DeferredFields, (self.case, self.tries_flips)

    def __call__(self, plan: Plan, name: str) -> tuple[Any, ...]:
        """Return a field of a plan; flips have their outcomes if ``tries_flips``."""
        if self.fields is None:
            self.fields = _plan_fields(self.case)
        value = self.fields.get(name, ())
        found = tuple(value() if callable(value) else value)
        tries_flips = self.tries_flips and name == "decisions"
        return self._with_outcomes(plan, found) if tries_flips else found

    def _with_outcomes(self, plan: Plan, decisions: tuple[Decision, ...]) -> tuple[Decision, ...]:
        case = self.case
        if not any(decision.flips for decision in decisions):
            return decisions
        try:
            call = fixed_call(case.operator, case.arguments.as_dict(), case.deterministic)
        except NpuSimError:
            return decisions  # a value beyond the range of its axis is planned, but not varied
        return try_flips(plan, decisions, call, case.target)


def profile_of(plan: Plan) -> Profile:
    """Return the product and SoC that a plan was made for."""
    made_by = plan._deferred
    if isinstance(made_by, DeferredFields):
        return made_by.case.profile
    return load_profile(plan.product, plan.soc, plan.release)


def empty_fields(path: str) -> dict[str, Any]:
    """Return the plan fields of a call without kernel; ``path`` states why nothing runs."""
    return {
        "kernel": "",
        "path": path,
        "block_dim": 0,
        "workspace": Workspace(total_bytes=0, kernel_bytes=0, parts=()),
    }


def _plan_fields(case: Case) -> dict[str, Any]:
    """Return the fields of a plan; the operator may give a function in place of a value."""
    operator, profile = case.operator, case.profile
    fields: dict[str, Any] = {}
    if case.empty:
        fields = empty_fields(operator.empty)
    if not case.empty or operator.describe_empty is not None:
        fields |= operator.hook("describe_empty" if case.empty else "describe")(case)
    assumption = "" if case.empty else release_assumption(profile.release, operator.name)
    if assumption:
        caveat = Caveat(
            code="release_assumed",
            message=Text("release {release}: {assumption}", profile, assumption=assumption),
        )
        fields["caveats"] = (*fields.get("caveats", ()), caveat)
    fields["evidence"] = least_sure(
        operator.evidence,
        fields.get("evidence", operator.evidence),
        Evidence.MODEL if assumption else operator.evidence,
    )
    if "launches" not in fields and not case.empty:
        kernel, block_dim, evidence = (fields[name] for name in ("kernel", "block_dim", "evidence"))
        fields["launches"] = lambda: case.launches(kernel, block_dim, evidence)
    fields["profile_keys"] = lambda: keys_without_effect(case)
    cores = case.device.cube_cores if operator.on_cube else case.device.vector_cores
    if not 0 <= fields["block_dim"] <= cores:
        raise _impossible_cores(case, fields["block_dim"], cores)
    return dict(
        operator=operator.name,
        title=operator.title,
        product=profile.name,
        product_title=profile.product.title,
        soc=profile.soc,
        release=profile.release,
        npu_arch=profile.npu_arch,
        rules_source=profile.product.rules_source,
        deterministic=case.deterministic,
        limits=case.limits,
        arguments=case.arguments.as_dict(),
        cores_available=cores,
        core_kind=profile.cube_core_kind if operator.on_cube else profile.vector_core_kind,
        **fields,
    )


def _impossible_cores(case: Case, block_dim: int, cores: int) -> UsageError:
    """Return the error for a planner that launches on cores that do not exist."""
    message = Text(
        "{operator}: its planner returns block_dim = {block_dim}",
        operator=case.operator.name,
        block_dim=block_dim,
    )
    hint = Text("{soc} has {cores} cores: 0 to {cores}", case.profile, cores=cores)
    return UsageError("block_dim", message, hint)


def least_sure(*evidence: Evidence) -> Evidence:
    """Return the least sure of some evidence."""
    return max(evidence, key=EVIDENCE_ORDER.index)


def overflow_of(case: Case) -> AclnnError | None:
    """Return why an accepted call does not fit the chip, with status success; None if it fits."""
    operator, device = case.operator, case.device
    if case.empty or operator.used_bytes is None:
        return None
    used = operator.used_bytes(case.row, case.tiling, device, case.rules)
    if used <= device.ub_bytes:
        return None
    message = Text(
        "overflows: the buffers take {used} bytes, the Unified Buffer of {soc} has {ub_bytes}",
        case.profile,
        used=used,
        ub_bytes=device.ub_bytes,
    )
    return AclnnError(SUCCESS, "product", message, "the product does not check it")


def try_flips(
    plan: Plan, decisions: tuple[Decision, ...], call: FixedCall, target: Target
) -> tuple[Decision, ...]:
    """Return decisions whose flips state the outcome of the changed call.

    Flips that change nothing or leave the range of an axis are omitted.

    - ``plan``, ``decisions``: the plan of the call, and its decisions.
    - ``call``, ``target``: the call, and what it is planned for.
    """
    if all(flip.outcome for decision in decisions for flip in decision.flips):
        return decisions
    changed = []
    for decision in decisions:
        tried = (_try_flip(plan, decision, flip, call, target) for flip in decision.flips)
        flips = tuple(flip for flip in tried if flip is not None)
        changed.append(decision.model_copy(update={"flips": flips}))
    return tuple(changed)


def axis_of(operator: Operator, name: str) -> Axis | None:
    """Return the axis that a flip names; None when it cannot be varied."""
    try:
        axis = operator.axis(name)
    except UsageError:
        return None
    return axis if axis is not LIMITS else None


def _try_flip(
    plan: Plan, decision: Decision, flip: Flip, call: FixedCall, target: Target
) -> Flip | None:
    """Return a flip with its outcome; None when it changes nothing or cannot be made."""
    axis = axis_of(call.operator, flip.argument)
    if axis is None:
        return None
    try:
        value = axis.value(axis.code(flip.value))
    except UsageError:
        return None  # outside the range of the axis, such as 0 rows
    if value == (call.deterministic if axis is DETERMINISTIC else call.values[axis.name]):
        return None
    try:
        changed = plan_of(call.checked_with(axis, value, target))
    except AclnnError as error:
        return flip.model_copy(
            update={"outcome": REFUSED, "changes_path": True, "refusal": error.message}
        )
    except UsageError:
        return None
    before, after = ((either.path, either.tiling_key, either.kernel) for either in (plan, changed))
    # Of several decisions with one name, the first counts.
    effects = {other.name: other.effect for other in reversed(changed.decisions)}
    return flip.model_copy(
        update={
            "outcome": changed.outcome,
            "path": changed.path,
            "tiling_key": changed.tiling_key,
            "changes_path": before != after,
            "effect": effects.get(decision.name, ""),
        }
    )


def keys_without_effect(case: Case) -> tuple[ProfileKey, ...]:
    """Return keys that differ from the shipped profile of the SoC without effect on the tiling."""
    profile = case.profile
    if case.empty:
        return ()
    try:
        shipped = load_profile(soc=profile.soc, release=profile.release)
    except UsageError:
        return ()  # a SoC that does not ship: there is nothing to compare with
    # Loaded products are cached: an unchanged one is the same object.
    return () if profile.product is shipped.product else tuple(_without_effect(case, shipped))


def _without_effect(case: Case, shipped: Profile) -> Iterator[ProfileKey]:
    assumed = {assumption.key: assumption for assumption in case.operator.assumed}
    for key, value, before, other in _differing(case.profile, shipped):
        if not _same_tiling(case, other):
            continue
        found = ProfileKey(key=key, value=value, shipped=before, product=shipped.name)
        if known := assumed.get(key):
            asked = known.if_asked(case) if known.if_asked is not None else ""
            facts = {"assumed": known.value, "source": known.source, "if_asked": asked}
            found = found.model_copy(update=facts)
        yield found


def _differing(changed: Profile, shipped: Profile) -> Iterator[tuple[str, int, int, Profile]]:
    """Yield every key with another value: both values, and the profile with the shipped one."""
    product = changed.product
    for key in CHIP_KEYS:
        value, before = getattr(changed.chip, key), getattr(shipped.chip, key)
        if value != before and value is not None and before is not None:
            socs = {**product.socs, changed.soc: changed.chip.model_copy(update={key: before})}
            other = product.model_copy(update={"socs": socs})
            yield key, value, before, changed.model_copy(update={"product": other})
    for key in PRODUCT_KEYS:
        value, before = getattr(product, key), getattr(shipped.product, key)
        if value != before:
            other = product.model_copy(update={key: before})
            yield key, value, before, changed.model_copy(update={"product": other})


def _same_tiling(case: Case, other: Profile) -> bool:
    """Return whether a call is tiled the same on another profile."""
    try:
        target = replace(case.target, profile=other)
        changed = case.operator.on(other).check_uncached(case.arguments, target)
    except (AclnnError, NotModelledError):
        return False
    return bool(changed.tiling == case.tiling)
