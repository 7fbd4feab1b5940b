"""SVG elements as escaped markup, and the parts that pictures share.

Shapes take their colours from the page's style sheet by class, so they follow light and dark mode.
The ``<title>`` of a shape names it and gives its size: browsers show it as a tooltip, and screen
readers read it.
"""

from collections.abc import Iterable, Sequence

from markupsafe import Markup, escape

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
    """Return one SVG element; every text and attribute value is escaped.

    Parameters
    ----------
    name
        Name of the element.
    title
        Content of its ``<title>``; none when empty.
    text
        Text content.
    children
        Elements inside it, after the text.
    **attributes
        Attributes; underscores in names become hyphens, ``class_`` is ``class``.
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_number(value))}"'
        for key, value in attributes.items()
    )
    heading = f"<title>{escape(title)}</title>" if title else ""
    inner = "".join(map(escape, children))  # elements are Markup, which escape() leaves as it is
    return Markup(f"<{name}{written}>{heading}{escape(text)}{inner}</{name}>")


def picture(height: float, parts: Iterable[Markup], label: str) -> Markup:
    """Return shapes as a picture as wide as the page."""
    view = f"0 0 {WIDTH} {_number(height)}"
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
        parts.append(element("text", text=name, x=x + 18, y=top + 14, class_="caption"))
        x += width
    return parts, top + LEGEND_HEIGHT - y
