"""The plan of a checked call, the outcomes of its flips, and profile keys without effect.

A :class:`FixedCall` is a call whose axes can be varied one by one.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from npu_sim.cores import Device, Profile, load_profile, release_assumption
from npu_sim.framework.arguments import (
    COMMON_AXES,
    DETERMINISTIC_AXIS,
    LIMITS_AXIS,
    Axis,
    Number,
    Value,
    Values,
)
from npu_sim.framework.case import Case, require_cores
from npu_sim.framework.checking import check_uncached, checked_call
from npu_sim.framework.describing import (
    DESCRIBE,
    DESCRIBE_EMPTY,
    RELEASE_INFERRED,
    Description,
    nearest_change,
)
from npu_sim.framework.inference import arguments_of, call_with, read_call
from npu_sim.framework.operator import Operator
from npu_sim.framework.target import Target, require_limits
from npu_sim.numbers.formats import TensorSpec
from npu_sim.plans.answers import Evidence
from npu_sim.plans.device_evidence import path_key, shipped_evidence
from npu_sim.plans.model import (
    REFUSED,
    Caveat,
    Decision,
    Flip,
    Launch,
    Plan,
    ProfileKey,
    caveat,
    read,
)
from npu_sim.product import Chip
from npu_sim.registry import family_of
from npu_sim.status import ACLNN_SUCCESS, AclnnError, NotModelledError, NpuSimError, UsageError
from npu_sim.tiling import find_structure, pack


@dataclass(frozen=True)
class FixedCall:
    """One call, by its natural names."""

    operator: Operator
    """The operator."""
    values: Values
    """Value of every axis of the operator."""
    attributes: Mapping[str, Any]
    """Arguments that are not axes."""
    marks: Mapping[str, tuple[bool, str]]
    """Of given tensors that are not contiguous or not in ND: these two facts, by tensor."""
    groups: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Axes of the given tensors, where several make one size: other sizes keep their number."""
    deterministic: bool = False
    """The determinism switch."""

    def with_values(self, changed: Mapping[str, Value]) -> "FixedCall":
        """Return the call with other values."""
        return replace(self, values={**self.values, **changed})

    def arguments(self, changed: Mapping[str, Value] | None = None) -> dict[str, Any]:
        """Return the arguments of the call, some values changed."""
        values = {**self.values, **(changed or {})}
        built = call_with(self.operator, values, self.groups, self.attributes)
        arguments = {**self.attributes, **built}
        for name, (contiguous, storage_format) in self.marks.items():
            if isinstance(arguments.get(name), TensorSpec):
                arguments[name] = replace(
                    arguments[name], contiguous=contiguous, storage_format=storage_format
                )
        return arguments

    def checked_with(self, axis: Axis, value: Value, target: Target) -> Case:
        """Check the call with another value of one axis, determinism switch and limits included.

        Raises AclnnError when the changed call is refused; UsageError when the value is invalid.
        """
        if axis is LIMITS_AXIS:
            target = replace(target, limits=require_limits(value))
        switch = bool(value) if axis is DETERMINISTIC_AXIS else self.deterministic
        target = replace(target, deterministic=switch)
        changed = self.arguments({} if axis in COMMON_AXES else {axis.name: value})
        return checked_call(self.operator, changed, target)


def fixed_call(
    operator: Operator, given: Mapping[str, Any], deterministic: bool = False
) -> FixedCall:
    """Build a call from natural names and arguments; others take the default of their axis.

    Raises UsageError for an unknown name.
    """
    axes = {axis.name: axis for axis in operator.axes}
    known = {argument.name for argument in operator.arguments} - axes.keys()
    natural: Values = {}
    for name, value in given.items():
        if name not in known:
            axis = operator.axis(name)
            natural[axis.name] = axis.value(axis.code(value))
    attributes = [attribute.name for attribute in operator.attributes]
    shared = {name: natural.get(name, axes[name].default) for name in attributes if name in axes}
    built = arguments_of(
        operator, {**shared, **{name: value for name, value in given.items() if name in known}}
    )
    read, groups = read_call(operator, built)
    specs = {name: built[name] for name in operator.tensor_names}
    return FixedCall(
        operator,
        values={**operator.defaults(), **read, **natural},
        attributes={name: built[name] for name in attributes if name not in axes},
        marks={
            name: (spec.contiguous, spec.storage_format)
            for name, spec in specs.items()
            if spec and (not spec.contiguous or spec.storage_format != "ND")
        },
        groups=groups,
        deterministic=deterministic,
    )


