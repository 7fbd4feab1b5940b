"""Reading of a dump: its calls, planned and checked, and where it differs from another dump."""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import Field

from npu_sim.cores import Profile, load_profile
from npu_sim.language import Text
from npu_sim.operators import plan
from npu_sim.plans.answers import Frozen, FrozenDict, Printed, Progress, ReadOnlyDict, TextField
from npu_sim.plans.model import Plan
from npu_sim.status import NO_PLAN, NpuSimError, UsageError, without_internal_frames
from npu_sim.tools.dumps.calls import (
    DumpedCall,
    calls_of,
    contradictions,
    function_of,
    is_modelled,
    remarks,
)
from npu_sim.tools.dumps.differences import (
    RUNS,
    UNREADABLE,
    CallInDump,
    Comparison,
    DescribedCall,
    DumpComparison,
    FirstDifference,
    compare_dumps,
    judged,
    matched,
)
from npu_sim.tools.dumps.msprobe import NAME, Dump, StoredTensor, read_dumps
from npu_sim.verdicts.answers import Verification
from npu_sim.verdicts.verify import verify

MOST_PLACES = 4
"""Steps and ranks that an error lists."""


class EntryNote(Frozen):
    """An entry that was not read or not compared.

    Attributes
    ----------
    folder, place, entry
        The dump, as given, step and rank, and the name of the entry; empty for all entries.
    reason
        Why.
    """

    folder: str
    place: str
    entry: str
    reason: TextField


class DumpReading(Printed, Frozen):
    """Everything that a dump shows about the operators of npu_sim.

    Attributes
    ----------
    folder, against
        The dumps, as given.
    product, soc, release, deterministic
        Target of all plans and verdicts. What is not given is that of the combination under which
        the most calls are possible.
    other_target
        Target of the other dump, where the calls of both are possible on no common one; else empty.
    places, tasks
        Steps and ranks, and the dump task of each.
    entries
        Number of entries of all places.
    calls, other_calls
        Calls of our operators, in order, of the dump and of the other one.
    not_modelled
        Number of the other forward entries, by name of the function.
    unreadable
        Entries of both dumps that are not of msprobe's form.
    unnamed_files
        Number of tensor files without an entry.
    differences
        Entries whose outputs differ although no input tensor does, in order. A place that has none
        of them has the first entry whose outputs differ.
    compared
        Number of places found in both dumps.
    tensors
        Number of output tensors in both dumps that are ``equal``, ``similar``, ``unknown`` or
        ``different``.
    unmatched
        Steps, ranks and entries that only one of the dumps has, and entries whose values could not
        be compared.
    """

    folder: str
    against: str | None
    product: str
    soc: str
    release: str
    deterministic: bool
    other_target: TextField = ""
    places: tuple[str, ...]
    tasks: tuple[str, ...]
    entries: int
    calls: tuple[CallInDump, ...]
    other_calls: tuple[CallInDump, ...] = ()
    not_modelled: FrozenDict[int]
    unreadable: tuple[EntryNote, ...]
    unnamed_files: int
    differences: tuple[FirstDifference, ...] = ()
    compared: int = 0
    tensors: FrozenDict[int] = Field(default_factory=ReadOnlyDict)
    unmatched: tuple[EntryNote, ...] = ()

    @property
    def nothing_compared(self) -> bool:
        """Whether there is another dump, and no output could be compared with it."""
        counts = (count for name, count in self.tensors.items() if name != "unknown")
        return self.against is not None and not any(counts)

    @property
    def failed(self) -> bool:
        """Whether a value is impossible, an output differs, or nothing could be compared."""
        impossible = any(call.impossible for call in (*self.calls, *self.other_calls))
        return impossible or bool(self.differences) or self.nothing_compared

    def as_dict(self) -> dict[str, Any]:
        """Return the reading as plain data, the form ``--json`` prints."""
        return self.model_dump(mode="json")


class _Target(NamedTuple):
    """What a dump does not state: the device, and the determinism switch."""

    profile: Profile
    deterministic: bool

    @property
    def text(self) -> str:
        """Product, SoC, release and mode."""
        mode = Text("on") if self.deterministic else Text("off")
        return Text(
            "{product}, {soc}, {release}, deterministic computation {mode}",
            product=self.profile.name,
            soc=self.profile.soc,
            release=self.profile.release,
            mode=mode,
        )


