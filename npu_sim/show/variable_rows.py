"""Rows of an output that can differ between runs, as a table and as CSV."""

from collections.abc import Sequence

from rich.console import RenderableType

from npu_sim.framework.describing import PLURALS
from npu_sim.language import say
from npu_sim.show.csv_rows import csv_text
from npu_sim.show.layout import Column, Table, stack
from npu_sim.studies.variable_rows import FIELDS, WORST_ROWS, VariableRows

HEADINGS = ("row", "terms", "in", "cores", "spread", "ulp", "relative spread", "element")
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
            "{output}: {count} {parts} can differ{shown}",
            rows,
            count=count,
            parts=PLURALS[rows.axis],
            shown=shown,
        )
    return say("{output}: its accumulation order is fixed", rows)


def row_cells(rows: VariableRows) -> list[tuple[str, ...]]:
    """Return the worst rows as cells under ``HEADINGS``."""
    return [
        (
            say(POSITIONS[row["axis"]], number=row["place"]),
            str(row["terms"]),
            str(row["contributions"]),
            str(row["cores"]),
            f"{row['spread']:.3g}",
            str(row["spread_ulp"]),
            f"{row['relative']:.2g}",
            ", ".join(map(str, row["element"])),
        )
        for row in rows.as_dicts()
    ]


def rows_csv(every: Sequence[VariableRows]) -> str:
    """Return every row that can differ as CSV."""
    names = ("output", "axis", *(FIELDS.names or ()))
    rows = [row for rows in every for row in rows.as_dicts(rows.table)]
    return csv_text(names, ([row[name] for name in names] for row in rows))


def rows_view(every: Sequence[VariableRows]) -> RenderableType:
    """Return the worst rows of each output as a rich renderable."""
    columns = [
        Column(name, right=0 < number < len(HEADINGS) - 1, key=number == 0)
        for number, name in enumerate(HEADINGS)
    ]
    parts: list[RenderableType] = []
    for rows in every:
        parts += [
            "",
            rows_title(rows),
            *([Table(columns, row_cells(rows))] if len(rows.table) else []),
        ]
    return stack(*parts, *(["", NOTE] if any(len(rows.table) for rows in every) else []))
