"""SVG elements as escaped markup, and the parts that pictures share.

Shapes take their colours from the page's style sheet by class, so they follow light and dark mode.
The ``<title>`` of a shape names it and gives its size: browsers show it as a tooltip, and screen
readers read it.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from markupsafe import Markup, escape

from npu_sim.language import translated

WIDTH = 1000
COLOURS = 8
"""Fill classes ``c0`` .. ``c7`` of the style sheet."""
BAR_HEIGHT = 44
LEGEND_HEIGHT = 20
CHARACTER_WIDTH = 7.2


def element(
    name: str,
    title: str = "",
    text: str = "",
    children: Iterable[Markup] = (),
    **attributes: object,
) -> Markup:
    """Return one SVG element; texts are translated, and they and attributes escaped.

    - ``name``: name of the element.
    - ``title``: content of its ``<title>``; none when empty.
    - ``text``: text content.
    - ``children``: elements inside it, after the text.
    - ``**attributes``: attributes; underscores in names become hyphens, ``class_`` is ``class``.
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_number(value))}"'
        for key, value in attributes.items()
    )
    heading = f"<title>{escape(translated(title))}</title>" if title else ""
    inner = "".join(map(escape, children))  # elements are Markup, which escape() leaves as it is
    return Markup(f"<{name}{written}>{heading}{escape(translated(text))}{inner}</{name}>")


def caption(text: str, y: float, x: float = 0, anchor: str = "start") -> Markup:
    """Return a line of text at a point of its baseline: ``start``, ``middle`` or ``end``."""
    place: dict[str, Any] = {} if anchor == "start" else {"text_anchor": anchor}
    return element("text", text=text, x=x, y=y, class_="caption", **place)


def bar(
    x: float, y: float, width: float, class_: str, title: str = "", **attributes: Any
) -> Markup:
    """Return a rectangle; ``height`` replaces that of a bar."""
    height = attributes.pop("height", BAR_HEIGHT)
    return element("rect", title, x=x, y=y, width=width, height=height, class_=class_, **attributes)


def mark(x: float, y: float, title: str = "") -> Markup:
    """Return a vertical line that extends beyond a bar on both sides."""
    return element("line", title, x1=x, x2=x, y1=y, y2=y + BAR_HEIGHT + 12, class_="over")


def centred(text: str, x: float, y: float, class_: str, **attributes: Any) -> Markup:
    """Return a text around a point."""
    middle: dict[str, Any] = {"text_anchor": "middle", "dominant_baseline": "central"}
    return element("text", text=text, x=x, y=y, class_=class_, **middle, **attributes)


def picture(height: float, parts: Iterable[Markup], label: str) -> Markup:
    """Return shapes as a picture as wide as the page."""
    view, label = f"0 0 {WIDTH} {_number(height)}", translated(label)
    return element("svg", children=parts, class_="map", viewBox=view, role="img", aria_label=label)


def _number(value: object) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def legend(entries: Sequence[tuple[str, str]], y: float) -> tuple[list[Markup], float]:
    """Draw colours with their names in as many rows as needed; return shapes and total height."""
    parts, x, top = [], 0.0, y
    for colour, name in entries:
        width = 18 + len(name) * CHARACTER_WIDTH + 24
        if x and x + width > WIDTH:
            x, top = 0.0, top + LEGEND_HEIGHT
        parts.append(element("rect", x=x, y=top + 4, width=12, height=12, class_=colour))
        parts.append(caption(name, top + 14, x + 18))
        x += width
    return parts, top + LEGEND_HEIGHT - y
