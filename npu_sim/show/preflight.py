"""A preflight as text, JSON lines, JUnit XML, annotations and Markdown."""

import json
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree

from rich.console import Group, RenderableType

from npu_sim import __version__
from npu_sim.files.writing import schema, write_atomically, write_text
from npu_sim.language import Text, Verbatim, joined, say, translated, visible
from npu_sim.language.quantities import bytes_text, short_bytes_text
from npu_sim.plans.model import RUNS
from npu_sim.questions.preflight import (
    ACCEPTED,
    ERROR,
    FAILED,
    INFORMATIONAL,
    MALFORMED,
    Checked,
    Fault,
    Finding,
    Matrix,
    Row,
    Summary,
)
from npu_sim.show.layout import Column, Paragraph, Table, lines_table, stack

SHOWN_ROWS = 40
SHOWN_FAULTS = 20
SHOWN_LINES = 5
SHOWN_KERNELS = 5
MARKS = {
    "timing": ("~", "can differ between runs"),
    "caveats": ("!", "runs with a caveat"),
    "workspace_unknown": ("+", "and unpublished parts"),
}


def cell_text(checked: Checked | None, budget: int | None = None) -> str:
    """Return a cell of the matrix: the workspace with its marks, or the code.

    ``budget`` is the largest accepted workspace in bytes.
    """
    if checked is None:
        return ""
    if checked.differences:
        return "different"
    if checked.outcome != RUNS:
        return "no tiling" if checked.outcome == FAILED else str(checked.status or checked.outcome)
    marks = "".join(mark for fact, (mark, _) in MARKS.items() if checked.facts.get(fact))
    size = short_bytes_text(checked.workspace_bytes)
    if budget is not None and checked.workspace_bytes > budget:
        size += f" > {short_bytes_text(budget)}"
    return f"{size} {marks}".rstrip()


def count_text(row: Row) -> str:
    """Return the number of identical calls; empty for one."""
    return f"{row.count}x" if row.count != 1 else ""


def lines_text(rows: Iterable[Row]) -> str:
    """Return the line numbers of calls: ``lines 11, 14, 18``."""
    numbers = [row.line for row in rows]
    more = ""
    if len(numbers) > SHOWN_LINES:
        more = say(" and {numbers} more", numbers=len(numbers) - SHOWN_LINES)
    if len(numbers) == 1:
        return say("line {number}", number=str(numbers[0]))
    shown = ", ".join(map(str, numbers[:SHOWN_LINES]))
    return say("lines {numbers}{more}", numbers=shown, more=more)


def fault_text(fault: Fault) -> str:
    """Return the reason why a call is not accepted, in one sentence."""
    lines = sum(row.lines for row in fault.rows)
    times = f"{lines}x " if lines > 1 else ""
    note = Text(" (informational)") if fault.level == INFORMATIONAL else ""
    return Text(
        "{times}{value}, {lines}, {labels}{note}: {word}: {reason}",
        fault,
        times=times,
        value=Verbatim(fault.op) if fault.op else "no call",
        lines=lines_text(fault.rows),
        labels=", ".join(fault.labels),
        note=note,
    )


def baseline_text(matrix: Matrix) -> str:
    """Return the numbers of accepted findings and of entries that are no longer found."""
    accepted = [len(fault.labels) for fault in matrix.faults(ACCEPTED, by_line=True)]
    return say(
        "baseline: findings accepted: {accepted}; entries no longer found: {stale}",
        accepted=sum(accepted),
        stale=len(matrix.stale()),
    )


def stale_text(finding: Finding) -> str:
    """Return an entry of the baseline that is no longer found, in one sentence."""
    return Text("no longer found: {op} {inputs}, {target}: {kind}: {reason}", **finding._asdict())


def matrix_view(matrix: Matrix) -> Group:
    """Return a preflight as a rich renderable."""
    parts: list[RenderableType] = [_counts(matrix), "", _calls(matrix)]
    more = len(matrix.rows) - SHOWN_ROWS
    if more > 0:
        parts.append(say("and {rows} more calls: --report or --json lists all", rows=more))
    legend = legend_text(matrix)
    if legend:
        parts += ["", legend]
    return stack(*parts, *notes(matrix))


