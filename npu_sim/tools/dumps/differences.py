"""Two dumps compared: entries whose outputs differ, and whether the timing of cores explains it."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from math import inf, isfinite, isnan, sqrt
from typing import Any, NamedTuple

import numpy as np
from pydantic import Field

from npu_sim.language import Text, joined
from npu_sim.numbers.arrays import Array
from npu_sim.operators.shared.dumped import Spread
from npu_sim.plans.answers import Frozen, FrozenDict, ReadOnlyDict, TextField
from npu_sim.status import UsageError, shown
from npu_sim.tools.dumps.calls import DumpedCall, arguments_of, moves_data
from npu_sim.tools.dumps.msprobe import MODULE, Dump, Entry, StoredTensor, tensors_of
from npu_sim.verdicts.answers import UNDECIDED, UNREACHABLE, Verification, bits_of


class Comparison(IntEnum):
    """How two values compare, by the most certain evidence in both dumps.

    Answers give the name in lower case.
    """

    EQUAL = 0
    """Equal bits: of the values, or of a checksum."""
    SIMILAR = 1
    """Equal statistics, which proves nothing."""
    UNKNOWN = 2
    """Neither values nor checksums nor statistics in both."""
    DIFFERENT = 3


class Compared(NamedTuple):
    """How a value compares, and what differs, or why values were not compared."""

    comparison: Comparison
    text: str = ""


EQUAL = Compared(Comparison.EQUAL)


@dataclass(frozen=True)
class Difference:
    """An entry whose outputs differ.

    Attributes
    ----------
    entry, counterpart
        Its name in each dump.
    outputs
        The outputs that differ, by name: the values of both dumps, and what differs.
    inputs
        Inputs, arguments and parameters, by name.
    """

    entry: str
    counterpart: str
    outputs: Mapping[str, tuple[Any, Any, Compared]]
    inputs: Mapping[str, tuple[Any, Any, Compared]]

    @property
    def comparison(self) -> Comparison:
        """How the inputs compare: the least certain of them."""
        return max(
            (compared.comparison for _, _, compared in self.inputs.values()),
            default=Comparison.EQUAL,
        )

    @property
    def arguments(self) -> Mapping[str, str]:
        """Arguments other than tensors that differ, by name."""
        return {
            name: compared.text
            for name, (first, second, compared) in self.inputs.items()
            if compared.comparison is Comparison.DIFFERENT
            and not isinstance(first, StoredTensor | tuple)
            and not isinstance(second, StoredTensor | tuple)
        }

    @property
    def is_origin(self) -> bool:
        """Whether the difference may have arisen in this call: no input tensor differs."""
        different = [
            name
            for name, (_, _, compared) in self.inputs.items()
            if compared.comparison is Comparison.DIFFERENT
        ]
        return len(different) == len(self.arguments)


@dataclass(frozen=True)
class DumpComparison:
    """Two dumps of one step and rank.

    Attributes
    ----------
    differences
        Entries whose outputs differ, in order.
    tensors
        Number of output tensors by how they compare.
    notes
        Why values were not compared, by entry.
    """

    first: Dump
    second: Dump
    differences: tuple[Difference, ...]
    tensors: Mapping[Comparison, int]
    notes: Mapping[str, str]

    @cached_property
    def alone(self) -> tuple[tuple[Dump, str], ...]:
        """Entries without a counterpart in the other dump, each with its dump."""
        return tuple(
            (dump, name)
            for dump, other in ((self.first, self.second), (self.second, self.first))
            for name in dump.entries
            if name not in other.unreadable and other.counterpart(name) is None
        )


def compare_dumps(first: Dump, second: Dump) -> DumpComparison:
    """Compare the entries of two dumps by name."""
    differences: list[Difference] = []
    tensors, notes = Counter[Comparison](), dict[str, str]()
    for name, entry in first.entries.items():
        other = second.counterpart(name)
        if other is None:
            continue
        outputs = _compared(entry.outputs, other.outputs)
        for value, counterpart, compared in outputs.values():
            tensors[compared.comparison] += any(tensors_of((value, counterpart)))
            if compared.text and compared.comparison is not Comparison.DIFFERENT:
                notes[name] = compared.text
        different = {
            output: found
            for output, found in outputs.items()
            if found[2].comparison is Comparison.DIFFERENT
        }
        if different and not _is_copy(name, different, differences):
            inputs = _compared(_inputs(first, entry), _inputs(second, other))
            differences.append(Difference(name, other.name, different, inputs))
    return DumpComparison(first, second, tuple(differences), tensors, notes)


def _compared(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of two maps by name, with how they compare."""
    pairs = {name: (first.get(name), second.get(name)) for name in (*first, *second)}
    return {name: (*pair, compare_values(*pair)) for name, pair in pairs.items()}


