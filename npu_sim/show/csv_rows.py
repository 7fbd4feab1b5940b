"""Rows as CSV."""

import csv
from collections.abc import Iterable, Sequence
from io import StringIO


def csv_text(headings: Sequence[str], rows: Iterable[Iterable[object]]) -> str:
    """Return rows below their headings as CSV; None is an empty cell."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(headings)
    writer.writerows(rows)
    return text.getvalue()