def notes(matrix: Matrix) -> list[RenderableType]:
    """Return caveats, differences, faults, timing and what was not recorded, each after a gap."""
    parts: list[RenderableType] = []
    remarks = [*caveat_lines(matrix), *difference_lines(matrix)]
    if remarks:
        parts += ["", *map(_line, remarks)]
    faults = matrix.faults() + matrix.faults(INFORMATIONAL)
    if faults:
        parts += ["", *(_line(fault_text(fault)) for fault in faults[:SHOWN_FAULTS])]
    more = len(faults) - SHOWN_FAULTS
    if more > 0:
        parts.append(say("and {faults} more kinds: --report or --json lists all", faults=more))
    if matrix.baseline:
        stale = [
            say("line {line}: {text}", line=line, text=stale_text(finding))
            for finding, line in matrix.stale().items()
        ]
        parts += ["", *map(_line, (baseline_text(matrix), *stale))]
    timing = list(timing_lines(matrix))
    if timing:
        parts += ["", *map(_line, timing[:SHOWN_FAULTS])]
    for text in recorded_lines(matrix):
        parts += ["", _line(text)]
    return parts


def _line(text: str) -> Paragraph:
    return Paragraph(text, is_line=True)


def _counts(matrix: Matrix) -> Table:
    lines = []
    summaries = matrix.summaries()
    if len(summaries) > 1:
        lines.append(("all", _count_text(matrix.summary()), ""))
    for label, summary in summaries.items():
        peak, place = summary.peak, ""
        if peak:
            size = bytes_text(peak.workspace_bytes)
            place = say("peak {size} of workspace, line {line}: {op} on {soc}", peak, size=size)
        lines.append((label, _count_text(summary), place))
    return lines_table(lines)


def _count_text(summary: Summary) -> str:
    names = ("runs", "overflows", "refused", "failed", "malformed", "unknown")
    shown = ((name, getattr(summary, name)) for name in names)
    counts = joined(
        (
            Text("{count} {name}", count=count, name=name)
            for name, count in shown
            if count or name == "runs"
        ),
        ", ",
    )
    over = say(", {count} over budget", count=summary.over_budget) if summary.over_budget else ""
    differs = summary.count != summary.lines
    weighted = say(" ({count} with their counts)", summary) if differs else ""
    expected = ""
    if summary.as_expected or summary.differ:
        expected = say("; {as_expected} match expect, {differ} do not", summary)
    return say(
        "calls {lines}{weighted}: {counts}{over}{expected}",
        summary,
        weighted=weighted,
        counts=counts,
        over=over,
        expected=expected,
    )


def _calls(matrix: Matrix) -> Table:
    shown, budget = matrix.rows[:SHOWN_ROWS], matrix.policy.max_workspace
    columns = [
        Column("line", right=True),
        Column(right=True),
        Column("call", wraps=True),
        *(Column(label) for label in matrix.labels),
    ]
    rows = [
        (
            str(row.line),
            count_text(row),
            row.title,
            *(cell_text(row.cells.get(label), budget) for label in matrix.labels),
        )
        for row in shown
    ]
    blocks = Group(*(line for row in shown for line in _block(row, budget)))
    return Table(columns, rows, narrow=blocks)


def _block(row: Row, budget: int | None) -> Iterator[RenderableType]:
    """Yield a call and its results for narrow terminals; targets with equal results are joined."""
    answers: dict[str, list[str]] = {}
    for label, checked in row.cells.items():
        answers.setdefault(cell_text(checked, budget), []).append(label)
    head = f"{row.line}  {f'{count_text(row)} '.lstrip()}{row.title}"
    yield Paragraph(head, hanging=4, is_line=True)
    for text, labels in answers.items():
        line = Text("{text}  {labels}", text=text, labels=", ".join(labels))
        yield Paragraph(line, indent=4, hanging=4)


def legend_text(matrix: Matrix) -> str:
    """Return the meaning of the marks in the cells; empty if there are none."""
    used = {fact for _, _, checked in matrix.cells() for fact in MARKS if checked.facts.get(fact)}
    return joined(
        Text("{mark} {meaning}", mark=mark, meaning=meaning)
        for fact, (mark, meaning) in MARKS.items()
        if fact in used
    )


def caveat_lines(matrix: Matrix) -> Iterator[str]:
    """Return the caveats of the calls as sentences, each once."""
    groups: dict[tuple[str, str], tuple[dict[int, Row], dict[str, None]]] = {}
    for row, label, checked in matrix.cells():
        codes, messages = (checked.facts.get(key, ()) for key in ("caveats", "caveat_messages"))
        for code, message in zip(codes, messages, strict=True):
            rows, labels = groups.setdefault((code, message), ({}, {}))
            rows[row.line], labels[label] = row, None
    for (code, message), (rows, labels) in groups.items():
        yield say(
            "{code}, {lines}, {labels}: {message}",
            code=Verbatim(code),
            lines=lines_text(rows.values()),
            labels=", ".join(labels),
            message=message,
        )


DIFFERENCES = {
    "path": "other path, {lines}: {values}",
    "cores": "other number of cores (sums over cores add in another order), {lines}: {values}",
    "bits": "other bits, {lines}: {values}",
}
"""Sentence for each fact; times are in a table."""