def _is_copy(name: str, outputs: Mapping[str, Any], earlier: Sequence[Difference]) -> bool:
    """Return whether a module returns what a call in it returned: that difference is the same."""
    found = [values for difference in earlier for values in difference.outputs.values()]
    return MODULE.fullmatch(name) is not None and all(
        any(
            max(_recorded(value, copied), _recorded(other, source)) <= Comparison.SIMILAR
            for copied, source, _ in found
        )
        for value, other, _ in outputs.values()
    )


def _recorded(first: Any, second: Any) -> Comparison:
    """Compare two tensors of one dump."""
    if not isinstance(first, StoredTensor) or not isinstance(second, StoredTensor):
        return Comparison.DIFFERENT
    return compare_tensors(first, second).comparison


def _inputs(dump: Dump, entry: Entry) -> dict[str, Any]:
    """Return all that an entry depends on; a gradient also on the forward call."""
    match = MODULE.fullmatch(entry.name)
    if match is not None and match["direction"] == "parameters_grad":
        others = (dump.entries[name] for name in dump.modules[match["module"]])
        calls = [other for other in others if other.name != entry.name]
        return {
            f"{call.name} {name}": value for call in calls for name, value in _given(call).items()
        }
    given = _given(entry)
    forward = dump.partner(entry.name, "forward")
    if forward is None or forward is entry:
        return given
    outputs = {
        Text("{output} of the forward call", output=name): value
        for name, value in forward.outputs.items()
    }
    return given | _given(forward) | outputs


def _given(entry: Entry) -> dict[str, Any]:
    """Return what an entry was given, by name."""
    if ".backward" in entry.name:
        return {
            Text("gradient of output {place}", place=place): value
            for place, value in enumerate(entry.inputs)
        }
    return arguments_of(entry)


def compare_values(first: Any, second: Any) -> Compared:
    """Compare two values: tensors, numbers, strings, None, or tuples of values."""
    if isinstance(first, StoredTensor) and isinstance(second, StoredTensor):
        return compare_tensors(first, second)
    if isinstance(first, tuple) and isinstance(second, tuple) and len(first) == len(second):
        found = [compare_values(*pair) for pair in zip(first, second, strict=True)]
        return max(found, key=lambda compared: compared.comparison, default=EQUAL)
    same = first == second or (first != first and second != second)  # nan
    if same and isinstance(first, StoredTensor) == isinstance(second, StoredTensor):
        return EQUAL
    return Compared(
        Comparison.DIFFERENT,
        Text("{first} against {second}", first=_text(first), second=_text(second)),
    )


def _text(value: Any) -> str:
    if isinstance(value, StoredTensor):
        return Text("a tensor")
    return Text("nothing") if value is None else shown(value)


def compare_tensors(first: StoredTensor, second: StoredTensor) -> Compared:
    """Compare two tensors by values, else by checksums, else by statistics."""
    for fact, other in ((first.dtype, second.dtype), (_shape(first), _shape(second))):
        if fact != other:
            text: str = Text("{first} against {second}", first=fact, second=other)
            return Compared(Comparison.DIFFERENT, text)
    try:
        if (same := _same_values(first, second)) is not None:
            return EQUAL if same else Compared(Comparison.DIFFERENT, _statistics(first, second))
        note = ""
    except UsageError as error:  # a damaged or missing file: what is recorded remains
        note = error.message
    if text := _statistics(first, second):
        return Compared(Comparison.DIFFERENT, text)
    recorded = first.statistics.keys() & second.statistics.keys()
    return Compared(Comparison.SIMILAR if recorded else Comparison.UNKNOWN, note)


def _shape(tensor: StoredTensor) -> str:
    return "x".join(map(str, tensor.shape)) or "scalar"


