"""Data model of a report: a sentence, sections, and six kinds of blocks.

:mod:`npu_sim.show.reports.html` renders it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from markupsafe import Markup

Cell = str | int | float | bool | None


@dataclass(frozen=True)
class Lines:
    """Labelled lines, as the command line prints them: (label, value, note)."""

    lines: tuple[tuple[str, str, str], ...]


def labelled(lines: Iterable[tuple[str, str]]) -> Lines:
    """Return lines without notes."""
    return Lines(tuple((label, value, "") for label, value in lines))


@dataclass(frozen=True)
class Table:
    """A table."""

    headings: tuple[str, ...]
    """Names of the columns."""
    rows: tuple[tuple[Cell, ...], ...]
    """Cells; numbers are aligned right."""
    caption: str = ""
    """Description; empty if the section's title has it."""
    folded: bool = False
    """Whether the table starts collapsed."""
    colours: tuple[str, ...] = ()
    """Class of the colour mark in front of each row, as in the picture above; empty for none."""

    @property
    def label(self) -> str:
        """Name for screen readers."""
        return self.caption or "table"

    @property
    def filled_columns(self) -> list[int]:
        """Positions of the columns with content."""
        return [
            column
            for column in range(len(self.headings))
            if any(row[column] not in ("", None) for row in self.rows)
        ]


@dataclass(frozen=True)
class Picture:
    """An inline SVG, built with :func:`npu_sim.show.reports.svg.element`."""

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
    :mod:`npu_sim.timelines.tracks` for ``drawGantt``, of :mod:`npu_sim.timelines.steps` for
    ``drawSteps``, of :mod:`npu_sim.sweeps.maps` for ``drawMap``, and certificates in JSON form for
    ``drawTrees``.
    """

    kind: Literal["drawGantt", "drawSteps", "drawMap", "drawTrees"]
    data: Mapping[str, Any]
    caption: str = ""


@dataclass(frozen=True)
class Prose:
    """A paragraph."""

    text: str


Block = Lines | Table | Picture | Figure | Drawing | Prose


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
    sections = []
    if pictures:
        sections.append(Section("Pictures", tuple(pictures)))
    sections += [
        Section(table.caption or "Table", (Table(table.headings, table.rows, "", table.folded),))
        for table in tables
        if table.rows
    ]
    if notes:
        sections.append(Section("Notes", tuple(Prose(note) for note in notes)))
    return Document(title=title, sentence=sentence, sections=tuple(sections), call=call)
