"""A device profile compared with plans and bounds, or with another one: ``npu-sim profile``."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from npu_sim.cores import Profile, default_release, is_older, release_names, require_release
from npu_sim.language import Text, grouped
from npu_sim.operators.loading import load_operator
from npu_sim.operators.timelines import timeline
from npu_sim.plans.answers import Columns, Printed, Progress, Tabular, columns_of
from npu_sim.registry import operator_of_launch
from npu_sim.status import AclnnError, UsageError, without_internal_frames
from npu_sim.tools.profiles.measured_calls import (
    CallGroup,
    MeasuredDevice,
    MeasuredGroup,
    PossibleCall,
    chosen_profile,
    find_device,
    find_possible_call,
    measured_casts,
    possible_calls,
    unknown_argument,
)
from npu_sim.tools.profiles.reader import MeasuredLaunch, read_device_profile


@dataclass(frozen=True, repr=False)
class MeasuredProfile(Printed, Tabular):
    """The answer of :func:`read_profile`."""

    file: str
    """Path of the file."""
    launches: tuple[MeasuredLaunch, ...]
    """All launches of the file whose time is recorded."""
    device: MeasuredDevice | None
    """Device for which calls are planned; None without modelled kernels."""
    release: str
    """Release for which calls are planned."""
    release_found_by: str = ""
    """How the release was identified."""
    groups: tuple[MeasuredGroup, ...] = ()
    """Groups of equal launches of modelled kernels, largest total time first."""
    calls: tuple[CallGroup, ...] = ()
    """Groups of equal calls with several launches."""
    untimed: int = 0
    """Number of launches without a recorded time, which are left out."""

    @cached_property
    def modelled(self) -> int:
        """Number of launches with a plan: modelled kernels, and other launches of their calls."""
        return len(self._covered)

    @cached_property
    def modelled_share(self) -> float:
        """Measured time of the launches with a plan, as a fraction of that of all."""
        covered = (launch.duration_us for launch in self.launches if launch.line in self._covered)
        return sum(covered) / self.total_us if self.total_us else 0.0

    @cached_property
    def total_us(self) -> float:
        """Measured time of all launches."""
        return sum(launch.duration_us for launch in self.launches)

    @cached_property
    def _covered(self) -> set[int]:
        return {
            launch.line
            for group in self.groups
            if group.possible_calls
            for launch in group.launches
        } | {launch.line for group in self.calls for call in group.calls for launch in call}

    @cached_property
    def not_modelled(self) -> dict[str, float]:
        """Measured time in us of every kernel without a plan, longest first."""
        times = grouped(
            (launch.kernel, launch.duration_us)
            for launch in self.launches
            if launch.line not in self._covered
        )
        sums = {kernel: sum(found) for kernel, found in times.items()}
        return dict(sorted(sums.items(), key=lambda item: -item[1]))

    @cached_property
    def faster_than_bound(self) -> int:
        """Launches that took less time than their bound."""
        return sum(group.faster_than_bound for group in self.groups)

    def table_columns(self) -> Columns:
        """Return a row for every group of equal launches, as columns of a table."""
        return columns_of(self.group_facts())

    def group_facts(self) -> list[dict[str, Any]]:
        """Return every group as plain data, with its part of the measured time."""
        whole = self.total_us
        facts = (group.as_dict() for group in self.groups)
        return [{**group, "share": group["total_us"] / whole if whole else 0.0} for group in facts]

    def as_dict(self) -> dict[str, Any]:
        """Return the answer as plain data, the form ``--json`` prints."""
        device = self.device
        return {
            "file": self.file,
            "rows": len(self.launches),
            "untimed": self.untimed,
            "modelled": self.modelled,
            "modelled_share": self.modelled_share,
            "faster_than_bound": self.faster_than_bound,
            "product": device.profile.name if device else None,
            "soc": device.profile.soc if device else None,
            "soc_found_by": device.found_by if device else None,
            "other_socs": list(device.others) if device else [],
            "clock_mhz": device.clock_mhz if device else None,
            "release": self.release,
            "release_found_by": self.release_found_by,
            "groups": self.group_facts(),
            "calls": [group.as_dict() for group in self.calls],
            "not_modelled_us": self.not_modelled,
        }


@without_internal_frames
def read_profile(
    file: str | Path,
    *,
    product: str | Path | None = None,
    soc: str | None = None,
    release: str | None = None,
    progress: Progress | None = None,
) -> MeasuredProfile:
    """Return a device profile compared with plans and bounds.

    Parameters
    ----------
    file
        ``kernel_details.csv``, ``op_summary_*.csv``, or the SQLite export of a profiler; or the
        folder of a data base of measured kernels, a CSV file for every kernel.
    product
        Product, or a profile file ending in .yaml; found in the file when left out.
    soc
        SoC, such as Ascend910B3 or 910B3; identified by the number of cores and their clock when
        left out.
    release
        Release of its software; identified by the launches of calls when left out.
    progress
        Called with the stage and the fraction done.

    Raises
    ------
    UsageError
        For an unreadable file, an unknown product, SoC or release, and an unidentified device.
    """
    launches, untimed = _timed_launches("file", file)
    measured, chosen = _Measured(launches), chosen_profile(product, soc)
    wanted = None if release is None else require_release(release)
    if not measured.equal:
        return MeasuredProfile(
            str(file), launches, None, wanted or default_release(), untimed=untimed
        )
    device = find_device(launches, chosen)
    profiles = [
        device.profile.with_release(name) for name in ([wanted] if wanted else release_names())
    ]
    alike = grouped((_rules(profile, measured), profile) for profile in profiles)
    steps = _Steps(progress, len(alike) * len(measured.equal))
    interpretations = [
        _Interpretation(measured, _preferred(same), device.clock_mhz, steps)
        for same in alike.values()
    ]
    most = max(found.explained for found in interpretations)
    best = [found for found in interpretations if found.explained == most]
    found_by = "chosen" if wanted else _found_by(best, interpretations, alike)
    preferred = _preferred([found.profile for found in best])
    last = next(found for found in best if found.profile == preferred)
    return MeasuredProfile(
        file=str(file),
        launches=launches,
        device=replace(device, profile=last.profile),
        release=last.profile.release,
        release_found_by=found_by,
        groups=last.groups(_Steps(progress, len(measured.equal))),
        calls=last.call_groups(),
        untimed=untimed,
    )


def _found_by(
    best: Sequence["_Interpretation"],
    interpretations: Sequence["_Interpretation"],
    alike: Mapping[tuple[Any, ...], Sequence[Profile]],
) -> str:
    """Return how a file identifies a release: by the calls that its launches form, if at all."""
    if len(best) == len(interpretations):
        return "the file does not identify the release: the default"
    named = {
        profile.release
        for found in best
        for profile in alike[_rules(found.profile, found.measured)]
    }
    return Text(
        "{most} launches form complete calls of release {release}",
        most=best[0].explained,
        release=", ".join(name for name in release_names() if name in named),
    )


def _preferred(profiles: Sequence[Profile]) -> Profile:
    """Return the profile of the default release, or of the newest where that is not there."""
    newest = max(profiles, key=lambda profile: release_names().index(profile.release))
    return next((one for one in profiles if one.release == default_release()), newest)


@without_internal_frames
def profile(file: str | Path, **device: Any) -> MeasuredProfile:
    """Read a device's profile; the same as :func:`npu_sim.read_profile`."""
    return read_profile(file, **device)