def _same_values(first: StoredTensor, second: StoredTensor) -> bool | None:
    """Return whether two tensors have equal bits, by values or checksums; None if unknown.

    Raises UsageError when a file is damaged or missing.
    """
    for tensor in (first, second):
        if tensor.name and tensor.file is None:
            tensor.values()  # raises
    if first.file is not None and second.file is not None:
        arrays = [np.ascontiguousarray(tensor.values()) for tensor in (first, second)]
        return arrays[0].dtype == arrays[1].dtype and arrays[0].tobytes() == arrays[1].tobytes()
    for recorded, other in ((first, second), (second, first)):
        if recorded.checksum and (other.checksum or other.file is not None):
            checksums = other.checksums(recorded.checksum)
            if checksums:
                return recorded.checksum in checksums
    return None


def _statistics(first: StoredTensor, second: StoredTensor) -> str:
    """Return the statistics that differ; empty when those in both are equal."""
    numbers = first.statistics, second.statistics
    return joined(
        [
            Text(
                "{statistic} {first} against {second}",
                statistic=name,
                first=f"{value:.{telling_digits(value, other)}g}",
                second=f"{other:.{telling_digits(value, other)}g}",
            )
            for name in numbers[0]
            if name in numbers[1]
            and (value := numbers[0][name]) != (other := numbers[1][name])
            and not (value != value and other != other)
        ],
        ", ",
    )


def telling_digits(value: float, other: float) -> int:
    """Return the digits that tell two different numbers apart: 6, or more where they are needed."""
    return next((n for n in range(6, 17) if f"{value:.{n}g}" != f"{other:.{n}g}"), 17)


def matched(
    first: Sequence[Dump], second: Sequence[Dump]
) -> tuple[list[tuple[Dump, Dump]], list[Dump]]:
    """Return the pairs of dumps of one step and rank, and the dumps without a counterpart.

    The only dumps of a step are a pair whatever their ranks are called, and so are two single dumps
    whatever their steps are: a process without a rank is ``rank`` in older versions of msprobe and
    ``proc<pid>`` in newer ones.
    """
    if len(first) == len(second) == 1:
        return [(first[0], second[0])], []
    pairs, left = [], [list(first), list(second)]
    for key in ("place", "step"):
        for dump in list(left[0]):
            same = getattr(dump, key)
            rivals = [[other for other in side if getattr(other, key) == same] for side in left]
            if len(rivals[0]) == len(rivals[1]) == 1:
                pairs.append((dump, rivals[1][0]))
                left[0].remove(dump)
                left[1].remove(rivals[1][0])
    order = {dump.place: position for position, dump in enumerate(first)}
    return sorted(pairs, key=lambda pair: order[pair[0].place]), [*left[0], *left[1]]


def differing_elements(first: StoredTensor, second: StoredTensor) -> Array:
    """Return the mask of elements whose bits differ; raises UsageError for damaged files."""
    mask: Array = bits_of(first.values()) != bits_of(second.values())
    return mask.reshape(first.shape)


RUNS = "runs"
UNREADABLE = "unreadable"
"""Outcome of a call whose entry has no valid arguments."""
MOST_INPUTS = 3
"""Inputs that the reason of a difference names."""
ROUNDING = {"bfloat16": 2.0**-8, "float16": 2.0**-11}
"""Relative error of a result that was cast to 16 bits."""
NORM_ROUNDING = 2.0**-12
"""Relative error of a norm in fp32."""
UNUSUAL = 5.0
"""Factor from which on a difference is wider than timing usually makes it."""


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
    races
        Results that a race can overwrite, with the code of the plan's warning.
    contradictions
        Statistics that the product cannot have written.
    remarks
        What is possible but deserves a look.
    verdicts
        Of a call whose tensors are all in the dump: ``equal``, ``reachable``, ``undecided`` or
        ``unreachable`` by result, see :func:`npu_sim.verify`.
    unverified
        Why there are no verdicts, where the dump has tensor files.
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
    races: FrozenDict[str] = Field(default_factory=ReadOnlyDict)
    contradictions: tuple[TextField, ...] = ()
    remarks: tuple[TextField, ...] = ()
    verdicts: FrozenDict[str] = Field(default_factory=ReadOnlyDict)
    unverified: TextField = ""
    explanations: tuple[TextField, ...] = ()
    details: FrozenDict[Any] = Field(default_factory=ReadOnlyDict)

    @property
    def impossible(self) -> bool:
        """Whether the product cannot have written a value of this call."""
        return bool(self.contradictions) or "unreachable" in self.verdicts.values()

    @property
    def is_proved(self) -> bool:
        """Whether all values were checked and the product can have written them."""
        return bool(self.verdicts) and {*self.verdicts.values()} <= {"equal", "reachable"}


