"""Verdicts on the measured outputs of a call of a kit."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from npu_sim.cores import Profile
from npu_sim.language import Text
from npu_sim.numbers.arrays import Arrays
from npu_sim.tools.device_kit.answers import CONFIRMED
from npu_sim.tools.device_kit.results import Line
from npu_sim.verdicts.answers import UNDECIDED, UNREACHABLE, OutputVerdict
from npu_sim.verdicts.verify import verify

ORDER = (*CONFIRMED, "undecided", "unreachable")
"""Verdicts from the best to the worst."""


@dataclass(frozen=True)
class Bits:
    """The verdict on one run of a call.

    Attributes
    ----------
    verdict
        One of ``ORDER``.
    impossible
        Number of impossible elements by output, where there are any.
    findings
        A sentence for each of these outputs.
    """

    verdict: str
    impossible: Mapping[str, int]
    findings: tuple[str, ...]


def judged_bits(line: Line, profile: Profile, deterministic: bool, tensors: Arrays) -> Bits:
    """Return the verdict of ``verify`` on a call, given its inputs and measured outputs by name."""
    arguments: dict[str, Any] = {**tensors, **line.attributes}
    answer = verify(
        line.operator, product=profile, deterministic=deterministic, explain=False, **arguments
    )
    counts = {name: _contradicting(output) for name, output in answer.outputs.items()}
    impossible = {name: count for name, count in counts.items() if count}
    findings = tuple(
        Text(
            "{output}: {count} of {of} elements are impossible",
            output=name,
            count=count,
            of=answer.outputs[name].elements.size,
        )
        for name, count in impossible.items()
    )
    return Bits(ORDER[-1] if impossible else answer.status, impossible, findings)


def _contradicting(output: OutputVerdict) -> int:
    """Return the number of elements that the device cannot have computed by npu_sim's rules.

    Inferred rules of a product or release count: a device decides them.
    """
    published = tuple(rule for rule in output.rules if not rule.is_inferred)
    if len(published) == len(output.rules):
        return output.counts["unreachable"]
    decided = ~output.order_dependent & ~replace(output, rules=published).allowed_by_a_rule
    differing = (output.elements == UNREACHABLE) | (decided & (output.elements == UNDECIDED))
    return int(np.count_nonzero(differing))
