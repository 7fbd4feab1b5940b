"""Studies as labelled lines and as reports with pictures, and the rows that can differ.

The rows are a table of text and report, and CSV.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

import numpy as np
from rich.console import RenderableType

from npu_sim.framework.describing import counted
from npu_sim.framework.execution import OrderMask
from npu_sim.language import Text, grouped, joined, say, ulp_text
from npu_sim.show import document_of, view_of
from npu_sim.show.curves import Axis, LimitLine, curve, curve_chart
from npu_sim.show.layout import (
    Block,
    Chart,
    Column,
    Document,
    Drawing,
    Paragraph,
    Picture,
    Table,
    csv_text,
    filled,
    lines_table,
    stack,
)
from npu_sim.show.pictures import order_strip, order_strip_data
from npu_sim.show.text import Line
from npu_sim.studies.certificate import Certificate
from npu_sim.studies.determinism import (
    FIELDS,
    WORST_ROWS,
    DeterminismStudy,
    OutputStudy,
    VariableRows,
)
from npu_sim.studies.invariance import InvarianceStudy
from npu_sim.studies.precision import AGAINST_GIVEN, AGAINST_ROUNDED, MEANINGS, PrecisionStudy

Study = DeterminismStudy | PrecisionStudy | InvarianceStudy
SHOWN_STEPS = 6
"""Number of orders, and of steps of a sum, that are listed."""
SHOWN_TERMS = 3
"""Number of terms of the worst element that are listed."""
SHOWN_CLASSES = 12
"""Number of classes of elements of a certificate that are listed."""
SHOWN_TREE = 120
"""Number of characters shown of a tree; ``--json`` has all of it."""


def determinism_lines(study: DeterminismStudy) -> Iterator[Line]:
    """Yield a determinism study as lines."""
    yield ("path", study.path, "")
    for output in study.outputs:
        if output.order_dependent:
            yield from _output_lines(output)
        else:
            yield (output.output, "one result", "its accumulation order is fixed")


def _output_lines(output: OutputStudy) -> Iterator[Line]:
    results = say(
        "{distinct_results} different results from {orders}",
        distinct_results=output.distinct_results,
        orders=say("{orders} orders", orders=len(output.orders)),
    )
    differing = say(
        "{moved} of {elements} elements differ", moved=output.moved, elements=output.elements
    )
    spread = "between two legal orders, of the element that differs most in value"
    more_orders = ["..."] if len(output.orders) > SHOWN_STEPS else []
    different = say(
        "{differs_from_deterministic} elements differ",
        differs_from_deterministic=output.differs_from_deterministic,
    )
    yield (output.output, results, joined((*output.orders[:SHOWN_STEPS], *more_orders), ", "))
    yield (
        "",
        differing,
        say("{order_dependent} can, by plan and indices", order_dependent=output.order_dependent),
    )
    yield ("", say("spread up to {max_spread:.3g}", max_spread=output.max_spread), spread)
    yield ("", different, "between the sequential and the deterministic result")
    if output.race:
        yield ("race", output.race, "two runs can differ, with deterministic computation too")
    worst = output.worst
    if worst is None:
        return
    value = say(
        "{output}[{index}]: spread {spread:.3g} = {spread_ulp} ulp",
        output=output.output,
        index=", ".join(map(str, worst.index)),
        spread=worst.spread,
        spread_ulp=worst.spread_ulp,
    )
    yield (
        "worst",
        value,
        say(
            "the element that differs most in ulp; with deterministic computation "
            "{deterministic_result:.9g}",
            deterministic_result=worst.deterministic_result,
        ),
    )
    for extreme, order, steps in (
        (worst.lowest, worst.lowest_order, worst.steps_to_lowest),
        (worst.highest, worst.highest_order, worst.steps_to_highest),
    ):
        shown = joined(
            say(
                "core {core} {value:+.6g} -> {sum_after:.9g}",
                core=step.core,
                value=step.value,
                sum_after=step.sum_after,
            )
            for step in steps[:SHOWN_STEPS]
        )
        more = (
            say("; {steps} more", steps=len(steps) - SHOWN_STEPS)
            if len(steps) > SHOWN_STEPS
            else ""
        )
        scaled = say("; times {factor:.6g}", factor=worst.factor) if worst.factor != 1 else ""
        value = Text("{value} ({order})", value=f"{extreme:.9g}", order=order)
        yield ("", value, shown + more + scaled)


def _merged(study: PrecisionStudy) -> PrecisionStudy:
    """Return the study with equal outputs once, under the names of all their variants."""
    alike = grouped((str(output.as_dict() | {"variant": ""}), output) for output in study.outputs)
    outputs = (
        replace(same[0], variant=joined(output.variant for output in same))
        for same in alike.values()
    )
    return replace(study, outputs=tuple(outputs))


def precision_lines(study: PrecisionStudy) -> Iterator[Line]:
    """Yield a precision study as lines, equal outputs once."""
    for output in _merged(study).outputs:
        value = say(
            "{output} {dtype}: max {most}, mean {mean}",
            output=output.output,
            dtype=output.dtype,
            most=ulp_text(output.max_ulp),
            mean=ulp_text(output.mean_ulp),
        )
        verdicts = (
            say(
                "{standard} passes" if verdict.passed else "{standard} FAILS",
                standard=verdict.standard,
            )
            for verdict in output.verdicts
        )
        yield (output.variant, value, joined(verdicts, ", "))
        value = say("of given inputs: max {most}", most=ulp_text(output.max_ulp_of_given))
        yield ("", value, "the rounding of the inputs included")
        terms = joined(
            (
                Text("{name} {value:.4g}", name=term.name, value=term.value)
                for term in output.worst_terms[:SHOWN_TERMS]
            ),
            ", ",
        )
        value = say(
            "worst [{index}] {worst_actual:.7g} for {worst_golden:.7g}",
            index=", ".join(map(str, output.worst_index)),
            worst_actual=output.worst_actual,
            worst_golden=output.worst_golden,
        )
        yield ("", value, say("largest terms: {terms}", terms=terms) if terms else "")
        causes = (
            Text(
                "{name} {error}",
                name=cause.name,
                error=ulp_text(cause.max_ulp).removesuffix(" ulp"),
            )
            for cause in output.causes
        )
        yield ("", "each cause alone, in ulp", joined(causes, ", "))
        yield from (
            ("", cause.name, cause.note)
            for cause in output.causes
            if isinstance(cause.note, Text)  # notes with numbers
        )
    yield from ((label, "refused", message) for label, message in study.refused.items())
    yield from precision_meanings()


def precision_meanings() -> list[Line]:
    """Return the references of a precision study and the meanings of its verdicts."""
    return [
        ("against", "the rounded inputs", AGAINST_ROUNDED),
        ("", "the given inputs", AGAINST_GIVEN),
        *(("verdict", standard, meaning) for standard, meaning in MEANINGS.items()),
    ]


EFFECTS = {
    None: "{change}: not applicable",
    True: "{change}: changes",
    False: "{change}: same bits",
}
"""Sentence of a change by whether it alters bits."""


def invariance_lines(study: InvarianceStudy) -> Iterator[Line]:
    """Yield an invariance study as lines."""
    for row in study.rows:
        yield (
            row.output,
            say(EFFECTS[row.changes], change=row.change),
            say(
                "first at [{index}]: {before:.9g} becomes {after:.9g}",
                index=", ".join(map(str, row.first)),
                before=row.before,
                after=row.after,
            )
            if row.first is not None
            else row.note,
        )


def certificate_lines(certificates: Iterable[Certificate]) -> Iterator[Line]:
    """Yield certificates as lines."""
    for certificate in certificates:
        agreed = {None: "not probed", True: "the kernel agrees", False: "THE KERNEL DISAGREES"}[
            certificate.agrees
        ]
        yield (
            certificate.hash,
            say(
                "{output}[{index}], {elements} alike, {terms}",
                output=certificate.output,
                index=", ".join(map(str, certificate.element)),
                elements=counted(certificate.elements, "element"),
                terms=counted(len(certificate.terms), "term"),
            ),
            Text("{agreed} ({probe})", agreed=agreed, probe=certificate.probe),
        )
        formula = certificate.text
        cut = formula[:SHOWN_TREE].rpartition(" ")[0] + " ..."
        yield (
            "",
            cut if len(formula) > SHOWN_TREE else formula,
            f"t0 = {certificate.terms[0]}, ...",
        )


@view_of.register
def certificate_view(certificate: Certificate) -> RenderableType:
    """Return one certificate as a rich renderable."""
    return lines_table(certificate_lines([certificate]))


@view_of.register
def study_view(study: Study) -> RenderableType:
    """Return a study as a rich renderable."""
    return stack(
        Paragraph(study_headline(study), "bold green"), "", lines_table(study_lines(study))
    )


def study_lines(study: Study) -> Iterator[Line]:
    """Return a study as lines."""
    lines, _ = FORMS[type(study)]
    return lines(study)


def study_headline(study: Study) -> str:
    """Return operator, device and result of a study in one line."""
    _, result = FORMS[type(study)]
    return say(
        "{operator} on {product}, {soc}: {result}",
        operator=study.operator,
        product=study.product,
        soc=study.soc,
        result=result(study),
    )


def _differing(study: DeterminismStudy) -> str:
    """Return how many elements differ between orders."""
    moved = [
        say(
            "{moved} of {elements} elements of {output} differ between orders",
            moved=output.moved,
            elements=output.elements,
            output=output.output,
        )
        for output in study.outputs
        if output.order_dependent
    ]
    return joined(moved, ", ") if moved else say("every order gives the same bits")


def _error(study: PrecisionStudy) -> str:
    """Return the largest error."""
    worst = max(study.outputs, key=lambda output: output.max_ulp, default=None)
    if worst is None:
        return say("refused")
    return say(
        "error up to {most} ({output} {dtype})",
        most=ulp_text(worst.max_ulp),
        output=worst.output,
        dtype=worst.dtype,
    )


def _changing(study: InvarianceStudy) -> str:
    """Return how many changes alter bits."""
    rows = [row for row in study.rows if row.changes is not None]
    return say(
        "{changed} of {count} changes alter bits",
        changed=sum(bool(row.changes) for row in rows),
        count=len(rows),
    )


FORMS: dict[type, tuple[Callable[[Any], Iterator[Line]], Callable[[Any], str]]] = {
    DeterminismStudy: (determinism_lines, _differing),
    PrecisionStudy: (precision_lines, _error),
    InvarianceStudy: (invariance_lines, _changing),
}
"""Functions that return the lines and the summary of a study, by its type."""
ROWS_TITLE = "Rows that can differ"
POSITIONS = {"row": "row {number}", "column": "column {number}", "element": "element {number}"}
"""Name of a row, column or element."""
NOTE = (
    "terms: how many numbers are added up; in: the contributions they arrive in; spread and ulp: "
    "the element of the row that differs most in ulp, over the orders that were tried; relative "
    "spread: the spread relative to the sum of the contributions' magnitudes"
)


def rows_title(rows: VariableRows) -> str:
    """Return the number of rows, columns or elements that can differ, and of those shown."""
    count = len(rows.table)
    shown = say(", the {count} worst by ulp", count=WORST_ROWS) if count > WORST_ROWS else ""
    if count:
        return say(
            "{output}: {parts} can differ{shown}",
            output=rows.output,
            parts=counted(count, rows.axis),
            shown=shown,
        )
    return say("{output}: its accumulation order is fixed", output=rows.output)


def rows_table(rows: VariableRows) -> Table:
    """Return the worst rows that can differ."""
    columns = (
        Column("row", lambda row: say(POSITIONS[row["axis"]], number=row["place"]), key=True),
        Column("terms", lambda row: str(row["terms"]), right=True),
        Column("in", lambda row: str(row["contributions"]), right=True),
        Column("cores", lambda row: str(row["cores"]), right=True),
        Column("spread", lambda row: f"{row['spread']:.3g}", right=True),
        Column("ulp", lambda row: str(row["spread_ulp"]), right=True),
        Column("relative spread", lambda row: f"{row['relative']:.2g}", right=True),
        Column("element", lambda row: ", ".join(map(str, row["element"]))),
    )
    return Table(columns, rows.as_dicts(), rows_title(rows))


def rows_csv(every: Sequence[VariableRows]) -> str:
    """Return every row that can differ as CSV."""
    names = ("output", "axis", *(FIELDS.names or ()))
    rows = [row for rows in every for row in rows.as_dicts(rows.table)]
    return csv_text(names, ([row[name] for name in names] for row in rows))


def rows_view(every: Sequence[VariableRows]) -> RenderableType:
    """Return the worst rows of each output as a rich renderable."""
    parts = (part for rows in every for part in ("", rows_title(rows), rows_table(rows)))
    note = ["", NOTE] if any(len(rows.table) for rows in every) else []
    return stack(*parts, *note)


MOST_TERMS = 10_000
"""Maximum number of terms of all drawn summation trees; further classes are counted."""


@document_of.register
def study_document(study: Study) -> Document:
    """Return the report of a study."""
    outputs = study.outputs if isinstance(study, DeterminismStudy) else ()
    shown = _merged(study) if isinstance(study, PrecisionStudy) else study
    return study_report(
        study_headline(study),
        study_lines(study),
        shown.as_dict(),
        rows=[output.rows for output in outputs],
    )


@document_of.register
def certificate_document(certificate: Certificate) -> Document:
    """Return the report of one certificate."""
    lines = list(certificate_lines([certificate]))
    return study_report(lines[0][1], lines, {"certificates": [certificate.as_dict()]})


def study_report(
    headline: str,
    lines: Iterable[Line],
    data: dict[str, Any],
    command: str = "",
    rows: Sequence[VariableRows] = (),
) -> Document:
    """Return the report of a study.

    - ``headline``, ``lines``: text of the study.
    - ``data``: the study in JSON form.
    - ``command``: command that reproduces the report.
    - ``rows``: rows that can differ between runs.
    """
    trees, outputs = data.get("certificates"), data.get("outputs", ())
    strips = (
        order_strip_data(output.output, OrderMask(output.axis, output.mask()))
        for output in rows
        if len(output.table)
    )
    sections = filled(
        ("Result: summation trees", _trees(trees)) if trees else ("Result", [lines_table(lines)]),
        ("Where", (Picture(order_strip(strip), "solid: depends on timing") for strip in strips)),
        (ROWS_TITLE, rows_blocks(rows)),
        ("Curves", [_running_errors(output) for output in outputs if output.get("worst")]),
        ("Curves", [_histogram(output) for output in outputs if "histogram" in output]),
    )
    return Document(headline, headline, sections, command)


def _trees(certificates: Sequence[Mapping[str, Any]]) -> tuple[Block, ...]:
    """Draw the first trees, up to ``MOST_TERMS`` terms."""
    totals = list(accumulate(len(certificate["terms"]) for certificate in certificates))
    shown = max(sum(total <= MOST_TERMS for total in totals), 1)
    drawn = [
        {name: value for name, value in certificate.items() if name != "text"}
        for certificate in certificates[:shown]
    ]
    trees = Drawing(
        "drawTrees",
        {"certificates": drawn},
        "Open a node to see what is added; t0 .. t31 are terms added one after the "
        "other. Every addition is one fp32 addition.",
    )
    rest = len(certificates) - shown
    more = say(
        "{certificates} more classes are in the JSON of the same call (--json).", certificates=rest
    )
    return (trees, *([Paragraph(more)] if rest else []))


def _running_errors(output: Mapping[str, Any]) -> Chart:
    """Draw the rounding error of the worst element in its two extreme orders, in ulp."""
    worst = output["worst"]
    reference, factor = float(worst["deterministic_result"]), worst["factor"]
    ulp = float(np.spacing(np.float32(abs(reference))))
    curves = [
        curve(
            worst[f"{end}_order"],
            list(range(1, len(steps) + 1)),
            rounding_errors(steps, ulp / factor),
        )
        for end, steps in (
            ("lowest", worst["steps_to_lowest"]),
            ("highest", worst["steps_to_highest"]),
        )
    ]
    exact = sum(step["value"] for step in worst["steps_to_lowest"])
    caption = say(
        "{output}[{index}] in the orders of its lowest and highest result: running fp32 sum less "
        "the exact sum of the same contributions. Their ends lie {spread_ulp} ulp apart. 1 ulp of "
        "the deterministic result is {ulp:.3g}.",
        output=output["output"],
        index=", ".join(map(str, worst["index"])),
        spread_ulp=worst["spread_ulp"],
        ulp=ulp,
    )
    return curve_chart(
        Axis("contributions added"),
        Axis("off the exact sum, ulp of the result"),
        curves,
        (LimitLine(say("deterministic result"), (reference - factor * exact) / ulp, "y"),),
        caption=caption,
    )


def rounding_errors(steps: Sequence[Mapping[str, Any]], ulp: float) -> list[float]:
    """Return the running sum minus the exact sum after each step, in ulp."""
    exact = accumulate(step["value"] for step in steps)
    return [(step["sum_after"] - total) / ulp for step, total in zip(steps, exact, strict=True)]


def _histogram(output: Mapping[str, Any]) -> Chart:
    """Draw the ulp histogram of a variant and output with a logarithmic axis."""
    edges = [
        "more" if bar["up_to_ulp"] is None else f"<= {bar['up_to_ulp']:g}"
        for bar in output["histogram"]
    ]
    counts = [bar["elements"] for bar in output["histogram"]]
    top = np.log10(max(max(counts), 1)) + 0.6
    bars = {
        "type": "bar",
        "x": edges,
        "y": counts,
        "name": output["output"],
        "text": [str(count) if count else "" for count in counts],
        "textposition": "outside",
        "cliponaxis": False,
    }
    axis = {
        "title": {"text": "elements, logarithmic"},
        "type": "log",
        "range": [-0.3, float(top)],
        "dtick": 1,
    }
    return Chart(
        (bars,),
        {"xaxis": {"title": {"text": "error in ulp"}, "type": "category"}, "yaxis": axis},
        say(
            "{variant}: {output} against float64; above each bar, its number of elements",
            variant=output["variant"],
            output=output["output"],
        ),
    )


def rows_blocks(every: Sequence[VariableRows]) -> tuple[Block, ...]:
    """Return the rows that can differ between runs as tables; nothing if there are none."""
    tables = [rows_table(rows) for rows in every if len(rows.table)]
    return (*tables, Paragraph(NOTE)) if tables else ()
