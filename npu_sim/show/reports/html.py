"""Turning a document into one HTML file that needs nothing else."""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from html import escape
from importlib import resources
from typing import Any

from npu_sim.language import LANGUAGES, language, say, translated, translated_data
from npu_sim.show.reports.document import (
    Block,
    Cell,
    Document,
    Drawing,
    Figure,
    Lines,
    Picture,
    Section,
    Table,
    Text,
)
from npu_sim.show.reports.picture_texts import picture_texts

POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:"
)
"""What the file may load: nothing from anywhere."""
SWATCH = '<svg class="swatch" viewBox="0 0 12 12" aria-hidden="true"><rect width="12" height="12" class="{}"/></svg> '
PLOTTING_LIBRARY = "plotly-basic.min.js"
"""plotly.js-basic-dist-min 4.1.1 of npm, as it is: lines and bars alone, a quarter of the whole.
Its licence lies beside it."""
DRAWN_BY = {
    "drawGantt": "gantt.js",
    "drawSteps": "steps.js",
    "drawMap": "map.js",
    "drawTrees": "trees.js",
}
"""Functions of (element, data) that draw, and the assets that define them."""
DRAWING_SCRIPTS = ("pictures.js", *DRAWN_BY.values())
"""These assets in the order in which a page loads them; what they share comes first."""


@lru_cache
def asset(name: str) -> str:
    """Return a text file that ships with the package."""
    return (
        resources.files("npu_sim.show.reports").joinpath("assets", name).read_text(encoding="utf-8")
    )


def render(document: Document) -> str:
    """Return a document as HTML; the plotting library is put in only when there are curves."""
    sections = "".join(_section(section) for section in document.sections)
    call = f'<pre class="call">{escape(document.call)}</pre>' if document.call else ""
    scripts = "".join(f"<script>{source}</script>" for source in _scripts(document))
    footer = say(
        "Made by npu-sim {version}. Simulated, not measured on a device.", version=_version()
    )
    return (
        f'<!doctype html>\n<html lang="{language()}"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark">'
        f"<title>{_said(document.title)}</title><style>{asset('report.css')}</style></head>"
        f'<body><main><h1 class="{document.outcome}">{_said(document.sentence)}</h1>{call}{sections}'
        f"<footer>{_said(footer)}</footer></main>{scripts}</body></html>\n"
    )


def _scripts(document: Document) -> Iterator[str]:
    if any(isinstance(block, Figure) for block in document.blocks):
        yield asset(PLOTTING_LIBRARY)
        yield asset("figures.js")
    kinds = {block.kind for block in document.blocks if isinstance(block, Drawing)}
    if kinds:
        others = {name for kind, name in DRAWN_BY.items() if kind not in kinds}
        yield from (asset(name) for name in DRAWING_SCRIPTS if name not in others)
        if language() != LANGUAGES[0]:
            yield f"pictures.speak({json.dumps(picture_texts())});"
        yield f"pictures.drawAll({{ {', '.join(sorted(kinds))} }});"


def embedded(document: Document) -> str:
    """Return a document as a frame for notebooks: its styles do not touch the notebook's own."""
    return f'<iframe style="width: 100%; height: 720px; border: 0" srcdoc="{escape(render(document))}"></iframe>'


def _said(text: str) -> str:
    """Return a text as the page has it, in the language that is spoken."""
    return escape(translated(text))


def _version() -> str:
    from npu_sim import __version__

    return __version__


def _section(section: Section) -> str:
    return f"<section><h2>{_said(section.title)}</h2>{''.join(block_html(block) for block in section.blocks)}</section>"


def block_html(block: Block) -> str:
    """Return one block as HTML; columns without content are left out of tables."""
    if isinstance(block, Lines):
        return lines_html(block)
    if isinstance(block, Table):
        return _table(block)
    if isinstance(block, Figure):
        return _figure(block)
    if isinstance(block, Drawing):
        return f'<figure data-draw="{block.kind}"><div></div>{_data(block.data)}{_caption(block.caption)}</figure>'
    if isinstance(block, Picture):
        return f"<figure>{_scrolled(block.markup, block.caption or 'picture')}{_caption(block.caption)}</figure>"
    assert isinstance(block, Text)
    return f"<p>{_said(block.text)}</p>"


def lines_html(block: Lines) -> str:
    """Return labelled lines as a list of terms."""
    rows = "".join(
        f'<dt>{_said(label)}</dt><dd class="{escape(label)}"><span>{_said(value)}</span> <small>{_said(note)}</small></dd>'
        for label, value, note in block.lines
    )
    return f'<dl class="lines">{rows}</dl>'


def _table(table: Table) -> str:
    filled = [
        column
        for column in range(len(table.headings))
        if any(row[column] not in ("", None) for row in table.rows)
    ]
    head = "".join(f'<th scope="col">{_said(table.headings[column])}</th>' for column in filled)
    marks = [SWATCH.format(colour) for colour in table.colours] or [""] * len(table.rows)
    body = "".join(
        f"<tr>{_row(row, filled, mark)}</tr>" for row, mark in zip(table.rows, marks, strict=True)
    )
    markup = _scrolled(
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>",
        table.caption or "table",
    )
    if table.folded:
        return f"<details><summary>{_said(table.caption or 'show')}</summary>{markup}</details>"
    return _caption(table.caption, "p") + markup


def _scrolled(markup: str, label: str) -> str:
    """Return what may be wider than the page in a box that scrolls, by keyboard as well."""
    return (
        f'<div class="scroll" tabindex="0" role="group" aria-label="{_said(label)}">{markup}</div>'
    )


def _row(row: Sequence[Cell], filled: Sequence[int], mark: str) -> str:
    return "".join(_cell(row[column], "" if place else mark) for place, column in enumerate(filled))


def _cell(cell: Cell, mark: str = "") -> str:
    if cell is None:
        return f"<td>{mark}</td>"
    if isinstance(cell, bool):
        return f"<td>{_said('yes' if cell else 'no')}</td>"
    number = isinstance(cell, int | float)
    text = f"{cell:.6g}" if isinstance(cell, float) else str(cell)
    return f"<td{' class=number' if number else ''}>{mark}{_said(text)}</td>"


def _caption(text: str, tag: str = "figcaption") -> str:
    return f'<{tag} class="caption">{_said(text)}</{tag}>' if text else ""


def _figure(figure: Figure) -> str:
    content = {"data": figure.data, "layout": figure.layout}
    return f'<figure class="plot"><div></div>{_data(content)}{_caption(figure.caption)}</figure>'


def _data(content: Mapping[str, Any]) -> str:
    """Return data for the scripts of the page, in an element that no text can end."""
    text = json.dumps(
        translated_data(content), ensure_ascii=True, allow_nan=False, separators=(",", ":")
    ).replace("<", "\\u003c")
    return f'<script type="application/json">{text}</script>'
