"""Verdicts on measured outputs, as text and as a report with a map of the elements."""

from collections.abc import Iterator

import numpy as np
from markupsafe import Markup
from rich.console import RenderableType

from npu_sim.language import Text, joined, say
from npu_sim.show.layout import Column, Paragraph, Table, lines_table, stack
from npu_sim.show.reports import svg
from npu_sim.show.reports.document import Block, Document, Picture, Section
from npu_sim.verdicts.answers import (
    STATUSES,
    WORST_ELEMENTS,
    Combination,
    OutputVerdict,
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
STYLES = {"equal": "bold green", "reachable": "bold green", "unreachable": "bold red"}
MOST_ROWS = 5
"""Elements that the text lists; reports and JSON have more."""
HEADINGS = ("element", "verdict", "given", "computed", "reason")


def sentence(verdict: OutputVerdict) -> str:
    """Return the status of an output as a sentence."""
    count = verdict.counts[verdict.status]
    return Text(
        SENTENCES[verdict.status], output=verdict.output, count=count, of=verdict.elements.size
    )


def verdict_lines(verdict: OutputVerdict) -> Iterator[tuple[str, str]]:
    """Yield how many elements have which verdict, and what explains unreachable ones."""
    fixed = ~verdict.order_dependent
    of = int(fixed.sum())
    different = int((verdict.elements[fixed] > 0).sum())
    same = Text("equal bits") if not different else Text("{count} differ", count=different)
    yield Text("one legal order"), Text("{count} elements: {same}", count=of, same=same)
    if of < verdict.elements.size:
        counts = [int((verdict.elements[~fixed] == code).sum()) for code in range(4)]
        yield (
            Text("depends on timing"),
            Text(
                "{count} elements: {equal} equal, {reachable} reachable, {undecided} undecided, "
                "{unreachable} unreachable",
                count=verdict.elements.size - of,
                equal=counts[0],
                reachable=counts[1],
                undecided=counts[2],
                unreachable=counts[3],
            ),
        )
    if verdict.rounded_from:
        yield (
            Text("compared"),
            Text("after rounding to {dtype}, in which it is given", dtype=str(verdict.given.dtype)),
        )
    if verdict.order:
        yield Text("order of arrival"), verdict.order
    for explanation in verdict.explanations:
        text = "{alternative}: possible there, with every other element"
        if not explanation.whole:
            text = "{alternative}: {explained} of {of} elements are possible there"
        yield (Text("explained by"), Text(text, explanation))
    if not verdict.possible and not verdict.explanations:
        yield Text("explained by"), Text("none of the alternatives that were simulated")


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
        for combination in answer.possible:
            yield Text("possible on"), _combination(combination)
        if not answer.possible:
            yield Text("possible on"), Text("none of the combinations that were tried")


def _combination(combination: Combination) -> str:
    return Text(
        "{socs}; release {releases}; deterministic computation {mode}",
        socs=joined(combination.socs, ", "),
        releases=joined(combination.releases, ", "),
        mode=Text("on" if combination.deterministic else "off"),
    )


def verification_view(answer: Verification) -> RenderableType:
    """Return an answer as a rich renderable."""
    parts: list[RenderableType] = []
    columns = [Column(name, key=name == "element", wraps=name == "reason") for name in HEADINGS]
    for verdict in answer.outputs.values():
        parts.append(output_verdict_view(verdict))
        if verdict.worst:
            parts += ["", Table(columns, element_rows(verdict, MOST_ROWS), indent=2)]
        parts.append("")
    return stack(*parts, lines_table(place_lines(answer)))


def output_verdict_view(verdict: OutputVerdict) -> RenderableType:
    """Return the verdict on one output as a rich renderable."""
    heading = Paragraph(sentence(verdict), STYLES.get(verdict.status, "bold"))
    return stack(heading, lines_table(verdict_lines(verdict)))


BINS = 200
"""Bars of a strip."""
ROW = svg.BAR_HEIGHT + 24
LEAST_OPACITY = 0.25


def verification_report(answer: Verification, call: str = "") -> Document:
    """Return the report of an answer; ``call`` is the command that reproduces it."""
    sections = []
    for verdict in answer.outputs.values():
        blocks: list[Block] = [lines_table(verdict_lines(verdict))]
        if verdict.elements.size:
            note = "Elements in the order of memory; darker bars hold more of that verdict."
            blocks.append(Picture(element_map(verdict), note))
        if verdict.worst:
            blocks.append(Table(HEADINGS, tuple(element_rows(verdict)), "Worst elements"))
        sections.append(Section(sentence(verdict), tuple(blocks)))
    sections.append(Section("Device", (lines_table(place_lines(answer)),)))
    headline = say("{operator}: {status}", operator=answer.operator, status=say(answer.status))
    outcome = "bad" if answer.status == "unreachable" else "good"
    return Document(headline, headline, tuple(sections), call, outcome)


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
                opacity = max(float(count) / (last - first), LEAST_OPACITY)
                parts.append(svg.bar(x, y + 20, width, f"c{code}", title, fill_opacity=opacity))
        y += ROW
    return svg.picture(y, parts, say("verdicts of {output}", output=verdict.output))
