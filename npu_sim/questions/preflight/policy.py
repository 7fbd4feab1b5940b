"""Rules for accepting calls in a preflight, and its baseline of accepted findings."""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from npu_sim.cores import load_profile
from npu_sim.files.reading import JSON_BYTES, read_limited
from npu_sim.files.writing import schema, write_text
from npu_sim.language import Text
from npu_sim.language.quantities import bytes_text
from npu_sim.plans.answers import Evidence
from npu_sim.plans.model import OVERFLOWS
from npu_sim.questions.preflight.answers import (
    FAILED,
    MALFORMED,
    REFUSED,
    UNKNOWN,
    WORKSPACE,
    Checked,
)
from npu_sim.questions.preflight.lines import Names
from npu_sim.questions.varied_calls import items_of, product_names
from npu_sim.status import UsageError, closest

HINT = "a file that npu-sim preflight --write-baseline wrote"


class Finding(NamedTuple):
    """What identifies a finding: not its line, so that calls can move within their file."""

    op: str
    """Operator of the call."""
    inputs: str
    """Inputs of the call as text."""
    target: str
    """Label of the column."""
    kind: str
    """Kind of the reason for not accepting the call, as in a :class:`Fault`."""
    reason: str
    """The reason."""


def read_baseline(path: Path) -> dict[Finding, int]:
    """Return the findings of a baseline with their line numbers.

    Raises UsageError for a file that cannot be read, and for a line that is not a finding.
    """
    lines = read_limited("baseline", path, JSON_BYTES, HINT).splitlines()
    return {_finding(path, number, line): number for number, line in enumerate(lines, 1)}


def _finding(path: Path, number: int, line: bytes) -> Finding:
    try:
        values = json.loads(line)
        finding = Finding(*(values[name] for name in Finding._fields))
        if not all(isinstance(value, str) for value in finding):
            raise TypeError
    except (ValueError, KeyError, TypeError, RecursionError):
        message = Text("{path}: line {number} is not an accepted finding", path=path, number=number)
        raise UsageError("baseline", message, HINT) from None
    return finding


def write_baseline(path: Path, findings: Iterable[Finding]) -> None:
    """Write a baseline."""
    form = schema("baseline")
    lines = (
        json.dumps({"schema": form, **finding._asdict()}, ensure_ascii=False) + "\n"
        for finding in findings
    )
    write_text(path, "".join(lines))


CRITERIA = ("refused", "caveat", "timing", "unknown")
"""Values of ``--fail-on``. Malformed lines, differences from ``expect`` and too much workspace
always fail."""
DEFAULT_CRITERIA = "refused"
UNITS = {
    "": 1,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
}
"""Bytes of the units of a size, in lower case."""


@dataclass(frozen=True)
class Policy:
    """Conditions under which a call is not accepted."""

    fail_on: frozenset[str] = frozenset((DEFAULT_CRITERIA,))
    """Subset of :data:`CRITERIA`: calls that do not run or overflow, have a caveat, have results
    that can differ between runs, or depend on something that is not published."""
    max_workspace: int | None = None
    """Largest accepted workspace in bytes; None for any."""
    informational: frozenset[str] = frozenset()
    """Products whose findings are shown but do not count."""

    def faults(self, checked: Checked) -> Iterator[tuple[str, str]]:
        """Yield kind and description of every reason for not accepting a call.

        That npu_sim does not model a call is always stated; :meth:`Matrix.findings` decides whether
        it counts.
        """
        facts = checked.facts
        refused = checked.outcome in (REFUSED, FAILED, OVERFLOWS) and checked.differences is None
        if (
            checked.outcome == MALFORMED
            or checked.differences
            or (refused and "refused" in self.fail_on)
        ):
            yield checked.label, checked.reason
        if self.max_workspace is not None and checked.workspace_bytes > self.max_workspace:
            size, most = bytes_text(checked.workspace_bytes), bytes_text(self.max_workspace)
            yield WORKSPACE, Text("{size}, more than {most}", size=size, most=most)
        if "caveat" in self.fail_on and facts.get("caveats"):
            yield "caveat", Text("caveats: {caveats}", caveats=", ".join(facts["caveats"]))
        if "timing" in self.fail_on and facts.get("timing"):
            yield (
                "timing",
                Text("can differ between runs: {outputs}", outputs=", ".join(facts["timing"])),
            )
        if checked.outcome == UNKNOWN and checked.differences is None:
            yield UNKNOWN, checked.reason
        if "unknown" in self.fail_on and (
            facts.get("workspace_unknown") or facts.get("evidence") == Evidence.UNKNOWN.value
        ):
            yield (
                "unknown",
                Text(
                    "not published: {parts}",
                    parts=", ".join(facts["workspace_unknown"]) or "how it is planned",
                ),
            )


def policy_of(
    fail_on: str = DEFAULT_CRITERIA,
    max_workspace: str | int | None = None,
    informational: Names = None,
) -> Policy:
    """Return the policy for texts such as ``"refused,timing"``, ``"256MiB"`` and ``"A3"``.

    Raises UsageError for an unknown kind or product, and for a malformed size.
    """
    criteria = items_of(fail_on)
    for criterion in criteria:
        if criterion not in CRITERIA:
            message = Text("fail_on = {criterion}: no such criterion", criterion=repr(criterion))
            hint = Text(
                "one of: {allowed}{hint}",
                allowed=", ".join(CRITERIA),
                hint=closest(criterion, CRITERIA),
            )
            raise UsageError("fail_on", message, hint)
    max_bytes = None if max_workspace is None else size_of(str(max_workspace))
    names = product_names(informational) if informational else ()
    return Policy(
        frozenset(criteria), max_bytes, frozenset(load_profile(name).name for name in names)
    )


def size_of(text: str) -> int:
    """Return the bytes of a text such as ``256MiB``.

    Raises UsageError for a malformed size.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", text.strip().lower())
    if match is None or match[2] not in UNITS:
        units = ", ".join(unit for unit in UNITS if unit)
        message = Text("max_workspace = {text} is not a size", text=repr(text))
        hint = Text("a number of bytes, or with a unit: {units}", units=units)
        raise UsageError("max_workspace", message, hint)
    return int(float(match[1]) * UNITS[match[2]])
