"""Reports of studies: the lines the command prints, and curves of what they rest on."""

from pathlib import Path
from typing import Any

from npu_sim.files.writing import write_text
from npu_sim.show.reports.document import Document, Figure, Lines, Section
from npu_sim.show.reports.figures import Curve, curve_figure
from npu_sim.show.reports.html import render


def write_study_report(path: Path, headline: str, lines: list[tuple[str, str, str]], data: dict[str, Any]) -> None:
    """Write the report of a study; ``data`` is its JSON form."""
    sections = [Section("Result", (Lines(tuple(lines)),))]
    figures = [*_running_sums(data), *_histograms(data)]
    if figures:
        sections.append(Section("Curves", tuple(figures)))
    write_text(path, render(Document(title=headline, sentence=headline, sections=tuple(sections))))


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