def difference_lines(matrix: Matrix) -> Iterator[str]:
    """Return where the columns differ in path, cores and bits, equal differences once."""
    for found in matrix.differences():
        if found.fact in DIFFERENCES:
            parts = (
                Text("{value} on {labels}", value=value, labels=joined(labels, ", "))
                for value, labels in found.values
            )
            yield say(DIFFERENCES[found.fact], lines=lines_text(found.rows), values=joined(parts))


def timing_lines(matrix: Matrix) -> Iterator[str]:
    """Return the results that can differ between runs, and the effect of the determinism switch."""
    groups: dict[tuple[str, str, str], tuple[dict[int, int], dict[str, None], list[int]]] = {}
    for row, label, checked in matrix.cells():
        timing, switch = checked.facts.get("timing"), checked.facts.get("deterministic_switch")
        if timing:
            key = (row.op, ", ".join(timing), _switch_text(switch))
            calls, labels, more = groups.setdefault(key, ({}, {}, []))
            calls[row.line], labels[label] = row.count, None
            more.append((switch or {}).get("workspace_bytes_more", 0))
    for (op, outputs, switched), (calls, labels, more) in groups.items():
        workspace = ""
        if max(more) > 0:
            size = bytes_text(max(more))
            workspace = say(", up to {size} of additional workspace", size=size)
        yield say(
            "{count}x {outputs} of {op} can differ between runs on {where}{switched}{workspace}",
            count=sum(calls.values()),
            outputs=outputs,
            op=op,
            where=", ".join(labels),
            switched=switched,
            workspace=workspace,
        )


def _switch_text(switch: dict[str, object] | None) -> str:
    if switch is None:
        return ""
    if "status" in switch:
        return say(
            "; with deterministic computation refused {status}: {reason}",
            status=switch["status"],
            reason=switch["message"],
        )
    still = ""
    if isinstance(switch["timing"], list) and switch["timing"]:
        still = say(", {outputs} still can", outputs=", ".join(map(str, switch["timing"])))
    unknown = ", unpublished parts" if switch["workspace_unknown"] else ""
    return say(
        "; with deterministic computation: path '{switch}'{still}{unknown}",
        switch=switch["path"],
        still=still,
        unknown=unknown,
    )


def recorded_lines(matrix: Matrix) -> Iterator[str]:
    """Return what the calls of a recording do not cover."""
    if matrix.recorded is None:
        return
    for lost in matrix.recorded.get("not_recognised", ()):
        yield say(
            "not recognised: {count}x {what} {name}: {reason}",
            count=lost["count"],
            what=lost["what"],
            name=lost.get("name", ""),
            reason=lost["why"],
        )
    kernels = matrix.recorded.get("not_modelled", {})
    if kernels:
        most = sorted(kernels, key=kernels.__getitem__, reverse=True)[:SHOWN_KERNELS]
        yield say(
            "not modelled: {count} kernels of {kinds} kinds; most often {most}",
            count=sum(kernels.values()),
            kinds=len(kernels),
            most=", ".join(f"{name} {kernels[name]}" for name in most),
        )


SHOWN_ANNOTATIONS = 10
"""Maximum number of annotations of one kind per step."""

