"""Plots as SVG files that need nothing to be looked at: bars, and small curves side by side."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from npu_sim.show.forms.svg import element

ROW = 20
LABEL_WIDTH = 330
BAR_WIDTH = 300
GAP = 90
TOP = 56
PANEL_WIDTH, PANEL_HEIGHT = 210, 130
PANEL_LEFT, PANEL_TOP = 52, 26
LEAST_SPAN = math.log(4.0)
"""Axes of curves span a factor of 4 at least: noise does not look like growth."""
COLOURS = ("#4269d0", "#efb118", "#3ca951", "#ff725c", "#6cc5b0")
STYLE = (
    "text{font:12px sans-serif;fill:#222}.small{font-size:10px;fill:#666}.head{font-weight:bold}"
)


class Bar(NamedTuple):
    """One bar: its value, and the text behind it."""

    value: float
    text: str


def svg(width: float, height: float, parts: Sequence[str]) -> str:
    """Wrap shapes into an SVG file on white ground."""
    size = f'viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}"'
    ground = element("rect", x=0, y=0, width=width, height=height, fill="#fff")
    content = f"<style>{STYLE}</style>{ground}{''.join(parts)}"
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{content}</svg>\n'


# Bars


def bars(results: Sequence[dict[str, Any]]) -> str:
    """Draw the cases of ``operators.py``: ratio to PyTorch, and share of the machine's limits."""
    parts = [
        element("text", text="times as fast as PyTorch", x=LABEL_WIDTH, y=20, class_="head"),
        element(
            "text",
            text="share of the machine's limit",
            x=LABEL_WIDTH + BAR_WIDTH + GAP,
            y=20,
            class_="head",
        ),
        element(
            "text",
            text="upper bar: first limit, lower bar: second",
            x=LABEL_WIDTH,
            y=38,
            class_="small",
        ),
    ]
    lines = [(case, *_bars_of(case)) for case in results]
    most = max((bar.value for _, torch, _ in lines for bar in torch), default=1.0)
    y = float(TOP)
    for case, torch, limits in lines:
        height = ROW * max(len(torch), len(limits), 1)
        parts.append(
            element(
                "text",
                text=case["case"],
                x=LABEL_WIDTH - 10,
                y=y + height / 2,
                text_anchor="end",
                dominant_baseline="central",
            )
        )
        parts += _stack(torch, LABEL_WIDTH, y, BAR_WIDTH / most)
        parts += _stack(limits, LABEL_WIDTH + BAR_WIDTH + GAP, y, BAR_WIDTH / 1.5)
        y += height + 8
    return svg(LABEL_WIDTH + 2 * BAR_WIDTH + 2 * GAP + 120, y + 10, parts)


def _bars_of(case: dict[str, Any]) -> tuple[list[Bar], list[Bar]]:
    against, limits = case["against_torch"], case["of_limit"]
    torch = [Bar(against["fastest"], f"{against['fastest']:.2f}x")] if against else []
    return torch, [Bar(value, f"{100 * value:.0f} % {name}") for name, value in limits.items()]


def _stack(stack: Sequence[Bar], x: float, top: float, scale: float) -> list[str]:
    parts = []
    for number, bar in enumerate(stack):
        y, length = top + number * ROW, min(bar.value * scale, BAR_WIDTH)
        parts.append(
            element(
                "rect",
                x=x,
                y=y + 3,
                width=length,
                height=ROW - 6,
                fill=COLOURS[number % len(COLOURS)],
            )
        )
        parts.append(
            element(
                "text",
                text=bar.text,
                x=x + length + 6,
                y=y + ROW / 2,
                dominant_baseline="central",
                class_="small",
            )
        )
    return parts


# Curves


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
