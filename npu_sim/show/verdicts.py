"""Verdicts on measured outputs, dumps and diagnoses, as text and as reports."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
from markupsafe import Markup
from rich.console import RenderableType

from npu_sim.cores import load_profile
from npu_sim.dumps.differences import RUNS, CallInDump
from npu_sim.dumps.reading import DumpReading, EntryNote
from npu_sim.failures.diagnosis import Diagnosis
from npu_sim.framework.describing import counted
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
    VERDICTS,
    WORST_ELEMENTS,
    Explanation,
    OutputVerdict,
    ResultDifference,
    Verification,
)
from npu_sim.verdicts.explanations import some_of

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
COLUMNS = (
    Column("element", key=True),
    *(Column(name) for name in ("verdict", "given", "computed")),
    Column("reason", wraps=True),
)
"""Columns of the worst elements."""


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


def verdict_lines(verdict: OutputVerdict) -> list[tuple[str, str]]:
    """Return how many elements have which verdict, and what explains unreachable ones."""
    ruled = verdict.within_a_rule
    fixed, timing = ~verdict.order_dependent & ~ruled, verdict.order_dependent & ~ruled
    different = int((verdict.elements[fixed] > 0).sum())
    in_order = Text(
        "{count} elements: {same}",
        count=int(fixed.sum()),
        same=Text("{count} differ", count=different) if different else "equal bits",
    )
    in_time = _counted(
        "{count} elements: {equal} equal, {reachable} reachable, {undecided} undecided, "
        "{unreachable} unreachable",
        verdict.elements[timing],
    )
    by_rule = _counted(
        "{count} elements: {equal} as simulated, {undecided} within its bound, {unreachable} "
        "beyond it",
        verdict.elements[ruled],
    )
    rounded = Text(
        "after rounding to {dtype}, in which it is given", dtype=str(verdict.given.dtype)
    )
    explanations = [*map(_explanation, verdict.explanations)]
    if not verdict.possible and not explanations:
        explanations.append(Text("none of the alternatives that were simulated"))
    return [
        *([("one legal order", in_order)] if fixed.any() or not verdict.elements.size else []),
        *([("depends on timing", in_time)] if timing.any() else []),
        *([("open rule", by_rule)] if ruled.any() else []),
        *(("rule", rule.reason) for rule in verdict.rules if ruled.any()),
        *_reachable_sets(verdict),
        *([("compared", rounded)] if verdict.rounded_from else []),
        *([("order of arrival", verdict.order)] if verdict.order else []),
        *(("pattern", pattern) for pattern in verdict.patterns),
        *(("explained by", explanation) for explanation in explanations),
        *(("next", step) for step in verdict.next_steps),
    ]


def _counted(text: str, codes: np.ndarray) -> str:
    """Return a sentence with the number of elements by verdict."""
    counts = {status: int((codes == code).sum()) for code, status in enumerate(VERDICTS)}
    return Text(text, count=codes.size, **counts)


def _reachable_sets(verdict: OutputVerdict) -> list[tuple[str, str]]:
    """Return how wide the set of the values that an element can have is."""
    examined = verdict.measured_sets
    if not examined:
        return []
    ulp = max(map(verdict.width, examined))
    counts = [element.values for element in examined]
    text = (
        "all orders lie within {ulp} ulp ({count} elements examined)"
        if not min(counts)
        else "{least} to {most} values an element, within {ulp} ulp ({count} elements examined)"
    )
    return [
        ("reachable", Text(text, least=min(counts), most=max(counts), ulp=ulp, count=len(examined)))
    ]


def _explanation(explanation: Explanation) -> str:
    text = "{alternative}: {explained} of {of} elements are possible there"
    if explanation.whole:
        text = "{alternative}: possible there, with every other element"
    elif explanation.impossible:
        text = (
            "{alternative}: {explained} of {of} elements are possible there, but {impossible} "
            "others are not"
        )
    return Text(text, explanation)


def _worst_elements(verdict: OutputVerdict, most: int = WORST_ELEMENTS, indent: int = 0) -> Table:
    return Table(
        COLUMNS,
        [
            (
                ", ".join(map(str, index)),
                verdict.status_of(index),
                str(verdict.given[index]),
                str(verdict.expected[index]),
                verdict.reason(index),
            )
            for index in verdict.worst[:most]
        ],
        "Worst elements",
        indent=indent,
    )


def place_lines(answer: Verification) -> list[tuple[str, str]]:
    """Return the device of the verdicts, and the combinations under which they are possible."""
    device = Text(
        "{soc}, release {release}, deterministic computation {mode}",
        answer,
        mode=Text("on" if answer.deterministic else "off"),
    )
    places = [*_places(answer)] or ["none of the combinations that were asked for"]
    return [
        ("simulated on", device),
        *(("possible on", place) for place in places if len(answer.combinations) > 1),
    ]


def _places(answer: Verification) -> Iterator[str]:
    """Yield the combinations under which the outputs are possible; of several products, short."""
    modes = grouped(
        ((combination.socs, combination.releases), combination.deterministic)
        for combination in answer.possible
    )
    is_short = bool(_product(answer))
    for (socs, releases), switches in modes.items():
        yield Text(
            "{socs}; release {releases}; deterministic computation {mode}",
            socs=some_of(socs, MOST_SOCS if is_short else len(socs)),
            releases=joined(releases, ", "),
            mode=joined([Text("on" if switch else "off") for switch in switches], ", "),
        )


def verification_view(answer: Verification) -> RenderableType:
    """Return an answer as a rich renderable."""
    differences = (
        (
            lines_table(difference_lines(difference)),
            *after_gap(_differing_rows(difference, MOST_ROWS, indent=2)),
            "",
        )
        for difference in answer.against.values()
    )
    verdicts = (
        (
            output_verdict_view(verdict, _product(answer)),
            *after_gap(_worst_elements(verdict, MOST_ROWS, indent=2)),
            "",
        )
        for verdict in answer.outputs.values()
    )
    return stack(*chain(*differences, *verdicts), lines_table(place_lines(answer)))


def difference_lines(difference: ResultDifference) -> list[tuple[str, str]]:
    """Return how many elements of two results differ, and whether timing explains it."""
    count = int(difference.differing.sum())
    second = Text(
        "{status}; {count} of {of} elements differ from the first, in {rows}",
        status=Text(difference.second.status),
        count=count,
        of=difference.differing.size,
        rows=counted(len(difference.rows), "row"),
    )
    cause = (
        "timing explains it: both results are possible where they differ"
        if difference.proved
        else "not proved to be timing: see the verdicts of the rows"
    )
    return [("second result", second), *([("cause", cause)] if count else [])]


def _differing_rows(
    difference: ResultDifference, most: int = WORST_ELEMENTS, indent: int = 0
) -> Table:
    """Return the rows of two results that differ most."""
    return Table(
        ("row", "elements", "largest difference", "first result", "second result"),
        [
            (
                ", ".join(map(str, row["index"])),
                str(row["elements"]),
                f"{row['largest_difference']:.3g}",
                Text(row["first"]),
                Text(row["second"]),
            )
            for row in difference.rows[:most]
        ],
        "Rows",
        indent=indent,
    )


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


def verification_report(answer: Verification, command: str = "") -> Document:
    """Return the report of an answer; ``command`` is the command that reproduces it."""
    sections = filled(
        *(
            (
                say("{name}: two results", name=name),
                (lines_table(difference_lines(difference)), _differing_rows(difference)),
            )
            for name, difference in answer.against.items()
        ),
        *(
            (sentence(verdict, _product(answer)), _verdict_blocks(verdict))
            for verdict in answer.outputs.values()
        ),
        ("Device", [lines_table(place_lines(answer))]),
    )
    headline = say("{operator}: {status}", operator=answer.operator, status=say(answer.status))
    outcome = "bad" if answer.status == "unreachable" else "good"
    return Document(headline, headline, sections, command, outcome, MEASURED)


def _verdict_blocks(verdict: OutputVerdict) -> Iterator[Block]:
    yield lines_table(verdict_lines(verdict))
    if verdict.elements.size:
        yield Picture(
            element_map(verdict),
            "Elements in the order of memory; darker bars hold more of that verdict.",
        )
    yield _worst_elements(verdict)


def element_map(verdict: OutputVerdict) -> Markup:
    """Draw a strip for every verdict that occurs: bars of adjacent elements."""
    codes = verdict.elements.reshape(-1)
    edges = np.unique(np.linspace(0, codes.size, BINS + 1).astype(np.int64))
    parts, y = [], 0.0
    for code, status in enumerate(VERDICTS):
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
CALL_COLUMNS = (
    Column("step and rank"),
    Column("entry", key=True),
    Column("operator"),
    *(Column(name, wraps=True) for name in ("outcome", "verdict", "in the other dump")),
)


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
        *after_gap(Table(CALL_COLUMNS, call_rows(reading))),
        *after_gap(lines_table(details, styles={"impossible": "red", "unreachable": "red"})),
        *after_gap(lines_table(comparison_lines(reading, MOST_LINES))),
    )


def call_rows(reading: DumpReading) -> list[tuple[str, ...]]:
    """Return the calls in their order, as cells under ``CALL_COLUMNS``."""
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


def head_lines(reading: DumpReading) -> list[tuple[str, str]]:
    """Return what the dump contains."""
    entries = Text(
        "{entries} entries in {places} dump.json, task {tasks}",
        entries=reading.entries,
        places=len(reading.places),
        tasks=", ".join(reading.tasks),
    )
    device = Text(
        "{product}, {soc}, {release}, deterministic computation {mode}",
        reading,
        mode=Text("on" if reading.deterministic else "off"),
    )
    kinds = sorted(reading.not_modelled.items(), key=lambda kind: -kind[1])
    names = [f"{name} {count}" for name, count in kinds[:MOST_KINDS]]
    not_modelled = Text(
        "{calls} of {kinds} functions: {names}",
        calls=calls_text(sum(reading.not_modelled.values())),
        kinds=len(kinds),
        names=joined([*names, *(["..."] if len(kinds) > MOST_KINDS else [])], ", "),
    )
    unnamed = Text("{files} tensor files have no entry", files=reading.unnamed_files)
    return [
        ("dump folder", reading.folder),
        ("contains", entries),
        ("simulated on", device),
        *([("the other dump on", reading.other_target)] if reading.other_target else []),
        *([("not modelled", not_modelled)] if kinds else []),
        *([("incomplete", unnamed)] if reading.unnamed_files else []),
        *_notes("unreadable", reading.unreadable, MOST_LINES),
    ]


def _notes(label: str, notes: Sequence[EntryNote], most: int) -> Iterator[tuple[str, str]]:
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
        return Text("{outcome}: {message}", call)
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


def call_lines(call: CallInDump) -> Iterator[tuple[str, str]]:
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


def comparison_lines(reading: DumpReading, most: int) -> Iterator[tuple[str, str]]:
    """Yield the differences from the other dump, if any, at most ``most``, with their causes."""
    if reading.against is None:
        return
    yield "other dump", reading.against
    yield "compared", _compared(reading)
    for number, difference in enumerate(reading.differences[:most]):
        different = Text(
            "output {outputs}; inputs {inputs}",
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


def dump_report(reading: DumpReading, command: str = "") -> Document:
    """Return the report of a dump; ``command`` is the command that reproduces it."""
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
            "Calls in their order", (Table((*CALL_COLUMNS, "difference"), rows, colours=colours),)
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
    cells = ("status", "given", "expected", "reason")
    yield Table(
        COLUMNS,
        [
            (", ".join(map(str, element["index"])), *(element[name] for name in cells))
            for element in detail["worst"]
        ],
        "Worst elements",
    )


def diagnosis_view(diagnosis: Diagnosis) -> RenderableType:
    """Return a diagnosis as a rich renderable."""
    return lines_table(diagnosis.lines, styles={"impossible": "red"})
