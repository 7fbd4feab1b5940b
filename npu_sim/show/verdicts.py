"""Verdicts on measured outputs, as text and as a report with a map of the elements."""

from collections.abc import Iterator

import numpy as np
from markupsafe import Markup
from rich.console import RenderableType

from npu_sim.cores import load_profile
from npu_sim.language import Text, joined, say
from npu_sim.show.layout import Column, Paragraph, Table, lines_table, stack
from npu_sim.show.reports import svg
from npu_sim.show.reports.document import Block, Document, Picture, Section
from npu_sim.verdicts.answers import (
    STATUSES,
    UNREACHABLE,
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
        same = Text("equal bits") if not different else Text("{count} differ", count=different)
        counted = Text("{count} elements: {same}", count=int(fixed.sum()), same=same)
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
    counts = [one.values for one in examined]
    text = "{least} to {most} values an element, within {ulp} ulp ({count} elements examined)"
    if not min(counts):
        text = "all orders lie within {ulp} ulp ({count} elements examined)"
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
    modes: dict[tuple[tuple[str, ...], tuple[str, ...]], list[bool]] = {}
    for combination in answer.possible:
        place = combination.socs, combination.releases
        modes.setdefault(place, []).append(combination.deterministic)
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
        parts.append(output_verdict_view(verdict, _product(answer)))
        if verdict.worst:
            parts += ["", Table(columns, element_rows(verdict, MOST_ROWS), indent=2)]
        parts.append("")
    for difference in answer.against.values():
        parts.append(lines_table(difference_lines(difference)))
        if difference.rows:
            rows = difference_rows(difference)[:MOST_ROWS]
            parts += ["", Table([Column(name) for name in DIFFERENCES], rows, indent=2)]
        parts.append("")
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
    if difference.proved:
        yield Text("cause"), Text("timing explains it: both results are possible where they differ")
    else:
        yield Text("cause"), Text("not proved to be timing: see the verdicts of the rows")


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
    heading = Paragraph(sentence(verdict, product), STYLES.get(verdict.status, "bold"))
    return stack(heading, lines_table(verdict_lines(verdict)))


BINS = 200
"""Bars of a strip."""
ROW = svg.BAR_HEIGHT + 24
LEAST_OPACITY = 0.25
ORIGIN = "The outputs were given; what they are compared with is simulated."
"""Footer of a report."""


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
        sections.append(Section(sentence(verdict, _product(answer)), tuple(blocks)))
    for name, difference in answer.against.items():
        found: list[Block] = [lines_table(difference_lines(difference))]
        if difference.rows:
            found.append(Table(DIFFERENCES, tuple(difference_rows(difference)), "Rows"))
        sections.append(Section(say("{name}: two results", name=name), tuple(found)))
    sections.append(Section("Device", (lines_table(place_lines(answer)),)))
    headline = say("{operator}: {status}", operator=answer.operator, status=say(answer.status))
    outcome = "bad" if answer.status == "unreachable" else "good"
    return Document(headline, headline, tuple(sections), call, outcome, ORIGIN)


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
                # A single impossible element must not be the palest of the page.
                least = 1.0 if code == UNREACHABLE else LEAST_OPACITY
                opacity = max(float(count) / (last - first), least)
                parts.append(svg.bar(x, y + 20, width, f"c{code}", title, fill_opacity=opacity))
        y += ROW
    return svg.picture(y, parts, say("verdicts of {output}", output=verdict.output))
