"""Reports of studies: the lines the command prints, and curves of what they rest on."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from npu_sim.files.writing import write_text
from npu_sim.operators.contract.results import OrderMask
from npu_sim.show.reports.document import Document, Figure, Lines, Picture, Section
from npu_sim.show.reports.figures import Curve, curve_figure
from npu_sim.show.reports.html import render
from npu_sim.show.reports.order import order_strip_data
from npu_sim.show.reports.plans import rows_sections
from npu_sim.show.reports.svg import order_strip
from npu_sim.studies.open_rows import OpenRows


def write_study_report(
    path: Path, headline: str, lines: list[tuple[str, str, str]], data: dict[str, Any], call: str, rows: Sequence[OpenRows] = ()
) -> None:
    """Write the report of a study; ``data`` is its JSON form, ``call`` the command that makes it again, ``rows`` what can differ."""
    sections = [Section("Result", (Lines(tuple(lines)),)), *_maps(rows), *rows_sections(rows)]
    figures = [*_running_sums(data), *_histograms(data)]
    if figures:
        sections.append(Section("Curves", tuple(figures)))
    write_text(path, render(Document(title=headline, sentence=headline, sections=tuple(sections), call=call)))


def _maps(every: Sequence[OpenRows]) -> tuple[Section, ...]:
    """Draw where in every output the rows that can differ are."""
    strips = [order_strip_data(rows.output, OrderMask(rows.axis, rows.mask())) for rows in every if len(rows.table)]
    return (Section("Where", tuple(Picture(order_strip(strip), "solid: depends on timing") for strip in strips)),) if strips else ()


def _running_sums(data: dict[str, Any]) -> list[Figure]:
    """Draw how the worst element adds up in its two extreme orders."""
    figures = []
    for output in data.get("outputs", ()):
        worst = output.get("worst")
        if worst:
            curves = [
                Curve(worst[f"{end}_order"], list(range(1, len(steps) + 1)), [step["sum_after"] for step in steps])
                for end, steps in (("lowest", worst["steps_to_lowest"]), ("highest", worst["steps_to_highest"]))
            ]
            index = ", ".join(map(str, worst["index"]))
            caption = f"{output['output']}[{index}] in the orders of its lowest and highest result"
            figures.append(curve_figure("contributions added", "running sum", curves, caption=caption))
    return figures


def _histograms(data: dict[str, Any]) -> list[Figure]:
    """Draw the ulp histogram of every variant and output."""
    figures = []
    for output in data.get("outputs", ()):
        if "histogram" in output:
            edges = ["more" if one["up_to_ulp"] is None else f"<= {one['up_to_ulp']:g}" for one in output["histogram"]]
            bars = {"type": "bar", "x": edges, "y": [one["elements"] for one in output["histogram"]], "name": output["output"]}
            layout = {"xaxis": {"title": {"text": "error in ulp"}, "type": "category"}, "yaxis": {"title": {"text": "elements"}}}
            figures.append(Figure((bars,), layout, f"{output['variant']}: {output['output']} against float64"))
    return figures
