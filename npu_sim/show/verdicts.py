"""Verdicts on measured outputs, as text and as reports."""

from collections.abc import Iterator
from itertools import chain

import numpy as np
from markupsafe import Markup
from rich.console import RenderableType

from npu_sim.cores import load_profile
from npu_sim.framework.describing import counted
from npu_sim.language import Text, grouped, joined, say
from npu_sim.show import document_of, view_of
from npu_sim.show.forms import svg
from npu_sim.show.forms.layout import (
    Block,
    Column,
    Document,
    Lines,
    Paragraph,
    Picture,
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


def verdict_lines(verdict: OutputVerdict) -> Lines:
    """Yield how many elements have which verdict, and what explains unreachable ones."""
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
    if fixed.any() or not verdict.elements.size:
        yield "one legal order", in_order
    if timing.any():
        yield "race" if verdict.race else "depends on timing", in_time
    if verdict.overwritten.any():
        yield "overwritten", _overwritten(verdict)
    if ruled.any():
        yield "open rule", by_rule
        yield from (("rule", rule.reason) for rule in verdict.rules)
    yield from _reachable_sets(verdict)
    if verdict.rounded_from:
        yield "compared", rounded
    if verdict.order:
        yield "order of arrival", verdict.order
    yield from (("pattern", pattern) for pattern in verdict.patterns)
    yield from (("explained by", explanation) for explanation in explanations)
    yield from (("next", step) for step in verdict.next_steps)


def _overwritten(verdict: OutputVerdict) -> str:
    return Text(
        "{count} elements have the bits that the race {race} leaves, not the computed ones",
        count=int(np.count_nonzero(verdict.overwritten)),
        race=verdict.race,
    )


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
    return Text(
        text,
        alternative=explanation.alternative,
        explained=explanation.explained,
        of=explanation.of,
        impossible=explanation.impossible,
    )


def _worst_elements(verdict: OutputVerdict, most: int = WORST_ELEMENTS, indent: int = 0) -> Table:
    columns = (
        Column("element", lambda index: ", ".join(map(str, index)), key=True),
        Column("verdict", verdict.status_of),
        Column("given", lambda index: str(verdict.given[index])),
        Column("computed", lambda index: str(verdict.expected[index])),
        Column("reason", verdict.reason, wraps=True),
    )
    return Table(columns, verdict.worst[:most], "Worst elements", indent=indent)


def place_lines(answer: Verification) -> list[tuple[str, str]]:
    """Return the device of the verdicts, and the combinations under which they are possible."""
    device = Text(
        "{soc}, release {release}, deterministic computation {mode}",
        soc=answer.soc,
        release=answer.release,
        mode=Text("on" if answer.deterministic else "off"),
    )
    places = [*_places(answer)] or ["none of the combinations that were asked for"]
    return [
        ("simulated on", device),
        *(
            (
                "computed",
                Text(
                    "{name}, which was left out, as the forward operator does with its "
                    "default epsilon",
                    name=name,
                ),
            )
            for name in answer.completed
        ),
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


@view_of.register
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


def difference_lines(difference: ResultDifference) -> Lines:
    """Yield how many elements of two results differ, and whether timing explains it."""
    count = int(difference.differing.sum())
    second = Text(
        "{status}; {count} of {of} elements differ from the first, in {rows}",
        status=Text(difference.second.status),
        count=count,
        of=difference.differing.size,
        rows=counted(len(difference.rows), "row"),
    )
    yield "second result", second
    if count:
        yield (
            "cause",
            "timing explains it: both results are possible where they differ"
            if difference.proved
            else "not proved to be timing: see the verdicts of the rows",
        )


def _differing_rows(
    difference: ResultDifference, most: int = WORST_ELEMENTS, indent: int = 0
) -> Table:
    """Return the rows of two results that differ most."""
    columns = (
        Column("row", lambda row: ", ".join(map(str, row["index"]))),
        Column("elements", lambda row: str(row["elements"])),
        Column("largest difference", lambda row: f"{row['largest_difference']:.3g}"),
        Column("first result", lambda row: Text(row["first"])),
        Column("second result", lambda row: Text(row["second"])),
    )
    return Table(columns, difference.rows[:most], "Rows", indent=indent)


@view_of.register
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


@document_of.register
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
