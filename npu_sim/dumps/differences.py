"""Two dumps compared: entries whose outputs differ, and how their inputs compare."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from npu_sim.dumps.calls import arguments_of
from npu_sim.dumps.folder import MODULE, Dump, Entry, StoredTensor, tensors_of
from npu_sim.language import Text, joined
from npu_sim.status import UsageError, shown
from npu_sim.verdicts.answers import bits_of


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


def differing_elements(first: StoredTensor, second: StoredTensor) -> np.ndarray:
    """Return the mask of elements whose bits differ; raises UsageError for damaged files."""
    mask: np.ndarray = bits_of(first.values()) != bits_of(second.values())
    return mask.reshape(first.shape)
