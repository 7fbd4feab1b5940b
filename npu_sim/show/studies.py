"""Common parts of the views of studies: headline, and report with trees, strips and curves."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from rich.console import RenderableType

from npu_sim.framework.execution import OrderMask
from npu_sim.language import count_text, say
from npu_sim.show.forms.curves import Axis, LimitLine, curve, curve_chart
from npu_sim.show.forms.layout import (
    Bar,
    BarGroup,
    BarPart,
    Bars,
    Block,
    Document,
    Drawing,
    Paragraph,
    Picture,
    filled,
    lines_table,
    stack,
)
from npu_sim.show.pictures import order_strip, order_strip_data
from npu_sim.show.rows import ROWS_TITLE, rows_blocks
from npu_sim.show.text import Line
from npu_sim.studies.determinism import VariableRows

MOST_TERMS = 10_000
"""Maximum number of terms of all drawn summation trees; further classes are counted."""


def study_headline(study: Any, result: str) -> str:
    """Return operator, device and result of a study in one line."""
    return say(
        "{operator} on {product}, {soc}: {result}",
        operator=study.operator,
        product=study.product,
        soc=study.soc,
        result=result,
    )


def headed_lines(headline: str, lines: Iterable[Line]) -> RenderableType:
    """Return the text of a study as a rich renderable."""
    return stack(Paragraph(headline, "bold green"), "", lines_table(lines))


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
        ("Where", (Picture(order_strip(strip)) for strip in strips)),
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
    if not rest:
        return (trees,)
    more = say(
        "{certificates} more classes are in the JSON of the same call (--json).", certificates=rest
    )
    return (trees, Paragraph(more))


def _running_errors(output: Mapping[str, Any]) -> Drawing:
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


def _histogram(output: Mapping[str, Any]) -> Bars:
    """Draw the ulp histogram of a variant and output as bars of logarithmic length."""
    histogram = output["histogram"]
    longest = _length(max(bar["elements"] for bar in histogram))
    bars = (
        Bar(
            say("more") if bar["up_to_ulp"] is None else f"<= {bar['up_to_ulp']:g}",
            (BarPart(_length(bar["elements"]) / longest, "c0", count_text(bar["elements"])),)
            if bar["elements"]
            else (),
            count_text(bar["elements"]),
        )
        for bar in histogram
    )
    return Bars(
        (BarGroup("", tuple(bars)),),
        say(
            "{variant}: {output} against float64; elements by their error in ulp, logarithmic",
            variant=output["variant"],
            output=output["output"],
        ),
    )


def _length(elements: int) -> float:
    """Return the length of a bar, in tenfolds; that of one element is visible."""
    return float(np.log10(max(elements, 1))) + 0.3
