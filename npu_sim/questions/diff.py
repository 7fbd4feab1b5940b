"""Comparison of one call across products, SoCs and releases, and what an upgrade changes."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from npu_sim.cores import Profile, ReleaseSwitch, release_table
from npu_sim.framework.arguments import Arguments
from npu_sim.framework.checking import check
from npu_sim.framework.inference import arguments_of
from npu_sim.framework.operator import Operator
from npu_sim.framework.planning import FixedCall, fixed_call, plan_of
from npu_sim.framework.target import Limits, Target, require_bool, require_limits
from npu_sim.language import Text, grouped
from npu_sim.operators.loading import load_operator
from npu_sim.operators.timelines import estimator
from npu_sim.plans.answers import Printed
from npu_sim.plans.model import Memory, Plan
from npu_sim.questions.explain import NearbyPlan, nearby_plans
from npu_sim.questions.varied_calls import chosen_profiles, one_spelling
from npu_sim.status import NO_PLAN, AclnnError, NotModelledError, Unplanned, without_internal_frames
from npu_sim.tiling import flattened
from npu_sim.timelines.model import Estimate

OUTCOME = "outcome"
"""Name of the only fact of a refused call."""


@dataclass(frozen=True)
class PlanChange:
    """One fact of a plan before and after an upgrade."""

    fact: str
    before: str
    after: str


@dataclass(frozen=True, repr=False)
class Upgrade(Printed):
    """Changes from one release to the next that plans the call differently."""

    product: str
    """The product."""
    socs: tuple[str, ...]
    """SoCs with these changes."""
    before: str
    """Release before the upgrade."""
    after: str
    """Release after the upgrade."""
    changes: tuple[PlanChange, ...]
    """Facts of the plan that differ."""
    bits: tuple[str, ...]
    """Parts of the result whose bits can differ."""

    def as_dict(self) -> dict[str, Any]:
        """Return the upgrade as plain data."""
        return asdict(self)


def upgrades(outcomes: Sequence[tuple[Profile, Plan | Unplanned]]) -> tuple[Upgrade, ...]:
    """Return the changes between successive releases; SoCs with equal changes are merged."""
    by_soc = grouped(
        ((profile.name, profile.soc), (profile, outcome)) for profile, outcome in outcomes
    )
    found = grouped(  # keys have no SoCs, so equal changes merge
        (
            Upgrade(
                product,
                (),
                old.release,
                new.release,
                plan_changes(before, after),
                changed_bits(before, after),
            ),
            soc,
        )
        for (product, soc), steps in by_soc.items()
        for (old, before), (new, after) in pairwise(steps)
        # a product may be unknown before and after
        if not isinstance(before, NotModelledError) or not isinstance(after, NotModelledError)
    )
    return tuple(
        replace(step, socs=tuple(socs)) for step, socs in found.items() if step.changes or step.bits
    )


def plan_changes(before: Plan | Unplanned, after: Plan | Unplanned) -> tuple[PlanChange, ...]:
    """Return the facts of a call that differ between two outcomes."""
    old, new = _facts(before), _facts(after)
    refused = isinstance(before, NO_PLAN) or isinstance(after, NO_PLAN)
    names = [OUTCOME] if refused else [*old, *(name for name in new if name not in old)]
    return tuple(
        PlanChange(name, old.get(name, "-"), new.get(name, "-"))
        for name in names
        if old.get(name, "-") != new.get(name, "-")
    )


def changed_bits(before: Plan | Unplanned, after: Plan | Unplanned) -> tuple[str, ...]:
    """Return the parts of a result whose bits can differ, from ``configs/releases.yaml``."""
    if isinstance(before, NO_PLAN) or isinstance(after, NO_PLAN):
        return ()
    switches = release_table().changed(
        before.release, after.release, after.operator, after.npu_arch
    )
    return tuple(
        switch.bits for switch in switches if switch.bits and _concerns(switch, before, after)
    )


def _launches(plan: Plan) -> str:
    launches = (
        (launch.kernel, "/".join(dict.fromkeys(tensor.dtype for tensor in launch.inputs)))
        for launch in plan.launches
    )
    return ", ".join(f"{kernel} {dtypes}".strip() for kernel, dtypes in launches)


def _concerns(switch: ReleaseSwitch, before: Plan, after: Plan) -> bool:
    if switch.keys:
        return bool({before.tiling_key, after.tiling_key} & set(switch.keys))
    if switch.caveats:
        warned, still = (
            {caveat.code for caveat in plan.caveats} & {*switch.caveats} for plan in (before, after)
        )
        return warned != still
    if switch.decision:
        old, new = (
            {decision.name: decision.outcome for decision in plan.decisions}
            for plan in (before, after)
        )
        return old.get(switch.decision) != new.get(switch.decision)
    return (before.path, before.tiling_key, _launches(before)) != (
        after.path,
        after.tiling_key,
        _launches(after),
    )


def _facts(outcome: Plan | Unplanned) -> dict[str, str]:
    """Return the compared facts of an outcome as text."""
    if isinstance(outcome, NO_PLAN):
        return {OUTCOME: Text("{label}: {message}", label=outcome.label, message=outcome.message)}
    facts = {
        OUTCOME: outcome.outcome,
        "path": outcome.path,
        "tiling_key": str(outcome.tiling_key),
        "block_dim": str(outcome.block_dim),
        "schedule_mode": str(outcome.schedule_mode),
        "launches": _launches(outcome),
        "workspace": Text(
            "{total_bytes} bytes{unknown}",
            total_bytes=outcome.workspace.total_bytes,
            unknown=" + unknown" if outcome.workspace.unknown else "",
        ),
        "order": ", ".join(order.in_words for order in outcome.order),
        "caveats": ", ".join(caveat.code for caveat in outcome.caveats) or "none",
        "evidence": outcome.evidence.value,
    }
    return facts | {f"tiling.{name}": str(value) for name, value in flattened(outcome.tiling)}


@dataclass(frozen=True)
class Compared:
    """Outcome of the call on SoCs and releases that plan it identically, or refuse it alike."""

    profile: Profile
    """Product with the first of the SoCs."""
    socs: tuple[str, ...]
    """SoCs of the product with this outcome."""
    releases: tuple[str, ...]
    """Releases with this outcome."""
    plan: Plan | None
    """The plan; None without one."""
    refusal: Unplanned | None
    """The error of a call that is refused or not modelled; None with a plan."""

    @property
    def outcome(self) -> Plan | Unplanned:
        """The plan, or the refusal."""
        outcome = self.plan or self.refusal
        assert outcome is not None
        return outcome

    @cached_property
    def estimates(self) -> tuple[tuple[str, Estimate], ...]:
        """Estimates on the first SoC by kernel."""
        return estimator(self.plan, self.profile).estimates() if self.plan else ()

    @property
    def largest_memory(self) -> Memory | None:
        """The fullest on-chip memory."""
        return self.plan.fullest_memory if self.plan else None

    def as_dict(self) -> dict[str, Any]:
        """Return the row as plain data."""
        row: dict[str, Any] = {
            "product": self.profile.name,
            "socs": list(self.socs),
            "releases": list(self.releases),
            "outcome": self.outcome.outcome,
        }
        if self.refusal is not None:
            return row | {"error": self.refusal.as_dict()}
        plan, memory = self.plan, self.largest_memory
        assert plan is not None
        largest = (
            max(memory.allocations, key=lambda allocation: allocation.bytes, default=None)
            if memory
            else None
        )
        return row | {
            "path": plan.path,
            "tiling_key": plan.tiling_key,
            "cores_used": plan.block_dim,
            "cores_idle": plan.idle_cores,
            "buffer": {
                "memory": memory.name,
                "used_bytes": memory.used_bytes,
                "capacity_bytes": memory.capacity_bytes,
            }
            if memory
            else None,
            "largest_allocation": {"name": largest.name, "bytes": largest.bytes}
            if largest
            else None,
            "workspace_bytes": plan.workspace.total_bytes,
            "workspace_unknown": [part.name for part in plan.workspace.unknown],
            "order": {order.output: order.state for order in plan.order},
            "caveats": [caveat.code for caveat in plan.caveats],
            "rules_source": plan.rules_source,
            "estimates": [
                {"kernel": kernel, **estimate.model_dump(mode="json")}
                for kernel, estimate in self.estimates
            ],
        }


@dataclass(frozen=True, repr=False)
class Comparison(Printed):
    """One call on the chosen products, the nearest changes of its path, and effects of upgrades."""

    operator: str
    rows: tuple[Compared, ...]
    nearby: tuple[tuple[NearbyPlan, tuple[str, ...]], ...]
    upgrades: tuple[Upgrade, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return the comparison as plain data, the form ``--json`` prints."""
        return {
            "operator": self.operator,
            "rows": [row.as_dict() for row in self.rows],
            "nearest_changes": [
                {**change.as_dict(), "products": list(products)} for change, products in self.nearby
            ],
            "upgrades": [upgrade.as_dict() for upgrade in self.upgrades],
        }


