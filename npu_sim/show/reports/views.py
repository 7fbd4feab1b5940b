"""The text of an answer as a report, for answers that have no report of their own."""

from collections.abc import Iterator

from rich.console import Group, RenderableType

from npu_sim.show.layout import LABELLED, UNLIMITED, Paragraph, render, stack
from npu_sim.show.layout import Table as TextTable
from npu_sim.show.reports.document import Block, Document, Lines, Prose, Section, Table


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
        if isinstance(part, TextTable):
            sections[-1][1].append(_table(part))
        elif part.style.startswith("bold"):
            sections.append((part.text, []))
        else:
            sections[-1][1].append(Prose(part.text))
    filled = tuple(Section(name, tuple(blocks)) for name, blocks in sections if blocks)
    return Document(title, title, filled, outcome=outcome)


def _parts(view: RenderableType) -> Iterator[Paragraph | TextTable]:
    """Yield the tables and non-empty paragraphs of a view."""
    if isinstance(view, Group):
        for part in view.renderables:
            yield from _parts(part)
    elif isinstance(view, TextTable) or (isinstance(view, Paragraph) and view.text):
        yield view


def _table(table: TextTable) -> Block:
    """Return labelled lines as lines, and other tables as tables."""
    columns = tuple(table.columns)
    width = max(len(columns), 3)
    rows = tuple((*row, *[""] * (width - len(row))) for row in table.rows)
    if columns == LABELLED[: len(columns)]:
        return Lines(rows)  # type: ignore[arg-type]
    return Table((*(column.name for column in columns), *[""] * (width - len(columns))), rows)
