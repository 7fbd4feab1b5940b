"""Preflight: check a file of calls without data, one JSON object per line.

A line has the operator (or a vendor kernel, for its raw planner) and its inputs::

    {"op": "rms_norm_grad", "product": "atlas_a2", "deterministic": true, "count": 65,
     "name": "model.layers.*.input_layernorm",
     "inputs": {"dy": "4096x8192:bf16", "gamma": "8192:bf16"}}

``expect`` (any of ``status``, ``block_dim``, ``tiling_key``, ``workspace_bytes``,
``schedule_mode``, ``path`` and, for a kernel, ``tiling``) is compared with the result. The first
line may be the head of a recording, which lists what its calls do not cover.

:func:`check_file` checks a file on several products, SoCs and releases. Equal lines are one row,
checked once; :class:`Matrix` also tells where the columns differ. :class:`Policy` decides which
calls are accepted.
"""

import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from npu_sim.cores import load_profile
from npu_sim.files.reading import JSON_BYTES, read_limited
from npu_sim.files.writing import schema, write_text
from npu_sim.language import Argument, Text, bytes_text, grouped, joined
from npu_sim.plans.answers import Columns, Evidence, Printed, Tabular, columns_of
from npu_sim.plans.model import OVERFLOWS, REFUSED, RUNS
from npu_sim.questions.diff import changed_bits
from npu_sim.questions.preflight_checks import (
    ACCEPTED,
    ERROR,
    FAILED,
    INFORMATIONAL,
    MALFORMED,
    UNKNOWN,
    WORKSPACE,
    Checked,
    Comparison,
    Row,
    Summary,
    Totals,
    check_call,
    comparison,
    malformed,
    totals,
)
from npu_sim.questions.preflight_lines import (
    HEAD,
    IDENTITY,
    RECORDED,
    Call,
    Column,
    MalformedLineError,
    Names,
    call_of,
    chosen_columns,
    column_of_line,
    is_named,
    parse,
    profile_of_line,
)
from npu_sim.questions.varied_calls import items_of, product_names
from npu_sim.status import UsageError, tip

__all__ = [
    "ACCEPTED",
    "CRITERIA",
    "ERROR",
    "FAILED",
    "INFORMATIONAL",
    "MALFORMED",
    "REFUSED",
    "Checked",
    "Column",
    "Fault",
    "Finding",
    "Matrix",
    "Policy",
    "Row",
    "Summary",
    "check_file",
    "chosen_columns",
    "grouped_cells",
    "policy_of",
    "read_baseline",
    "write_baseline",
]

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
        raise UsageError(
            "baseline",
            "{path}: line {number} is not an accepted finding",
            HINT,
            path=path,
            number=number,
        ) from None
    return finding


def write_baseline(path: Path, findings: Iterable[Finding]) -> None:
    """Write a baseline."""
    form = schema("baseline")
    write_text(
        path,
        "".join(
            json.dumps({"schema": form, **finding._asdict()}, ensure_ascii=False) + "\n"
            for finding in findings
        ),
    )


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
        can_differ = [*facts.get("timing", ()), *facts.get("races", ())]
        if "timing" in self.fail_on and can_differ:
            outputs = ", ".join(can_differ)
            yield "timing", Text("can differ between runs: {outputs}", outputs=outputs)
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
            raise UsageError(
                "fail_on",
                "{fail_on} = {criterion}: no such criterion",
                "{tip}one of: {allowed}",
                fail_on=Argument("fail_on"),
                criterion=repr(criterion),
                allowed=", ".join(CRITERIA),
                tip=tip(criterion, CRITERIA),
            )
    names = product_names(informational) if informational else ()
    return Policy(
        frozenset(criteria),
        None if max_workspace is None else size_of(str(max_workspace)),
        frozenset(load_profile(name).name for name in names),
    )


