"""Tables and paragraphs, their layout as text, and reports that are made of them.

Text has a layout for any terminal width, and one for pipes (one line per record). A report is a
sentence, and sections of tables, paragraphs and pictures; :mod:`npu_sim.show.forms.html` renders
it.

Lines end at blanks only, a number and its unit count as one word, and lines end without blanks. A
table that does not fit becomes blocks, one per record; labelled lines that do not fit side by side
are stacked. Control characters, which names from files may contain, are shown escaped.
"""

import csv
import io
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from io import StringIO
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from markupsafe import Markup
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.text import Text as StyledText

from npu_sim.language import joined, translated, visible

UNLIMITED = 1 << 20
"""Width that stands for no limit: nothing wraps."""
LEAST_TEXT = 24
"""Minimum width of a wrapped column."""
MOST_PADDED = 40
"""Maximum padding where nothing wraps, so that one long cell does not shift all notes."""
WIDE, MOST_BESIDE = 120, 60
"""On wider terminals a text beside a note wraps at so many columns: the eye finds the note."""
GAP = "  "
BETWEEN = " | "
"""Separator of the facts of a block."""

_UNIT = r"(?:[num]?s|bytes?|[KMGT]?i?B(?:/s)?|ulp|%|[MG]Hz)(?!\w)"
_QUANTITY = rf"\d[\d.,]*(?:e[-+]?\d+)? {_UNIT}"
_PIECE = re.compile(rf"\s*(?:[-+(]?{_QUANTITY}\S*|\S+)")
_WIDE = "\u1100-\u11ff\u2e80-\u2fff\u3003-\u3007\u3040-\ua4cf\uac00-\ud7af\uf900-\ufaff"
_SPLIT = re.compile(
    rf"\s*[(（《「【]{{0,8}}(?:{_QUANTITY}|[{_WIDE}]"
    rf"|[^\s{_WIDE}]+?(?:(?<=[，；：、。])|(?=[(（《「【]{{0,8}}[{_WIDE}]|$)))"
    r"[^\w\s(（《「【]*|\s*\S+"
)
"""Chinese text has no blanks: lines may end after any character but an opening bracket, and before
any but punctuation; not between a number and its unit."""


Cell = str | int | float | bool | None


class Column(NamedTuple):
    """A column: its heading, what it shows of a record, and its layout."""

    name: str
    """Heading; in a block it precedes the value. A table without names has no headings."""
    cell: Callable[[Any], Cell]
    """Function that returns the cell of a record; reports align numbers right."""
    right: bool = False
    """Whether cells are aligned right."""
    style: str = ""
    """Rich style of the cells."""
    wraps: bool = False
    """Whether the column may be narrower than its longest cell."""
    key: bool = False
    """Whether the cell identifies the record, in a block."""
    plain: bool = False
    """Whether the name of the column is omitted in a block."""


def part(number: int) -> Callable[[Sequence[Cell]], Cell]:
    """Return the function that shows a part of a record that is a tuple; empty beyond its end."""
    return lambda record: record[number] if number < len(record) else ""


LABELLED = (
    Column("", part(0), style="bold"),
    Column("", part(1), wraps=True),
    Column("", part(2), wraps=True, style="dim"),
)
"""Label, value, and a note."""
NAME_AND_VALUE = (Column("name", part(0)), Column("value", part(1)))
"""Columns of the items of a mapping."""


@dataclass(frozen=True)
class Paragraph:
    """Text wrapped to the available width."""

    text: str
    style: str = ""
    indent: int = 0
    hanging: int = 0
    """Additional indentation of later lines."""
    is_translated: bool = False
    """Whether the text is already in the user's language."""
    is_line: bool = False
    """Whether newlines in the text are part of a name, and shown escaped."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the lines."""
        first, later = " " * self.indent, " " * (self.indent + self.hanging)
        text = self.text if self.is_translated else translated(self.text)
        for paragraph in visible(text, lines=not self.is_line).split("\n"):
            lines = wrapped(
                paragraph, options.max_width - self.indent, options.max_width - len(later)
            )
            for number, line in enumerate(lines):
                yield _line([(later if number else first, ""), (line, self.style)])