class _Side(NamedTuple):
    """One of the two folders: its dumps, the calls in each, and what could not be read."""

    dumps: tuple[Dump, ...]
    calls: tuple[tuple[Dump, DumpedCall], ...]
    unreadable: tuple[EntryNote, ...]


@without_internal_frames
def read_dump(
    folder: str | os.PathLike[str],
    *,
    against: str | os.PathLike[str] | None = None,
    product: str | Profile | None = None,
    soc: str | None = None,
    release: str | None = None,
    deterministic: bool | None = None,
    verify: bool = True,
    progress: Progress | None = None,
) -> DumpReading:
    """Read an msprobe dump, and compare it with another one.

    Parameters
    ----------
    folder
        Folder with a ``dump.json`` for each step and rank; tasks tensor, statistics and md5.
    against
        Another dump: the first differences are found.
    product, soc, release, deterministic
        As for :func:`npu_sim.plan`: the target of plans and verdicts, which a dump does not state.
        Where they are None and results are verified, the combination under which the most calls are
        possible is taken, else that of :func:`npu_sim.plan`. A dump has one target.
    verify
        Check results bit by bit where all tensors are in the dump.
    progress
        Called with the entry and the fraction done.

    Raises
    ------
    UsageError
        For a folder without dumps, a ``dump.json`` that is no JSON, or an unknown target.
    """
    default = _Target(load_profile(product, soc, release), bool(deterministic))
    sides = [_side(folder)] if against is None else [_side(folder), _side(against)]
    report = _Progress(progress, sum(len(side.calls) for side in sides))
    targets = [default for _ in sides]
    if verify:
        given = {"product": product, "soc": soc, "release": release, "deterministic": deterministic}
        targets = _targets(sides, default, given, report)
    return _reading(folder, against, sides, targets, verify, report)


def _reading(
    folder: str | os.PathLike[str],
    against: str | os.PathLike[str] | None,
    sides: Sequence[_Side],
    targets: Sequence[_Target],
    verify: bool,
    report: "_Progress",
) -> DumpReading:
    """Return what one or two folders hold, for the target of each."""
    comparisons, alone = _compared(sides) if len(sides) == 2 else ([], [])
    found = [difference for comparison in comparisons for difference in comparison.differences]
    different = {name for entry in found for name in (entry.entry, entry.counterpart)}
    described = [
        _described_calls(side, target, verify, different, report)
        for side, target in zip(sides, targets, strict=True)
    ]
    first, target = sides[0], targets[0]
    return DumpReading(
        folder=str(folder),
        against=None if against is None else str(against),
        product=target.profile.name,
        soc=target.profile.soc,
        release=target.profile.release,
        deterministic=target.deterministic,
        other_target=targets[-1].text if targets[-1] != target else "",
        places=tuple(dump.place for dump in first.dumps),
        tasks=tuple(dict.fromkeys(dump.task for dump in first.dumps)),
        entries=sum(len(dump.entries) for dump in first.dumps),
        calls=tuple(call.answer for call in described[0].values()),
        other_calls=tuple(call.answer for call in described[-1].values()) if against else (),
        not_modelled=ReadOnlyDict(_not_modelled(first.dumps)),
        unreadable=tuple(note for side in sides for note in side.unreadable),
        unnamed_files=sum(len(dump.unnamed_files) for dump in first.dumps),
        differences=tuple(
            difference for comparison in comparisons for difference in judged(comparison, described)
        ),
        compared=len(comparisons),
        tensors=ReadOnlyDict(
            {
                kind.name.lower(): sum(comparison.tensors[kind] for comparison in comparisons)
                for kind in (Comparison if comparisons else ())
            }
        ),
        unmatched=tuple(_note(*found) for found in _unmatched(comparisons, alone)),
    )


def _compared(sides: Sequence[_Side]) -> tuple[list[DumpComparison], list[Dump]]:
    """Compare the dumps of two sides by step and rank; return also those without a counterpart.

    Raises UsageError when no step and rank is in both.
    """
    pairs, alone = matched(sides[0].dumps, sides[1].dumps)
    if not pairs:
        raise UsageError(
            "against",
            "against: the two dumps have no step and rank in common",
            "they have {places}",
            places=", ".join(dump.place for dump in sides[1].dumps[:MOST_PLACES]),
        )
    return [compare_dumps(*pair) for pair in pairs], alone