class FirstDifference(Frozen):
    """Entry of a dump whose outputs differ from those of another dump.

    Attributes
    ----------
    place, entry, outputs
        Step and rank, name of the entry, and the names of its outputs that differ.
    differs
        What differs in them, as far as it is recorded.
    inputs
        How the inputs compare: ``equal``, ``similar`` (statistics only), ``unknown``, or
        ``different``.
    operator
        Our operator, or None for a call that npu_sim does not have.
    can_differ
        Whether all outputs that differ can differ so between two runs of the call on this product;
        None if that is not known.
    reason
        What this means, and how to make the call deterministic.
    """

    place: str
    entry: str
    outputs: tuple[str, ...]
    differs: tuple[TextField, ...]
    inputs: str
    operator: str | None
    can_differ: bool | None
    reason: TextField


@dataclass(frozen=True)
class DescribedCall:
    """A call in a dump with its answer.

    Attributes
    ----------
    verification
        What :func:`npu_sim.verify` found, kept for calls whose results differ.
    """

    dumped: DumpedCall
    answer: CallInDump
    verification: Verification | None


def judged(
    comparison: DumpComparison, described: Sequence[Mapping[tuple[str, str], DescribedCall]]
) -> Iterator[FirstDifference]:
    """Yield the differences that arose in their call, or else the first one, with their reasons."""
    origins = [difference for difference in comparison.differences if difference.is_origin]
    pair = (comparison.first, comparison.second)
    for difference in origins or comparison.differences[:1]:
        entries = (difference.entry, difference.counterpart)
        first, second = (
            side.get((dump.place, entry))
            for side, dump, entry in zip(described, pair, entries, strict=True)
        )
        both = (first, second) if first is not None and second is not None else None
        names = _result_names(difference, both)
        can_differ, reason = _cause(difference, names, both, comparison)
        yield FirstDifference(
            place=comparison.first.place,
            entry=difference.entry,
            outputs=tuple(names.values()),
            differs=tuple(
                Text("{output}: {difference}", output=names[output], difference=compared.text)
                for output, (_, _, compared) in difference.outputs.items()
                if compared.text
            ),
            inputs=difference.comparison.name.lower(),
            operator=both[0].answer.operator if both is not None else None,
            can_differ=can_differ,
            reason=reason,
        )


def _result_names(
    difference: Difference, calls: tuple[DescribedCall, DescribedCall] | None
) -> dict[str, str]:
    """Return our names of the outputs that differ."""
    results = {} if calls is None else calls[0].dumped.results
    ours = {id(tensor): name for name, tensor in results.items()}
    return {
        output: ours.get(id(first), output) for output, (first, _, _) in difference.outputs.items()
    }


def _cause(
    difference: Difference,
    names: Mapping[str, str],
    calls: tuple[DescribedCall, DescribedCall] | None,
    comparison: DumpComparison,
) -> tuple[bool | None, str]:
    """Return whether a call can differ by itself as it does, and what the difference means."""
    if difference.arguments:
        return None, Text(
            "the two calls have different arguments: {arguments}",
            arguments=_listed(difference.arguments),
        )
    if not difference.is_origin:
        return None, _outside_text(difference, bool(comparison.alone))
    if moves_data(difference.entry):
        return False, _copy_cause(difference)
    if calls is None or calls[0].answer.outcome != RUNS:
        return (
            None,
            "npu_sim does not model this call: whether it can differ by itself is not known",
        )
    if devices := _devices(calls):
        return False, devices
    timing = {**calls[0].answer.timing, **calls[0].answer.races}
    if all(name in timing for name in names.values()):
        return _timing_cause(difference, names, calls, comparison)
    if difference.comparison is not Comparison.EQUAL:
        return False, Text(
            "with equal inputs this call cannot differ on this product. That its inputs are equal "
            "is not proved, as the dumps do not hold their values: they, or the call, differ; dump "
            "both runs with task tensor, or with checksums"
        )
    return False, (
        "two runs of this call cannot differ on this product: look for another input (weights, "
        "random numbers), another release or product, or memory that something else wrote"
    )