def size_of(text: str) -> int:
    """Return the bytes of a text such as ``256MiB``.

    Raises UsageError for a malformed size.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", text.strip().lower())
    if match is None or match[2] not in UNITS:
        raise UsageError(
            "max_workspace",
            "{max_workspace} = {text} is not a size",
            "a number of bytes, or with a unit: {units}",
            max_workspace=Argument("max_workspace"),
            text=repr(text),
            units=", ".join(unit for unit in UNITS if unit),
        )
    return int(float(match[1]) * UNITS[match[2]])


BITS_OF_PRODUCTS = "rstd_differs_between_products"
"""Code of the caveat that a result has other bits than on another product."""


@dataclass(frozen=True)
class Difference:
    """One fact that is not the same on all columns."""

    fact: Literal["path", "cores", "bits", "time"]
    values: tuple[tuple[Any, tuple[str, ...]], ...]
    """Values of the fact, each with its columns; for ``bits``, what can differ between two."""
    rows: tuple[Row, ...]
    """Calls with this difference."""

    def as_dict(self) -> dict[str, Any]:
        """Return the difference as plain data."""
        return {
            "fact": self.fact,
            "lines": [row.line for row in self.rows],
            "values": [{"value": value, "targets": list(labels)} for value, labels in self.values],
        }


def _of_row(cells: Mapping[str, Checked]) -> Iterator[tuple[Any, ...]]:
    running = {label: cell for label, cell in cells.items() if cell.outcome == RUNS}
    facts: tuple[tuple[str, Mapping[str, Any]], ...] = (
        ("path", {label: cell.facts.get("path") for label, cell in running.items()}),
        ("cores", {label: cell.facts.get("block_dim") for label, cell in running.items()}),
        *(("time", bounds) for bounds in _bounds(running).values()),
    )
    for fact, values in facts:
        # columns without a value are left out
        labels = grouped((value, label) for label, value in values.items() if value is not None)
        if len(labels) > 1:
            yield fact, tuple((value, tuple(found)) for value, found in labels.items())
    bits = tuple((text, (pair,)) for pair, text in _bits(running))
    if bits:
        yield "bits", bits


def _bounds(running: Mapping[str, Checked]) -> dict[str, dict[str, float]]:
    """Return the bounds by coverage and column: those of different coverage are not compared."""
    times = ((label, cell.facts.get("time", {})) for label, cell in running.items())
    bounds = grouped(
        (time["coverage"], (label, round(time["bound_us"], 2)))
        for label, time in times
        if time.get("bound_us") is not None
    )
    return {coverage: dict(found) for coverage, found in bounds.items()}


def _bits(running: Mapping[str, Checked]) -> Iterator[tuple[str, str]]:
    """Yield the first column with another one, and the bits that can differ between them.

    Bits that differ because of the path or the number of cores are not named.
    """
    columns = list(running.items())
    for label, checked in columns[1:]:
        first, old = columns[0]
        pair = Text("{first} and {other}", first=first, other=label)
        warned = [BITS_OF_PRODUCTS in cell.facts.get("caveats", ()) for cell in (old, checked)]
        if any(warned) and not all(warned):
            yield pair, Text("the last bit of {output}", output="rstd")
        if old.planned is not None and checked.planned is not None:
            parts = changed_bits(old.planned, checked.planned)
            if parts:
                yield pair, joined(parts)


Key = TypeVar("Key")


@dataclass(frozen=True)
class Fault:
    """A reason for not accepting calls, with all calls and columns it applies to."""

    word: str
    """Kind of the reason."""
    reason: str
    """The reason."""
    op: str
    """Operator."""
    rows: tuple[Row, ...]
    """The calls."""
    labels: tuple[str, ...]
    """Labels of the columns."""
    level: str = ERROR
    """``error``, ``informational`` or ``accepted``."""


def grouped_cells(
    cells: Iterable[tuple[Key, Row, str]],
) -> dict[Key, tuple[tuple[Row, ...], dict[str, None]]]:
    """Return the calls and the columns that have each key, from keys with their cells."""
    groups: dict[Key, tuple[dict[int, Row], dict[str, None]]] = {}
    for key, row, label in cells:
        rows, labels = groups.setdefault(key, ({}, {}))
        rows[row.line], labels[label] = row, None
    return {key: (tuple(rows.values()), labels) for key, (rows, labels) in groups.items()}


@dataclass(repr=False)
class Matrix(Printed, Tabular):
    """Results of all calls on all columns."""

    policy: Policy
    """Rule for accepting calls."""
    labels: list[str] = field(default_factory=list)
    """Labels of the columns."""
    rows: list[Row] = field(default_factory=list)
    """The calls, in the order of their first lines."""
    recorded: dict[str, Any] | None = None
    """Head of a recording: what its calls do not cover."""
    timed: bool = False
    """Whether results include launches, lower bounds and estimates."""
    baseline: Mapping[Finding, int] = field(default_factory=dict)
    """Accepted findings with their line numbers in the file of the baseline."""

    def cells(self) -> Iterator[tuple[Row, str, Checked]]:
        """Return row, label and result of every call on every column."""
        return ((row, *cell) for row in self.rows for cell in row.cells.items())

    def summaries(self) -> dict[str, Summary]:
        """Return the counts of every column."""
        summaries = {label: Summary() for label in self.labels}
        for row, label, checked in self.cells():
            summaries[label].add(checked, row.lines, row.count, self._kinds(row, label))
        return summaries

    def summary(self) -> Summary:
        """Return the counts over all columns."""
        total = Summary()
        for row, label, checked in self.cells():
            total.add(checked, row.lines, row.count, self._kinds(row, label))
        return total

    def totals(self) -> dict[str, Totals]:
        """Return the sums of launches and times of every column; empty without times."""
        times = grouped(
            (label, (checked.facts["time"], row.count))
            for row, label, checked in self.cells()
            if "time" in checked.facts and checked.outcome == RUNS
        )
        return {label: totals(times.get(label, [])) for label in self.labels if self.timed}

    def groups(self) -> dict[str, "Matrix"]:
        """Return the results of every group of calls; empty if all are of one."""
        found = grouped((row.group, row) for row in self.rows)
        if len(found) < 2:
            return {}
        return {group: replace(self, rows=rows) for group, rows in found.items()}

    def compared(self) -> Comparison | None:
        """Return the sums of bounds that count the same calls and the same work on every column.

        None without times, and with fewer than two columns that have bounds.
        """
        return comparison(self.rows, self.labels) if self.timed else None

    def differences(self) -> list[Difference]:
        """Return where the columns differ; calls with equal differences are merged.

        Times and bits of another release are compared only in a preflight with timelines.
        """
        groups = grouped((found, row) for row in self.rows for found in _of_row(row.cells))
        return [Difference(fact, values, tuple(alike)) for (fact, values), alike in groups.items()]

    def table_columns(self) -> Columns:
        """Return a row for every call on every product, as columns of a table."""
        return columns_of(self.results())

    def as_dict(self) -> dict[str, Any]:
        """Return the results as plain data, without the plans."""
        totals = {label: {"totals": sums.as_dict()} for label, sums in self.totals().items()}
        compared = self.compared()
        return {
            "summary": self.summary().as_dict(),
            "targets": {
                label: summary.as_dict() | totals.get(label, {})
                for label, summary in self.summaries().items()
            },
            "compared": None if compared is None else compared.as_dict(),
            "recorded": self.recorded,
            "differences": [difference.as_dict() for difference in self.differences()],
            "stale": [
                {**finding._asdict(), "line": line} for finding, line in self.stale().items()
            ],
            "results": list(self.results()),
        }

    def findings(self, row: Row, label: str) -> Iterator[tuple[Finding, str]]:
        """Yield the findings of one result with their levels.

        Calls that npu_sim does not model count on request, and where none of a column is checked.
        """
        checked = row.cells[label]
        is_left_out = "unknown" not in self.policy.fail_on and label in self._checked_labels
        for kind, reason in self.policy.faults(checked):
            finding = Finding(row.op, row.inputs, label, kind, reason)
            shown_only = checked.product in self.policy.informational or (
                kind == UNKNOWN and is_left_out
            )
            level = INFORMATIONAL if shown_only else ERROR
            if checked.outcome == MALFORMED:
                level = ERROR
            elif finding in self.baseline:
                level = ACCEPTED
            yield finding, level

    @cached_property
    def _checked_labels(self) -> frozenset[str]:
        """Labels of the columns with at least one call that npu_sim models."""
        return frozenset(
            label
            for _, label, checked in self.cells()
            if checked.outcome not in (UNKNOWN, MALFORMED) or checked.differences is not None
        )

    def _kinds(self, row: Row, label: str, level: str = ERROR) -> list[str]:
        """Return the kinds of the findings of one result that have a level."""
        return [finding.kind for finding, found in self.findings(row, label) if found == level]

    def faults(self, level: str = ERROR, *, by_line: bool = False) -> list[Fault]:
        """Return the distinct reasons for not accepting calls, those with most lines first.

        With ``by_line``, every call has its own, in the order of lines.
        """
        found = grouped_cells(
            ((finding.kind, finding.reason, row.op, row.line if by_line else 0), row, label)
            for row, label, _ in self.cells()
            for finding, finding_level in self.findings(row, label)
            if finding_level == level
        )
        listed = [
            Fault(word, reason, op, rows, tuple(labels), level)
            for (word, reason, op, _), (rows, labels) in found.items()
        ]
        return (
            listed
            if by_line
            else sorted(listed, key=lambda fault: -sum(row.lines for row in fault.rows))
        )

    def accept_all(self) -> None:
        """Make the baseline of the findings that count; an invalid line stays an error."""
        found = {
            finding
            for row, label, checked in self.cells()
            for finding, level in self.findings(row, label)
            if level != INFORMATIONAL and checked.outcome != MALFORMED
        }
        self.baseline = {finding: line for line, finding in enumerate(sorted(found), 1)}

    def stale(self) -> dict[Finding, int]:
        """Return the entries of the baseline that are no longer found in the checked columns."""
        found = {
            finding for row, label, _ in self.cells() for finding, _ in self.findings(row, label)
        }
        return {
            finding: line
            for finding, line in self.baseline.items()
            if finding.target in self.labels and finding not in found
        }

    def results(self, *, whole: bool = False) -> Iterator[dict[str, Any]]:
        """Yield all results as plain data, including the plans if ``whole``."""
        for row, label, checked in self.cells():
            faults = self._kinds(row, label)
            others = {level: self._kinds(row, label, level) for level in (INFORMATIONAL, ACCEPTED)}
            yield checked.as_dict(whole=whole) | {
                "fine": not faults,
                "faults": faults,
                "target": label,
                **row.remarks,
                "inputs": row.inputs,
                "lines": row.lines,
                "count": row.count,
                **{level: kinds for level, kinds in others.items() if kinds},
            }


def check_file(
    lines: Iterable[str | bytes],
    targets: Sequence[Column],
    policy: Policy | None = None,
    directory: Path | None = None,
    *,
    whole: bool = False,
    timed: bool = False,
) -> Matrix:
    """Check a file of calls.

    - ``lines``: lines of JSON; empty ones are skipped.
    - ``targets``: columns for lines that name neither product nor SoC.
    - ``policy``: rule for accepting calls; None accepts calls that run.
    - ``directory``: folder of relative product files named in lines; None: the working directory.
    - ``whole``: whether results include complete plans.
    - ``timed``: whether results include launches, lower bounds and estimates.

    Raises UsageError when no line is a call.
    """
    matrix = Matrix(policy or Policy(), timed=timed)
    rows: dict[str, Row] = {}  # by what makes lines equal
    seen: dict[str | bytes, tuple[Row, int]] = {}  # by text: reading equal lines takes time
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text:
            continue
        if text not in seen:
            values: Mapping[str, Any] = {}
            try:
                values = parse(text)
                if HEAD in values and "op" not in values:
                    matrix.recorded = values.get("recorded")
                    continue
                call = call_of(values)
                key = json.dumps([*map(values.get, IDENTITY), RECORDED in values])
                if key not in rows:
                    columns = _columns(values, targets, directory)
                    rows[key] = _checked(call, number, columns, whole=whole, timed=timed)
                rows[key].remarks = rows[key].remarks or _remarks(values)
                seen[text] = rows[key], values.get("count", 1)
            except (MalformedLineError, UsageError) as error:
                answer = malformed(values, number, error)
                key = f"malformed {answer.op} {answer.reason}"
                cells = {target.label: answer for target in targets}
                rows.setdefault(key, Row(number, answer.op, "", _remarks(values), cells))
                seen[text] = rows[key], 1
        row, count = seen[text]
        row.lines += 1
        row.count += count
    matrix.rows = list(rows.values())
    matrix.labels = list(dict.fromkeys(label for row in matrix.rows for label in row.cells))
    _require_calls(matrix)
    return matrix


def _require_calls(matrix: Matrix) -> None:
    """Raise UsageError for a file of which no line is a call."""
    if all(cell.outcome == MALFORMED for _, _, cell in matrix.cells()):
        empty = "it has no calls" if matrix.recorded is not None else "it is empty"
        first = next((cell.reason for _, _, cell in matrix.cells()), empty)
        raise UsageError(
            "calls",
            "no line is a call: {first}",
            "one JSON object a line, with op and inputs",
            first=first,
        )


def _checked(
    call: Call, number: int, columns: Iterable[Column], *, whole: bool, timed: bool
) -> Row:
    """Return the row of a call, checked on every column."""
    row = Row(number, call.values["op"], call.inputs_text, {}, {})
    for column in columns:
        started = time.perf_counter()
        row.cells[column.label] = check_call(call, number, column.profile, whole=whole, timed=timed)
        row.seconds[column.label] = time.perf_counter() - started
    return row


def _columns(
    values: Mapping[str, Any], targets: Sequence[Column], directory: Path | None
) -> Iterator[Column]:
    """Yield the columns of a line."""
    if is_named(values):
        profile = profile_of_line(values, targets[0].profile.name, directory)
        yield column_of_line(profile, targets)
        return
    several = len({target.profile.release for target in targets}) > 1
    for target in targets:
        profile = target.profile.with_release(values.get("release"))
        # The labels of several releases name them.
        yield column_of_line(profile, targets) if several else Column(profile, target.label)


def _remarks(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: values[name] for name in ("name", "group", "note") if values.get(name)}
