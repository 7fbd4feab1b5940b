"""``npu_sim.verify``: whether a product can have produced measured outputs of a call."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from npu_sim.cores import Profile, all_socs, load_profile, release_names, shipped_products
from npu_sim.framework.arguments import tensor_of
from npu_sim.framework.checks import require_integer
from npu_sim.framework.inference import require_given
from npu_sim.framework.operator import COMPLETED, Operator
from npu_sim.framework.target import Limits, require_bool, require_limits
from npu_sim.language import Text, grouped
from npu_sim.numbers.arrays import Array
from npu_sim.operators.loading import load_operator
from npu_sim.operators.shared.study import StudyCall, study_call
from npu_sim.plans.answers import Progress
from npu_sim.status import NO_PLAN, Unplanned, UsageError, without_internal_frames
from npu_sim.verdicts.answers import (
    UNDECIDED,
    Combination,
    OutputVerdict,
    ResultDifference,
    Verification,
)
from npu_sim.verdicts.explanations import computation_key, explained, patterns
from npu_sim.verdicts.judging import Budget, judge, silent

BUDGET = 1 << 20
"""Default number of partial sums for an element."""
MOST_BUDGET = 1 << 26
"""Largest budget: its partial sums take gigabytes from here on."""
TOTAL_BUDGET = 1 << 28
"""Default number of partial sums for the whole call: half a minute at most on two cores."""


@dataclass
class _Group:
    """Devices that compute the call alike."""

    call: StudyCall
    profiles: list[Profile]
    verdicts: Mapping[str, OutputVerdict] = field(default_factory=dict)
    searched: bool = False
    """Whether a timing that gives the measured bits was searched for, where one is needed."""

    @property
    def rank(self) -> tuple[bool, int]:
        """Order of groups, the best first: without unreachable elements, then by their number.

        An element that the bound of an unpublished rule allows is no evidence for its device; one
        that is undecided because it is inferred that the product or release computes so counts as
        unreachable here.
        """
        allowed = sum(
            int(np.count_nonzero(verdict.allowed_by_a_rule & (verdict.elements == UNDECIDED)))
            for verdict in self.verdicts.values()
            if verdict.rules
        )
        unreachable = self.count("unreachable")
        inferred = any(rule.is_inferred for one in self.verdicts.values() for rule in one.rules)
        return unreachable > 0 or (inferred and allowed > 0), unreachable + allowed

    def count(self, status: str) -> int:
        """Return the number of elements with a verdict."""
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
    total_budget: int = TOTAL_BUDGET,
    seed: int = 0,
    against: Any = None,
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
        As for :func:`npu_sim.run`. Without both, every product that has the operator is tried;
        without ``soc``, every SoC of the product; without ``release``, every release.
    deterministic
        The determinism switch; both when left out.
    limits
        As for :func:`npu_sim.run`.
    budget
        Partial sums that the search may take per element.
    total_budget
        Partial sums that it may take for the whole call; elements that remain are undecided. Each
        alternative that may explain unreachable elements has a sixteenth of it.
    seed
        Seed of the random orders of the search; the result is reproducible.
    against
        A second result of the same call, to be compared with the measured output: which rows
        differ, by how much, and whether both are possible. With several outputs, a mapping by name.
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
        When no output is given, or one with another shape; when ``against`` names none of them.
    AclnnError
        When every combination refuses the call: the error of the first.
    """
    declared = load_operator(operator)
    measured = _take_measured(declared, arguments)
    seconds = _second_results(against, measured)
    require_integer("budget", budget, 1, MOST_BUDGET)
    require_integer("total_budget", total_budget, 1)
    completed = _completed(declared, arguments)
    require_given(declared, {**arguments, **dict.fromkeys(completed)})
    require_limits(limits)
    report: Progress = progress or silent
    search_budget = Budget(int(budget), int(seed), int(total_budget))
    call = study_call(declared.name, {**arguments, "limits": limits}, draws=False)
    switches = (False, True) if deterministic is None else (deterministic,)
    groups = _groups(call, _profiles(product, soc, release), switches, completed)
    with np.errstate(all="ignore"):  # measured values may be anything
        best = _judged(groups, measured, search_budget, report)
        verdicts = {
            name: replace(verdict, patterns=patterns(best.call, verdict))
            for name, verdict in best.verdicts.items()
        }
        for name in verdicts if explain else ():
            verdicts[name] = replace(
                verdicts[name],
                explanations=explained(
                    best.call, verdicts[name], measured[name], list(groups), search_budget, report
                ),
            )
        others = judge(best.call, seconds, search_budget.part(1, int(budget)), report)
    profile = best.profiles[0]
    return Verification(
        operator=declared.name,
        product=profile.name,
        soc=profile.soc,
        release=profile.release,
        deterministic=best.call.options["deterministic"],
        outputs=verdicts,
        combinations=_combinations(groups.values()),
        against={name: ResultDifference(verdicts[name], others[name]) for name in others},
        completed=tuple(completed),
    )


