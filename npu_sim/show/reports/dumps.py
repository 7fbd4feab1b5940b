"""Report of a dump: the calls in their order with verdicts, and what is not equal in detail."""

from collections.abc import Iterable, Mapping
from typing import Any

from npu_sim.dumps.reading import CallInDump, DumpReading
from npu_sim.language import Text, joined, say
from npu_sim.show.dumps import HEADINGS, call_lines, call_rows, comparison_lines, head_lines
from npu_sim.show.reports.document import Block, Document, Section, Table, labelled
from npu_sim.show.verdicts import HEADINGS as ELEMENT_HEADINGS


def dump_report(reading: DumpReading, call: str = "") -> Document:
    """Return the report of a dump; ``call`` is the command that reproduces it."""
    first = {(difference.place, difference.entry): difference for difference in reading.differences}
    rows = []
    for described, row in zip(reading.calls, call_rows(reading), strict=True):
        difference = first.get((described.place, described.entry))
        mark = "" if difference is None else say("first difference")
        rows.append((*row, mark))
    colours = tuple("c3" if call.impossible else "" for call in reading.calls)
    table = Table((*HEADINGS, "other dump"), tuple(rows), colours=colours)
    sections = [
        Section("Dump", (labelled(head_lines(reading)),)),
        Section("Calls in their order", (table,)),
    ]
    if reading.against is not None:
        sections.append(Section("Comparison", (labelled(comparison_lines(reading)),)))
    for described in reading.calls:
        sections += _details(described)
    impossible = sum(call.impossible for call in reading.calls)
    sentence = say(
        "{folder}: {calls} calls, {impossible} with values that the product cannot have written",
        folder=reading.folder,
        calls=len(reading.calls),
        impossible=impossible,
    )
    outcome = "bad" if impossible or reading.differences else "good"
    return Document(sentence, sentence, tuple(sections), call, outcome)


def _details(call: CallInDump) -> Iterable[Section]:
    """Yield a section on a call whose results are not all equal, or that deserves a look."""
    blocks: list[Block] = []
    if lines := [(label, text) for label, text, _ in call_lines(call)]:
        blocks.append(labelled(lines))
    for output, detail in call.details.items():
        blocks += _output(output, detail)
    if blocks:
        title = " ".join(filter(None, (call.place, call.entry)))
        yield Section(f"{title}: {call.operator}", tuple(blocks))


def _output(output: str, detail: Mapping[str, Any]) -> Iterable[Block]:
    """Yield the verdict on one output: elements by verdict, and the worst ones."""
    counts = (
        Text("{count} {status}", count=count, status=Text(status))
        for status, count in detail["elements"].items()
        if count
    )
    yield labelled([(output, joined(counts, ", "))])
    if detail["worst"]:
        cells = ("status", "given", "expected", "reason")
        rows = tuple(
            (", ".join(map(str, element["index"])), *(element[name] for name in cells))
            for element in detail["worst"]
        )
        yield Table(ELEMENT_HEADINGS, rows, "Worst elements")
