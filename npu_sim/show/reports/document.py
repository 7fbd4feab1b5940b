"""What a report is made of: a sentence, sections, and six kinds of blocks. No HTML here; see :mod:`npu_sim.show.reports.html`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Cell = str | int | float | bool | None


@dataclass(frozen=True)
class Lines:
    """Labelled lines, as the command line prints them: (label, value, note)."""

    lines: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes
    ----------
    headings
        Names of the columns.
    rows
        Cells; numbers are set flush right.
    caption
        What it shows; empty when the section's title says it.
    folded
        Whether it starts folded up.
    """

    headings: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    caption: str = ""
    folded: bool = False


@dataclass(frozen=True)
class Picture:
    """An inline SVG; ``markup`` is trusted, made by :mod:`npu_sim.show.reports.svg`."""

    markup: str
    caption: str = ""


@dataclass(frozen=True)
class Figure:
    """Interactive curves: data and layout as plotly.js takes them."""

    data: tuple[dict[str, Any], ...]
    layout: dict[str, Any]
    caption: str = ""


@dataclass(frozen=True)
class Drawing:
    """A picture that the page draws itself: ``kind`` is a function of ``assets/``, called with ``data``.

    Kinds are ``drawGantt`` (:func:`npu_sim.timelines.tracks.tracks`) and ``drawSteps`` (:func:`npu_sim.timelines.steps.steps`).
    """

    kind: Literal["drawGantt", "drawSteps"]
    data: Mapping[str, Any]
    caption: str = ""


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    text: str


Block = Lines | Table | Picture | Figure | Drawing | Text


@dataclass(frozen=True)
class Section:
    """A titled group of blocks."""

    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Document:
    """A report.

    Attributes
    ----------
    title
        Title of the file.
    sentence
        The call and its outcome, at the top.
    call
        How to make the call again, as a command; empty when there is none.
    sections
        What follows.
    outcome
        ``good`` or ``bad``, for the colour of the sentence.
    """

    title: str
    sentence: str
    sections: tuple[Section, ...]
    call: str = ""
    outcome: str = "good"

    def has(self, kind: type[Block]) -> bool:
        """Whether a block of a kind is in it."""
        return any(isinstance(block, kind) for section in self.sections for block in section.blocks)


def table_report(
    title: str, sentence: str, tables: Sequence[Table], figures: Sequence[Figure] = (), *, notes: Sequence[str] = (), call: str = ""
) -> Document:
    """Return a report of tables and curves, for comparisons, limits, sweeps and studies.

    Parameters
    ----------
    title, sentence
        Title and outcome.
    tables
        Tables; their captions become the titles of the sections.
    figures
        Curves, shown first.
    notes
        Paragraphs at the end.
    call
        The command that makes the same numbers.
    """
    sections = []
    if figures:
        sections.append(Section("Curves", tuple(figures)))
    sections += [Section(table.caption or "Table", (Table(table.headings, table.rows, "", table.folded),)) for table in tables]
    if notes:
        sections.append(Section("Notes", tuple(Text(note) for note in notes)))
    return Document(title=title, sentence=sentence, sections=tuple(sections), call=call)
