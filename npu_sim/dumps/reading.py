"""Reading of a dump: its calls, planned and checked, and the first difference from another dump."""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from pydantic import Field

from npu_sim.cores import Profile, load_profile
from npu_sim.dumps.calls import APIS, DumpedCall, calls_of, entry_kind
from npu_sim.dumps.checks import contradictions, remarks
from npu_sim.dumps.differences import Comparison, Difference, first_difference
from npu_sim.dumps.folder import NAME, Dump, DumpedTensor, read_dumps
from npu_sim.dumps.verification import verify_call
from npu_sim.language import Text
from npu_sim.operators import plan
from npu_sim.plans.answers import Frozen, FrozenDict, Printed, ReadOnlyDict, TextField
from npu_sim.plans.model import Plan
from npu_sim.status import NO_PLAN, NpuSimError, UsageError, without_internal_frames
from npu_sim.verdicts.answers import Verification

RUNS = "runs"
UNREADABLE = "unreadable"
"""Outcome of a call whose entry has no valid arguments."""
Progress = Callable[[str, float], None]


class CallInDump(Frozen):
    """One call of one of our operators.

    Attributes
    ----------
    operator, entry, place
        Name in npu_sim, name of the entry with the results, and step and rank.
    arguments, results
        Shapes and dtypes as text, and attributes.
    outcome, message
        ``runs``, ``refused`` or ``not_modelled`` by the plan of the call, or ``unreadable``; why.
    path
        Path that the product takes.
    timing
        Results that depend on the timing of cores, with the reason.
    contradictions
        Values that the product cannot have written.
    remarks
        What is possible but deserves a look.
    verdicts
        Of a call whose tensors are all in the dump: ``equal``, ``reachable``, ``undecided`` or
        ``unreachable`` by result, see :func:`npu_sim.verify`.
    explanations
        Alternatives that give the bits of unreachable results.
    details
        What :func:`npu_sim.verify` found, by result that is not ``equal``: counts, worst elements.
    """

    operator: str
    entry: str
    place: str
    arguments: FrozenDict[Any]
    results: FrozenDict[str]
    outcome: str
    message: TextField = ""
    path: TextField = ""
    timing: FrozenDict[TextField] = Field(default_factory=ReadOnlyDict)
    contradictions: tuple[TextField, ...] = ()
    remarks: tuple[TextField, ...] = ()
    verdicts: FrozenDict[str] = Field(default_factory=ReadOnlyDict)
    explanations: tuple[TextField, ...] = ()
    details: FrozenDict[Any] = Field(default_factory=ReadOnlyDict)

    @property
    def impossible(self) -> bool:
        """Whether the product cannot have written a value of this call."""
        return bool(self.contradictions) or "unreachable" in self.verdicts.values()


class FirstDifference(Frozen):
    """First entry of a dump whose outputs differ from those of another dump.

    Attributes
    ----------
    place, entry, outputs
        Step and rank, name of the entry, and which of its outputs differ.
    inputs
        How the inputs compare: ``equal``, ``similar`` (statistics only), ``unknown``, or
        ``different``: then the difference came in from outside this call.
    operator
        Our operator, or None for a call that npu_sim does not have.
    can_differ
        Whether all outputs that differ can differ between two runs of the call on this product;
        None if that is not known.
    reason
        What this means, and how to make the call deterministic.
    """

    place: str
    entry: str
    outputs: tuple[int, ...]
    inputs: str
    operator: str | None
    can_differ: bool | None
    reason: TextField


