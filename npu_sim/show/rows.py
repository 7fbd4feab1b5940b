"""The rows that can differ between runs: a table of text and report, and CSV."""

from collections.abc import Sequence

from rich.console import RenderableType

from npu_sim.framework.describing import counted
from npu_sim.language import say
from npu_sim.show.forms.layout import Block, Column, Paragraph, Table, csv_text, stack
from npu_sim.studies.determinism import FIELDS, WORST_ROWS, VariableRows

ROWS_TITLE = "Rows that can differ"
POSITIONS = {"row": "row {number}", "column": "column {number}", "element": "element {number}"}
"""Name of a row, column or element."""
NOTE = (
    "terms: how many numbers are added up; in: the contributions they arrive in; spread and ulp: "
    "the element of the row that differs most in ulp, over the orders that were tried; relative "
    "spread: the spread relative to the sum of the contributions' magnitudes"
)


def rows_title(rows: VariableRows) -> str:
    """Return the number of rows, columns or elements that can differ, and of those shown."""
    count = len(rows.table)
    shown = say(", the {count} worst by ulp", count=WORST_ROWS) if count > WORST_ROWS else ""
    if count:
        return say(
            "{output}: {parts} can differ{shown}",
            output=rows.output,
            parts=counted(count, rows.axis),
            shown=shown,
        )
    return say("{output}: its accumulation order is fixed", output=rows.output)


def rows_table(rows: VariableRows) -> Table:
    """Return the worst rows that can differ."""
    columns = (
        Column("row", lambda row: say(POSITIONS[row["axis"]], number=row["place"]), key=True),
        Column("terms", lambda row: str(row["terms"]), right=True),
        Column("in", lambda row: str(row["contributions"]), right=True),
        Column("cores", lambda row: str(row["cores"]), right=True),
        Column("spread", lambda row: f"{row['spread']:.3g}", right=True),
        Column("ulp", lambda row: str(row["spread_ulp"]), right=True),
        Column("relative spread", lambda row: f"{row['relative']:.2g}", right=True),
        Column("element", lambda row: ", ".join(map(str, row["element"]))),
    )
    return Table(columns, rows.as_dicts(), rows_title(rows))


def rows_csv(every: Sequence[VariableRows]) -> str:
    """Return every row that can differ as CSV."""
    names = ("output", "axis", *(FIELDS.names or ()))
    rows = [row for rows in every for row in rows.as_dicts(rows.table)]
    return csv_text(names, ([row[name] for name in names] for row in rows))


def rows_view(every: Sequence[VariableRows]) -> RenderableType:
    """Return the worst rows of each output as a rich renderable."""
    parts = (part for rows in every for part in ("", rows_title(rows), rows_table(rows)))
    note = ["", NOTE] if any(len(rows.table) for rows in every) else []
    return stack(*parts, *note)


def rows_blocks(every: Sequence[VariableRows]) -> tuple[Block, ...]:
    """Return the rows that can differ between runs as tables; nothing if there are none."""
    tables = [rows_table(rows) for rows in every if len(rows.table)]
    return (*tables, Paragraph(NOTE)) if tables else ()
