"""Rendering of reports: a document becomes one HTML file that loads nothing else.

The markup is in ``templates/``; Jinja2 escapes every text and every attribute in it. The texts of
the drawing scripts are sent to pages in other languages with their translations.
"""

import json
from collections.abc import Iterator
from functools import lru_cache
from importlib import resources
from typing import Any

from markupsafe import Markup

from npu_sim import __version__
from npu_sim.language import LANGUAGES, count_text, language, say, translated, translated_data
from npu_sim.show.forms.layout import Block, Document, Drawing

DRAWN_BY = {
    "drawGantt": "gantt.js",
    "drawSteps": "steps.js",
    "drawMap": "map.js",
    "drawTrees": "trees.js",
    "drawCurves": "curves.js",
}
"""Drawing functions of (element, data), and the assets that define them."""
DRAWING_SCRIPTS = ("pictures.js", *DRAWN_BY.values())
"""Assets that draw, in load order; ``pictures.js`` has what the others use."""


@lru_cache
def asset(name: str) -> str:
    """Return a text file that ships with the package."""
    return resources.files(__package__).joinpath("assets", name).read_text(encoding="utf-8")


def render(document: Document) -> str:
    """Return a document as HTML, with the scripts that its pictures need."""
    template = _environment().get_template("report.html")
    text: str = template.render(
        document=document,
        footer=say(
            "Made by npu-sim {version}. {origin}", version=__version__, origin=document.origin
        ),
        style=Markup(asset("report.css")),
        scripts=[Markup(script) for script in _scripts(document)],
    )
    return text


def embedded(document: Document) -> str:
    """Return a document as an iframe, so that its styles do not affect the notebook."""
    return str(
        Markup(
            '<iframe style="width: 100%; height: 720px; border: 0" srcdoc="{}"></iframe>'
        ).format(render(document))
    )


def block_html(block: Block) -> Markup:
    """Return one block as HTML; tables omit columns without content."""
    markup: Markup = _blocks().show(block)
    return markup


@lru_cache
def _environment() -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined  # loaded by the first report

    environment = Environment(
        loader=PackageLoader("npu_sim.show.forms"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
    )
    environment.globals["language"] = language
    environment.filters.update(
        translated=translated,
        shown_number=lambda number: (
            f"{number:.6g}" if isinstance(number, float) else count_text(number)
        ),
        # Data for the content of a script element:
        script_data=lambda content: Markup(_script_json(translated_data(content))),
    )
    return environment


@lru_cache
def _blocks() -> Any:
    return _environment().get_template("blocks.html").module


def _scripts(document: Document) -> Iterator[str]:
    kinds = {block.kind for block in document.blocks if isinstance(block, Drawing)}
    if kinds:
        used = {"pictures.js", *(DRAWN_BY[kind] for kind in kinds)}
        yield from (asset(name) for name in DRAWING_SCRIPTS if name in used)
        if language() != LANGUAGES[0]:
            yield f"pictures.setTexts({_script_json(picture_texts())});"
        yield f"pictures.drawAll({{ {', '.join(sorted(kinds))} }});"


def _script_json(content: Any) -> str:
    """Return JSON without ``<``, so that no text can end the script element around it."""
    text = json.dumps(content, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")


TEXTS = (
    "rows that the data decides",
    "rows {rows}",
    "rows {rows} of {all}",
    "{role}: {where}, columns {columns}",
    "unaffected",
    "read",
    "written",
    "held",
    "{name}: {used} of {capacity} bytes",
    "{name}: {bytes} bytes, live",
    "{name}: {bytes} bytes, not in use now",
    "{name}, not in use now",
    "free: {bytes} bytes",
    "free {bytes}",
    "No core works on tiles.",
    "tile",
    "core",
    "core {number}",
    "core {core}, tile {tile} of {tiles}, {rest}",
    "pipes: {pipes}",
    "all cores",
    "all cores, tile {tile} of {tiles}: {count} cores work",
    "core {core}: rows {rows}, columns {columns}",
    "{count} cores at this tile",
    "play",
    "pause",
    "play the tiles",
    "first",
    "last",
    "first tile",
    "tile before",
    "next tile",
    "last tile",
    "what every core has, as a table",
    "ranges",
    "{kernel}: at least {time}, {share} % of the bound",
    "{kernel}: measured {time}, at least {bound}",
    "launches",
    "measured",
    "bound",
    "{pipe}, {phase}: {work}, {time} from {start}",
    "time line: plus and minus zoom, arrow keys move, Home shows everything",
    "{start} to {stop} of {end}",
    "{title} on {soc}: {rows}",
    "{count} tiles",
    "{bytes} bytes",
    "{elements} elements",
    "documented",
    "hardware",
    "zoom in",
    "zoom out",
    "earlier",
    "later",
    "all",
    "show all",
    "launches as a table",
    "launch",
    "starts",
    "at least",
    "share",
    "limited by",
    "no AI core",
    "pipes of core {core}, the slowest, as a table",
    "pipe",
    "phase",
    "tiles of",
    "tiles",
    "busy",
    "bytes",
    "path",
    "cores that work",
    "workspace, bytes",
    "lower bound, us",
    "coloured by",
    "product",
    "release",
    "{x} and {y} by {kind}; the table below has the same data",
    "{x} from {start} to below {end}, {y}: {what}",
    "{start} to below {end}",
    "refused: {what}",
    "refused, {what}",
    "{limit} limit of {axis}: {value}",
    "{kind}: from {low} (pale) to {high} (full), each cell one call at its lower left corner",
    "{device}, with {fixed}",
    "the map as a table",
    "sum of {count} terms, from the left",
    "sum of {parts} parts, {count} terms, from the left",
    "{terms}, one after the other",
    "{element}, {count} elements alike, {terms} terms; {probed}; {hash}",
    "not probed",
    "the kernel agrees ({probe})",
    "THE KERNEL DISAGREES ({probe})",
    "full text",
    "{title} by {axis}: plus and minus zoom, arrow keys move, Home shows everything",
    "{title} by {axis}",
    "the curves as a table",
    "curve",
    "refused",
)


def picture_texts() -> dict[str, str]:
    """Return the translations of the texts; empty in English."""
    pairs = ((text, translated(text)) for text in TEXTS)
    return {text: translation for text, translation in pairs if text != translation}