EVIDENCE_ORDER = (Evidence.EXACT, Evidence.MODEL, Evidence.UNKNOWN)
"""Surest first."""
PRODUCT_KEYS = ("ub_reserved_bytes", "system_workspace_bytes")
CORE_COUNTS = ("ai_core_count", "cube_core_count", "vector_core_count")
CHIP_KEYS = (*(name for name in Chip.model_fields if name in Device._fields), *CORE_COUNTS)
"""Keys of a SoC that planners read; clock and rates belong to timelines."""


def plan_of(case: Case, *, plans_flips: bool = False) -> Plan:
    """Plan a checked call.

    With ``plans_flips``, reading the plan's decisions also plans the call of every flip; otherwise
    flips have no outcome.
    """
    operator, profile = case.operator, case.profile
    described = _description(case)
    assumption = "" if case.empty else release_assumption(profile.release, operator.name)
    evidence = max(  # the least sure
        operator.evidence,
        described.evidence or operator.evidence,
        Evidence.MODEL if assumption or _is_inferred(described) else operator.evidence,
        Evidence(profile.product.evidence),
        key=EVIDENCE_ORDER.index,
    )
    plan = Plan(
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
        kernel=described.kernel,
        path=described.path,
        path_reason=described.path_reason,
        tiling_key=described.tiling_key,
        schedule_mode=described.schedule_mode,
        block_dim=described.block_dim,
        cores_available=require_cores(operator, profile, case.device, described.block_dim),
        core_kind=profile.core_kind(operator.on_cube),
        cores_note=described.cores_note,
        per_core=described.per_core,
        tiling=described.tiling,
        workspace=described.workspace,
        caveats=(
            *described.caveats,
            *_assumed(profile, assumption),
            *_beyond_memory(case, described.workspace.total_bytes),
        ),
        evidence=evidence,
        device_evidence=_device_evidence(case, described),
        deferred=_deferred(case, described, evidence, plans_flips),
    )
    if operator.is_foreign:
        # Report errors of declarations from outside the package at once.
        plan.read_all()
    return plan


def _deferred(
    case: Case, described: Description, evidence: Evidence, plans_flips: bool
) -> dict[str, Any]:
    """Return what of a plan is computed when it is first read."""

    def launches() -> tuple[Launch, ...]:
        kernel, block_dim = described.kernel, described.block_dim
        return () if case.empty else case.launches(kernel, block_dim, evidence)

    return {
        "cores": described.cores,
        "memories": described.memories,
        "decisions": (
            (lambda: _with_outcomes(case, described)) if plans_flips else described.decisions
        ),
        "launches": launches if described.launches is None else described.launches,
        "order": described.order,
        "profile_keys": lambda: keys_without_effect(case),
        "profile": case.profile,
    }


def _is_inferred(described: Description) -> bool:
    """Return whether it is inferred that the release behaves like the plan."""
    return any(one.code == RELEASE_INFERRED for one in described.caveats)


def _assumed(profile: Profile, assumption: str) -> Iterator[Caveat]:
    """Yield a caveat for what is assumed of a release, if anything is."""
    if assumption:
        yield caveat(
            "release_assumed",
            "",
            "release {release}: {assumption}",
            release=profile.release,
            assumption=assumption,
        )


def _device_evidence(case: Case, described: Description) -> str:
    """Return what devices showed of the path of a call; most plans have no such files."""
    found = shipped_evidence()
    if not found:
        return ""
    path = str(described.path)
    names = case.profile.name, case.operator.name, described.kernel
    return found.get(path_key(*names, described.tiling_key, path, case.deterministic), "")


def _description(case: Case) -> Description:
    """Return what the operator states of a plan; nothing runs in an empty call."""
    operator, describe = case.operator, DESCRIBE_EMPTY if case.empty else DESCRIBE
    if case.empty and not operator.has_hook(describe):
        return Description(path=operator.empty)
    described: Description = operator.hook(describe)(case)
    return described