@without_internal_frames
def diff(
    operator: str,
    *,
    product: str | Path | Sequence[str | Path] | None = None,
    soc: str | Sequence[str] | None = None,
    release: str | Sequence[str] | None = None,
    products: str | Path | Sequence[str | Path] | None = None,
    socs: str | Sequence[str] | None = None,
    releases: bool | str | Sequence[str] = False,
    deterministic: bool = False,
    limits: Limits = "documented",
    **arguments: Any,
) -> Comparison:
    """Plan one call on every product and SoC.

    Parameters
    ----------
    product
        Names, also in one text with commas, or profile files ending in .yaml; all when left out.
    soc
        SoCs, also in one text with commas; all when left out.
    release
        Releases of the software, also in one text with commas, or all; the default when left out.
    products, socs
        Other names of product and soc.
    releases
        Another name of release; True for all.
    operator, deterministic, limits, **arguments
        As for :func:`npu_sim.plan`.

    Raises
    ------
    UsageError
        When the call cannot be read: an unknown operator, product or argument, or a missing one.
    """
    declared = load_operator(operator)
    built = arguments_of(declared, arguments, infer=True)
    require_bool("deterministic", deterministic)
    require_limits(limits)
    single = [
        _compared(declared, built, profile, deterministic, limits)
        for profile in chosen_profiles(
            one_spelling("product", product, products),
            one_spelling("soc", soc, socs),
            one_spelling("release", release, releases),
        )
    ]
    rows = merged(merged(single, "socs"), "releases")
    nearby = _changes_of_path(rows, fixed_call(declared, arguments, deterministic), limits)
    changed = upgrades([(row.profile, row.outcome) for row in single])
    return Comparison(declared.name, tuple(rows), tuple(nearby), changed)


