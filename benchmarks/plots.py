"""Small curves side by side as an SVG file that needs nothing to be looked at."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from npu_sim.show.forms.svg import element

PANEL_WIDTH, PANEL_HEIGHT = 210, 130
PANEL_LEFT, PANEL_TOP = 52, 26
LEAST_SPAN = math.log(4.0)
"""Axes of curves span a factor of 4 at least: noise does not look like growth."""
COLOURS = ("#4269d0", "#efb118", "#3ca951", "#ff725c", "#6cc5b0")
STYLE = (
    "text{font:12px sans-serif;fill:#222}.small{font-size:10px;fill:#666}.head{font-weight:bold}"
)


def svg(width: float, height: float, parts: Sequence[str]) -> str:
    """Wrap shapes into an SVG file on white ground."""
    size = f'viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}"'
    ground = element("rect", x=0, y=0, width=width, height=height, fill="#fff")
    content = f"<style>{STYLE}</style>{ground}{''.join(parts)}"
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{content}</svg>\n'


class Panel(NamedTuple):
    """A curve with logarithmic axes: its title, the unit of y, and the points."""

    title: str
    unit: str
    points: list[tuple[float, float]]


def panels(rows: Sequence[Sequence[Panel]], heading: str) -> str:
    """Draw rows of small curves."""
    parts = [element("text", text=heading, x=8, y=20, class_="head")]
    cell_width, cell_height = PANEL_WIDTH + PANEL_LEFT + 14, PANEL_HEIGHT + PANEL_TOP + 34
    for down, row in enumerate(rows):
        for across, panel in enumerate(row):
            parts += _panel(
                panel,
                across * cell_width + PANEL_LEFT,
                down * cell_height + PANEL_TOP + 30,
                COLOURS[down % len(COLOURS)],
            )
    return svg(
        cell_width * max(map(len, rows), default=1) + 10, cell_height * len(rows) + 40, parts
    )


def _axis(values: Sequence[float], length: float, least: float) -> tuple[float, float]:
    """Return the start of a logarithmic axis of ``least`` e-folds or more, and its scale."""
    low, high = math.log(min(values)), math.log(max(values))
    missing = max(least - (high - low), 0.0)
    low, high = low - missing / 2, high + missing / 2
    return low, length / (high - low)


def _panel(panel: Panel, left: float, top: float, colour: str) -> list[str]:
    parts = [
        element(
            "rect",
            x=left,
            y=top,
            width=PANEL_WIDTH,
            height=PANEL_HEIGHT,
            fill="none",
            stroke="#ccc",
        ),
        element("text", text=f"{panel.title} ({panel.unit})", x=left, y=top - 8, class_="small"),
    ]
    points = [(x, y) for x, y in panel.points if x > 0 and y > 0]
    if not points:
        return parts
    x_low, x_scale = _axis([x for x, _ in points], PANEL_WIDTH - 20, LEAST_SPAN)
    y_low, y_scale = _axis([y for _, y in points], PANEL_HEIGHT - 30, LEAST_SPAN)
    placed = [
        (
            left + 10 + (math.log(x) - x_low) * x_scale,
            top + PANEL_HEIGHT - 12 - (math.log(y) - y_low) * y_scale,
            x,
            y,
        )
        for x, y in points
    ]
    path = " ".join(f"{px:.1f},{py:.1f}" for px, py, _, _ in placed)
    parts.append(element("polyline", points=path, fill="none", stroke=colour, stroke_width=2))
    for px, py, x, y in placed:
        parts.append(
            element("circle", f"{x:g}: {y:.4g} {panel.unit}", cx=px, cy=py, r=3, fill=colour)
        )
        parts.append(
            element(
                "text",
                text=f"{x:g}",
                x=px,
                y=top + PANEL_HEIGHT + 13,
                class_="small",
                text_anchor="middle",
            )
        )
        parts.append(
            element("text", text=f"{y:.3g}", x=px, y=py - 6, class_="small", text_anchor="middle")
        )
    return parts
