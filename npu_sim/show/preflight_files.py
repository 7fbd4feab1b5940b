"""What a preflight leaves behind for continuous integration: result lines, JUnit XML, and annotations."""

import json
from collections.abc import Iterator
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

from npu_sim.files.schemas import PREFLIGHT_RESULT
from npu_sim.files.tensors import write_atomically, write_text
from npu_sim.questions.preflight import MALFORMED, Checked, Matrix, Row
from npu_sim.show.preflight import cell_text, count_text, fault_text

SHOWN_ANNOTATIONS = 10
"""More of one kind are not shown for one step."""


def write_results(path: Path, matrix: Matrix) -> None:
    """Write one JSON line for every call on every target, with the whole plan."""
    lines = (json.dumps({"schema": PREFLIGHT_RESULT, **one}, ensure_ascii=False) + "\n" for one in matrix.results(whole=True))
    write_atomically(path, lambda file: file.writelines(line.encode("utf-8") for line in lines))


def write_junit(path: Path, matrix: Matrix, file: str) -> None:
    """Write JUnit XML: a suite for every target, a case for every call; a fault is a failure, a line that is no call an error."""
    totals = {"tests": 0, "failures": 0, "errors": 0}
    suites = []
    for label in matrix.labels:
        cells = [(row, row.cells[label]) for row in matrix.rows if label in row.cells]
        cases = [_case(row, checked, matrix, file) for row, checked in cells]
        counts = {
            "tests": len(cases),
            "failures": sum("<failure" in case for case in cases),
            "errors": sum("<error" in case for case in cases),
        }
        totals = {name: totals[name] + counts[name] for name in totals}
        suites += [f'  <testsuite name={quoteattr(f"{file} {label}")} {_attributes(counts)} time="0">', *cases, "  </testsuite>"]
    head = f'<testsuites {_attributes(totals)} time="0">'
    write_text(path, "\n".join(['<?xml version="1.0" encoding="UTF-8"?>', head, *suites, "</testsuites>", ""]))


def _attributes(counts: dict[str, int]) -> str:
    return " ".join(f'{name}="{count}"' for name, count in counts.items())


def _case(row: Row, checked: Checked, matrix: Matrix, file: str) -> str:
    name = f"line {row.line}: {row.title}"
    place = f'file={quoteattr(file)} line="{row.line}" time="0"'
    head = f"    <testcase classname={quoteattr(_printable(row.op or 'malformed'))} name={quoteattr(_printable(name))} {place}"
    faults = list(matrix.policy.faults(checked))
    if not faults:
        return head + "/>"
    kind = "error" if checked.outcome == MALFORMED else "failure"
    word = ", ".join(word for word, _ in faults)
    text = escape(_printable("\n".join(reason for _, reason in faults)))
    return f"{head}>\n      <{kind} message={quoteattr(word)}>{text}</{kind}>\n    </testcase>"


def _printable(text: str) -> str:
    """Replace characters that XML cannot hold."""
    return "".join(character if character >= " " or character in "\t\n" else "?" for character in text)


def annotations(matrix: Matrix, file: str) -> Iterator[str]:
    """Go through the commands that mark lines of a file on GitHub: one for equal faults, at their first line."""
    for fault in matrix.faults()[:SHOWN_ANNOTATIONS]:
        title = f"{fault.op or 'no call'}: {fault.word}"
        yield f"::error file={_property(file)},line={fault.rows[0].line},title={_property(title)}::{_data(fault_text(fault))}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def markdown(matrix: Matrix) -> str:
    """Return the matrix as a table for the summary of a step."""
    rows = [["line", "calls", "call", *matrix.labels], ["---:", "---:", *["---"] * (1 + len(matrix.labels))]]
    for row in matrix.rows:
        rows.append([str(row.line), count_text(row), row.title, *(cell_text(row.cells.get(label)) for label in matrix.labels)])
    table = "\n".join(f"| {' | '.join(cell.replace('|', '&#124;') for cell in row)} |" for row in rows)
    faults = "\n".join(f"- {fault_text(fault)}" for fault in matrix.faults())
    return f"{table}\n\n{faults}\n"