@dataclass(frozen=True)
class Table:
    """Records of one kind, in text and in reports."""

    columns: Sequence[Column]
    """The columns; those without content are left out."""
    rows: Sequence[Any]
    """The records, a row each."""
    caption: str = ""
    """Description in a report; empty if the section's title has it."""
    folded: bool = False
    """Whether the table starts collapsed in a report."""
    colours: Sequence[str] = ()
    """Class of the colour mark in front of each row of a report, as in the picture above."""
    styles: Sequence[str] = ()
    """Styles of the rows, in addition to those of the columns."""
    indent: int = 0
    """Blanks before every line."""
    narrow: RenderableType | None = None
    """Replacement if the columns do not fit; blocks if None."""
    is_translated: bool = False
    """Whether the cells are already in the user's language."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the lines, in columns if they fit."""
        used, cells = self.filled
        columns = [column._replace(name=translated(column.name)) for column in used]
        texts = ([cell if isinstance(cell, str) else str(cell) for cell in row] for row in cells)
        rows = [
            [visible(text if self.is_translated else translated(text)) for text in row]
            for row in texts
        ]
        width = options.max_width - self.indent
        widths = column_widths(columns, rows, width)
        is_wide = self.is_lines and WIDE < options.max_width < UNLIMITED
        if widths and is_wide:
            widths = [*_capped(widths[:-1], rows), widths[-1]]
        styles = [*self.styles, *[""] * (len(rows) - len(self.styles))]
        if widths is not None:
            unlimited = options.max_width >= UNLIMITED
            room = width if is_wide else 0
            yield from self._side_by_side(columns, rows, widths, styles, unlimited, room)
        elif self.narrow is not None:
            yield self.narrow
        elif any(column.name for column in columns):
            for row, style in zip(rows, styles, strict=True):
                yield from _block(columns, row, style, self.indent, options.max_width)
        else:
            yield from self._stacked(columns, rows, width)

    @property
    def is_lines(self) -> bool:
        """Whether these are labelled lines."""
        return tuple(self.columns) == LABELLED[: len(self.columns)]

    @property
    def label(self) -> str:
        """Name for screen readers."""
        return self.caption or "table"

    @property
    def filled(self) -> tuple[list[Column], list[list[Cell]]]:
        """Columns with content, and their cells in every row."""
        cells = [[column.cell(record) for record in self.rows] for column in self.columns]
        used = [
            (column, shown)
            for column, shown in zip(self.columns, cells, strict=True)
            if not shown or any(cell not in ("", None) for cell in shown)
        ]
        rows = [[shown[number] for _, shown in used] for number in range(len(self.rows))]
        return [column for column, _ in used], rows

    def _side_by_side(
        self,
        columns: Sequence[Column],
        rows: list[list[str]],
        widths: list[int],
        styles: list[str],
        unlimited: bool,
        room: int,
    ) -> Iterator[StyledText]:
        named = any(column.name for column in columns)
        padded = [min(width, MOST_PADDED) if unlimited and not named else width for width in widths]
        limits = [UNLIMITED] * len(widths) if unlimited else widths
        if named:
            headings = [column._replace(style="dim") for column in columns]
            yield from _aligned(
                headings, [column.name for column in columns], limits, padded, self.indent
            )
        for row, style in zip(rows, styles, strict=True):
            # On a wide terminal a text without a note takes the columns of the note.
            is_alone = room > 0 and not any(row[2:])
            rest = room - limits[0] - len(GAP)
            shown = [limits[0], rest, *limits[2:]] if is_alone else limits
            yield from _aligned(columns, row, shown, padded, self.indent, style)

    def _stacked(
        self, columns: Sequence[Column], rows: list[list[str]], width: int
    ) -> Iterator[RenderableType]:
        """Yield the cells of each row below each other, beside the row's label if both fit."""
        label = max((cell_len(row[0]) for row in rows), default=0)
        room = width - label - len(GAP)
        words = (longest_word(cell) for row in rows for cell in row[1:])
        beside = room >= max([LEAST_TEXT, *words])
        for row in rows:
            cells = zip(columns[1:], row[1:], strict=True)
            texts = [(cell, column.style) for column, cell in cells if cell]
            if row[0] and not (beside and texts):
                yield Paragraph(row[0], columns[0].style, self.indent)
            lines = [
                (line, style)
                for cell, style in texts
                for line in wrapped(cell, room if beside else width - len(GAP))
            ]
            for number, (line, style) in enumerate(lines):
                name = row[0] if number == 0 else ""
                head = _padded(name, label, right=False) + GAP if beside else GAP
                yield _line([(" " * self.indent, ""), (head, columns[0].style), (line, style)])


Lines = Iterator[tuple[str, str]]
"""Labels and values, for :func:`lines_table`."""


def lines_table(
    lines: Iterable[Sequence[str]],
    indent: int = 0,
    styles: Mapping[str, str] = MappingProxyType({}),
    is_translated: bool = False,
) -> Table:
    """Return labelled lines as a table: label, value and note; ``styles`` maps labels to styles."""
    rows = [tuple(line) for line in lines]
    columns = LABELLED[: max(map(len, rows), default=0)]
    row_styles = [styles.get(row[0], "") for row in rows]
    return Table(columns, rows, styles=row_styles, indent=indent, is_translated=is_translated)