def _copy_cause(difference: Difference) -> str:
    """Return the likely cause of other results of a call that copies elements."""
    if difference.comparison is Comparison.EQUAL:
        return Text(
            "this call copies elements, and its inputs are equal: timing cannot change its "
            "results. One of the dumped tensors is not what the kernel read or wrote, or something "
            "else wrote to the memory"
        )
    return Text(
        "this call copies elements: with equal inputs its results cannot differ. That its inputs "
        "are equal is not proved, as the dumps do not hold their values; dump both runs with task "
        "tensor, or with checksums"
    )


def _listed(differences: Mapping[str, str]) -> str:
    return joined(
        (
            Text("{name}: {difference}", name=name, difference=text)
            for name, text in differences.items()
        ),
        "; ",
    )


def _outside_text(difference: Difference, unmatched: bool) -> str:
    """Return the text of the first difference, whose inputs differ as well."""
    different = {
        name: compared.text or Text("other values")
        for name, (_, _, compared) in difference.inputs.items()
        if compared.comparison is Comparison.DIFFERENT
    }
    source = (
        Text("from outside the dumped calls")
        if not unmatched
        else Text("from outside the calls that both dumps have")
    )
    return Text(
        "its inputs differ as well ({inputs}), and no earlier call has equal inputs: the "
        "difference came in {source}",
        inputs=_listed(dict(list(different.items())[:MOST_INPUTS])),
        source=source,
    )


def _timing_cause(
    difference: Difference,
    names: Mapping[str, str],
    calls: tuple[DescribedCall, DescribedCall],
    comparison: DumpComparison,
) -> tuple[bool | None, str]:
    """Return whether the timing of cores explains a difference."""
    outputs = ", ".join(names.values())
    counts = [_counts(call, difference, names) for call in calls]
    dumps = (comparison.first, comparison.second)
    for (unreachable, _, of), dump in zip(counts, dumps, strict=True):
        if unreachable:
            return False, Text(
                "timing does not explain it: {count} of {of} elements of {outputs} are impossible "
                "in {folder}",
                count=unreachable,
                of=of,
                outputs=outputs,
                folder=dump.folder,
            )
    if undecided := max(count for _, count, _ in counts):
        return None, Text(
            "timing may explain it, which is not proved: {count} of {of} elements of {outputs} are "
            "undecided",
            count=undecided,
            of=counts[0][2],
            outputs=outputs,
        )
    if any(call.verification is None for call in calls):
        return _statistical_cause(difference, names, calls)
    if races := _races(calls):
        return True, Text(
            "two runs of this call can differ on this product: a race can overwrite {outputs} "
            "({races}), also with deterministic computation",
            outputs=outputs,
            races=races,
        )
    return True, Text(
        "two runs of this call can differ on this product: {outputs}; "
        "torch.use_deterministic_algorithms(True) makes it deterministic",
        outputs=outputs,
    )


def _races(calls: tuple[DescribedCall, DescribedCall]) -> str:
    """Return the races that can overwrite results of a call; empty for none."""
    return ", ".join(sorted({race for call in calls for race in call.answer.races.values()}))


def _statistical_cause(
    difference: Difference, names: Mapping[str, str], calls: tuple[DescribedCall, DescribedCall]
) -> tuple[bool | None, str]:
    """Return False where timing cannot explain the statistics, else None: they prove no cause."""
    outputs = ", ".join(names.values())
    if races := _races(calls):
        return None, Text(
            "timing may explain it: a race can overwrite {outputs} ({races}), also with "
            "deterministic computation. Whether the values are possible is not proved, as those of "
            "both dumps were not checked; dump with task tensor",
            outputs=outputs,
            races=races,
        )
    spreads = _spreads(calls[0].dumped)
    gaps = [
        gap
        for output, (first, second, _) in difference.outputs.items()
        for gap in _gaps(names[output], first, second, spreads.get(names[output]))
    ]
    if impossible := [gap for gap in gaps if not gap.apart <= gap.bound]:
        worst = max(impossible, key=lambda gap: gap.apart / gap.bound)
        text = "timing does not explain it: {numbers}; two orders are at most {bound} apart"
        return False, Text(text, numbers=worst.numbers, bound=f"{worst.bound:.3g}")
    widest = max(gaps, key=lambda gap: gap.factor, default=None)
    if widest is not None and widest.factor >= UNUSUAL:
        return None, Text(
            "timing is an unlikely cause: {numbers}. Two orders are typically {typical} apart for "
            "these statistics, which is {factor} times less; the worst case of all values is "
            "{bound}. Whether the values are possible is not proved: dump with task tensor",
            numbers=widest.numbers,
            typical=f"{widest.typical:.1g}",
            factor=f"{widest.factor:,.0f}",
            bound=f"{widest.bound:.3g}",
        )
    return None, Text(
        "timing may explain it: {outputs} depends on the order of cores. Whether the values are "
        "possible is not proved, as those of both dumps were not checked; dump with task tensor",
        outputs=outputs,
    )