IN_MARKDOWN = re.compile(r"[&<>|`*\[\]\\]")
"""Characters that have a meaning in Markdown; an underscore within a word has none."""
NOT_IN_XML = re.compile("[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write_results(path: Path, matrix: Matrix) -> None:
    """Write one JSON line per call and target, with the whole plan.

    Lone surrogates are escaped.
    """
    lines = (
        json.dumps({"schema": schema("preflight_result"), **result}, ensure_ascii=False) + "\n"
        for result in matrix.results(whole=True)
    )
    write_atomically(
        path,
        lambda file: file.writelines(line.encode("utf-8", "backslashreplace") for line in lines),
    )


def write_junit(path: Path, matrix: Matrix, file: str) -> None:
    """Write JUnit XML: a test suite per target, a test case per call.

    A call that is not accepted is a failure; a line that is not a call is an error.
    """
    root = ElementTree.Element("testsuites")
    for label in matrix.labels:
        suite = ElementTree.SubElement(root, "testsuite", name=_printable(f"{file} {label}"))
        for row in matrix.rows:
            if label in row.cells:
                _add_case(suite, row, label, matrix, file)
    for element in (root, *root):
        cases = list(element.iter("testcase"))
        element.set("tests", str(len(cases)))
        element.set("failures", str(sum(case.find("failure") is not None for case in cases)))
        element.set("errors", str(sum(case.find("error") is not None for case in cases)))
        element.set("time", f"{sum(float(case.get('time', 0)) for case in cases):.6f}")
    ElementTree.indent(root)
    text = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    write_atomically(path, lambda target: target.write(text))


def _add_case(suite: ElementTree.Element, row: Row, label: str, matrix: Matrix, file: str) -> None:
    case = ElementTree.SubElement(
        suite,
        "testcase",
        classname=_printable(row.op or "malformed"),
        file=_printable(file),
        line=str(row.line),
    )
    case.set("name", _printable(say("line {line}: {title}", row)))
    case.set("time", f"{row.seconds.get(label, 0.0):.6f}")
    faults = [finding for finding, level in matrix.findings(row, label) if level == ERROR]
    if faults:
        kind = "error" if row.cells[label].outcome == MALFORMED else "failure"
        fault = ElementTree.SubElement(
            case, kind, message=_printable(", ".join(finding.kind for finding in faults))
        )
        fault.text = _printable("\n".join(finding.reason for finding in faults))


def _printable(text: str) -> str:
    """Replace characters that XML cannot represent."""
    return NOT_IN_XML.sub("?", text)


def annotations(matrix: Matrix, file: str) -> Iterator[str]:
    """Yield GitHub annotation commands: one per group of equal problems, at its first line."""
    for level, command in ((ERROR, "error"), (INFORMATIONAL, "notice")):
        for fault in matrix.faults(level)[:SHOWN_ANNOTATIONS]:
            title = f"{fault.op or 'no call'}: {fault.word}"
            place = f"file={_property(file)},line={fault.rows[0].line},title={_property(title)}"
            yield f"::{command} {place}::{_data(fault_text(fault))}"


SARIF_LEVELS = {ERROR: "error", INFORMATIONAL: "note", ACCEPTED: "error"}


def error_lines(matrix: Matrix, file: str, baseline: str) -> Iterator[str]:
    """Yield a line per finding that editors and CI read: ``file:line: error: message``.

    Findings of informational products are notes, entries of the baseline that are no longer found
    are warnings at their lines of that file.
    """
    for level in (ERROR, INFORMATIONAL):
        for fault in matrix.faults(level, by_line=True):
            place = f"{file}:{fault.rows[0].line}: {SARIF_LEVELS[level]}: "
            yield visible(place + translated(finding_text(fault)))
    for finding, line in matrix.stale().items():
        yield visible(f"{baseline}:{line}: warning: {translated(stale_text(finding))}")


def finding_text(fault: Fault) -> str:
    """Return the reason why the call of one line is not accepted, without its line."""
    return Text(
        "{title}, {labels}: {word}: {reason}",
        fault,
        title=fault.rows[0].title,
        labels=", ".join(fault.labels),
    )


def write_sarif(path: Path, matrix: Matrix, file: str) -> None:
    """Write the findings as SARIF 2.1.0: one result a call and reason.

    Accepted findings are suppressed results.
    """
    results = []
    for level, name in SARIF_LEVELS.items():
        for fault in matrix.faults(level, by_line=True):
            place = {
                "artifactLocation": {"uri": quote(os.fsencode(file))},
                "region": {"startLine": fault.rows[0].line},
            }
            result: dict[str, Any] = {
                "ruleId": fault.word.split()[0],
                "level": name,
                "message": {"text": finding_text(fault)},
                "locations": [{"physicalLocation": place}],
            }
            if level == ACCEPTED:
                result["suppressions"] = [{"kind": "external"}]
            results.append(result)
    rules = [{"id": name} for name in dict.fromkeys(result["ruleId"] for result in results)]
    driver = {"name": "npu_sim", "version": __version__, "rules": rules}
    document = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": results}],
    }
    write_text(path, json.dumps(document, indent=2, ensure_ascii=False) + "\n")


def _data(text: str) -> str:
    return visible(text).replace("%", "%25")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def _markdown(text: str) -> str:
    """Return a text in one line of Markdown, without links, images, HTML and emphasis."""
    return IN_MARKDOWN.sub(lambda match: f"&#{ord(match[0])};", visible(text))


def markdown(matrix: Matrix) -> str:
    """Return the matrix as a Markdown table for a step summary."""
    rows = [["line", "calls", "call", *matrix.labels]]
    for row in matrix.rows:
        results = (row.cells.get(label) for label in matrix.labels)
        cells = (cell_text(checked, matrix.policy.max_workspace) for checked in results)
        rows.append([str(row.line), count_text(row), row.title, *cells])
    head, *calls = (f"| {' | '.join(map(_markdown, row))} |" for row in rows)
    rule = f"| {' | '.join(['---:', '---:', *['---'] * (1 + len(matrix.labels))])} |"
    table = "\n".join((head, rule, *calls))
    listed = matrix.faults() + matrix.faults(INFORMATIONAL)
    faults = "\n".join(f"- {_markdown(fault_text(fault))}" for fault in listed)
    return f"{table}\n\n{faults}\n"