def _beyond_memory(case: Case, workspace_bytes: int) -> tuple[Caveat, ...]:
    """Return a caveat for a call that the memory of the chip does not hold."""
    tensor_bytes = sum([spec.nbytes for spec in case.specs.values()])
    needed, memory = workspace_bytes + tensor_bytes, case.profile.chip.memory_bytes
    if memory is None or needed <= memory:
        return ()
    return (
        caveat(
            "exceeds_memory",
            "",
            "tensors and workspace take {needed} bytes, {soc} has {memory} bytes of memory",
            needed=needed,
            soc=case.profile.soc,
            memory=memory,
        ),
    )


def _with_outcomes(case: Case, described: Description) -> tuple[Decision, ...]:
    """Return the decisions of a call, with the outcomes of their flips."""
    decisions = read(described.decisions)
    if not any(decision.flips for decision in decisions):
        return decisions
    try:
        call = fixed_call(case.operator, case.arguments.as_dict(), case.deterministic)
    except NpuSimError:
        return decisions  # a value beyond the range of its axis is planned, but not varied
    return try_flips(described, decisions, call, case.target)


def overflow_of(case: Case) -> AclnnError | None:
    """Return why an accepted call does not fit the chip, with status success; None if it fits."""
    operator, device = case.operator, case.device
    if case.empty or operator.used_bytes is None:
        return None
    used = operator.used_bytes(case.row, case.tiling, device, case.rules)
    if used <= device.ub_bytes:
        return None
    return AclnnError(
        ACLNN_SUCCESS,
        "product",
        "overflows: the buffers take {used} bytes, the Unified Buffer of {soc} has {ub_bytes}",
        "the product does not check it",
        used=used,
        soc=case.profile.soc,
        ub_bytes=device.ub_bytes,
    )


def try_flips(
    plan: Plan | Description, decisions: tuple[Decision, ...], call: FixedCall, target: Target
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
    return axis if axis is not LIMITS_AXIS else None


def _try_flip(
    plan: Plan | Description, decision: Decision, flip: Flip, call: FixedCall, target: Target
) -> Flip | None:
    """Return a flip with its outcome; None when it changes nothing or cannot be made."""
    axis = axis_of(call.operator, flip.argument)
    if axis is None:
        return None
    try:
        value = axis.value(axis.code(flip.value))
    except UsageError:
        return None  # outside the range of the axis, such as 0 rows
    if value == (call.deterministic if axis is DETERMINISTIC_AXIS else call.values[axis.name]):
        return None
    try:
        case = replace(call.checked_with(axis, value, target), searches_flips=False)
        changed = plan_of(case)
    except AclnnError as error:
        update: dict[str, Any] = {
            "outcome": REFUSED,
            "changes_path": True,
            "refusal": error.message,
        }
        if isinstance(axis, Number):
            now = int(call.values[axis.name])
            update |= _nearest_refusal(call, axis, now, int(value), target)
        return flip.model_copy(update=update)
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


def _nearest_refusal(
    call: FixedCall, axis: Number, now: int, refused: int, target: Target
) -> dict[str, int | str]:
    """Return the refused value nearest to the call's, and why: a limit may come before a flip."""

    def refusal(value: int) -> str:
        try:
            call.checked_with(axis, value, target)
        except AclnnError as error:
            return error.message
        return ""

    value = nearest_change(lambda value: bool(refusal(value)), now, refused)
    assert value is not None  # ``refused`` at the latest
    return {"value": value, "refusal": refusal(value)}


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
        changed = check_uncached(case.operator.on(other), case.arguments, target)
    except (AclnnError, NotModelledError):
        return False
    return bool(changed.tiling == case.tiling)


def tiling_bytes(plan: Plan) -> bytes:
    """Return the bytes of the tiling structure of a plan at its release.

    Raises UsageError when the plan has no tiling, or not every field of the structure.
    """
    found = find_structure(plan.kernel)
    if found is None or not plan.tiling or family_of(plan.npu_arch):
        raise NotModelledError(
            "tiling_bytes",
            "tiling_bytes: the tiling structure of {kernel} on {product} is not known",
            "leave --tiling-bytes out",
            kernel=plan.kernel or plan.path,
            product=plan.product_title,
        )
    return pack(found.kernel, plan.tiling, plan.release)