def _timed_launches(argument: str, file: str | Path) -> tuple[tuple[MeasuredLaunch, ...], int]:
    """Return the launches with a time of a file that an argument names, and the number of others.

    Raises UsageError without such a launch.
    """
    launches = read_device_profile(file)
    timed = tuple(launch for launch in launches if launch.duration_us)
    if not timed:
        raise UsageError(
            argument,
            "{file}: no launch of a kernel has a time"
            if launches
            else "{file}: no launch of a kernel",
            "a profile with at least one row",
            file=file,
        )
    return timed, len(launches) - len(timed)


class _Measured:
    """The launches of a file, with the equal ones of modelled kernels and the streams.

    A profile has many launches of few kinds, so the kinds are numbered once: comparing tensors for
    every launch and release would take most of the time.
    """

    def __init__(self, launches: tuple[MeasuredLaunch, ...]) -> None:
        self.launches = launches
        self.casts = measured_casts(launches)
        self.equal: dict[int, list[MeasuredLaunch]] = {}
        """Launches of modelled kernels by kind."""
        self.streams: dict[str, tuple[list[MeasuredLaunch], list[int]]] = {}
        """Launches and their kinds by stream."""
        self.entries = {
            kernel: entry
            for kernel in {launch.kernel for launch in launches}
            if (entry := operator_of_launch(kernel)) is not None
        }
        kinds: dict[Any, int] = {}
        same_objects: dict[Any, int] = {}  # equal rows have the same tensor objects
        for launch in launches:
            identity = launch.kernel, id(launch.inputs), id(launch.outputs), launch.block_dim
            if identity not in same_objects:
                facts = launch.kernel, launch.inputs, launch.outputs, launch.block_dim
                same_objects[identity] = kinds.setdefault(facts, len(kinds))
            kind = same_objects[identity]
            in_stream, kinds_in_stream = self.streams.setdefault(launch.stream, ([], []))
            in_stream.append(launch)
            kinds_in_stream.append(kind)
            if launch.kernel in self.entries:
                self.equal.setdefault(kind, []).append(launch)


