"""What the differences of two dumps mean: whether the timing of cores explains them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np
from pydantic import Field

from npu_sim.dumps.calls import DumpedCall
from npu_sim.dumps.differences import (
    Comparison,
    Difference,
    DumpComparison,
    differing_elements,
    telling_digits,
)
from npu_sim.dumps.folder import StoredTensor
from npu_sim.language import Text, joined
from npu_sim.plans.answers import Frozen, FrozenDict, ReadOnlyDict, TextField
from npu_sim.status import UsageError
from npu_sim.verdicts.answers import UNDECIDED, UNREACHABLE, Verification

RUNS = "runs"
UNREADABLE = "unreadable"
"""Outcome of a call whose entry has no valid arguments."""
MOST_INPUTS = 3
"""Inputs that the reason of a difference names."""
ROUNDING = {"bfloat16": 2.0**-8, "float16": 2.0**-11}
"""Relative error of a result that was cast to 16 bits."""
NORM_ROUNDING = 2.0**-12
"""Relative error of a norm in fp32."""


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
    if calls is None or calls[0].answer.outcome != RUNS:
        return (
            None,
            "npu_sim does not model this call: whether it can differ by itself is not known",
        )
    if devices := _devices(calls):
        return False, devices
    timing = calls[0].answer.timing
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
        spread = _spread(calls[0].dumped)
        values = zip(names.values(), difference.outputs.values(), strict=True)
        texts = [
            _beyond(name, first, second, spread.get(name, float("inf")))
            for name, (first, second, _) in values
        ]
        if None in texts:
            return None, Text(
                "timing may explain it: {outputs} depends on the order of cores. That the values "
                "are possible is not proved, as the dumps do not hold them; dump with task tensor",
                outputs=outputs,
            )
        if any(texts):
            return False, Text(
                "timing does not explain it: {parts}", parts=joined(filter(None, texts), "; ")
            )
    return True, Text(
        "two runs of this call can differ on this product: {outputs}; "
        "torch.use_deterministic_algorithms(True) makes it deterministic",
        outputs=outputs,
    )


def _spread(call: DumpedCall) -> Mapping[str, float]:
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


def _beyond(name: str, first: Any, second: Any, spread: float) -> str | None:
    """Return the text of statistics that two orders cannot give; empty if they can.

    None when the statistics are not recorded, or the spread of a value is not known.
    """
    if not isinstance(first, StoredTensor) or not isinstance(second, StoredTensor):
        return None
    if spread == float("inf") or first.extremes is None or second.extremes is None:
        return None
    unit = ROUNDING.get(first.dtype, 0.0)
    bounds = {"Max": 1.0, "Min": 1.0, "Norm": sqrt(first.size)}
    recorded = first.statistics.keys() & second.statistics.keys()
    for statistic in (name for name in bounds if name in recorded):
        value, other = first.statistics[statistic], second.statistics[statistic]
        rounding = unit if statistic != "Norm" else max(unit, NORM_ROUNDING)
        bound = spread * bounds[statistic] + 2 * rounding * max(abs(value), abs(other))
        if (
            value != other
            and not abs(value - other) <= bound
            and (value == value or other == other)
        ):
            digits = telling_digits(value, other)
            return Text(
                "{statistic} of {output} is {one} against {other}; two orders are at most {bound} "
                "apart",
                statistic=statistic,
                output=name,
                one=f"{value:.{digits}g}",
                other=f"{other:.{digits}g}",
                bound=f"{bound:.3g}",
            )
    return ""
