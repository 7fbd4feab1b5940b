"""Baseline of a preflight: findings that are accepted, one JSON object a line."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from npu_sim.files.reading import JSON_BYTES, read_limited
from npu_sim.files.schemas import schema
from npu_sim.files.writing import write_text
from npu_sim.language import Text
from npu_sim.status import UsageError

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