def _rules(profile: Profile, measured: _Measured) -> tuple[Any, ...]:
    """Return what the plans of the measured operators depend on besides the SoC.

    Releases that agree in it are interpreted once.
    """
    operators = sorted({entry.name for entry in measured.entries.values()})
    switches = [tuple(profile.release_switches(name).items()) for name in operators]
    return is_older(profile.release, profile.product.oldest_release), *switches


class _Steps:
    """Reports the fraction of a number of steps that is done."""

    def __init__(self, report: Progress | None, steps: int) -> None:
        self.report, self.done, self.of = report, 0, max(steps, 1)

    def add(self, stage: str) -> None:
        """Report a further step."""
        if self.report is not None:
            self.report(stage, self.done / self.of)
        self.done += 1


class _Interpretation:
    """The launches of a file, interpreted for one device and release."""

    def __init__(
        self, measured: _Measured, profile: Profile, clock_mhz: float, steps: _Steps
    ) -> None:
        self.measured = measured
        self.profile = profile
        self.clock_mhz = clock_mhz
        self.possible_calls: dict[int, tuple[list[PossibleCall], AclnnError | None]] = {}
        """Calls that may have made the launches of a kind, or the refusal if there are none."""
        for kind, same in measured.equal.items():
            steps.add("finding calls")
            operator = load_operator(measured.entries[same[0].kernel].name)
            found, refusal = possible_calls(operator, same[0], profile, measured.casts)
            if len(found) > 1:
                fastest = min(launch.duration_us for launch in same)
                found = [call for call in found if _fits(call, fastest, profile)] or found
            self.possible_calls[kind] = found, refusal
        self.calls = grouped(
            found
            for launches, kinds in measured.streams.values()
            for found in _find_calls(launches, kinds, self.possible_calls)
        )
        """Launches of the calls that occur with all of them."""

    @property
    def explained(self) -> int:
        """Number of launches that belong to calls of several launches."""
        calls = (launches for found in self.calls.values() for launches in found)
        return sum(len(launches) for launches in calls if len(launches) > 1)

    def groups(self, steps: _Steps) -> tuple[MeasuredGroup, ...]:
        """Return the groups of equal launches, largest total time first."""
        found = []
        for key, same in self.measured.equal.items():
            steps.add("bounds and estimates")
            calls, refusal = self.possible_calls[key]
            kept = [call for call in calls if call in self.calls] or calls
            operator = self.measured.entries[same[0].kernel].name
            group = MeasuredGroup(
                operator,
                tuple(same),
                tuple(kept),
                refusal,
                unidentified_argument=unknown_argument(load_operator(operator), same[0]),
            )
            found.append(self._bounded(group) if kept else group)
        return tuple(sorted(found, key=lambda group: -sum(group.times)))

    def _bounded(self, group: MeasuredGroup) -> MeasuredGroup:
        """Return a group with its bound, and its estimate at the measured clock."""
        plan = group.possible_calls[0].plan
        table = timeline(plan, self.profile, mhz=self.clock_mhz)
        bound = table.launches[group.possible_calls[0].place]
        # The busy times of a timeline are those of all its planned kernels.
        planned_alone = bound.planned and sum(launch.planned for launch in table.launches) == 1
        busy = {pipe: share * table.kernel_us for pipe, share in table.busy_share.items()}
        return replace(
            group,
            bound_us=bound.us,
            coverage=table.coverage if bound.planned else "",
            binding_pipe=bound.binds,
            bound_busy_us=busy if planned_alone else {},
            assumptions=table.assumptions if bound.planned else (),
            otherwise=table.otherwise if bound.planned else (),
            estimate=bound.estimate,
        )

    def call_groups(self) -> tuple[CallGroup, ...]:
        """Return the groups of equal calls of several launches."""
        return tuple(
            CallGroup(call.plan, tuple(found), timeline(call.plan, self.profile))
            for call, found in self.calls.items()
            if len(call.plan.launches) > 1
        )