def _take_measured(operator: Operator, arguments: dict[str, Any]) -> dict[str, Array]:
    """Take the measured outputs out of the arguments; raise UsageError if there is none."""
    measured = {
        name: tensor_of(name, arguments.pop(name))
        for name in operator.result_names
        if arguments.get(name) is not None
    }
    if not measured:
        raise UsageError(
            "outputs",
            "{operator}: no output is given",
            "give one or more of: {names}",
            operator=operator.name,
            names=", ".join(operator.result_names),
        )
    return measured


def _completed(
    operator: Operator, arguments: Mapping[str, Any]
) -> dict[str, Callable[[StudyCall], Array]]:
    """Return the functions of the inputs that were left out and that another operator gives."""
    if not operator.has_hook(COMPLETED):
        return {}
    functions = operator.hook(COMPLETED)
    return {name: found for name, found in functions.items() if arguments.get(name) is None}


def _second_results(against: Any, measured: Mapping[str, Array]) -> dict[str, Array]:
    """Return the second results by name; raises UsageError for those of other outputs."""
    if against is None:
        return {}
    if not isinstance(against, Mapping) and len(measured) == 1:
        against = dict.fromkeys(measured, against)
    if not isinstance(against, Mapping) or not against.keys() <= measured.keys():
        raise UsageError(
            "against",
            "against is a second result of one measured output",
            "give the outputs one by one: {names}",
            names=", ".join(measured),
        )
    return {name: tensor_of("against", value) for name, value in against.items()}


def _profiles(
    product: str | Path | Profile | None, soc: str | None, release: str | None
) -> list[Profile]:
    """Return the profiles to try, the default one first; a loaded profile is the only one.

    Products whose plans are no more than a model come last: of equal answers the first is taken.
    """
    first = load_profile(product, soc, release)
    if isinstance(product, Profile):
        return [first]
    profiles = [first]
    if soc is None:
        names = [product] if product is not None else [first.name, *shipped_products()]
        others = [profile for name in names for profile in all_socs(name)]
        profiles += sorted(others, key=lambda profile: profile.product.evidence != "exact")
    unique = {(profile.name, profile.soc): profile for profile in profiles}.values()
    releases = [first.release]
    if release is None:
        releases += reversed(release_names())
    return [profile.with_release(name) for profile in unique for name in dict.fromkeys(releases)]


def _groups(
    call: StudyCall,
    profiles: Iterable[Profile],
    switches: Iterable[bool],
    completed: Mapping[str, Callable[[StudyCall], Array]],
) -> dict[Any, _Group]:
    """Return the calls that compute differently, by key, with the devices of each.

    ``completed`` computes inputs that were left out, on each device.
    """
    groups: dict[Any, _Group] = {}
    refusal: Unplanned | None = None
    for switch in switches:
        require_bool("deterministic", switch)
        for profile in profiles:
            options = {**call.options, "deterministic": bool(switch)}
            try:
                operator = load_operator(call.operator.name).on(profile)
                changed = replace(call, operator=operator, profile=profile, options=options)
                for name, function in completed.items():
                    changed = changed.with_tensors(**{name: function(changed)})
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
    groups: Mapping[Any, _Group], measured: Mapping[str, Array], budget: Budget, report: Progress
) -> _Group:
    """Judge every group; return the first of the best rank.

    The search of timings, which is slow, can only add unreachable elements. It is left out for
    groups that have more of them without it than the returned group has.
    """

    def judge_group(group: _Group, search: bool, part: Budget = budget) -> None:
        group.verdicts = judge(group.call, measured, part, report, search)
        group.searched = search or not group.count("undecided")

    if len(groups) == 1:
        (only,) = groups.values()
        judge_group(only, search=True)
        return only
    for number, group in enumerate(groups.values()):
        report(_label(group), number / len(groups))
        judge_group(group, search=False)
    least = min(group.rank for group in groups.values())
    wanted = [group for group in groups.values() if group.rank == least]
    # Equal parts: a group that is searched less would have fewer unreachable elements.
    parts = sum(not group.searched for group in wanted)
    for group in wanted:
        if not group.searched:
            judge_group(group, True, budget.part(parts, budget.sums))
    while not (best := min(groups.values(), key=lambda group: group.rank)).searched:
        judge_group(best, True, budget.part(parts + 1, budget.sums))
    return best


def _label(group: _Group) -> str:
    profile = group.profiles[0]
    return Text("{soc}, release {release}", soc=profile.soc, release=profile.release)


def _combinations(groups: Iterable[_Group]) -> tuple[Combination, ...]:
    """Return what was tried: SoCs with the same releases, mode and answer are one combination."""
    releases: dict[Any, list[str]] = {}
    for group in groups:
        socs_by_release = grouped(
            ((profile.name, profile.release), profile.soc) for profile in group.profiles
        )
        rest = group.call.options["deterministic"], group.count("unreachable") == 0
        for (product, release), socs in socs_by_release.items():
            releases.setdefault((product, tuple(socs), *rest), []).append(release)
    return tuple(
        Combination(product, socs, tuple(names), deterministic, possible)
        for (product, socs, deterministic, possible), names in releases.items()
    )
