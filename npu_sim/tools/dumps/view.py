"""A dump of an accuracy tool as text and as a report: its calls, and what deserves a look."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import RenderableType

from npu_sim.language import Text, calls_text, grouped, joined, say
from npu_sim.show import document_of, view_of
from npu_sim.show.forms.layout import (
    Block,
    Column,
    Document,
    Lines,
    Section,
    Table,
    after_gap,
    filled,
    lines_table,
    stack,
)
from npu_sim.show.verdicts import MEASURED
from npu_sim.tools.dumps.differences import RUNS, CallInDump
from npu_sim.tools.dumps.reader import DumpReading, EntryNote

MOST_KINDS = 6
"""Functions that are not modelled are listed up to this number."""
MOST_LINES = 4
"""Differences and entries of a kind are listed up to this number; reports and JSON have all."""


@view_of.register
def dump_view(reading: DumpReading) -> RenderableType:
    """Return a dump as a rich renderable: what it has, every call, what deserves a look."""
    other_folder = reading.against or ""
    entries = [
        *((call, call.entry) for call in reading.calls),
        *(
            (call, Text("{entry} in {folder}", entry=call.entry, folder=other_folder))
            for call in reading.other_calls
        ),
    ]
    details = ((*line, entry) for call, entry in entries for line in call_lines(call))
    return stack(
        lines_table(head_lines(reading)),
        *after_gap(Table(call_columns(reading), reading.calls)),
        *after_gap(lines_table(details, styles={"impossible": "red", "unreachable": "red"})),
        *after_gap(lines_table(comparison_lines(reading, MOST_LINES))),
    )


def call_columns(reading: DumpReading) -> tuple[Column, ...]:
    """Return the columns of a table of calls."""
    several = len(reading.places) > 1
    places = {call.place for call in reading.other_calls}
    # the only dumps of two folders are compared although their places are named apart
    single = not several and len(places) == 1
    others = {
        (call.entry, call.operator, "" if single else call.place): _verdict(call)
        for call in reading.other_calls
    }

    def other(call: CallInDump) -> str:
        return others.get((call.entry, call.operator, "" if single else call.place), "")

    return (
        Column("step and rank", lambda call: call.place if several else ""),
        Column("entry", lambda call: call.entry, key=True),
        Column("operator", lambda call: call.operator),
        Column("outcome", _outcome, wraps=True),
        Column("verdict", _verdict, wraps=True),
        Column("in the other dump", other, wraps=True),
    )


def head_lines(reading: DumpReading) -> Lines:
    """Yield what the dump contains."""
    entries = Text(
        "{entries} entries in {places} dump.json, task {tasks}",
        entries=reading.entries,
        places=len(reading.places),
        tasks=", ".join(reading.tasks),
    )
    device = Text(
        "{product}, {soc}, {release}, deterministic computation {mode}",
        product=reading.product,
        soc=reading.soc,
        release=reading.release,
        mode=Text("on" if reading.deterministic else "off"),
    )
    kinds = sorted(reading.not_modelled.items(), key=lambda kind: -kind[1])
    names = [f"{name} {count}" for name, count in kinds[:MOST_KINDS]]
    if len(kinds) > MOST_KINDS:
        names.append("...")
    not_modelled = Text(
        "{calls} of {kinds} functions: {names}",
        calls=calls_text(sum(reading.not_modelled.values())),
        kinds=len(kinds),
        names=joined(names, ", "),
    )
    yield "dump folder", reading.folder
    yield "contains", entries
    yield "simulated on", device
    if reading.other_target:
        yield "the other dump on", reading.other_target
    if kinds:
        yield "not modelled", not_modelled
    if reading.unnamed_files:
        yield "incomplete", Text("{files} tensor files have no entry", files=reading.unnamed_files)
    yield from _notes("unreadable", reading.unreadable, MOST_LINES)


def _notes(label: str, notes: Sequence[EntryNote], most: int) -> Lines:
    """Yield reasons with the entries that they concern, at most ``most`` of each."""
    groups = grouped(
        ((note.reason, note.folder), " ".join(filter(None, (note.place, note.entry))))
        for note in notes
    )
    for (reason, folder), entries in groups.items():
        more, named = len(entries) - most, joined(entries[:most], ", ")
        cut = Text("{entries} and {count} more", entries=named, count=more)
        text = "{reason} ({folder}): {entries}"
        yield label, Text(text, reason=reason, folder=folder, entries=cut if more > 0 else named)


def _outcome(call: CallInDump) -> str:
    if call.outcome != RUNS:
        return Text("{outcome}: {message}", outcome=call.outcome, message=call.message)
    if call.timing:
        return Text("runs; {outputs} depends on timing", outputs=joined(call.timing, ", "))
    if call.races:
        return Text("runs; a race can overwrite {outputs}", outputs=joined(call.races, ", "))
    return "runs; fixed order"


def _verdict(call: CallInDump) -> str:
    if call.unverified:
        return Text("not verified: {reason}", reason=call.unverified)
    return joined(
        (
            Text("{output} {status}", output=output, status=Text(status))
            for output, status in call.verdicts.items()
        ),
        ", ",
    )


def call_lines(call: CallInDump) -> Lines:
    """Yield what deserves a look in a call."""
    yield from (("impossible", text) for text in call.contradictions)
    for output, detail in call.details.items():
        if count := detail["elements"]["unreachable"]:
            text = Text(
                "{output}: {count} of {of} elements",
                output=output,
                count=count,
                of=sum(detail["elements"].values()),
            )
            yield "unreachable", text
    yield from (("explained by", text) for text in call.explanations)
    yield from (("note", text) for text in call.remarks)


def comparison_lines(reading: DumpReading, most: int) -> Lines:
    """Yield the differences from the other dump, if any, at most ``most``, with their causes."""
    if reading.against is None:
        return
    yield "other dump", reading.against
    yield "compared", _compared(reading)
    for number, difference in enumerate(reading.differences[:most]):
        different = Text(
            "{outputs}; inputs {inputs}",
            outputs=joined(difference.outputs, ", "),
            inputs=Text(difference.inputs),
        )
        label = "difference" if number else "first difference"
        yield label, f"{difference.place} {difference.entry}"
        yield "different", different
        if difference.differs:
            yield "values", joined(difference.differs, "; ")
        yield "cause", difference.reason
    if len(reading.differences) > most:
        yield "difference", Text("and {count} more", count=len(reading.differences) - most)
    yield from _notes("not compared", reading.unmatched, most)


def _compared(reading: DumpReading) -> str:
    """Return how the outputs of both dumps compare, as a sentence."""
    counts = reading.tensors
    if reading.nothing_compared:
        text = (
            "nothing could be compared: no output has values, a checksum or statistics of one kind "
            "in both dumps"
        )
    elif reading.differences:
        text = (
            "outputs: {different} different, {equal} of equal bits, {similar} of equal statistics, "
            "{unknown} not comparable"
        )
    elif counts["similar"] or counts["unknown"]:
        text = (
            "no output differs, which is not proved: {equal} of equal bits, {similar} of equal "
            "statistics, {unknown} not comparable"
        )
    else:
        text = "no output differs: {equal} of equal bits"
    return Text(text, **counts)


@document_of.register
def dump_report(reading: DumpReading, command: str = "") -> Document:
    """Return the report of a dump; ``command`` is the command that reproduces it."""
    different = {(difference.place, difference.entry) for difference in reading.differences}
    columns = (
        *call_columns(reading),
        Column(
            "difference",
            lambda call: say("difference") if (call.place, call.entry) in different else "",
        ),
    )
    colours = tuple("c3" if call.impossible else "" for call in reading.calls)
    most = len(reading.differences) + len(reading.unmatched)
    sections = (
        Section("Dump", (lines_table(head_lines(reading)),)),
        Section("Calls in their order", (Table(columns, reading.calls, colours=colours),)),
        *filled(
            ("Comparison", [lines_table(comparison_lines(reading, most))]),
            *(_details(described, "") for described in reading.calls),
            *(_details(described, reading.against or "") for described in reading.other_calls),
        ),
    )
    calls = (*reading.calls, *reading.other_calls)
    sentence = say(
        "{folder}: {calls}, {impossible} with values that the product cannot have written, "
        "{proved} proved possible bit by bit",
        folder=reading.folder,
        calls=calls_text(len(calls)),
        impossible=sum(call.impossible for call in calls),
        proved=sum(call.is_proved for call in calls),
    )
    outcome = "bad" if reading.failed else "good"
    return Document(sentence, sentence, sections, command, outcome, MEASURED)


def _details(call: CallInDump, folder: str) -> tuple[str, Iterable[Block]]:
    """Return a section: what deserves a look in a call, and its results if not all are equal."""
    title = " ".join(filter(None, (folder, call.place, call.entry)))
    blocks = (block for item in call.details.items() for block in _output(*item))
    return f"{title}: {call.operator}", (lines_table(call_lines(call)), *blocks)


def _output(output: str, detail: Mapping[str, Any]) -> Iterable[Block]:
    """Yield the verdict on one output: elements by verdict, and the worst ones."""
    counts = (
        Text("{count} {status}", count=count, status=Text(status))
        for status, count in detail["elements"].items()
        if count
    )
    yield lines_table([(output, joined(counts, ", "))])
    columns = (
        Column("element", lambda element: ", ".join(map(str, element["index"])), key=True),
        Column("verdict", lambda element: element["status"]),
        Column("given", lambda element: element["given"]),
        Column("computed", lambda element: element["expected"]),
        Column("reason", lambda element: element["reason"], wraps=True),
    )
    yield Table(columns, detail["worst"], "Worst elements")