def _changes_of_path(
    rows: Iterable[Compared], call: FixedCall, limits: Limits
) -> Iterator[tuple[NearbyPlan, tuple[str, ...]]]:
    """Yield changes of a call that take another path, the nearest first, with their products."""
    nearby = grouped(
        (change, row.profile.name)
        for row in rows
        if row.plan is not None
        for change in nearby_plans(row.plan, call, row.profile, limits)
        if change.changes_path
    )
    for change in sorted(nearby, key=lambda change: change.distance):
        yield change, tuple(dict.fromkeys(nearby[change]))


def _compared(
    operator: Operator, arguments: Arguments, profile: Profile, deterministic: bool, limits: Limits
) -> Compared:
    plan = refusal = None
    try:
        plan = plan_of(check(operator, arguments, Target(profile, deterministic, limits=limits)))
    except NO_PLAN as error:
        refusal = error
    return Compared(profile, (profile.soc,), (profile.release,), plan, refusal)


def merged(rows: Sequence[Compared], name: str) -> list[Compared]:
    """Merge rows of one product with equal outcomes that differ only in ``name``."""
    found: list[Compared] = []
    for row in rows:
        for position, other in enumerate(found):
            if _location(other, name) == _location(row, name) and _outcome(other) == _outcome(row):
                both = getattr(other, name) + getattr(row, name)
                found[position] = replace(other, **{name: both})
                break
        else:
            found.append(row)
    return found


def _location(row: Compared, left_out: str) -> tuple[Any, ...]:
    return (
        row.profile.name,
        *(getattr(row, name) for name in ("socs", "releases") if name != left_out),
    )


def _outcome(row: Compared) -> tuple[Any, ...]:
    if row.plan is not None:
        return (row.plan.model_copy(update={"soc": "", "release": ""}),)
    assert row.refusal is not None
    # The message of a call that is not modelled names the row's own release.
    message = row.refusal.message if isinstance(row.refusal, AclnnError) else ""
    return (row.refusal.status, row.refusal.argument, message, row.refusal.hint)
