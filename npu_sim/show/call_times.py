"""Times of a file of calls as text, and a recording of calls."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType

from npu_sim.language import Text, joined, say, visible
from npu_sim.language.quantities import bytes_text, percent_text, short_bytes_text, time_text
from npu_sim.plans.model import RUNS
from npu_sim.questions.preflight import Checked, Matrix, Row
from npu_sim.questions.preflight_checks import BoundSum, Totals
from npu_sim.show.layout import Column, Paragraph, Table, stack
from npu_sim.show.preflight import SHOWN_ROWS, matrix_view, notes
from npu_sim.show.timelines import bound_cell, coverage_lines, covered_time

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
        bound = _sums_text(sums)
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


def _sums_text(sums: Totals) -> str:
    """Return the sums of bounds, each of calls with bounds that cover the same work."""
    if len(sums.bounds) < 2:
        return bound_cell(sums.bound_us, next(iter(sums.bounds), ""))
    parts = []
    for coverage, found in sums.bounds.items():
        time = bound_cell(found.bound_us, coverage)
        one = say("1 call: {time}", time=time)
        several = say("{calls} calls: {time}", calls=found.calls, time=time)
        parts.append(one if found.calls == 1 else several)
    return joined(parts)


def call_rows(matrix: Matrix) -> list[tuple[str, ...]]:
    """Return the calls under ``CALLS``, those with the largest bound of all their calls first.

    Targets on which a call has equal cells are one row. Bounds that cover different work have no
    common order: calls with bounds of each coverage follow each other.
    """
    sums = matrix.totals()
    rows: list[tuple[str, ...]] = []
    for row in sorted(matrix.rows, key=_place):
        labels: dict[tuple[str, ...], list[str]] = {}
        for label, checked in row.cells.items():
            labels.setdefault(_cells(row, checked), []).append(label)
        for (*cells, estimate), alike in labels.items():
            share = _share(row, alike[0], sums[alike[0]].bounds)
            target = ", ".join(alike)
            rows.append((f"{row.count:,}x", row.title, target, *cells, share, estimate))
    return rows


def _share(row: Row, label: str, sums: Mapping[str, BoundSum]) -> str:
    """Return the part of the sum of a target's bounds of one coverage that a row's calls have."""
    time = row.cells[label].facts.get("time", {})
    if not time.get("bound_us"):
        return ""
    return percent_text(row.count * time["bound_us"] / sums[time["coverage"]].bound_us)


def _place(row: Row) -> tuple[str, float]:
    """Return what orders calls: a coverage of their bounds, ``""`` first, and the largest bound."""
    largest: dict[str, float] = {}
    for time in _times(row):
        found = largest.get(time["coverage"], 0.0)
        largest[time["coverage"]] = max(found, time["bound_us"] or 0.0)
    coverage = min(largest, default="")
    return coverage, -row.count * largest.get(coverage, 0.0)


def _coverages(row: Row) -> set[str]:
    return {time["coverage"] for time in _times(row)}


def _times(row: Row) -> list[Mapping[str, Any]]:
    return [cell.facts["time"] for cell in row.cells.values() if "time" in cell.facts]


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
        "" if bound is None else bound_cell(bound, time["coverage"]),
        "" if bound is None else bound_cell(row.count * bound, time["coverage"]),
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
    head = Paragraph(headline(matrix), "bold")
    return stack(head, *times_parts(matrix), *notes(matrix))


def time_notes(matrix: Matrix) -> list[str]:
    """Return the meaning of the times, and why bounds that cover less are apart."""
    if not matrix.timed:
        return []
    coverages = (coverage for sums in matrix.totals().values() for coverage in sums.bounds)
    return [NOTE, *coverage_lines(coverages)]


def headline(matrix: Matrix) -> str:
    """Return calls and lower bounds in one sentence, without bounds that are not compared."""
    calls, rows = sum(row.count for row in matrix.rows), len(matrix.rows)
    if any(len(_coverages(row)) > 1 for row in matrix.rows):
        return say(
            "{calls} calls, {rows} of them distinct: bounds cover different work, not compared",
            calls=calls,
            rows=rows,
        )
    bounds = []
    for label, sums in matrix.totals().items():
        times = [covered_time(found.bound_us, coverage) for coverage, found in sums.bounds.items()]
        time = joined(times, " and ") if times else time_text(0.0)
        bounds.append(Text("{time} on {label}", time=time, label=label))
    return say(
        "{calls} calls, {rows} of them distinct: at least {bounds}",
        calls=calls,
        rows=rows,
        bounds=joined(bounds, ", "),
    )


def times_parts(matrix: Matrix) -> list[RenderableType]:
    """Return the sums and the calls with their times, each after a gap; nothing without times."""
    if not matrix.timed:
        return []
    rows = call_rows(matrix)
    parts: list[RenderableType] = [
        "",
        _table(TOTALS, totals_rows(matrix)),
        "",
        _table(CALLS, rows[:SHOWN_ROWS]),
    ]
    if len(rows) > SHOWN_ROWS:
        more = len(rows) - SHOWN_ROWS
        parts.append(say("and {rows} more calls: --report or --json lists all", rows=more))
    return [*parts, "", *(Paragraph(line, "dim") for line in time_notes(matrix))]


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


SHOWN_KERNELS = 12
_COUNTED = (Column("count", right=True, key=True),)


def recording_view(recording: Mapping[str, Any], file: str) -> RenderableType:
    """Return a recording as a rich renderable; ``file`` is where its calls were written."""
    calls, lost, kernels = (
        recording["calls"],
        recording["not_recognised"],
        recording["not_modelled"],
    )
    parts: list[RenderableType] = [
        say(
            "{total} calls, {distinct} of them distinct, in {file}",
            total=sum(call["count"] for call in calls),
            distinct=len(calls),
            file=visible(str(file)),
        )
    ]
    if calls:
        rows = []
        for call in calls:
            inputs = ", ".join(f"{name} {value}" for name, value in call["inputs"].items())
            rows.append((f"{call['count']}x", call["op"], inputs, call.get("name", "")))
        columns = (
            *_COUNTED,
            Column("op", key=True),
            Column("inputs", wraps=True, plain=True),
            Column("from", wraps=True),
        )
        parts += ["", Table(columns, rows)]
    for title, listed in (("not recognised", lost), ("remark on", recording.get("remarks", ()))):
        if listed:
            parts += ["", _listed(title, listed)]
    if processes := recording.get("processes"):
        names = ", ".join(processes)
        text = say(
            "forked processes made calls that are not recorded: {processes}", processes=names
        )
        parts += ["", text]
    if spawned := recording.get("spawned"):
        names = ", ".join(spawned)
        parts += ["", say("started processes are not recorded: {processes}", processes=names)]
    if kernels:
        shown = [f"{name} {count}" for name, count in list(kernels.items())[:SHOWN_KERNELS]]
        more = ""
        if len(kernels) > SHOWN_KERNELS:
            more = say(", and {kernels} more kinds", kernels=len(kernels) - SHOWN_KERNELS)
        parts += ["", say("not modelled: {shown}{more}", shown=", ".join(shown), more=more)]
    return stack(*parts, "", say("next: npu-sim preflight {file} --products all", file=file))


def _listed(title: str, entries: Sequence[Mapping[str, Any]]) -> Table:
    """Return a table of code with a reason and a place."""
    rows = []
    for entry in entries:
        place = entry.get("name") or (f"{entry['file']}:{entry['line']}" if "file" in entry else "")
        rows.append((f"{entry['count']}x", entry["what"], entry["why"], place))
    columns = (
        *_COUNTED,
        Column(title, key=True),
        Column("why", wraps=True, plain=True),
        Column("from", wraps=True),
    )
    return Table(columns, rows)