def _spreads(call: DumpedCall) -> Mapping[str, Spread]:
    """Return how far two orders are apart, by result; nothing for arguments of a wrong type."""
    try:
        return call.hook.spread(call.arguments)
    except AttributeError:  # a number in place of a tensor
        return {}


def _devices(calls: tuple[DescribedCall, DescribedCall]) -> str:
    """Return the text of results that are possible on different targets; empty for others."""
    first, second = (call.verification for call in calls)
    if first is None or second is None or "unreachable" in (first.status, second.status):
        return ""
    targets = [
        (reading.product, reading.soc, reading.release, reading.deterministic)
        for reading in (first, second)
    ]
    if targets[0] == targets[1]:
        return ""
    return Text(
        "each result is possible on its own target, and they differ: the dumps are of different "
        "devices, releases or modes of determinism"
    )


def _counts(
    call: DescribedCall, difference: Difference, names: Mapping[str, str]
) -> tuple[int, int, int]:
    """Return how many of the differing elements are unreachable, undecided, and their number.

    Where a file is damaged, all elements count as differing; without a verification, none.
    """
    if call.verification is None:
        return 0, 0, 0
    counts = np.zeros(3, np.int64)
    for output, (first, second, _) in difference.outputs.items():
        elements = call.verification.outputs[names[output]].elements
        try:
            elements = elements[differing_elements(first, second)]
        except UsageError:
            elements = elements.reshape(-1)
        codes = (elements == UNREACHABLE, elements == UNDECIDED, np.ones_like(elements))
        counts += [np.count_nonzero(code) for code in codes]
    unreachable, undecided, total = counts.tolist()
    return unreachable, undecided, total


class _Gap(NamedTuple):
    """A statistic of a result that differs between two dumps."""

    numbers: str
    """The statistic in both."""
    apart: float
    """How far it is apart; nan where one of the two is no number."""
    bound: float
    """Upper bound of how far two orders are apart."""
    typical: float
    """How far two orders typically are apart."""

    @property
    def factor(self) -> float:
        """How many times wider than typical."""
        return self.apart / self.typical if self.typical else 0.0


def _gaps(name: str, first: Any, second: Any, spread: Spread | None) -> Iterator[_Gap]:
    """Yield the statistics of a result that differ; none where their spread is not known."""
    if not isinstance(first, StoredTensor) or not isinstance(second, StoredTensor):
        return
    if spread is None or spread.bound == inf or first.extremes is None or second.extremes is None:
        return
    typical = spread.typical(min(first.largest, second.largest))
    unit = ROUNDING.get(first.dtype, 0.0)
    bounds = {"Max": spread.bound, "Min": spread.bound, "Norm": spread.bound * sqrt(first.size)}
    recorded = first.statistics.keys() & second.statistics.keys()
    for statistic in (name for name in bounds if name in recorded):
        value, other = first.statistics[statistic], second.statistics[statistic]
        if value == other or (isnan(value) and isnan(other)):
            continue
        relative = unit if statistic != "Norm" else max(unit, NORM_ROUNDING)
        rounding = 2 * relative * max(filter(isfinite, map(abs, (value, other))), default=0.0)
        digits = telling_digits(value, other)
        yield _Gap(
            Text(
                "{statistic} of {output} is {one} against {other}",
                statistic=statistic,
                output=name,
                one=f"{value:.{digits}g}",
                other=f"{other:.{digits}g}",
            ),
            abs(value - other),
            bounds[statistic] + rounding,
            typical + rounding,
        )
