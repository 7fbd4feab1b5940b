"""Pictures as inline SVG: what lies in an on-chip memory, what the workspace is made of, what depends on timing.

Shapes take their colours from the page's style sheet by class, so they follow light and dark. What a shape is, with its bytes,
is in its ``<title>``: what the browser shows when the pointer rests on it, and what screen readers read.
"""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from npu_sim.language import say
from npu_sim.plans.answers import Evidence
from npu_sim.plans.model import Memory
from npu_sim.plans.workspace_model import WorkspacePart
from npu_sim.show.text import memory_name

WIDTH = 1000
COLOURS = 8
"""Fill classes ``c0`` .. ``c7`` of the style sheet."""
BAR_HEIGHT = 44
LEGEND_HEIGHT = 20
CHARACTER_WIDTH = 7.2
LETTER_ROOM = 5


def element(name: str, title: str = "", text: str = "", **attributes: object) -> str:
    """Return an SVG element; underscores in attribute names become hyphens, ``class_`` is ``class``."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_number(value))}"'
        for key, value in attributes.items()
    )
    inner = (f"<title>{escape(title)}</title>" if title else "") + escape(text)
    return f"<{name}{written}>{inner}</{name}>"


def picture(height: float, parts: Iterable[str], label: str) -> str:
    """Wrap shapes into a picture as wide as the page."""
    return f'<svg class="map" viewBox="0 0 {WIDTH} {_number(height)}" role="img" aria-label="{escape(label)}">{"".join(parts)}</svg>'


def _number(value: object) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def _segment(x: float, width: float, y: float, colour: str, title: str, label: str) -> str:
    shape = element(
        "rect", title, x=x, y=y, width=max(width, 0.5), height=BAR_HEIGHT, class_=colour
    )
    if len(label) * CHARACTER_WIDTH + LETTER_ROOM > width:
        return shape
    text = element(
        "text",
        text=label,
        x=x + width / 2,
        y=y + BAR_HEIGHT / 2,
        class_="on",
        text_anchor="middle",
        dominant_baseline="central",
    )
    return shape + text


def legend(entries: Sequence[tuple[str, str]], y: float) -> tuple[list[str], float]:
    """Draw colours with their names, in as many rows as they need; return the shapes and their height."""
    parts, x, top = [], 0.0, y
    for colour, name in entries:
        width = 18 + len(name) * CHARACTER_WIDTH + 24
        if x and x + width > WIDTH:
            x, top = 0.0, top + LEGEND_HEIGHT
        parts.append(element("rect", x=x, y=top + 4, width=12, height=12, class_=colour))
        parts.append(element("text", text=name, x=x + 18, y=top + 14, class_="caption"))
        x += width
    return parts, top + LEGEND_HEIGHT - y


# On-chip memories


def memory_map(memories: Sequence[Memory]) -> str:
    """Draw on-chip memories to scale, one bar each; what does not fit reaches beyond the mark of the capacity."""
    parts: list[str] = []
    y = 0.0
    for memory in memories:
        drawn, height = _memory_bar(memory, y)
        parts += drawn
        y += height
    return picture(max(y - 8, 1), parts, "on-chip memory to scale")


def memory_colours(memory: Memory) -> list[tuple[str, str]]:
    """Return the colour of every allocation, and its name with its bytes; then what is free."""
    named = [
        (f"c{number % COLOURS}", f"{one.name} {one.bytes}")
        for number, one in enumerate(memory.allocations)
    ]
    return (
        [*named, ("free", say("free {free_bytes}", free_bytes=memory.free_bytes))]
        if memory.free_bytes > 0
        else named
    )


def memory_title(memory: Memory) -> str:
    """Return name and phase of a memory."""
    return memory_name(memory) + (f", {memory.phase}" if memory.phase else "")


def _memory_bar(memory: Memory, y: float) -> tuple[list[str], float]:
    """Draw a memory with its legend; return the shapes and their height."""
    scale = WIDTH / max(memory.capacity_bytes, memory.used_bytes, 1)
    evidence = "" if memory.evidence is Evidence.EXACT else f" ({memory.evidence.value})"
    caption = say(
        "{memory_title}: {used_bytes} of {capacity_bytes} bytes{evidence}",
        memory_title=memory_title(memory),
        used_bytes=memory.used_bytes,
        capacity_bytes=memory.capacity_bytes,
        evidence=evidence,
    )
    parts = [element("text", text=caption, x=0, y=y + 12, class_="caption")]
    x = 0.0
    for number, allocation in enumerate(memory.allocations):
        width = allocation.bytes * scale
        note = f", {allocation.note}" if allocation.note else ""
        title = say(
            "{name}: {bytes} bytes{note}", name=allocation.name, bytes=allocation.bytes, note=note
        )
        parts.append(_segment(x, width, y + 20, f"c{number % COLOURS}", title, allocation.name))
        x += width
    if memory.free_bytes > 0:
        parts.append(
            _segment(
                x,
                memory.free_bytes * scale,
                y + 20,
                "free",
                say("free: {free_bytes} bytes", free_bytes=memory.free_bytes),
                "free",
            )
        )
    elif memory.free_bytes < 0:
        edge = memory.capacity_bytes * scale
        title = say(
            "does not fit: {used_bytes} of {capacity_bytes} bytes",
            used_bytes=memory.used_bytes,
            capacity_bytes=memory.capacity_bytes,
        )
        parts.append(
            element(
                "line", title, x1=edge, x2=edge, y1=y + 14, y2=y + 26 + BAR_HEIGHT, class_="over"
            )
        )
    marks, height = legend(memory_colours(memory), y + 22 + BAR_HEIGHT)
    return parts + marks, BAR_HEIGHT + 36 + height


# Workspace


def workspace_map(parts: Sequence[WorkspacePart], total: int) -> str:
    """Draw the workspace as a stacked bar; when one part hides the others, a second bar shows those enlarged."""
    known = [part for part in parts if part.evidence is not Evidence.UNKNOWN]
    drawn = _workspace_bar(known, parts, 0, say("{total} bytes", total=total))
    height = BAR_HEIGHT + 28.0
    largest = max(known, key=lambda part: part.bytes, default=None)
    rest = [part for part in known if part is not largest]
    if (
        largest is not None
        and len(rest) > 1
        and sum(part.bytes for part in rest) < largest.bytes / 8
    ):
        drawn += _workspace_bar(
            rest, parts, height + 8, say("without {name}, enlarged", name=largest.name)
        )
        height += BAR_HEIGHT + 36
    unknown = [part for part in parts if part.evidence is Evidence.UNKNOWN]
    for number, part in enumerate(unknown):
        title = say("{name}: size unknown", name=part.name) + (
            f", {part.note}" if part.note else ""
        )
        drawn.append(
            _segment(
                number * 260,
                250,
                height + 8,
                "unknown",
                title,
                say("{name}: unknown", name=part.name),
            )
        )
    return picture(
        height + (BAR_HEIGHT + 12 if unknown else 0),
        drawn,
        say("workspace of {total} bytes", total=total),
    )


def workspace_colours(parts: Sequence[WorkspacePart]) -> tuple[str, ...]:
    """Return the colour of every part."""
    return tuple(_workspace_colour(number, part.evidence) for number, part in enumerate(parts))


def _workspace_colour(number: int, evidence: Evidence) -> str:
    if evidence is Evidence.UNKNOWN:
        return "unknown"
    return f"c{number % COLOURS}" + ("" if evidence is Evidence.EXACT else " model")


def _workspace_bar(
    shown: Sequence[WorkspacePart], parts: Sequence[WorkspacePart], y: float, caption: str
) -> list[str]:
    scale = WIDTH / max(sum(part.bytes for part in shown), 1)
    drawn = [element("text", text=caption, x=0, y=y + 12, class_="caption")]
    x = 0.0
    for part in shown:
        colour = workspace_colours(parts)[parts.index(part)]
        title = say(
            "{name}: {bytes} bytes, {kind}, {value}",
            name=part.name,
            bytes=part.bytes,
            kind=part.kind,
            value=part.evidence.value,
        ) + (f", {part.note}" if part.note else "")
        drawn.append(_segment(x, part.bytes * scale, y + 20, colour, title, part.name))
        x += part.bytes * scale
    return drawn


# Order dependence

LEAST_OPACITY = 0.35
"""Of a bin in which anything depends on timing: one row of forty has to be seen as well."""


def order_strip(strip: dict[str, Any]) -> str:
    """Draw a strip over an output (:func:`npu_sim.show.reports.order.order_strip_data`): the stronger, the more depends on timing.

    Where anything does, it shows. Below, enlarged: what depends on timing alone, side by side, without what lies between.
    """
    bins, runs = strip["bins"], strip["runs"]
    total = max((one["stop"] for one in bins), default=1)
    parts = [
        element(
            "text",
            text=say("{strip}, by {strip2}", strip=strip["output"], strip2=strip["axis"]),
            x=0,
            y=12,
            class_="caption",
        )
    ]
    for one in bins:
        size = one["stop"] - one["start"]
        share = (
            max(one["order_dependent"] / max(size, 1), LEAST_OPACITY)
            if one["order_dependent"]
            else 0
        )
        x, width = one["start"] * WIDTH / total, size * WIDTH / total
        title = say(
            "{strip}s {one}..{one2}: {one3} of {size} depend on timing",
            strip=strip["axis"],
            one=one["start"],
            one2=one["stop"],
            one3=one["order_dependent"],
            size=size,
        )
        parts.append(element("rect", x=x, y=20, width=width, height=BAR_HEIGHT, class_="fixed"))
        parts.append(
            element(
                "rect",
                title,
                x=x,
                y=20,
                width=width,
                height=BAR_HEIGHT,
                class_="timing",
                fill_opacity=share,
            )
        )
    height = BAR_HEIGHT + 22.0
    if runs:
        parts += _magnified(strip["axis"], runs, height)
        height += BAR_HEIGHT + 30
    return picture(height, parts, say("order dependence of {strip}", strip=strip["output"]))


def _magnified(axis: str, runs: Sequence[dict[str, int]], y: float) -> list[str]:
    count = sum(one["stop"] - one["start"] for one in runs)
    text = say(
        "enlarged: the {count} {axis}s that depend on timing alone, {runs} first, {runs2} last",
        count=count,
        axis=axis,
        runs=runs[0]["start"],
        runs2=runs[-1]["stop"] - 1,
    )
    parts = [element("text", text=text, x=0, y=y + 14, class_="caption")]
    x = 0.0
    for one in runs:
        width = (one["stop"] - one["start"]) * WIDTH / count
        title = say(
            "{axis}s {one}..{one2} depend on timing", axis=axis, one=one["start"], one2=one["stop"]
        )
        parts.append(
            element(
                "rect", title, x=x, y=y + 22, width=width, height=BAR_HEIGHT, class_="timing apart"
            )
        )
        x += width
    return parts
