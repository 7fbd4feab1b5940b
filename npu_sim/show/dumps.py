"""A dump as text."""

from collections.abc import Iterator

from rich.console import RenderableType

from npu_sim.dumps.reading import RUNS, CallInDump, DumpReading
from npu_sim.language import Text, joined
from npu_sim.show.layout import Column, Table, lines_table, stack

MOST_KINDS = 6
"""Functions that are not modelled are listed up to this number."""
HEADINGS = ("step and rank", "entry", "operator", "outcome", "verdict")
COLUMNS = [
    Column(name, key=name == "entry", wraps=name in ("outcome", "verdict")) for name in HEADINGS
]


def dump_view(reading: DumpReading) -> RenderableType:
    """Return a dump as a rich renderable: what it has, every call, what deserves a look."""
    rows = call_rows(reading)
    parts: list[RenderableType] = [lines_table(head_lines(reading))]
    if rows:
        parts += ["", Table(COLUMNS, rows)]
    details = [line for call in reading.calls for line in call_lines(call)]
    if details:
        parts += ["", lines_table(details, styles={"impossible": "red", "unreachable": "red"})]
    if reading.against is not None:
        parts += ["", lines_table(comparison_lines(reading))]
    return stack(*parts)


def call_rows(reading: DumpReading) -> list[tuple[str, ...]]:
    """Return the calls in their order, as cells under ``HEADINGS``."""
    several = len(reading.places) > 1
    return [
        (call.place if several else "", call.entry, call.operator, _outcome(call), _verdict(call))
        for call in reading.calls
    ]


def head_lines(reading: DumpReading) -> Iterator[tuple[str, str]]:
    """Yield what the dump contains."""
    yield Text("dump folder"), reading.folder
    content = Text(
        "{entries} entries in {places} dump.json, task {tasks}",
        entries=reading.entries,
        places=len(reading.places),
        tasks=", ".join(reading.tasks),
    )
    yield Text("contains"), content
    yield Text("simulated on"), f"{reading.product}, {reading.soc}, {reading.release}"
    if reading.not_modelled:
        kinds = sorted(reading.not_modelled.items(), key=lambda kind: -kind[1])
        names = [f"{name} {count}" for name, count in kinds[:MOST_KINDS]]
        more = ["..."] if len(kinds) > MOST_KINDS else []
        others = Text(
            "{calls} calls of {kinds} functions: {names}",
            calls=sum(reading.not_modelled.values()),
            kinds=len(kinds),
            names=", ".join(names + more),
        )
        yield Text("not modelled"), others
    if reading.unnamed_files:
        text = Text("{files} tensor files have no entry", files=reading.unnamed_files)
        yield Text("incomplete"), text


def _outcome(call: CallInDump) -> str:
    if call.outcome != RUNS:
        return Text("{outcome}: {message}", outcome=Text(call.outcome), message=call.message)
    if call.timing:
        return Text("runs; {outputs} depends on timing", outputs=", ".join(call.timing))
    return "runs; fixed order"


def _verdict(call: CallInDump) -> str:
    texts = (
        Text("{output} {status}", output=output, status=Text(status))
        for output, status in call.verdicts.items()
    )
    return joined(texts, ", ")


def call_lines(call: CallInDump) -> Iterator[tuple[str, str, str]]:
    """Yield what deserves a look in a call, with its entry as the note."""
    for text in call.contradictions:
        yield Text("impossible"), text, call.entry
    for output, detail in call.details.items():
        if count := detail["elements"]["unreachable"]:
            of = sum(detail["elements"].values())
            text = Text("{output}: {count} of {of} elements", output=output, count=count, of=of)
            yield Text("unreachable"), text, call.entry
    for text in call.explanations:
        yield Text("explained by"), text, call.entry
    for text in call.remarks:
        yield Text("note"), text, call.entry


def comparison_lines(reading: DumpReading) -> Iterator[tuple[str, str]]:
    """Yield the first differences from the other dump, and their cause."""
    yield Text("other dump"), reading.against or ""
    if not reading.differences:
        text = Text("no output differs ({compared} dump.json compared)", compared=reading.compared)
        yield Text("difference"), text
    for difference in reading.differences:
        yield Text("first difference"), f"{difference.place} {difference.entry}"
        outputs = Text(
            "{outputs}; inputs {inputs}",
            outputs=", ".join(map(str, difference.outputs)),
            inputs=Text(difference.inputs),
        )
        yield Text("outputs"), outputs
        yield Text("cause"), difference.reason