class DumpReading(Printed, Frozen):
    """Everything that a dump shows about the operators of npu_sim.

    Attributes
    ----------
    folder, against
        The dumps, as given.
    product, soc, release
        Target of the plans.
    places, tasks
        Steps and ranks, and the dump task of each.
    entries
        Number of entries of all places.
    calls
        Calls of our operators, in order.
    not_modelled
        Number of the other forward entries, by name of the function.
    unnamed_files
        Number of tensor files without an entry.
    differences
        For each place whose outputs differ, the first entry.
    compared
        Number of places found in both dumps.
    """

    folder: str
    against: str | None
    product: str
    soc: str
    release: str
    places: tuple[str, ...]
    tasks: tuple[str, ...]
    entries: int
    calls: tuple[CallInDump, ...]
    not_modelled: FrozenDict[int]
    unnamed_files: int
    differences: tuple[FirstDifference, ...] = ()
    compared: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Return the reading as plain data, the form ``--json`` prints."""
        return self.model_dump(mode="json")


@without_internal_frames
def read_dump(
    folder: str | os.PathLike[str],
    *,
    against: str | os.PathLike[str] | None = None,
    product: str | Profile | None = None,
    soc: str | None = None,
    release: str | None = None,
    deterministic: bool = False,
    verify: bool = True,
    progress: Progress | None = None,
) -> DumpReading:
    """Read an msprobe dump, and compare it with another one.

    Parameters
    ----------
    folder, against
        Folders with a ``dump.json`` for each step and rank; tasks tensor, statistics and md5.
    product, soc, release, deterministic
        Target of the plans, which a dump does not state; as for :func:`npu_sim.plan`.
    verify
        Whether to check results with :func:`npu_sim.verify` where all tensors are in the dump: on
        the given SoC and release, on all where they are None, and in both determinism modes,
        whatever ``deterministic`` is.
    progress
        Called with the entry and the fraction done.

    Raises
    ------
    UsageError
        For a folder without dumps, a damaged ``dump.json`` or tensor file, or an unknown target.
    """
    profile = load_profile(product, soc, release)
    report = progress or (lambda stage, fraction: None)
    dumps = read_dumps(folder)
    others = {dump.place: dump for dump in read_dumps(against)} if against is not None else {}
    found_calls = [(dump, call) for dump in dumps for call in calls_of(dump)]
    target = {"product": product, "soc": soc, "release": release} if verify else None
    calls: list[CallInDump] = []
    for number, (dump, call) in enumerate(found_calls):
        report(call.entry, number / len(found_calls))
        calls.append(_described(call, dump, profile, deterministic, target))
    pairs = _pairs(dumps, others)
    found = [(dump, first_difference(dump, other)) for dump, other in pairs]
    return DumpReading(
        folder=str(folder),
        against=None if against is None else str(against),
        product=profile.name,
        soc=profile.soc,
        release=profile.release,
        places=tuple(dump.place for dump in dumps),
        tasks=tuple(dict.fromkeys(dump.task for dump in dumps)),
        entries=sum(len(dump.entries) for dump in dumps),
        calls=tuple(calls),
        not_modelled=ReadOnlyDict(_not_modelled(dumps)),
        unnamed_files=sum(len(dump.unnamed_files) for dump in dumps),
        differences=tuple(
            _explained(combination, found_calls, calls) for _, combination in found if combination
        ),
        compared=len(pairs),
    )


def _pairs(dumps: Sequence[Dump], others: dict[str, Dump]) -> list[tuple[Dump, Dump]]:
    """Return dumps of the same step and rank; two single dumps are a pair in any case.

    Raises
    ------
    UsageError
        When there are other dumps and none fits.
    """
    if len(dumps) == len(others) == 1:
        return [(dumps[0], next(iter(others.values())))]
    pairs = [(dump, others[dump.place]) for dump in dumps if dump.place in others]
    if others and not pairs:
        raise UsageError(
            "against",
            "against: the two dumps have no step and rank in common",
            Text("they have {places}", places=", ".join(sorted(others)[:4])),
        )
    return pairs


def _not_modelled(dumps: Iterable[Dump]) -> Counter[str]:
    """Count the forward entries of functions that are not ours; modules contain other entries."""
    return Counter(
        kind
        for dump in dumps
        for name in dump.entries
        if NAME.fullmatch(name) and name.endswith(".forward")
        if (kind := entry_kind(name)) not in APIS
    )


def _described(
    call: DumpedCall,
    dump: Dump,
    profile: Profile,
    deterministic: bool,
    target: dict[str, Any] | None,
) -> CallInDump:
    """Return a call with its plan, contradictions and, if ``target`` is given, verdicts."""
    answer = CallInDump(
        operator=call.operator,
        entry=call.entry,
        place=dump.place,
        arguments=ReadOnlyDict({name: _text(value) for name, value in call.arguments.items()}),
        results=ReadOnlyDict({name: _text(value) for name, value in call.results.items()}),
        outcome=RUNS,
        contradictions=contradictions(call),
        remarks=remarks(call),
    )
    try:
        planned = _plan(call, profile, deterministic)
    except NO_PLAN as error:
        return answer.model_copy(update={"outcome": error.outcome, "message": error.message})
    except (NpuSimError, ValueError) as error:
        message = getattr(error, "message", str(error))
        return answer.model_copy(update={"outcome": UNREADABLE, "message": message})
    timing = {order.output: order.reason for order in planned.order if not order.fixed}
    found: dict[str, Any] = {"path": planned.path, "timing": ReadOnlyDict(timing)}
    if target is not None and (verification := verify_call(call, target)) is not None:
        found |= _verified(verification)
        found["remarks"] = (*answer.remarks, *_casts(verification))
    return answer.model_copy(update=found)


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
    """Yield a note on every result that was cast after the call, by autograd for instance."""
    for name, verdict in verification.outputs.items():
        if verdict.rounded_from:
            yield Text(
                "{output} is {dtype} in the dump, the product writes {written}: compared after "
                "rounding",
                output=name,
                dtype=str(verdict.given.dtype),
                written=verdict.rounded_from,
            )


def _plan(call: DumpedCall, profile: Profile, deterministic: bool) -> Plan:
    arguments: dict[str, Any] = {
        name: value.spec if isinstance(value, DumpedTensor) else value
        for name, value in call.arguments.items()
    }
    return plan(call.operator, product=profile, deterministic=deterministic, **arguments)


def _text(value: Any) -> Any:
    if not isinstance(value, DumpedTensor):
        return value
    return f"{'x'.join(map(str, value.shape)) or 'scalar'}:{value.dtype}"


def _explained(
    difference: Difference, dumped: Sequence[tuple[Dump, DumpedCall]], calls: Sequence[CallInDump]
) -> FirstDifference:
    """Return a difference with the call of ours that it belongs to, if there is one.

    - ``dumped``, ``calls``: the calls with their tensors and as described, in the same order.
    """
    place = (difference.place, difference.entry)
    found = ((dumped_call, call) for (_, dumped_call), call in zip(dumped, calls, strict=True))
    dumped_call, call = next(
        (pair for pair in found if (pair[1].place, pair[1].entry) == place), (None, None)
    )
    timing: tuple[str, ...] | None = None
    if dumped_call is not None and call is not None and call.outcome == RUNS:
        results = {id(tensor): name for name, tensor in dumped_call.results.items()}
        different = [results.get(id(tensor), "") for tensor in difference.tensors]
        timing = tuple(different) if all(name in call.timing for name in different) else ()
    return FirstDifference(
        place=difference.place,
        entry=difference.entry,
        outputs=difference.outputs,
        inputs=difference.inputs.name.lower(),
        operator=call.operator if call is not None else None,
        can_differ=None if timing is None else bool(timing),
        reason=_reason(difference, timing),
    )


def _reason(difference: Difference, timing: tuple[str, ...] | None) -> str:
    """Return what a difference means.

    - ``timing``: the outputs that differ, if all depend on timing; None if that is not known.
    """
    if difference.inputs is Comparison.DIFFERENT:
        return (
            "its inputs differ as well, and no earlier call has equal inputs: the difference came "
            "in from outside the dumped calls"
        )
    if timing is None:
        return "npu_sim does not model this call: whether it can differ by itself is not known"
    if timing:
        return Text(
            "two runs of this call can differ on this product: {outputs}; "
            "torch.use_deterministic_algorithms(True) makes it deterministic",
            outputs=", ".join(timing),
        )
    return (
        "two runs of this call cannot differ on this product: look for another input (weights, "
        "random numbers), another release or product, or memory that something else wrote"
    )
