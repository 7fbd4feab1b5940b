"""Reports of studies: the lines of the command line, with pictures."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from npu_sim.framework.execution import OrderMask
from npu_sim.language import say
from npu_sim.show.reports.document import (
    Block,
    Document,
    Drawing,
    Figure,
    Lines,
    Picture,
    Prose,
    Section,
)
from npu_sim.show.reports.figures import Axis, Bound, Curve, curve_figure
from npu_sim.show.reports.pictures import order_strip, order_strip_data
from npu_sim.show.reports.plans import rows_sections
from npu_sim.show.studies import Study, certificate_lines, study_headline, study_lines
from npu_sim.studies.certificate import Certificate
from npu_sim.studies.determinism import DeterminismStudy
from npu_sim.studies.variable_rows import VariableRows

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
    sections = [Section("Result", (Lines(tuple(lines)),))]
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
    return trees, Prose(more)


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