def stack(*parts: RenderableType) -> Group:
    """Stack parts; a string is a paragraph."""
    return Group(*(Paragraph(part) if isinstance(part, str) else part for part in parts))


def after_gap(part: Table | str, title: str = "") -> tuple[RenderableType, ...]:
    """Return a part after an empty line and its title; nothing for a table without rows or ``""``.

    A string is a paragraph.
    """
    if not (part.rows if isinstance(part, Table) else part):
        return ()
    return ("", Paragraph(title, "bold", is_line=True), part) if title else ("", part)


def render(renderable: RenderableType, width: int | None = None) -> str:
    """Return the printed text without colours; ``width`` None is the width of the terminal."""
    buffer, columns = io.StringIO(), width or shutil.get_terminal_size((110, 24)).columns
    console = Console(
        file=buffer,
        width=columns,
        color_system=None,
        force_terminal=False,  # FORCE_COLOR would add styles
        force_jupyter=False,  # in a notebook rich displays the text and leaves the file empty
        highlight=False,
    )
    print_to(console, renderable)
    return buffer.getvalue().removesuffix("\n")


def print_to(console: Console, renderable: RenderableType) -> None:
    """Print; a word longer than the line extends beyond its end."""
    console.print(stack(renderable), crop=False, soft_wrap=False)


def wrapped(text: str, width: int, later: int | None = None) -> list[str]:
    """Wrap text at ``width`` columns, later lines at ``later``; lines end at blanks."""
    if cell_len(text) <= width:
        return [text.rstrip()]
    lines: list[str] = []
    line = ""
    for piece in _pieces(text):
        limit = width if not lines or later is None else later
        if line.strip() and cell_len((line + piece).rstrip()) > limit:
            lines.append(line.rstrip())
            line = piece.lstrip()
        else:
            line += piece
    return [*lines, line.rstrip()]


def longest_word(text: str) -> int:
    """Return the width of the longest word."""
    return max((cell_len(piece.strip()) for piece in _pieces(text)), default=0)


def _pieces(text: str) -> list[str]:
    """Split text where lines may end; each blank stays with the word after it."""
    return [
        part
        for piece in _PIECE.findall(text.rstrip())
        for part in (_SPLIT.findall(piece) if not piece.isascii() else [piece])
    ]


def column_widths(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int
) -> list[int] | None:
    """Return the widths of columns, shrinking the widest as needed; None if they do not fit."""
    cells = [[column.name, *(row[n] for row in rows)] for n, column in enumerate(columns)]
    widths = [max(map(cell_len, texts)) for texts in cells]
    least = [
        max([min(LEAST_TEXT, full), *map(longest_word, texts)]) if column.wraps else full
        for column, full, texts in zip(columns, widths, cells, strict=True)
    ]
    over = sum(widths) + len(GAP) * (len(widths) - 1) - width
    while over > 0:
        widest = max(
            range(len(widths)),
            key=lambda position: (widths[position] > least[position], widths[position]),
            default=None,
        )
        if widest is None or widths[widest] <= least[widest]:
            return None
        widths[widest] -= 1
        over -= 1
    return widths


def _capped(widths: Sequence[int], rows: Sequence[Sequence[str]]) -> Iterator[int]:
    """Yield widths of columns in which one long text does not push the next column away."""
    for number, full in enumerate(widths):
        longest = max((longest_word(row[number]) for row in rows), default=0)
        yield min(full, max(MOST_BESIDE, longest))


def _aligned(
    columns: Sequence[Column],
    cells: Sequence[str],
    limits: Sequence[int],
    padded: Sequence[int],
    indent: int,
    style: str = "",
) -> Iterator[StyledText]:
    """Yield the lines of a row of cells side by side, each wrapped at its limit."""
    lines = [wrapped(cell, limit) for cell, limit in zip(cells, limits, strict=True)]
    for number in range(max(map(len, lines), default=0)):
        parts = [(" " * indent, "")]
        for column, cell, width in zip(columns, lines, padded, strict=True):
            text = _padded(cell[number] if number < len(cell) else "", width, column.right)
            parts += [(text, f"{column.style} {style}"), (GAP, "")]
        yield _line(parts)


def _block(
    columns: Sequence[Column], row: Sequence[str], style: str, indent: int, width: int
) -> Iterator[RenderableType]:
    """Yield the lines of a block: the key cells, then the others on shared lines.

    Lines end between cells, or inside one that is too long.
    """
    cells = list(zip(columns, row, strict=True))
    head = GAP.join(cell for column, cell in cells if column.key and cell)
    facts = [
        cell if column.plain or not column.name else joined((column.name, cell), " ")
        for column, cell in cells
        if not column.key and cell
    ]
    if head:
        yield Paragraph(head, f"bold {style}", indent, len(GAP))
        indent += len(GAP)
    lines: list[str] = []
    for fact in (visible(translated(fact)) for fact in facts):
        longer = f"{lines[-1]}{BETWEEN}{fact}" if lines else fact
        if lines and cell_len(longer) <= width - indent:
            lines[-1] = longer
        else:
            lines.append(fact)
    yield from (Paragraph(line, style, indent, len(GAP)) for line in lines)


