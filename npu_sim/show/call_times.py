"""Times of a file of calls as text: sums of each target, and calls with their part of the sum."""

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Group, RenderableType

from npu_sim.language import Text, joined, say
from npu_sim.language.quantities import bytes_text, percent_text, short_bytes_text, time_text
from npu_sim.plans.model import RUNS
from npu_sim.questions.preflight import Checked, Matrix, Row
from npu_sim.show.layout import Column, Paragraph, Table, stack
from npu_sim.show.preflight import SHOWN_ROWS, matrix_view, notes

TOTALS = ("product", "calls", "runs", "launches", "lower bound", "estimate", "peak workspace")
"""Columns of the sums."""
CALLS = (
    "",
    "call",
    "product",
    "outcome",
    "path",
    "launches",
    "workspace",
    "lower bound",
    "all calls",
    "share",
    "estimate",
)
"""Columns of the calls."""
_RIGHT = {"", "calls", "runs", "launches", "workspace", "lower bound", "all calls", "share"}
NOTE = (
    "lower bound: from published rates, nothing is measured; estimate V: busy time of the vector "
    "pipe, not of the launch; both cover the calls above, not the rest of the model"
)


def totals_rows(matrix: Matrix) -> list[tuple[str, ...]]:
    """Return one row per target, under ``TOTALS``; counts are weighted."""
    summaries = matrix.summaries()
    rows: list[tuple[str, ...]] = []
    for label, sums in matrix.totals().items():
        summary = summaries[label]
        bound = time_text(sums.bound_us)
        if sums.unbounded:
            bound = say("{time}, {count} calls have none", time=bound, count=sums.unbounded)
        rows.append(
            (
                label,
                f"{summary.count:,}",
                f"{sums.calls:,}",
                f"{sums.launches:,}",
                bound,
                _estimate_text(sums.estimates),
                bytes_text(summary.peak.workspace_bytes) if summary.peak else "",
            )
        )
    return rows


def call_rows(matrix: Matrix) -> list[tuple[str, ...]]:
    """Return the calls under ``CALLS``, those with the largest bound of all their calls first.

    Targets on which a call has equal cells are one row.
    """
    sums = matrix.totals()
    rows: list[tuple[str, ...]] = []
    for row in sorted(matrix.rows, key=_largest_bound, reverse=True):
        labels: dict[tuple[str, ...], list[str]] = {}
        for label, checked in row.cells.items():
            labels.setdefault(_cells(row, checked), []).append(label)
        for (*cells, estimate), alike in labels.items():
            share = _share(row, alike[0], sums[alike[0]].bound_us)
            target = ", ".join(alike)
            rows.append((f"{row.count:,}x", row.title, target, *cells, share, estimate))
    return rows


def _share(row: Row, label: str, total_us: float) -> str:
    """Return the part of the sum of a target's bounds that all calls of a row have."""
    bound = row.cells[label].facts.get("time", {}).get("bound_us")
    return percent_text(row.count * bound / total_us) if bound and total_us else ""


def _largest_bound(row: Row) -> float:
    times = [cell.facts["time"]["bound_us"] for cell in row.cells.values() if "time" in cell.facts]
    return row.count * max((bound or 0.0 for bound in times), default=0.0)


def _cells(row: Row, checked: Checked) -> tuple[str, ...]:
    """Return the cells of a call from ``outcome`` on, without its part of the sum."""
    if checked.outcome != RUNS or "time" not in checked.facts:
        return (checked.label, "", "", "", "", "", "")
    time = checked.facts["time"]
    bound = time["bound_us"]
    return (
        "",
        checked.facts["path"],
        str(time["launches"]),
        short_bytes_text(checked.workspace_bytes),
        "" if bound is None else time_text(bound),
        "" if bound is None else time_text(row.count * bound),
        _estimate_text(time["estimates"]),
    )


def _estimate_text(estimates: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the sums of the estimates: ``V 36.0 us to 44.0 us of 5 launches``."""
    parts = [
        Text(
            "{kind}{low} to {high}{launches}",
            kind="V " if kind == "vector pipe" else "",
            low=time_text(part["low_us"]),
            high=time_text(part["high_us"]),
            launches=say(" of {count} launches", count=part["launches"])
            if part["launches"] > 1
            else "",
        )
        for kind, part in estimates.items()
    ]
    return joined(parts)


def call_times_view(matrix: Matrix) -> Group:
    """Return the times of a file of calls as a rich renderable."""
    rows = call_rows(matrix)
    parts: list[RenderableType] = [
        Paragraph(headline(matrix), "bold"),
        "",
        _table(TOTALS, totals_rows(matrix)),
        "",
        _table(CALLS, rows[:SHOWN_ROWS]),
    ]
    if len(rows) > SHOWN_ROWS:
        more = len(rows) - SHOWN_ROWS
        parts.append(say("and {rows} more calls: --report or --json lists all", rows=more))
    return stack(*parts, "", Paragraph(NOTE, "dim"), *notes(matrix))


def headline(matrix: Matrix) -> str:
    """Return calls and lower bounds in one sentence."""
    bounds = [
        Text("{time} on {label}", time=time_text(sums.bound_us), label=label)
        for label, sums in matrix.totals().items()
    ]
    return say(
        "{calls} calls, {rows} of them distinct: at least {bounds}",
        calls=sum(row.count for row in matrix.rows),
        rows=len(matrix.rows),
        bounds=joined(bounds, ", "),
    )


def totals_parts(matrix: Matrix) -> Iterator[RenderableType]:
    """Yield the sums as a part of the text of a preflight; nothing without times."""
    if matrix.timed:
        yield ""
        yield _table(TOTALS, totals_rows(matrix))


def _table(names: tuple[str, ...], rows: list[tuple[str, ...]]) -> Table:
    columns = [
        Column(
            name,
            right=name in _RIGHT,
            wraps=name in ("call", "path", "estimate", "peak workspace", "product"),
            key=name in ("product", "call", ""),
        )
        for name in names
    ]
    return Table(columns, rows)


def preflight_view(matrix: Matrix) -> Group:
    """Return a preflight as a rich renderable: its times if it has them, else its outcomes."""
    return call_times_view(matrix) if matrix.timed else matrix_view(matrix)
