"""Verdicts on measured outputs, dumps and diagnoses, as text and as reports."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup
from rich.console import RenderableType

from npu_sim.cores import load_profile
from npu_sim.dumps.causes import RUNS, CallInDump
from npu_sim.dumps.reading import DumpReading, EntryNote
from npu_sim.failures.diagnosis import Diagnosis
from npu_sim.language import Text, calls_text, grouped, joined, say
from npu_sim.show import svg
from npu_sim.show.layout import (
    Block,
    Column,
    Document,
    Paragraph,
    Picture,
    Section,
    Table,
    after_gap,
    filled,
    lines_table,
    stack,
)
from npu_sim.verdicts.answers import (
    STATUSES,
    WORST_ELEMENTS,
    Explanation,
    OutputVerdict,
    ResultDifference,
    Verification,
)

SENTENCES = {
    "equal": "{output}: equal. The bits are those of a fixed order.",
    "reachable": "{output}: reachable. The product can have produced every element.",
    "undecided": "{output}: undecided. No element is proved impossible, {count} are not decided.",
    "unreachable": "{output}: unreachable. The product cannot have produced {count} of {of} "
    "elements.",
}
"""Sentence of an output by status."""
SENTENCES_OF_PRODUCTS = {
    "equal": "{output}: equal. The bits are those of a fixed order on {product}.",
    "reachable": "{output}: reachable. {product} can have produced every element.",
    "undecided": "{output}: undecided. On {product} no element is proved impossible, {count} are "
    "not decided.",
    "unreachable": "{output}: unreachable. No product can have produced every element; {product} "
    "cannot have produced {count} of {of}.",
}
"""The same where several products were tried."""
STYLES = {"equal": "bold green", "reachable": "bold green", "unreachable": "bold red"}
MOST_SOCS = 3
"""SoCs that a line names where several products were tried."""
MOST_ROWS = 5
"""Elements and rows that the text lists; reports and JSON have more."""
HEADINGS = ("element", "verdict", "given", "computed", "reason")


DIFFERENCES = ("row", "elements", "largest difference", "first result", "second result")
"""Columns of rows that differ between two results."""


def sentence(verdict: OutputVerdict, product: str = "") -> str:
    """Return the status of an output as a sentence; ``product`` if several were tried."""
    sentences = SENTENCES_OF_PRODUCTS if product else SENTENCES
    return Text(
        sentences[verdict.status],
        output=verdict.output,
        count=verdict.counts[verdict.status],
        of=verdict.elements.size,
        product=product,
    )


def _product(answer: Verification) -> str:
    """Return the product of the verdicts if several were tried, else an empty text."""
    products = {combination.product for combination in answer.combinations}
    return load_profile(answer.product).product.title if len(products) > 1 else ""


def verdict_lines(verdict: OutputVerdict) -> Iterator[tuple[str, str]]:
    """Yield how many elements have which verdict, and what explains unreachable ones."""
    ruled = verdict.within_a_rule
    fixed, timing = ~verdict.order_dependent & ~ruled, verdict.order_dependent & ~ruled
    if fixed.any() or not verdict.elements.size:
        different = int((verdict.elements[fixed] > 0).sum())
        counted = Text(
            "{count} elements: {same}",
            count=int(fixed.sum()),
            same=Text("equal bits") if not different else Text("{count} differ", count=different),
        )
        yield Text("one legal order"), counted
    if timing.any():
        text = (
            "{count} elements: {equal} equal, {reachable} reachable, {undecided} undecided, "
            "{unreachable} unreachable"
        )
        yield Text("depends on timing"), _counted(text, verdict.elements[timing])
    if ruled.any():
        text = (
            "{count} elements: {equal} as simulated, {undecided} within its bound, {unreachable} "
            "beyond it"
        )
        yield Text("open rule"), _counted(text, verdict.elements[ruled])
        yield from ((Text("rule"), rule.reason) for rule in verdict.rules)
    yield from _reachable_sets(verdict)
    if verdict.rounded_from:
        yield (
            Text("compared"),
            Text("after rounding to {dtype}, in which it is given", dtype=str(verdict.given.dtype)),
        )
    if verdict.order:
        yield Text("order of arrival"), verdict.order
    for pattern in verdict.patterns:
        yield Text("pattern"), pattern
    for explanation in verdict.explanations:
        yield Text("explained by"), _explanation(explanation)
    if not verdict.possible and not verdict.explanations:
        yield Text("explained by"), Text("none of the alternatives that were simulated")
    for step in verdict.next_steps:
        yield Text("next"), step


def _counted(text: str, codes: np.ndarray) -> str:
    """Return a sentence with the number of elements by verdict."""
    counts = {status: int((codes == code).sum()) for code, status in enumerate(STATUSES)}
    return Text(text, count=codes.size, **counts)


def _reachable_sets(verdict: OutputVerdict) -> Iterator[tuple[str, str]]:
    """Yield how wide the set of the values that an element can have is."""
    examined = verdict.measured_sets
    if not examined:
        return
    ulp = max(map(verdict.width, examined))
    counts = [element.values for element in examined]
    text = (
        "all orders lie within {ulp} ulp ({count} elements examined)"
        if not min(counts)
        else "{least} to {most} values an element, within {ulp} ulp ({count} elements examined)"
    )
    yield (
        Text("reachable"),
        Text(text, least=min(counts), most=max(counts), ulp=ulp, count=len(examined)),
    )


def _explanation(explanation: Explanation) -> str:
    if explanation.whole:
        return Text("{alternative}: possible there, with every other element", explanation)
    if explanation.impossible:
        return Text(
            "{alternative}: {explained} of {of} elements are possible there, but {impossible} "
            "others are not",
            explanation,
        )
    return Text("{alternative}: {explained} of {of} elements are possible there", explanation)


def element_rows(verdict: OutputVerdict, most: int = WORST_ELEMENTS) -> list[tuple[str, ...]]:
    """Return the worst elements as cells under ``HEADINGS``."""
    return [
        (
            ", ".join(map(str, index)),
            verdict.status_of(index),
            str(verdict.given[index]),
            str(verdict.expected[index]),
            verdict.reason(index),
        )
        for index in verdict.worst[:most]
    ]


def place_lines(answer: Verification) -> Iterator[tuple[str, str]]:
    """Yield the device of the verdicts, and the combinations under which they are possible."""
    mode = "on" if answer.deterministic else "off"
    yield (
        Text("simulated on"),
        Text("{soc}, release {release}, deterministic computation {mode}", answer, mode=Text(mode)),
    )
    if len(answer.combinations) > 1:
        yield from ((Text("possible on"), place) for place in _places(answer))
        if not answer.possible:
            yield Text("possible on"), Text("none of the combinations that were asked for")


def _places(answer: Verification) -> Iterator[str]:
    """Yield the combinations under which the outputs are possible; of several products, short."""
    modes = grouped(
        ((combination.socs, combination.releases), combination.deterministic)
        for combination in answer.possible
    )
    most = MOST_SOCS if _product(answer) else None
    for (socs, releases), switches in modes.items():
        more = 0 if most is None else max(0, len(socs) - most)
        named = joined(socs[:most], ", ")
        yield Text(
            "{socs}; release {releases}; deterministic computation {mode}",
            socs=Text("{named} and {more} more", named=named, more=more) if more else named,
            releases=joined(releases, ", "),
            mode=joined([Text("on" if switch else "off") for switch in switches], ", "),
        )


def verification_view(answer: Verification) -> RenderableType:
    """Return an answer as a rich renderable."""
    parts: list[RenderableType] = []
    columns = [Column(name, key=name == "element", wraps=name == "reason") for name in HEADINGS]
    for verdict in answer.outputs.values():
        worst = Table(columns, element_rows(verdict, MOST_ROWS), indent=2)
        parts += [output_verdict_view(verdict, _product(answer)), *after_gap(worst), ""]
    for difference in answer.against.values():
        rows = Table(DIFFERENCES, difference_rows(difference)[:MOST_ROWS], indent=2)
        parts += [lines_table(difference_lines(difference)), *after_gap(rows), ""]
    return stack(*parts, lines_table(place_lines(answer)))


def difference_lines(difference: ResultDifference) -> Iterator[tuple[str, str]]:
    """Yield how many elements of two results differ, and whether timing explains it."""
    count, rows = int(difference.differing.sum()), len(difference.rows)
    yield (
        Text("second result"),
        Text(
            "{status}; {count} of {of} elements differ from the first, in {rows} rows",
            status=Text(difference.second.status),
            count=count,
            of=difference.differing.size,
            rows=rows,
        ),
    )
    if not count:
        return
    yield (
        Text("cause"),
        Text(
            "timing explains it: both results are possible where they differ"
            if difference.proved
            else "not proved to be timing: see the verdicts of the rows"
        ),
    )


def difference_rows(difference: ResultDifference) -> list[tuple[str, ...]]:
    """Return the rows of two results that differ most, as cells under ``DIFFERENCES``."""
    return [
        (
            ", ".join(map(str, row["index"])),
            str(row["elements"]),
            f"{row['largest_difference']:.3g}",
            Text(row["first"]),
            Text(row["second"]),
        )
        for row in difference.rows[:WORST_ELEMENTS]
    ]


def output_verdict_view(verdict: OutputVerdict, product: str = "") -> RenderableType:
    """Return the verdict on one output as a rich renderable."""
    return stack(
        Paragraph(sentence(verdict, product), STYLES.get(verdict.status, "bold")),
        lines_table(verdict_lines(verdict)),
    )


MAP_CLASSES = {"equal": "c2", "reachable": "c0", "undecided": "c5", "unreachable": "wrong"}
"""Colour of a verdict in the strip; what cannot be is the strongest."""
BINS = 200
"""Bars of a strip."""
ROW = svg.BAR_HEIGHT + 24
LEAST_OPACITY = 0.25
MEASURED = "Given values are from your files; what the product can produce is simulated."
"""Origin of the numbers of a verification, for the footer."""


def verification_report(answer: Verification, call: str = "") -> Document:
    """Return the report of an answer; ``call`` is the command that reproduces it."""
    sections = filled(
        *(
            (sentence(verdict, _product(answer)), _verdict_blocks(verdict))
            for verdict in answer.outputs.values()
        ),
        *(
            (
                say("{name}: two results", name=name),
                (
                    lines_table(difference_lines(difference)),
                    Table(DIFFERENCES, difference_rows(difference), "Rows"),
                ),
            )
            for name, difference in answer.against.items()
        ),
        ("Device", [lines_table(place_lines(answer))]),
    )
    headline = say("{operator}: {status}", operator=answer.operator, status=say(answer.status))
    outcome = "bad" if answer.status == "unreachable" else "good"
    return Document(headline, headline, sections, call, outcome, MEASURED)


def _verdict_blocks(verdict: OutputVerdict) -> Iterator[Block]:
    yield lines_table(verdict_lines(verdict))
    if verdict.elements.size:
        yield Picture(
            element_map(verdict),
            "Elements in the order of memory; darker bars hold more of that verdict.",
        )
    yield Table(HEADINGS, element_rows(verdict), "Worst elements")


def element_map(verdict: OutputVerdict) -> Markup:
    """Draw a strip for every verdict that occurs: bars of adjacent elements."""
    codes = verdict.elements.reshape(-1)
    edges = np.unique(np.linspace(0, codes.size, BINS + 1).astype(np.int64))
    parts, y = [], 0.0
    for code, status in enumerate(STATUSES):
        total = verdict.counts[status]
        if not total:
            continue
        parts.append(svg.caption(say("{status}: {count}", status=say(status), count=total), y + 12))
        counts = np.add.reduceat((codes == code).astype(np.int64), edges[:-1])
        for first, last, count in zip(edges[:-1].tolist(), edges[1:].tolist(), counts, strict=True):
            x, width = first * svg.WIDTH / codes.size, (last - first) * svg.WIDTH / codes.size
            parts.append(svg.bar(x, y + 20, width, "fixed"))
            if count:
                title = say(
                    "elements {first}..{last}: {count}", first=first, last=last - 1, count=count
                )
                opacity = max(
                    1.0 if status == "unreachable" else float(count) / (last - first), LEAST_OPACITY
                )
                parts.append(
                    svg.bar(x, y + 20, width, MAP_CLASSES[status], title, fill_opacity=opacity)
                )
        y += ROW
    return svg.picture(y, parts, say("verdicts of {output}", output=verdict.output))


MOST_KINDS = 6
"""Functions that are not modelled are listed up to this number."""
MOST_LINES = 4
"""Differences and entries of a kind are listed up to this number; reports and JSON have all."""
CALL_HEADINGS = ("step and rank", "entry", "operator", "outcome", "verdict", "in the other dump")
CALL_COLUMNS = [
    Column(name, key=name == "entry", wraps=name not in CALL_HEADINGS[:3]) for name in CALL_HEADINGS
]


def dump_view(reading: DumpReading) -> RenderableType:
    """Return a dump as a rich renderable: what it has, every call, what deserves a look."""
    details = (
        *(line for call in reading.calls for line in call_lines(call)),
        *(line for call in reading.other_calls for line in other_lines(reading, call)),
    )
    return stack(
        lines_table(head_lines(reading)),
        *after_gap(Table(CALL_COLUMNS, call_rows(reading))),
        *after_gap(lines_table(details, styles={"impossible": "red", "unreachable": "red"})),
        *after_gap(lines_table(comparison_lines(reading, MOST_LINES))),
    )


def call_rows(reading: DumpReading) -> list[tuple[str, ...]]:
    """Return the calls in their order, as cells under ``CALL_HEADINGS``."""
    several = len(reading.places) > 1
    places = {call.place for call in reading.other_calls}
    # the only dumps of two folders are compared although their places are named apart
    single = not several and len(places) == 1
    others = {
        (call.entry, call.operator, "" if single else call.place): _verdict(call)
        for call in reading.other_calls
    }
    return [
        (
            call.place if several else "",
            call.entry,
            call.operator,
            _outcome(call),
            _verdict(call),
            others.get((call.entry, call.operator, "" if single else call.place), ""),
        )
        for call in reading.calls
    ]


def head_lines(reading: DumpReading) -> Iterator[tuple[str, str]]:
    """Yield what the dump contains."""
    yield Text("dump folder"), reading.folder
    yield (
        Text("contains"),
        Text(
            "{entries} entries in {places} dump.json, task {tasks}",
            entries=reading.entries,
            places=len(reading.places),
            tasks=", ".join(reading.tasks),
        ),
    )
    yield (
        Text("simulated on"),
        Text(
            "{product}, {soc}, {release}, deterministic computation {mode}",
            product=reading.product,
            soc=reading.soc,
            release=reading.release,
            mode=Text("on") if reading.deterministic else Text("off"),
        ),
    )
    if reading.other_target:
        yield Text("the other dump on"), reading.other_target
    if reading.not_modelled:
        kinds = sorted(reading.not_modelled.items(), key=lambda kind: -kind[1])
        names = [f"{name} {count}" for name, count in kinds[:MOST_KINDS]]
        more = ["..."] if len(kinds) > MOST_KINDS else []
        yield (
            Text("not modelled"),
            Text(
                "{calls} of {kinds} functions: {names}",
                calls=calls_text(sum(reading.not_modelled.values())),
                kinds=len(kinds),
                names=joined(names + more, ", "),
            ),
        )
    if reading.unnamed_files:
        yield (
            Text("incomplete"),
            Text("{files} tensor files have no entry", files=reading.unnamed_files),
        )
    yield from _notes(Text("unreadable"), reading.unreadable, MOST_LINES)


def _notes(label: str, notes: Sequence[EntryNote], most: int) -> Iterator[tuple[str, str]]:
    """Yield reasons with the entries that they concern, at most ``most`` of each."""
    groups = grouped(
        ((note.reason, note.folder), " ".join(filter(None, (note.place, note.entry))))
        for note in notes
    )
    for (reason, folder), entries in groups.items():
        more, named = len(entries) - most, joined(entries[:most], ", ")
        cut = Text("{entries} and {count} more", entries=named, count=more)
        yield (
            label,
            Text(
                "{reason} ({folder}): {entries}",
                reason=reason,
                folder=folder,
                entries=cut if more > 0 else named,
            ),
        )


def _outcome(call: CallInDump) -> str:
    if call.outcome != RUNS:
        return Text("{outcome}: {message}", outcome=Text(call.outcome), message=call.message)
    if call.timing:
        return Text("runs; {outputs} depends on timing", outputs=joined(call.timing, ", "))
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


def call_lines(call: CallInDump) -> Iterator[tuple[str, str, str]]:
    """Yield what deserves a look in a call, with its entry as the note."""
    for text in call.contradictions:
        yield Text("impossible"), text, call.entry
    for output, detail in call.details.items():
        if count := detail["elements"]["unreachable"]:
            text = Text(
                "{output}: {count} of {of} elements",
                output=output,
                count=count,
                of=sum(detail["elements"].values()),
            )
            yield Text("unreachable"), text, call.entry
    for text in call.explanations:
        yield Text("explained by"), text, call.entry
    for text in call.remarks:
        yield Text("note"), text, call.entry


def other_lines(reading: DumpReading, call: CallInDump) -> Iterator[tuple[str, str, str]]:
    """Yield what deserves a look in a call of the other dump."""
    for label, text, entry in call_lines(call):
        yield label, text, Text("{entry} in {folder}", entry=entry, folder=reading.against or "")


def comparison_lines(reading: DumpReading, most: int) -> Iterator[tuple[str, str]]:
    """Yield the differences from the other dump, if any, at most ``most``, with their causes."""
    if reading.against is None:
        return
    yield Text("other dump"), reading.against
    yield Text("compared"), _compared(reading)
    for number, difference in enumerate(reading.differences[:most]):
        yield (
            Text("difference") if number else Text("first difference"),
            f"{difference.place} {difference.entry}",
        )
        yield (
            Text("different"),
            Text(
                "output {outputs}; inputs {inputs}",
                outputs=joined(difference.outputs, ", "),
                inputs=Text(difference.inputs),
            ),
        )
        if difference.differs:
            yield Text("values"), joined(difference.differs, "; ")
        yield Text("cause"), difference.reason
    if len(reading.differences) > most:
        yield Text("difference"), Text("and {count} more", count=len(reading.differences) - most)
    yield from _notes(Text("not compared"), reading.unmatched, most)


def _compared(reading: DumpReading) -> str:
    """Return how the outputs of both dumps compare, as a sentence."""
    if reading.nothing_compared:
        return Text(
            "nothing could be compared: no output has values, a checksum or statistics of one kind "
            "in both dumps"
        )
    counts = reading.tensors
    if not reading.differences and not counts["similar"] and not counts["unknown"]:
        return Text("no output differs: {count} of equal bits", count=counts["equal"])
    if not reading.differences:
        return Text(
            "no output differs, which is not proved: {equal} of equal bits, {similar} of equal "
            "statistics, {unknown} not comparable",
            equal=counts["equal"],
            similar=counts["similar"],
            unknown=counts["unknown"],
        )
    return Text(
        "outputs: {different} different, {equal} of equal bits, {similar} of equal statistics, "
        "{unknown} not comparable",
        different=counts["different"],
        equal=counts["equal"],
        similar=counts["similar"],
        unknown=counts["unknown"],
    )


def dump_report(reading: DumpReading, call: str = "") -> Document:
    """Return the report of a dump; ``call`` is the command that reproduces it."""
    different = {(difference.place, difference.entry) for difference in reading.differences}
    rows = [
        (*row, say("difference") if (described.place, described.entry) in different else "")
        for described, row in zip(reading.calls, call_rows(reading), strict=True)
    ]
    colours = tuple("c3" if call.impossible else "" for call in reading.calls)
    most = len(reading.differences) + len(reading.unmatched)
    sections = (
        Section("Dump", (lines_table(head_lines(reading)),)),
        Section(
            "Calls in their order", (Table((*CALL_HEADINGS, "difference"), rows, colours=colours),)
        ),
        *filled(
            ("Comparison", [lines_table(comparison_lines(reading, most))]),
            *(_details(described, "") for described in reading.calls),
            *(_details(described, reading.against or "") for described in reading.other_calls),
        ),
    )
    sentence = say(
        "{folder}: {calls}, {impossible} with values that the product cannot have written",
        folder=reading.folder,
        calls=calls_text(len(reading.calls)),
        impossible=sum(call.impossible for call in (*reading.calls, *reading.other_calls)),
    )
    return Document(
        sentence, sentence, sections, call, "bad" if reading.failed else "good", MEASURED
    )


def _details(call: CallInDump, folder: str) -> tuple[str, Iterable[Block]]:
    """Return a section: what deserves a look in a call, and its results if not all are equal."""
    lines = lines_table((label, text) for label, text, _ in call_lines(call))
    outputs = (_output(output, detail) for output, detail in call.details.items())
    title = " ".join(filter(None, (folder, call.place, call.entry)))
    return f"{title}: {call.operator}", (lines, *(block for blocks in outputs for block in blocks))


def _output(output: str, detail: Mapping[str, Any]) -> Iterable[Block]:
    """Yield the verdict on one output: elements by verdict, and the worst ones."""
    counts = (
        Text("{count} {status}", count=count, status=Text(status))
        for status, count in detail["elements"].items()
        if count
    )
    yield lines_table([(output, joined(counts, ", "))])
    cells = ("status", "given", "expected", "reason")
    rows = [
        (", ".join(map(str, element["index"])), *(element[name] for name in cells))
        for element in detail["worst"]
    ]
    yield Table(HEADINGS, rows, "Worst elements")


def diagnosis_view(diagnosis: Diagnosis) -> RenderableType:
    """Return a diagnosis as a rich renderable."""
    return lines_table(diagnosis.lines, styles={"impossible": "red"})
