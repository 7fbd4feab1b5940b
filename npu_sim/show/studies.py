"""Studies as labelled lines and as reports with pictures, and the rows that can differ.

The rows are a table of text and report, and CSV.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from rich.console import RenderableType

from npu_sim.framework.describing import PLURALS
from npu_sim.framework.execution import OrderMask
from npu_sim.language import Text, joined, say
from npu_sim.language.quantities import ulp_text
from npu_sim.show.curves import Axis, Bound, Curve, curve_figure
from npu_sim.show.document import Block, Document, Drawing, Figure, Picture, Section
from npu_sim.show.layout import Column, Paragraph, Table, csv_text, lines_table, stack
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
from npu_sim.studies.precision import (
    AGAINST_GIVEN,
    AGAINST_ROUNDED,
    MEANINGS,
    PrecisionStudy,
    Verdict,
)

Study = DeterminismStudy | PrecisionStudy | InvarianceStudy
SHOWN_STEPS = 6
"""Number of orders, and of steps of a sum, that are listed."""
SHOWN_TERMS = 3
"""Number of terms of the worst element that are listed."""
SHOWN_TREE = 400
"""Number of characters shown of a tree; ``--json`` has all of it."""


def determinism_lines(study: DeterminismStudy) -> list[Line]:
    """Return a determinism study as lines."""
    lines: list[Line] = [("path", study.path, "")]
    for output in study.outputs:
        lines += _output_lines(output)
    return lines


def _output_lines(output: OutputStudy) -> list[Line]:
    if output.order_dependent == 0:
        return [(output.output, "one result", "its accumulation order is fixed")]
    orders = say("{orders} orders", orders=len(output.orders))
    results = say("{distinct_results} different results from {orders}", output, orders=orders)
    differing = say("{moved} of {elements} elements differ", output)
    spread = "between two legal orders, of the element that differs most in value"
    shown_orders = joined(output.orders[:SHOWN_STEPS], ", ")
    if len(output.orders) > SHOWN_STEPS:
        shown_orders = joined((*output.orders[:SHOWN_STEPS], "..."), ", ")
    different = say("{differs_from_deterministic} elements differ", output)
    lines: list[Line] = [
        (output.output, results, shown_orders),
        ("", differing, say("{order_dependent} can, by plan and indices", output)),
        ("", say("spread up to {max_spread:.3g}", output), spread),
        ("", different, "between the sequential and the deterministic result"),
    ]
    worst = output.worst
    if worst is None:
        return lines
    index = ", ".join(map(str, worst.index))
    value = say(
        "{output}[{index}]: spread {spread:.3g} = {spread_ulp} ulp",
        worst,
        output=output.output,
        index=index,
    )
    note = say(
        "the element that differs most in ulp; with deterministic computation "
        "{deterministic_result:.9g}",
        worst,
    )
    lines.append(("worst", value, note))
    for extreme, order, steps in (
        (worst.lowest, worst.lowest_order, worst.steps_to_lowest),
        (worst.highest, worst.highest_order, worst.steps_to_highest),
    ):
        shown = joined(
            say("core {core} {value:+.6g} -> {sum_after:.9g}", step) for step in steps[:SHOWN_STEPS]
        )
        more = ""
        if len(steps) > SHOWN_STEPS:
            more = say("; {steps} more", steps=len(steps) - SHOWN_STEPS)
        scaled = say("; times {factor:.6g}", worst) if worst.factor != 1 else ""
        note = shown + more + scaled
        lines.append(("", Text("{value} ({order})", value=f"{extreme:.9g}", order=order), note))
    return lines


def precision_lines(study: PrecisionStudy) -> list[Line]:
    """Return a precision study as lines."""
    lines: list[Line] = []
    for output in study.outputs:
        verdicts = joined(map(_verdict_text, output.verdicts), ", ")
        value = say(
            "{output} {dtype}: max {most}, mean {mean}",
            output,
            most=ulp_text(output.max_ulp),
            mean=ulp_text(output.mean_ulp),
        )
        lines.append((output.variant, value, verdicts))
        value = say("of given inputs: max {most}", most=ulp_text(output.max_ulp_of_given))
        lines.append(("", value, "the rounding of the inputs included"))
        index = ", ".join(map(str, output.worst_index))
        terms = joined(
            (
                Text("{name} {value:.4g}", name=term.name, value=term.value)
                for term in output.worst_terms[:SHOWN_TERMS]
            ),
            ", ",
        )
        value = say(
            "worst [{index}] {worst_actual:.7g} for {worst_golden:.7g}", output, index=index
        )
        lines.append(("", value, say("largest terms: {terms}", terms=terms) if terms else ""))
        causes = (
            Text("{name} {error}", cause, error=ulp_text(cause.max_ulp).removesuffix(" ulp"))
            for cause in output.causes
        )
        lines.append(("", "each cause alone, in ulp", joined(causes, ", ")))
        with_numbers = (cause for cause in output.causes if isinstance(cause.note, Text))
        lines += [("", cause.name, cause.note) for cause in with_numbers]
    lines += [(label, "refused", message) for label, message in study.refused.items()]
    return [*lines, *precision_meanings()]


def _verdict_text(verdict: Verdict) -> str:
    return say("{standard} passes", verdict) if verdict.passed else say("{standard} FAILS", verdict)


def precision_meanings() -> list[Line]:
    """Return the references of a precision study and the meanings of its verdicts."""
    return [
        ("against", "the rounded inputs", AGAINST_ROUNDED),
        ("", "the given inputs", AGAINST_GIVEN),
        *(("verdict", standard, meaning) for standard, meaning in MEANINGS.items()),
    ]


def invariance_lines(study: InvarianceStudy) -> list[Line]:
    """Return an invariance study as lines."""
    lines: list[Line] = []
    for row in study.rows:
        if row.changes is None:
            lines.append((row.output, say("{change}: not applicable", row), row.note))
            continue
        note = row.note
        if row.first is not None:
            index = ", ".join(map(str, row.first))
            note = say("first at [{index}]: {before:.9g} becomes {after:.9g}", row, index=index)
        effect = say("{change}: changes", row) if row.changes else say("{change}: same bits", row)
        lines.append((row.output, effect, note))
    return lines


def certificate_lines(certificates: Sequence[Certificate]) -> list[Line]:
    """Return certificates as lines."""
    lines: list[Line] = []
    for certificate in certificates:
        index = ", ".join(map(str, certificate.element))
        agreed = {None: "not probed", True: "the kernel agrees", False: "THE KERNEL DISAGREES"}[
            certificate.agrees
        ]
        value = say(
            "{output}[{index}], {elements} elements alike, {terms} terms",
            certificate,
            index=index,
            terms=len(certificate.terms),
        )
        lines.append(
            (certificate.hash, value, Text("{agreed} ({probe})", certificate, agreed=agreed))
        )
        formula = certificate.text
        if len(formula) > SHOWN_TREE:
            formula = formula[:SHOWN_TREE].rpartition(" ")[0] + " ..."
        lines.append(("", formula, f"t0 = {certificate.terms[0]}, ..."))
    return lines


def certificate_view(certificate: Certificate) -> RenderableType:
    """Return one certificate as a rich renderable."""
    return lines_table(certificate_lines([certificate]))


def study_view(study: Study) -> RenderableType:
    """Return a study as a rich renderable."""
    return stack(
        Paragraph(study_headline(study), "bold green"), "", lines_table(study_lines(study))
    )


def study_lines(study: Study) -> list[Line]:
    """Return a study as lines."""
    if isinstance(study, DeterminismStudy):
        return determinism_lines(study)
    if isinstance(study, PrecisionStudy):
        return precision_lines(study)
    return invariance_lines(study)


def study_headline(study: Study) -> str:
    """Return operator, device and result of a study in one line."""
    return say("{operator} on {product}, {soc}: {result}", study, result=_result(study))


def _result(study: Study) -> str:
    """Return a summary of the result of a study."""
    if isinstance(study, DeterminismStudy):
        moved = [output for output in study.outputs if output.order_dependent]
        if not moved:
            return say("every order gives the same bits")
        parts = (
            say("{moved} of {elements} elements of {output} differ between orders", output)
            for output in moved
        )
        return joined(parts, ", ")
    if isinstance(study, PrecisionStudy):
        worst = max(study.outputs, key=lambda output: output.max_ulp, default=None)
        if worst is None:
            return say("refused")
        most = ulp_text(worst.max_ulp)
        return say("error up to {most} ({output} {dtype})", worst, most=most)
    rows = [row for row in study.rows if row.changes is not None]
    changed = sum(bool(row.changes) for row in rows)
    return say("{changed} of {count} changes alter bits", changed=changed, count=len(rows))


HEADINGS = ("row", "terms", "in", "cores", "spread", "ulp", "relative spread", "element")
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
            "{output}: {count} {parts} can differ{shown}",
            rows,
            count=count,
            parts=PLURALS[rows.axis],
            shown=shown,
        )
    return say("{output}: its accumulation order is fixed", rows)


def row_cells(rows: VariableRows) -> list[tuple[str, ...]]:
    """Return the worst rows as cells under ``HEADINGS``."""
    return [
        (
            say(POSITIONS[row["axis"]], number=row["place"]),
            str(row["terms"]),
            str(row["contributions"]),
            str(row["cores"]),
            f"{row['spread']:.3g}",
            str(row["spread_ulp"]),
            f"{row['relative']:.2g}",
            ", ".join(map(str, row["element"])),
        )
        for row in rows.as_dicts()
    ]


def rows_csv(every: Sequence[VariableRows]) -> str:
    """Return every row that can differ as CSV."""
    names = ("output", "axis", *(FIELDS.names or ()))
    rows = [row for rows in every for row in rows.as_dicts(rows.table)]
    return csv_text(names, ([row[name] for name in names] for row in rows))


def rows_view(every: Sequence[VariableRows]) -> RenderableType:
    """Return the worst rows of each output as a rich renderable."""
    columns = [
        Column(name, right=0 < number < len(HEADINGS) - 1, key=number == 0)
        for number, name in enumerate(HEADINGS)
    ]
    parts: list[RenderableType] = []
    for rows in every:
        parts += [
            "",
            rows_title(rows),
            *([Table(columns, row_cells(rows))] if len(rows.table) else []),
        ]
    return stack(*parts, *(["", NOTE] if any(len(rows.table) for rows in every) else []))


MOST_TERMS = 10_000
"""Maximum number of terms of all drawn summation trees; further classes are counted."""


def study_document(study: Study) -> Document:
    """Return the report of a study."""
    outputs = study.outputs if isinstance(study, DeterminismStudy) else ()
    rows = [output.rows for output in outputs]
    return study_report(study_headline(study), study_lines(study), study.as_dict(), rows=rows)


def certificate_document(certificate: Certificate) -> Document:
    """Return the report of one certificate."""
    lines = certificate_lines([certificate])
    return study_report(lines[0][1], lines, {"certificates": [certificate.as_dict()]})


def study_report(
    headline: str,
    lines: list[tuple[str, str, str]],
    data: dict[str, Any],
    call: str = "",
    rows: Sequence[VariableRows] = (),
) -> Document:
    """Return the report of a study.

    - ``headline``, ``lines``: text of the study.
    - ``data``: the study in JSON form.
    - ``call``: command that reproduces the report.
    - ``rows``: rows that can differ between runs.
    """
    sections = [Section("Result", (lines_table(lines),))]
    if "certificates" in data:
        sections = [Section("Result: summation trees", _trees(data["certificates"]))]
    sections += [*_maps(rows), *rows_sections(rows)]
    figures = [*_running_errors(data), *_histograms(data)]
    if figures:
        sections.append(Section("Curves", tuple(figures)))
    return Document(headline, headline, tuple(sections), call)


def _maps(rows_by_output: Sequence[VariableRows]) -> tuple[Section, ...]:
    """Draw the positions of the rows that can differ, per output."""
    strips = [
        order_strip_data(rows.output, OrderMask(rows.axis, rows.mask()))
        for rows in rows_by_output
        if len(rows.table)
    ]
    pictures = tuple(Picture(order_strip(strip), "solid: depends on timing") for strip in strips)
    return (Section("Where", pictures),) if pictures else ()


def _trees(certificates: Sequence[Mapping[str, Any]]) -> tuple[Block, ...]:
    """Draw the first trees, up to ``MOST_TERMS`` terms."""
    totals = list(accumulate(len(certificate["terms"]) for certificate in certificates))
    shown = max(sum(total <= MOST_TERMS for total in totals), 1)
    drawn = [
        {name: value for name, value in certificate.items() if name != "text"}
        for certificate in certificates[:shown]
    ]
    caption = (
        "Open a node to see what is added; t0 .. t31 are terms added one after the "
        "other. Every addition is one fp32 addition."
    )
    trees = Drawing("drawTrees", {"certificates": drawn}, caption)
    rest = len(certificates) - shown
    if not rest:
        return (trees,)
    more = say(
        "{certificates} more classes are in the JSON of the same call (--json).", certificates=rest
    )
    return trees, Paragraph(more)


def _running_errors(data: Mapping[str, Any]) -> Iterator[Figure]:
    """Draw the rounding error of the worst element in its two extreme orders, in ulp."""
    for output in data.get("outputs", ()):
        worst = output.get("worst")
        if worst:
            reference, factor = float(worst["deterministic_result"]), worst["factor"]
            ulp = float(np.spacing(np.float32(abs(reference))))
            curves = [
                Curve(
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
            bounds = (Bound(say("deterministic result"), (reference - factor * exact) / ulp, "y"),)
            index = ", ".join(map(str, worst["index"]))
            caption = say(
                "{output}[{index}] in the orders of its lowest and highest result: running fp32 "
                "sum less the exact sum of the same contributions. Their ends lie {spread_ulp} ulp "
                "apart. 1 ulp of the deterministic result is {ulp:.3g}.",
                output=output["output"],
                index=index,
                spread_ulp=worst["spread_ulp"],
                ulp=ulp,
            )
            yield curve_figure(
                Axis("contributions added"),
                Axis("off the exact sum, ulp of the result"),
                curves,
                bounds,
                caption=caption,
            )


def rounding_errors(steps: Sequence[Mapping[str, Any]], ulp: float) -> list[float]:
    """Return the running sum minus the exact sum after each step, in ulp."""
    exact = accumulate(step["value"] for step in steps)
    return [(step["sum_after"] - total) / ulp for step, total in zip(steps, exact, strict=True)]


def _histograms(data: Mapping[str, Any]) -> Iterator[Figure]:
    """Draw the ulp histogram of each variant and output with a logarithmic axis."""
    for output in data.get("outputs", ()):
        if "histogram" in output:
            edges = [
                "more" if bar["up_to_ulp"] is None else f"<= {bar['up_to_ulp']:g}"
                for bar in output["histogram"]
            ]
            counts = [bar["elements"] for bar in output["histogram"]]
            labels = [str(count) if count else "" for count in counts]
            bars = {
                "type": "bar",
                "x": edges,
                "y": counts,
                "name": output["output"],
                "text": labels,
                "textposition": "outside",
                "cliponaxis": False,
            }
            top = np.log10(max(max(counts), 1)) + 0.6
            axis = {
                "title": {"text": "elements, logarithmic"},
                "type": "log",
                "range": [-0.3, float(top)],
                "dtick": 1,
            }
            layout = {
                "xaxis": {"title": {"text": "error in ulp"}, "type": "category"},
                "yaxis": axis,
            }
            yield Figure(
                (bars,),
                layout,
                say(
                    "{variant}: {output} against float64; above each bar, its number of elements",
                    variant=output["variant"],
                    output=output["output"],
                ),
            )


def rows_sections(every: Sequence[VariableRows]) -> tuple[Section, ...]:
    """Return the section of rows that can differ between runs, if any are given."""
    tables = tuple(
        Table(HEADINGS, tuple(row_cells(rows)), rows_title(rows))
        for rows in every
        if len(rows.table)
    )
    return (Section("Rows that can differ", (*tables, Paragraph(NOTE))),) if tables else ()
