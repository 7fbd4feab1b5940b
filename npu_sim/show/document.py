"""Data model of a report: a sentence, and sections of tables, paragraphs and pictures.

:mod:`npu_sim.show.html` renders it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from markupsafe import Markup
from rich.console import Group, RenderableType

from npu_sim.show.layout import UNLIMITED, Paragraph, Table, render, stack


@dataclass(frozen=True)
class Picture:
    """An inline SVG, built with :func:`npu_sim.show.svg.element`."""

    markup: Markup
    caption: str = ""

    @property
    def label(self) -> str:
        """Name for screen readers."""
        return self.caption or "picture"


@dataclass(frozen=True)
class Figure:
    """Interactive curves: data and layout for plotly.js."""

    data: tuple[dict[str, Any], ...]
    layout: dict[str, Any]
    caption: str = ""


@dataclass(frozen=True)
class Drawing:
    """A picture that scripts of the page draw from data.

    ``kind`` is a function of ``assets/``, ``data`` its argument: the result of
    :mod:`npu_sim.timelines.tracks` for ``drawGantt``, of :mod:`npu_sim.timelines.tracks` for
    ``drawSteps``, of :mod:`npu_sim.sweeps.maps` for ``drawMap``, and certificates in JSON form for
    ``drawTrees``.
    """

    kind: Literal["drawGantt", "drawSteps", "drawMap", "drawTrees"]
    data: Mapping[str, Any]
    caption: str = ""


Block = Table | Paragraph | Picture | Figure | Drawing


@dataclass(frozen=True)
class Section:
    """A titled group of blocks."""

    title: str
    blocks: tuple[Block, ...]


SIMULATED = "Simulated, not measured on a device."
"""Origin of the numbers of most reports."""


@dataclass(frozen=True)
class Document:
    """A report."""

    title: str
    """Title of the file."""
    sentence: str
    """The call and its outcome, at the top."""
    sections: tuple[Section, ...]
    """Content."""
    call: str = ""
    """Command that reproduces the report; empty for none."""
    outcome: str = "good"
    """``good`` or ``bad``, for the colour of the sentence."""
    origin: str = SIMULATED
    """Where the numbers come from, for the footer."""

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The blocks of all sections."""
        return tuple(block for section in self.sections for block in section.blocks)


def filled(*sections: tuple[str, Iterable[Block]]) -> tuple[Section, ...]:
    """Return the sections that have content; a table without rows is none."""
    contents = (
        (title, tuple(block for block in blocks if not isinstance(block, Table) or block.rows))
        for title, blocks in sections
    )
    return tuple(Section(title, blocks) for title, blocks in contents if blocks)


def table_report(
    title: str,
    sentence: str,
    tables: Sequence[Table],
    pictures: Sequence[Block] = (),
    *,
    notes: Sequence[str] = (),
    call: str = "",
) -> Document:
    """Return a report of tables and curves, for comparisons, limits, sweeps and preflights.

    - ``title``, ``sentence``: title and outcome.
    - ``tables``: tables; their captions become the titles of the sections. Those without rows are
      left out.
    - ``pictures``: curves and other pictures, shown first.
    - ``notes``: paragraphs at the end.
    - ``call``: command that reproduces the report.
    """
    sections = filled(
        ("Pictures", pictures),
        *((table.caption or "Table", [replace(table, caption="")]) for table in tables),
        ("Notes", map(Paragraph, notes)),
    )
    return Document(title, sentence, sections, call)


def view_report(view: RenderableType) -> Document:
    """Return a report of the paragraphs and tables of a view; its first line is the title."""
    title = render(view, UNLIMITED).partition("\n")[0]
    parts = list(_parts(stack(view)))
    outcome = "good"
    if isinstance(parts[0], Paragraph):
        outcome = "bad" if "red" in parts[0].style else "good"
        del parts[0]
    sections: list[tuple[str, list[Block]]] = [("Result", [])]
    for part in parts:
        if isinstance(part, Paragraph) and part.style.startswith("bold"):
            sections.append((part.text, []))
        else:
            sections[-1][1].append(part)
    return Document(title, title, filled(*sections), outcome=outcome)


def _parts(view: RenderableType) -> Iterator[Paragraph | Table]:
    """Yield the tables and non-empty paragraphs of a view."""
    if isinstance(view, Group):
        for part in view.renderables:
            yield from _parts(part)
    elif isinstance(view, Table) or (isinstance(view, Paragraph) and view.text):
        yield view
