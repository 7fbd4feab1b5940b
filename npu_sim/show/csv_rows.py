"""Rows as CSV."""

import csv
from collections.abc import Iterable, Sequence
from io import StringIO


def csv_text(headings: Sequence[str], rows: Iterable[Iterable[object]]) -> str:
    """Return rows below their headings as CSV; None is an empty cell, a list is joined."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(headings)
    writer.writerows(map(_cell, row) for row in rows)
    return text.getvalue()


def _cell(value: object) -> object:
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else value
