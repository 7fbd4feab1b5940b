"""Legal ranges as bars on one axis from 0, to scale; what is refused keeps its place, hatched."""

from collections.abc import Sequence
from typing import Any

from npu_sim.language import say
from npu_sim.show.reports.svg import WIDTH, element, picture

ROW = 44
BAR = 16
MOST_RANGES = 64
"""Ranges of one row that are drawn."""
ARROW = 26
"""Room to the right of the axis, for bars without an end."""
RangeRow = tuple[str, Sequence[tuple[int, int]], bool, str, str]
"""Name, ranges, whether the last one has no end, the ranges in words, and why there are none."""


def range_bars(rows: Sequence[RangeRow], name: str) -> str:
    """Draw ranges.

    Parameters
    ----------
    rows
        One bar for each.
    name
        What the numbers are.
    """
    longest = max((_reach(ranges, is_open) for _, ranges, is_open, *_ in rows if ranges), default=1)
    scale = (WIDTH - ARROW) / longest
    parts = [element("title", text=say("legal values of {name}", name=name)), HATCHES]
    for place, row in enumerate(rows):
        parts += _row(row, place * ROW, scale)
    y = len(rows) * ROW
    for value in (0, longest):
        anchor = "start" if value == 0 else "end"
        parts.append(
            element(
                "text",
                text=str(value),
                x=value * scale,
                y=y + 14,
                class_="caption",
                text_anchor=anchor,
            )
        )
    return picture(
        y + 22,
        parts,
        say("legal values of {name}, to scale from 0 to {longest}", name=name, longest=longest),
    )


HATCHES = (
    '<pattern id="range-refused" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<rect width="7" height="7" class="hatch-ground"/><line x1="0" x2="0" y1="0" y2="7" class="hatch"/></pattern>'
)


def _reach(ranges: Sequence[tuple[int, int]], is_open: bool) -> int:
    """Return how far an axis must go to show ranges; one without an end is shown as far again as it begins."""
    first, last = ranges[-1]
    return max(2 * first, 1) if is_open else max(last, 1)


def _row(row: RangeRow, y: float, scale: float) -> list[str]:
    label, ranges, is_open, words, reason = row
    parts = [element("text", text=f"{label}: {words}", x=0, y=y + 14, class_="caption")]
    if not ranges:
        parts.append(
            element(
                "rect",
                say("refused: {reason}", reason=reason),
                x=0,
                y=y + 20,
                width=WIDTH - ARROW,
                height=BAR,
                fill="url(#range-refused)",
                class_="no",
            )
        )
        return parts
    colour = "c0" if label.endswith("hardware") else "c1"
    for place, (first, last) in enumerate(ranges[-MOST_RANGES:]):
        endless = is_open and place == len(ranges[-MOST_RANGES:]) - 1
        start, stop = first * scale, WIDTH - ARROW if endless else last * scale
        text = (
            say("{label}: {first} and more", label=label, first=first)
            if endless
            else f"{label}: {first}..{last}"
        )
        ends: dict[str, Any] = {} if endless else {"data_first": first, "data_last": last}
        parts.append(
            element(
                "rect",
                text,
                **ends,
                x=start,
                y=y + 20,
                width=max(stop - start, 0.5),
                height=BAR,
                class_=colour,
            )
        )
        if endless:
            points = f"{WIDTH - ARROW},{y + 16} {WIDTH - 4},{y + 20 + BAR / 2} {WIDTH - ARROW},{y + 24 + BAR}"
            parts.append(element("polygon", text, points=points, class_=colour))
    return parts
