"""Results of a preflight for programs: JSON lines, JUnit XML, SARIF, annotations, Markdown."""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote
from xml.etree import ElementTree

from npu_sim import __version__
from npu_sim.files.writing import schema, write_atomically, write_text
from npu_sim.language import Text, say, translated, visible, with_arguments
from npu_sim.questions.preflight import (
    ACCEPTED,
    ERROR,
    INFORMATIONAL,
    MALFORMED,
    Fault,
    Matrix,
    Row,
)
from npu_sim.show.preflight import cell_text, count_text, fault_text, stale_text

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
    case.set("name", _printable(say("line {line}: {title}", line=row.line, title=row.title)))
    case.set("time", f"{row.seconds.get(label, 0.0):.6f}")
    faults = [finding for finding, level in matrix.findings(row, label) if level == ERROR]
    if faults:
        fault = ElementTree.SubElement(
            case,
            "error" if row.cells[label].outcome == MALFORMED else "failure",
            message=_printable(", ".join(finding.kind for finding in faults)),
        )
        fault.text = _printable("\n".join(with_arguments([one.reason for one in faults])))


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
        title=fault.rows[0].title,
        labels=", ".join(fault.labels),
        word=fault.word,
        reason=fault.reason,
    )


def write_sarif(path: Path, matrix: Matrix, file: str) -> None:
    """Write the findings as SARIF 2.1.0: one result a call and reason.

    Accepted findings are suppressed results.
    """
    results = [
        {
            "ruleId": fault.word.split()[0],
            "level": name,
            "message": {"text": with_arguments(finding_text(fault))},
            "locations": [
                {
                    "physicalLocation": {
                        "artifactLocation": {"uri": quote(os.fsencode(file))},
                        "region": {"startLine": fault.rows[0].line},
                    }
                }
            ],
            **({"suppressions": [{"kind": "external"}]} if level == ACCEPTED else {}),
        }
        for level, name in SARIF_LEVELS.items()
        for fault in matrix.faults(level, by_line=True)
    ]
    driver = {
        "name": "npu_sim",
        "version": __version__,
        "rules": [{"id": name} for name in dict.fromkeys(result["ruleId"] for result in results)],
    }
    write_text(
        path,
        json.dumps(
            {
                "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
                "version": "2.1.0",
                "runs": [{"tool": {"driver": driver}, "results": results}],
            },
            indent=2,
            ensure_ascii=False,
        )
        + "\n",
    )


def _data(text: str) -> str:
    return visible(text).replace("%", "%25")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def _markdown(text: str) -> str:
    """Return a text in one line of Markdown, without links, images, HTML and emphasis."""
    return IN_MARKDOWN.sub(lambda match: f"&#{ord(match[0])};", visible(text))


def markdown(matrix: Matrix) -> str:
    """Return the matrix as a Markdown table for a step summary."""
    budget = matrix.policy.max_workspace
    rows = (
        (
            str(row.line),
            count_text(row),
            row.title,
            *(cell_text(row.cells.get(label), budget) for label in matrix.labels),
        )
        for row in matrix.rows
    )
    headings = ("line", "calls", "call", *matrix.labels)
    head, *calls = (f"| {' | '.join(map(_markdown, row))} |" for row in (headings, *rows))
    rule = f"| {' | '.join(['---:', '---:', *['---'] * (1 + len(matrix.labels))])} |"
    table = "\n".join((head, rule, *calls))
    listed = matrix.faults() + matrix.faults(INFORMATIONAL)
    faults = "\n".join(f"- {_markdown(fault_text(fault))}" for fault in listed)
    return f"{table}\n\n{faults}\n"
