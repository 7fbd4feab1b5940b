"""What a preflight leaves behind: result lines, JUnit XML for continuous integration, and text."""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol
from xml.sax.saxutils import escape, quoteattr

from rich.console import Group, RenderableType
from rich.table import Table

from npu_sim.files.writing import whole_file, write_text
from npu_sim.questions.preflight import MALFORMED, Checked, Summary

SHOWN_PROBLEMS = 20
NOT_IN_XML = re.compile("[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class Sink(Protocol):
    """Something that takes results one by one."""

    def add(self, checked: Checked) -> None:
        """Take one result."""


def problem_text(checked: Checked) -> str:
    """Return what is wrong with a line."""
    if checked.differences:
        return "; ".join(f"{name}: expected {one['expected']}, found {one['found']}" for name, one in checked.differences.items())
    return checked.message


def summary_view(summary: Summary, problems: Iterable[Checked]) -> RenderableType:
    """Return counts and the first problems as something rich can print."""
    counts = Table.grid(padding=(0, 2))
    shown = [(name, getattr(summary, name)) for name in ("runs", "refused", "failed", "malformed")]
    counts.add_row("calls", f"{summary.lines}: " + ", ".join(f"{count} {name}" for name, count in shown if count or name == "runs"))
    if summary.as_expected or summary.differ:
        counts.add_row("expected", f"{summary.as_expected} as expected, {summary.differ} different")
    if summary.peak is not None:
        place = f"line {summary.peak.line}: {summary.peak.op} on {summary.peak.soc}"
        counts.add_row("peak", f"{summary.peak.workspace_bytes} bytes of workspace, {place}")
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 0))
    for name in ("line", "op", "SoC", "outcome", "why"):
        table.add_column(name, justify="right" if name == "line" else "left", overflow="fold")
    listed = list(problems)
    for one in listed[:SHOWN_PROBLEMS]:
        outcome = "different" if one.differences else f"{one.outcome} {one.status or ''}".rstrip()
        table.add_row(str(one.line), one.op, one.soc, outcome, problem_text(one))
    parts: list[RenderableType] = [counts]
    if listed:
        parts += ["", table]
    if summary.not_fine > SHOWN_PROBLEMS:
        parts.append(f"and {summary.not_fine - SHOWN_PROBLEMS} more: --out FILE lists all")
    return Group(*parts)


class JUnitFile:
    """Writes results as JUnit XML; the counts come last, so they are written to the head at the end."""

    def __init__(self, suite: str) -> None:
        self.suite = suite
        self.cases: list[str] = []
        self.failures = self.errors = 0

    def add(self, checked: Checked) -> None:
        """Take one result: a refusal or difference is a failure, a malformed line an error."""
        name = f"line {checked.line}: {checked.op or '?'} {checked.soc}".rstrip()
        head = f"  <testcase classname={quoteattr(_printable(checked.op or 'malformed'))} name={quoteattr(_printable(name))}"
        if checked.fine:
            self.cases.append(head + "/>")
            return
        malformed = checked.outcome == MALFORMED
        self.errors += malformed
        self.failures += not malformed
        kind = "error" if malformed else "failure"
        text = _printable(problem_text(checked))
        label = checked.outcome if checked.status is None else f"{checked.outcome} {checked.status}"
        self.cases.append(f"{head}>\n    <{kind} message={quoteattr(label)}>{escape(text)}</{kind}>\n  </testcase>")

    def write(self, path: Path) -> None:
        """Write the file."""
        counts = f'tests="{len(self.cases)}" failures="{self.failures}" errors="{self.errors}"'
        lines = [
            '<?xml version="1.0" encoding="UTF-8"?>',
            f"<testsuite name={quoteattr(self.suite)} {counts}>",
            *self.cases,
            "</testsuite>",
            "",
        ]
        write_text(path, "\n".join(lines), "junit")


def _printable(text: str) -> str:
    """Replace characters that XML cannot hold."""
    return NOT_IN_XML.sub("?", text)


@contextmanager
def result_lines(path: Path | None) -> Iterator[Callable[[Checked], None]]:
    """Open the file that takes one JSON line a result, and give what writes one; it gets its name when all is written."""
    if path is None:
        yield lambda checked: None
        return
    with whole_file(path) as file:

        def write(checked: Checked) -> None:
            # What UTF-8 does not have, halves of pairs of surrogates, becomes the escape that JSON has for it.
            file.write(json.dumps(checked.as_dict(), ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n")

        yield write
