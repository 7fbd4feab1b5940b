"""SVG elements as escaped markup, the common parts of pictures, and pictures as files.

Shapes take their colours from the page's style sheet by class, so they follow light and dark mode.
The ``<title>`` of a shape names it and gives its size: browsers show it as a tooltip, and screen
readers read it. A file is SVG, or PNG with the optional library resvg_py, in the
colours of the light mode.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup, escape

from npu_sim.files.writing import write_atomically
from npu_sim.language import translated
from npu_sim.plans.answers import required
from npu_sim.show.forms.html import asset
from npu_sim.status import UsageError, tip

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


PADDING = 8
"""Free space around a picture: marks may extend beyond their bars."""
PNG_SCALE = 2
"""Pixels of a PNG per unit of the SVG."""
FONTS = "Noto Sans, DejaVu Sans, Noto Sans CJK SC, sans-serif"
SVG, PNG = ".svg", ".png"
Pictures = Mapping[str, Callable[[], str]]
"""Functions that draw the pictures of an answer, by name."""


@dataclass(frozen=True)
class Figure:
    """A picture of an answer, from ``answer.figure(name)``; notebooks show it.

    A plan has ``cores``, ``memory``, ``workspace`` and ``timeline``; so have answers with a plan. A
    run also has one for every output that can differ between runs, by its name. Limits of one
    argument have ``limits``.
    """

    name: str
    """Name of the picture."""
    svg: str
    """The picture as an SVG document."""

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, path: str | Path) -> Path:
        """Write the picture to a file, whole or not at all: SVG or PNG by the ending.

        Raises UsageError for another ending, for PNG without resvg_py, and for a file that cannot
        be written.
        """
        file = Path(path)
        require_ending(file)
        data = self.svg.encode()
        if file.suffix.lower() != SVG:
            data = bytes(
                required("resvg_py").svg_to_bytes(
                    svg_string=self.svg, background="white", zoom=PNG_SCALE
                )
            )
        write_atomically(file, lambda opened: opened.write(data), "figure")
        return file


def require_ending(file: Path) -> None:
    """Raise UsageError when the ending of a file is neither ``.svg`` nor ``.png``."""
    if file.suffix.lower() not in (SVG, PNG):
        raise UsageError(
            "figure", "figure = {file}: the ending is neither .svg nor .png", "cores.svg", file=file
        )


def named_figure(answer: Any, pictures: Pictures, name: str) -> Figure:
    """Return a picture of an answer by its name.

    Raises UsageError with the names of all pictures for an unknown one.
    """
    if name not in pictures:
        raise UsageError(
            "figure",
            "figure = {name}: {kind} has no such picture",
            "{tip}pictures: {names}" if pictures else "it has none",
            name=repr(name),
            kind=type(answer).__name__,
            names=", ".join(pictures),
            tip=tip(name, pictures),
        )
    return Figure(name, standalone(pictures[name]()))


def standalone(markup: str) -> str:
    """Return a picture of a report as a document of its own, with its styles."""
    style = asset("report.css")
    colours = dict(re.findall(r"--(\w+): ([^;]+);", style.partition("}")[0]))
    rules = "".join(re.findall(r"\bsvg\s[^{}]*{[^{}]*}", style))
    rules = re.sub(r"var\(--(\w+)\)", lambda found: colours[found[1]], rules)
    sizes, _, content = markup.partition('viewBox="0 0 ')[2].partition('"')
    content = content.removesuffix("</svg>")
    width, height = (float(size) + 2 * PADDING for size in sizes.split())
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" '
        f'viewBox="{-PADDING} {-PADDING} {width:g} {height:g}" font-size="12" '
        f'font-family="{FONTS}"><style>{rules}</style><g{content}</g></svg>\n'
    )
