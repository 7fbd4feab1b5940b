"""``npu_sim.verify``: whether a product can have produced measured outputs of a call."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from npu_sim.cores import Profile, all_socs, load_profile
from npu_sim.framework.arguments import tensor_of
from npu_sim.framework.checks import require_integer
from npu_sim.framework.inference import require_given
from npu_sim.framework.operator import Operator
from npu_sim.framework.target import Limits, require_bool, require_limits
from npu_sim.language import Text
from npu_sim.operators.shared.study import StudyCall, study_call
from npu_sim.registry import load_operator
from npu_sim.releases import release_names
from npu_sim.status import NO_PLAN, Unplanned, UsageError, without_internal_frames
from npu_sim.verdicts.answers import Combination, OutputVerdict, Verification
from npu_sim.verdicts.arrivals import Budget, Report
from npu_sim.verdicts.explanations import computation_key, explained
from npu_sim.verdicts.judging import judge

BUDGET = 1 << 20
MOST_BUDGET = 1 << 26
"""Largest budget: its partial sums take gigabytes from here on."""
"""Default number of partial sums for an element."""


@dataclass
class _Group:
    """Devices that compute the call alike."""

    call: StudyCall
    profiles: list[Profile]
    verdicts: Mapping[str, OutputVerdict] | None = None
    searched: bool = False
    """Whether a timing that gives the measured bits was searched for, where one is needed."""

    @property
    def unreachable(self) -> int:
        """Number of unreachable elements."""
        return self._count("unreachable")

    @property
    def undecided(self) -> int:
        """Number of undecided elements."""
        return self._count("undecided")

    def _count(self, status: str) -> int:
        assert self.verdicts is not None
        return sum(verdict.counts[status] for verdict in self.verdicts.values())


@without_internal_frames
def verify(
    operator: str,
    *,
    product: str | Path | Profile | None = None,
    soc: str | None = None,
    release: str | None = None,
    deterministic: bool | None = None,
    limits: Limits = "documented",
    budget: int = BUDGET,
    seed: int = 0,
    explain: bool = True,
    progress: Callable[[str, float], None] | None = None,
    **arguments: Any,
) -> Verification:
    """Return whether the product can have produced measured outputs from the inputs of a call.

    Elements with one legal order are compared bit by bit. For elements to which several cores add,
    an order of arrival that gives the measured bits is searched for, and ``unreachable`` is
    reported only with a proof: all orders were enumerated, or the value lies outside an interval
    that holds in every order.

    Parameters
    ----------
    operator
        Name of the operator.
    product, soc, release
        As for :func:`npu_sim.run`. Without ``soc`` every SoC of the product is tried, without
        ``release`` every release.
    deterministic
        The determinism switch; both when left out.
    limits
        As for :func:`npu_sim.run`.
    budget
        Partial sums that the search may take per element.
    seed
        Seed of the random orders of the search; the result is reproducible.
    explain
        Search for an explanation of unreachable elements.
    progress
        Called with the stage and the fraction done.
    **arguments
        The arguments of :func:`npu_sim.run`, and measured outputs under the names of the results. A
        16-bit output may be given in a wider dtype. An fp32 output that is given in 16 bits, such
        as a gradient that autograd cast, is compared after that rounding.

    Raises
    ------
    UsageError
        When no output is given, or one with another shape.
    AclnnError
        When every combination refuses the call: the error of the first.
    """
    declared: Operator = load_operator(operator)
    measured = {
        name: tensor_of(name, arguments.pop(name))
        for name in declared.result_names
        if arguments.get(name) is not None
    }
    if not measured:
        raise UsageError(
            "outputs",
            Text("{operator}: no output is given", operator=declared.name),
            Text("give one or more of: {names}", names=", ".join(declared.result_names)),
        )
    require_integer("budget", budget, 1)
    if budget > MOST_BUDGET:
        message = Text("budget = {budget}", budget=budget)
        raise UsageError("budget", message, Text("1 to {most}", most=MOST_BUDGET))
    require_given(declared, arguments)
    require_limits(limits)
    report: Report = progress or (lambda stage, fraction: None)
    search_budget = Budget(int(budget), int(seed))
    call = study_call(declared.name, {**arguments, "limits": limits})
    switches = (False, True) if deterministic is None else (deterministic,)
    groups = _groups(call, _profiles(product, soc, release), switches)
    best = _judged(groups, measured, search_budget, report)
    verdicts = best.verdicts
    assert verdicts is not None
    if explain:
        verdicts = {
            name: replace(
                verdict,
                explanations=explained(
                    best.call, verdict, measured[name], list(groups), search_budget, report
                ),
            )
            for name, verdict in verdicts.items()
        }
    profile = best.profiles[0]
    return Verification(
        operator=declared.name,
        product=profile.name,
        soc=profile.soc,
        release=profile.release,
        deterministic=best.call.options["deterministic"],
        outputs=verdicts,
        combinations=_combinations(groups.values()),
    )


def _profiles(
    product: str | Path | Profile | None, soc: str | None, release: str | None
) -> list[Profile]:
    """Return the devices to try, the default one first; a loaded profile is one device."""
    first = load_profile(product, soc, release)
    if isinstance(product, Profile):
        return [first]
    socs = [first.soc]
    if soc is None:
        socs += [soc.soc for soc in all_socs(first.name if product is None else product)]
    releases = [first.release, *(reversed(release_names()) if release is None else ())]
    return [
        first.with_soc(soc).with_release(other)
        for other in dict.fromkeys(releases)
        for soc in dict.fromkeys(socs)
    ]


def _groups(
    call: StudyCall, profiles: Iterable[Profile], switches: Iterable[bool]
) -> dict[Any, _Group]:
    """Return the calls that compute differently, by key, with the devices of each."""
    groups: dict[Any, _Group] = {}
    refusal: Unplanned | None = None
    for switch in switches:
        require_bool("deterministic", switch)
        for profile in profiles:
            options = {**call.options, "deterministic": bool(switch)}
            try:
                operator = load_operator(call.operator.name).on(profile)
                changed = replace(call, operator=operator, profile=profile, options=options)
                key = computation_key(changed)
            except NO_PLAN as error:
                refusal = refusal or error
                continue
            groups.setdefault(key, _Group(changed, [])).profiles.append(profile)
    if not groups:
        assert refusal is not None
        raise refusal
    return groups


def _judged(
    groups: Mapping[Any, _Group],
    measured: Mapping[str, NDArray[Any]],
    budget: Budget,
    report: Report,
) -> _Group:
    """Judge every group; return the first with the fewest unreachable elements.

    The search of timings, which is slow, can only add unreachable elements. It is left out for
    groups that have more of them without it than the returned group has.
    """

    def judge_group(group: _Group, search: bool) -> None:
        group.verdicts = judge(group.call, measured, budget, report, search)
        group.searched = search or not group.undecided

    alone = len(groups) == 1
    for number, group in enumerate(groups.values()):
        report(_label(group), number / len(groups))
        judge_group(group, search=alone)
        if not group.searched and not group.unreachable:
            judge_group(group, search=True)
    while not (best := min(groups.values(), key=lambda group: group.unreachable)).searched:
        judge_group(best, search=True)
    return best


def _label(group: _Group) -> str:
    profile = group.profiles[0]
    return Text("{soc}, release {release}", soc=profile.soc, release=profile.release)


def _combinations(groups: Iterable[_Group]) -> tuple[Combination, ...]:
    """Return what was tried: SoCs with the same releases, mode and answer are one combination."""
    releases: dict[Any, list[str]] = {}
    for group in groups:
        socs_by_release: dict[str, list[str]] = {}
        for profile in group.profiles:
            socs_by_release.setdefault(profile.release, []).append(profile.soc)
        rest = group.call.options["deterministic"], group.unreachable == 0
        for release, socs in socs_by_release.items():
            releases.setdefault((group.profiles[0].name, tuple(socs), *rest), []).append(release)
    return tuple(
        Combination(product, socs, tuple(names), deterministic, possible)
        for (product, socs, deterministic, possible), names in releases.items()
    )
