"""Launches and pipes over time as SVG, as ``assets/gantt.js`` draws them in a page."""

from collections.abc import Mapping
from math import floor, log10
from typing import Any

from markupsafe import Markup

from npu_sim.language import say
from npu_sim.language.quantities import time_text
from npu_sim.show.reports import svg
from npu_sim.show.reports.svg import WIDTH, element

ROW, BAR, LEFT, AXIS = 26, 18, 74, 24
MARKS = 10
"""Largest number of times on the axis."""
COLOURS = {"MTE2": "c0", "V": "c1", "MTE3": "c2", "MTE1": "c4", "M": "c1", "FIXP": "c2"}
Event = tuple[float, float, str]
"""Start and duration in microseconds, and name; empty where it is not drawn."""


def lanes(data: Mapping[str, Any]) -> Markup:
    """Draw the launches of a call and the pipes of its slowest core.

    ``data`` is from :func:`npu_sim.timelines.tracks.tracks`.
    """
    launches = [(launch["start_us"], launch["us"], launch["kernel"]) for launch in data["launches"]]
    rows: list[tuple[str, str, list[Event]]] = [(say("launches"), "c5", launches)]
    for pipe in data["pipes"]:
        events = [(event["start_us"], event["us"], "") for event in pipe["events"]]
        rows.append((pipe["pipe"], COLOURS.get(pipe["pipe"], "c7"), events))
    end = max((start + us for _, _, events in rows for start, us, _ in events), default=0) or 1.0
    scale, height = (WIDTH - LEFT) / end, len(rows) * ROW + AXIS
    parts = []
    for at in _ticks(end):
        x = LEFT + at * scale
        parts.append(element("line", x1=x, x2=x, y1=0, y2=height - AXIS + 4, class_="grid"))
        anchor = "end" if x > WIDTH - 30 else "middle"
        parts.append(svg.caption(f"{at:g} us", height - 5, x, anchor))
    for position, (label, colour, events) in enumerate(rows):
        y = position * ROW + 4
        parts.append(svg.caption(label, y + 13))
        for start, us, name in events:
            x, width = LEFT + start * scale, max(us * scale, 0.6)
            parts.append(svg.bar(x, y, width, colour, name, height=BAR))
            if name and len(name) * svg.CHARACTER_WIDTH < width:
                parts.append(element("text", text=name, x=x + 5, y=y + 13, class_="on"))
    label = say(
        "{title} on {soc}: at least {time}",
        title=data["title"],
        soc=data["soc"],
        time=time_text(data["bound_us"]),
    )
    return svg.picture(height, parts, label)


def _ticks(end: float) -> list[float]:
    """Return round times from 0 to the end, at most ``MARKS`` steps."""
    power = 10.0 ** floor(log10(end / MARKS))
    step = next(step * power for step in (1, 2, 5, 10) if step * power >= end / MARKS)
    return [number * step for number in range(int(end / step) + 1)]