def _unmatched(
    comparisons: Sequence[DumpComparison], alone: Sequence[Dump]
) -> Iterator[tuple[Dump, str, str]]:
    """Yield dump, entry and reason of what only one side has, and of values not compared."""
    reason = Text("it has no counterpart in the other dump")
    for dump in alone:
        yield dump, "", reason
    for comparison in comparisons:
        for entry, note in comparison.notes.items():
            yield comparison.first, entry, note
        for dump, entry in comparison.alone:
            yield dump, entry, reason


def _note(dump: Dump, entry: str, reason: str) -> EntryNote:
    return EntryNote(folder=dump.folder, place=dump.place, entry=entry, reason=reason)


class _Progress:
    """Reports calls as they are verified."""

    def __init__(self, report: Progress | None, calls: int) -> None:
        self.report, self.done, self.of = report, 0, 2 * max(calls, 1)

    def __call__(self, entry: str) -> None:
        self.done += 1
        if self.report is not None:
            self.report(entry, min(1.0, self.done / self.of))


def _side(folder: str | os.PathLike[str]) -> _Side:
    """Read a folder."""
    dumps = read_dumps(folder)
    calls: list[tuple[Dump, DumpedCall]] = []
    notes: list[EntryNote] = []
    for dump in dumps:
        found, unreadable = calls_of(dump)
        calls += [(dump, call) for call in found]
        notes += [_note(dump, *found) for found in {**dump.unreadable, **unreadable}.items()]
    return _Side(dumps, tuple(calls), tuple(notes))


def _not_modelled(dumps: Iterable[Dump]) -> Counter[str]:
    """Count the forward entries of functions that are not ours; modules contain other entries."""
    return Counter(
        function_of(name)
        for dump in dumps
        for name in dump.entries
        if NAME.fullmatch(name) and name.endswith(".forward") and not is_modelled(name)
    )


def _targets(
    sides: Sequence[_Side], default: _Target, given: dict[str, Any], report: _Progress
) -> list[_Target]:
    """Return the target of each side: a common one if all calls possible anywhere are on it.

    Calls that are possible nowhere do not decide.
    """
    is_open = given["soc"] is None or given["release"] is None or given["deterministic"] is None
    if not is_open or (
        isinstance(given["product"], Profile) and given["deterministic"] is not None
    ):
        return [default for _ in sides]
    votes = [_votes(side, given, report) for side in sides]
    joint = sum((Counter(counts) for counts, _ in votes), Counter[Any]())
    common = _most_voted(joint, default)
    if joint[common] == sum(calls for _, calls in votes):
        return [_target(common, default) for _ in sides]
    return [_target(_most_voted(counts, default), default) for counts, _ in votes]


def _votes(
    side: _Side, given: dict[str, Any], report: _Progress
) -> tuple[Counter[tuple[str, str, str, bool]], int]:
    """Return the number of calls that are possible by combination, and anywhere."""
    votes: Counter[tuple[str, str, str, bool]] = Counter()
    calls = 0
    for _, call in side.calls:
        report(call.entry)
        verification = _verification(call, given, explain=False)
        if not isinstance(verification, Verification) or call.accumulated:
            continue
        calls += bool(verification.possible)
        for found in verification.possible:
            votes.update(
                (found.product, soc, release, found.deterministic)
                for soc in found.socs
                for release in found.releases
            )
    return votes, calls


def _most_voted(votes: Counter[Any], default: _Target) -> Any:
    """Return the combination with the most votes; of several, the default or the first."""
    profile = default.profile
    given = (profile.name, profile.soc, profile.release, default.deterministic)
    return max((given, *votes), key=lambda combination: votes[combination])


def _target(combination: tuple[str, str, str, bool], default: _Target) -> _Target:
    product, soc, release, deterministic = combination
    profile = default.profile if default.profile.name == product else load_profile(product)
    return _Target(profile.with_soc(soc).with_release(release), deterministic)


def _verification(call: DumpedCall, target: Mapping[str, Any], explain: bool) -> Any:
    """Return the verification of a call, or the text why there is none."""
    values = {**call.arguments, **call.results}
    if not any(isinstance(value, StoredTensor) and value.name for value in values.values()):
        return ""
    try:
        arrays: dict[str, Any] = {
            name: value.values() if isinstance(value, StoredTensor) else value
            for name, value in values.items()
        }
        return verify(call.operator, explain=explain, **target, **arrays)
    except NO_PLAN:
        return ""  # the outcome of the plan says why
    except (NpuSimError, ValueError, TypeError, OverflowError) as error:
        return getattr(error, "message", str(error))