def _fits(call: PossibleCall, fastest_us: float, profile: Profile) -> bool:
    """Return whether no launch is faster than the bound, under any assumption about data."""
    table = timeline(call.plan, profile, estimated=False)
    bound = table.launches[call.place]
    least = [other.kernel_us for other in table.otherwise] if bound.planned else []
    return min((bound.us, *least)) <= fastest_us


def _find_calls(
    launches: Sequence[MeasuredLaunch],
    kinds: Sequence[int],
    possible: Mapping[int, tuple[list[PossibleCall], AclnnError | None]],
) -> Iterator[tuple[PossibleCall, tuple[MeasuredLaunch, ...]]]:
    """Yield the calls in a stream, each with its launches.

    Equal surroundings of a launch are compared once.
    """
    reach = {
        kind: (
            max(call.place for call in calls),
            max(len(call.plan.launches) - call.place for call in calls),
        )
        for kind, (calls, _) in possible.items()
        if calls
    }
    known: dict[Any, PossibleCall | None] = {}
    for position, kind in enumerate(kinds):
        if kind not in reach:
            continue
        before, after = reach[kind]
        around = min(position, before), tuple(kinds[max(position - before, 0) : position + after])
        if around not in known:
            known[around] = find_possible_call(launches, position, possible[kind][0])
        call = known[around]
        if call is not None:
            first = position - call.place
            yield call, tuple(launches[first : first + len(call.plan.launches)])


@dataclass(frozen=True)
class KernelChange:
    """All launches of a kernel, before and after. Times are sums in microseconds."""

    kernel: str
    launches_before: int
    launches: int
    before_us: float
    us: float
    ratio: float | None
    """Time after over time before; None for a new or a missing kernel."""
    share: float
    """Part of the measured time of all kernels, after."""


@dataclass(frozen=True, repr=False)
class ProfileComparison(Printed):
    """The answer of :func:`compare_profiles`."""

    file: str
    against: str
    """``file`` and ``against``: the profile after and before."""
    before_us: float
    us: float
    """``before_us`` and ``us``: measured time of all kernels."""
    kernels: tuple[KernelChange, ...]
    """Every kernel of the two profiles, largest change of time first."""
    untimed_before: int = 0
    untimed: int = 0
    """``untimed_before`` and ``untimed``: launches without a recorded time, which are left out."""

    def as_dict(self) -> dict[str, Any]:
        """Return the answer as plain data, the form ``--json`` prints."""
        return {
            "file": self.file,
            "against": self.against,
            "before_us": self.before_us,
            "us": self.us,
            "untimed_before": self.untimed_before,
            "untimed": self.untimed,
            "kernels": [asdict(kernel) for kernel in self.kernels],
        }


@without_internal_frames
def compare_profiles(file: str | Path, against: str | Path) -> ProfileComparison:
    """Return what changed from the profile ``against`` to the profile ``file``.

    The files are those of :func:`npu_sim.read_profile`; no device has to be identified.

    Raises UsageError for a file that cannot be read, or has no launch.
    """
    (before, untimed_before), (after, untimed) = _times("against", against), _times("file", file)
    whole_before, whole = (sum(us for _, us in times.values()) for times in (before, after))
    none = (0, 0.0)
    kernels = sorted(
        (
            _change(kernel, before.get(kernel, none), after.get(kernel, none), whole)
            for kernel in before | after
        ),
        key=lambda kernel: -abs(kernel.us - kernel.before_us),
    )
    return ProfileComparison(
        str(file), str(against), whole_before, whole, tuple(kernels), untimed_before, untimed
    )


def _change(
    kernel: str, before: tuple[int, float], after: tuple[int, float], whole_us: float
) -> KernelChange:
    (launches_before, before_us), (launches, us) = before, after
    ratio = us / before_us if launches and before_us else None
    return KernelChange(
        kernel, launches_before, launches, before_us, us, ratio, us / whole_us if whole_us else 0.0
    )


def _times(argument: str, file: str | Path) -> tuple[dict[str, tuple[int, float]], int]:
    """Return every kernel's number of launches and sum of times, and the number without a time."""
    launches, untimed = _timed_launches(argument, file)
    times = grouped((launch.kernel, launch.duration_us) for launch in launches)
    return {kernel: (len(found), sum(found)) for kernel, found in times.items()}, untimed
