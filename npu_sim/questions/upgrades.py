"""Effects of software releases on a call, step by step."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from npu_sim.cores import Profile
from npu_sim.language import Text
from npu_sim.plans.answers import Printed
from npu_sim.plans.model import Plan
from npu_sim.releases import ReleaseSwitch, release_table
from npu_sim.status import NO_PLAN, Unplanned

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
    by_soc: dict[tuple[str, str], list[tuple[Profile, Plan | Unplanned]]] = {}
    for profile, outcome in outcomes:
        by_soc.setdefault((profile.name, profile.soc), []).append((profile, outcome))
    found: dict[Upgrade, tuple[str, ...]] = {}  # keys have no SoCs, so equal changes merge
    for (product, soc), steps in by_soc.items():
        for (old, before), (new, after) in pairwise(steps):
            changes, bits = plan_changes(before, after), changed_bits(before, after)
            if changes or bits:
                step = Upgrade(product, (), old.release, new.release, changes, bits)
                found[step] = (*found.get(step, ()), soc)
    return tuple(
        Upgrade(step.product, socs, step.before, step.after, step.changes, step.bits)
        for step, socs in found.items()
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
    switches = release_table().changed(before.release, after.release, after.operator)
    return tuple(
        switch.bits for switch in switches if switch.bits and _concerns(switch, before, after)
    )


def _launches(plan: Plan) -> str:
    launches = []
    for launch in plan.launches:
        dtypes = "/".join(dict.fromkeys(tensor.dtype for tensor in launch.inputs))
        launches.append(f"{launch.kernel} {dtypes}".strip())
    return ", ".join(launches)


def _concerns(switch: ReleaseSwitch, before: Plan, after: Plan) -> bool:
    if switch.keys:
        return bool({before.tiling_key, after.tiling_key} & set(switch.keys))
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
        return {OUTCOME: Text("{label}: {message}", outcome)}
    facts = {
        OUTCOME: outcome.outcome,
        "path": outcome.path,
        "tiling_key": str(outcome.tiling_key),
        "block_dim": str(outcome.block_dim),
        "schedule_mode": str(outcome.schedule_mode),
        "launches": _launches(outcome),
        "workspace": Text(
            "{total_bytes} bytes{unknown}",
            outcome.workspace,
            unknown=" + unknown" if outcome.workspace.unknown else "",
        ),
        "order": ", ".join(order.in_words for order in outcome.order),
        "caveats": ", ".join(caveat.code for caveat in outcome.caveats) or "none",
        "evidence": outcome.evidence.value,
    }
    return facts | {f"tiling.{name}": str(value) for name, value in _flat(outcome.tiling).items()}


def _flat(tiling: Any, prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in tiling.items():
        flat |= (
            _flat(value, f"{prefix}{name}.")
            if isinstance(value, dict)
            else {f"{prefix}{name}": value}
        )
    return flat