def _described_calls(
    side: _Side, target: _Target, verified: bool, wanted: set[str], report: _Progress
) -> dict[tuple[str, str], DescribedCall]:
    """Return the calls of a side by place and entry."""
    found = {}
    for dump, call in side.calls:
        report(call.entry)
        described = _described(call, dump, target, verified)
        if call.entry not in wanted:
            described = DescribedCall(call, described.answer, None)
        found[dump.place, call.entry] = described
    return found


def _described(call: DumpedCall, dump: Dump, target: _Target, verified: bool) -> DescribedCall:
    """Return a call with its plan, contradictions and verdicts."""
    answer = CallInDump(
        operator=call.operator,
        entry=call.entry,
        place=dump.place,
        arguments=ReadOnlyDict({name: _text(value) for name, value in call.arguments.items()}),
        results=ReadOnlyDict({name: _text(value) for name, value in call.results.items()}),
        outcome=RUNS,
    )
    found: dict[str, Any]
    try:
        planned = _plan(call, target)
    except NO_PLAN as error:
        found = {"outcome": error.outcome, "message": error.message, **_statistics(call)}
        return DescribedCall(call, answer.model_copy(update=found), None)
    except (NpuSimError, ValueError, TypeError, OverflowError) as error:
        found = {"outcome": UNREADABLE, "message": getattr(error, "message", str(error))}
        return DescribedCall(call, answer.model_copy(update=found), None)
    timing = {order.output: order.reason for order in planned.order if order.state == "timing"}
    races = {order.output: order.race for order in planned.order if order.race}
    found = {
        "path": planned.path,
        "timing": ReadOnlyDict(timing),
        "races": ReadOnlyDict(races),
        **_statistics(call),
    }
    on_target = {"product": target.profile, "deterministic": target.deterministic}
    verification = _verification(call, on_target, explain=True) if verified else ""
    if not isinstance(verification, Verification):
        found["unverified"] = verification
        return DescribedCall(call, answer.model_copy(update=found), None)
    found |= _verified(verification)
    found["remarks"] = (*found.get("remarks", ()), *_casts(verification))
    if call.accumulated and "unreachable" in found["verdicts"].values():
        undecided = dict.fromkeys(found["verdicts"], "undecided")
        found |= {
            "verdicts": ReadOnlyDict(undecided),
            "details": ReadOnlyDict(),
            "explanations": (),
        }
        found["remarks"] += (
            Text(
                "the gradient is not that of this call alone: the weight may have other uses, or "
                "the module options that a dump does not hold (padding_idx, scale_grad_by_freq)"
            ),
        )
    return DescribedCall(call, answer.model_copy(update=found), verification)


def _statistics(call: DumpedCall) -> dict[str, Any]:
    """Return what the statistics of a call show; nothing for arguments of a wrong type."""
    try:
        return {"contradictions": contradictions(call), "remarks": tuple(remarks(call))}
    except (AttributeError, ValueError, TypeError, ArithmeticError):
        return {}


def _verified(verification: Verification) -> dict[str, Any]:
    """Return verdicts, explanations and details of a call."""
    outputs = verification.outputs
    explanations = [
        explanation.alternative
        for verdict in outputs.values()
        for explanation in verdict.explanations
    ]
    different = {
        name: output.as_dict() for name, output in outputs.items() if output.status != "equal"
    }
    return {
        "verdicts": ReadOnlyDict({name: output.status for name, output in outputs.items()}),
        "explanations": tuple(dict.fromkeys(explanations)),
        "details": ReadOnlyDict(different),
    }


def _casts(verification: Verification) -> Iterator[str]:
    """Return a note on every result that was cast after the call, by autograd for instance."""
    return (
        Text(
            "{output} is {dtype} in the dump, the product writes {written}: compared after "
            "rounding",
            output=name,
            dtype=str(verdict.given.dtype),
            written=verdict.rounded_from,
        )
        for name, verdict in verification.outputs.items()
        if verdict.rounded_from
    )


def _plan(call: DumpedCall, target: _Target) -> Plan:
    arguments: dict[str, Any] = {
        name: value.spec if isinstance(value, StoredTensor) else value
        for name, value in call.arguments.items()
    }
    return plan(
        call.operator, product=target.profile, deterministic=target.deterministic, **arguments
    )


def _text(value: Any) -> Any:
    """Return an argument with shape and dtype in place of tensors."""
    if isinstance(value, tuple):
        return tuple(_text(part) for part in value)
    if not isinstance(value, StoredTensor):
        return value
    return f"{'x'.join(map(str, value.shape)) or 'scalar'}:{value.dtype}"
