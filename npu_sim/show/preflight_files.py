"""What a preflight leaves behind for continuous integration: result lines, JUnit XML, and annotations."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

from npu_sim.files.schemas import schema
from npu_sim.files.writing import write_atomically
from npu_sim.language import say
from npu_sim.questions.preflight import MALFORMED, Matrix, Row
from npu_sim.show.preflight import cell_text, count_text, fault_text

SHOWN_ANNOTATIONS = 10
"""More of one kind are not shown for one step."""

NOT_IN_XML = re.compile("[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write_results(path: Path, matrix: Matrix) -> None:
    """Write one JSON line for every call on every target, with the whole plan; half a pair of surrogates is escaped, as JSON may."""
    lines = (
        json.dumps({"schema": schema("preflight_result"), **one}, ensure_ascii=False) + "\n"
        for one in matrix.results(whole=True)
    )
    write_atomically(
        path,
        lambda file: file.writelines(line.encode("utf-8", "backslashreplace") for line in lines),
    )


def write_junit(path: Path, matrix: Matrix, file: str) -> None:
    """Write JUnit XML: a suite for every target, a case for every call; a fault is a failure, a line that is no call an error."""
    root = ElementTree.Element("testsuites")
    for label in matrix.labels:
        suite = ElementTree.SubElement(root, "testsuite", name=f"{file} {label}")
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
        file=file,
        line=str(row.line),
    )
    case.set("name", _printable(say("line {line}: {title}", line=row.line, title=row.title)))
    case.set("time", f"{row.seconds.get(label, 0.0):.6f}")
    faults = list(matrix.policy.faults(row.cells[label]))
    if faults:
        kind = "error" if row.cells[label].outcome == MALFORMED else "failure"
        fault = ElementTree.SubElement(
            case, kind, message=_printable(", ".join(word for word, _ in faults))
        )
        fault.text = _printable("\n".join(reason for _, reason in faults))


def _printable(text: str) -> str:
    """Replace characters that XML cannot hold."""
    return NOT_IN_XML.sub("?", text)


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
    rows = [
        ["line", "calls", "call", *matrix.labels],
        ["---:", "---:", *["---"] * (1 + len(matrix.labels))],
    ]
    for row in matrix.rows:
        rows.append(
            [
                str(row.line),
                count_text(row),
                row.title,
                *(cell_text(row.cells.get(label)) for label in matrix.labels),
            ]
        )
    table = "\n".join(
        f"| {' | '.join(cell.replace('|', '&#124;') for cell in row)} |" for row in rows
    )
    faults = "\n".join(f"- {fault_text(fault)}" for fault in matrix.faults())
    return f"{table}\n\n{faults}\n"