def _padded(cell: str, width: int, right: bool) -> str:
    blanks = " " * max(width - cell_len(cell), 0)
    return blanks + cell if right else cell + blanks


def _line(parts: Iterable[tuple[str, str]]) -> StyledText:
    """Return styled texts as one line that does not wrap, without trailing blanks."""
    line = StyledText(no_wrap=True, overflow="ignore")
    for text, style in parts:
        line.append(text, style.strip() or None)
    line.rstrip()
    return line


def csv_text(headings: Sequence[str], rows: Iterable[Iterable[object]]) -> str:
    """Return rows below their headings as CSV; None is an empty cell, a list is joined."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(headings)
    writer.writerows(
        [" ".join(map(str, cell)) if isinstance(cell, list | tuple) else cell for cell in row]
        for row in rows
    )
    return text.getvalue()


@dataclass(frozen=True)
class Picture:
    """An inline SVG, built with :func:`npu_sim.show.forms.svg.element`."""

    markup: Markup
    caption: str = ""

    @property
    def label(self) -> str:
        """Name for screen readers."""
        return self.caption or "picture"


class BarPart(NamedTuple):
    """A part of a bar: its length as a fraction of the picture, its class, and what it is."""

    length: float
    colour: str
    """Class of the style sheet, ``c0`` .. ``c7``; ``apart`` after it for a hatched part."""
    title: str


class Bar(NamedTuple):
    """A bar between its name and its value."""

    name: str
    parts: tuple[BarPart, ...]
    value: str


class BarGroup(NamedTuple):
    """Bars below a common name, which may be empty."""

    name: str
    bars: tuple[Bar, ...]


@dataclass(frozen=True)
class Bars:
    """Horizontal bars of one scale, with their values as text; any width of the page shows them."""

    groups: tuple[BarGroup, ...]
    caption: str = ""
    legend: tuple[tuple[str, str], ...] = ()
    """Classes of parts and their meaning."""


@dataclass(frozen=True)
class Drawing:
    """A picture that scripts of the page draw from data.

    ``kind`` is a function of ``assets/``, ``data`` its argument: the result of
    :mod:`npu_sim.timelines.tracks` for ``drawGantt`` and ``drawSteps``, of
    :mod:`npu_sim.sweeps.maps` for ``drawMap``, certificates in JSON form for ``drawTrees``, and
    that of :func:`npu_sim.show.forms.curves.curve_chart` for ``drawCurves``.
    """

    kind: Literal["drawGantt", "drawSteps", "drawMap", "drawTrees", "drawCurves"]
    data: Mapping[str, Any]
    caption: str = ""


Block = Table | Paragraph | Picture | Bars | Drawing


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
    command: str = ""
    """Command that reproduces the report; empty for none."""
    tone: str = "good"
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
    command: str = "",
) -> Document:
    """Return a report of tables and curves, for comparisons, limits, sweeps and preflights.

    - ``title``, ``sentence``: title and outcome.
    - ``tables``: tables; their captions become the titles of the sections. Those without rows are
      left out.
    - ``pictures``: curves and other pictures, shown first.
    - ``notes``: paragraphs at the end.
    - ``command``: command that reproduces the report.
    """
    sections = filled(
        ("Pictures", pictures),
        *((table.caption or "Table", [replace(table, caption="")]) for table in tables),
        ("Notes", map(Paragraph, notes)),
    )
    return Document(title, sentence, sections, command)


def view_report(view: RenderableType) -> Document:
    """Return a report of the paragraphs and tables of a view; its first line is the title."""
    title = render(view, UNLIMITED).partition("\n")[0]
    parts = list(_parts(stack(view)))
    tone = "good"
    if isinstance(parts[0], Paragraph):
        tone = "bad" if "red" in parts[0].style else "good"
        del parts[0]
    sections: list[tuple[str, list[Block]]] = [("Result", [])]
    for part in parts:
        if isinstance(part, Paragraph) and part.style.startswith("bold"):
            sections.append((part.text, []))
        else:
            sections[-1][1].append(part)
    return Document(title, title, filled(*sections), tone=tone)


def _parts(view: RenderableType) -> Iterator[Paragraph | Table]:
    """Yield the tables and non-empty paragraphs of a view."""
    if isinstance(view, Group):
        for part in view.renderables:
            yield from _parts(part)
    elif isinstance(view, Table) or (isinstance(view, Paragraph) and view.text):
        yield view
