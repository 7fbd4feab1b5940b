"""The report of a preflight: the matrix, the reasons, and what can differ between runs."""

from dataclasses import replace

from npu_sim.language import say
from npu_sim.language.quantities import short_bytes_text
from npu_sim.questions.preflight import ACCEPTED, ERROR, INFORMATIONAL, Matrix
from npu_sim.show.call_times import CALLS, TOTALS, call_rows, time_notes, totals_rows
from npu_sim.show.layout import Cell, Table
from npu_sim.show.preflight import (
    caveat_lines,
    cell_text,
    difference_lines,
    legend_text,
    lines_text,
    recorded_lines,
    timing_lines,
)
from npu_sim.show.reports.document import Document, table_report

COUNTS = (
    *("target", "calls", "run", "overflow", "refused", "no tiling", "malformed", "unknown"),
    *("not accepted", "peak workspace"),
)
"""Headings of the counts of every target."""
LEVELS = {ERROR: "fails", INFORMATIONAL: "informational", ACCEPTED: "in the baseline"}


def preflight_report(matrix: Matrix, file: str = "", call: str = "") -> Document:
    """Return the report of a preflight.

    - ``file``: name of the calls.
    - ``call``: command that reproduces the report.
    """
    file = file or say("calls")
    bad = sum(summary.not_fine for summary in matrix.summaries().values())
    lines = sum(row.count if matrix.timed else row.lines for row in matrix.rows)
    sentence = say(
        "{file}: {lines} calls, {rows} of them distinct, on {labels}: ",
        file=file,
        lines=lines,
        rows=len(matrix.rows),
        labels=", ".join(matrix.labels),
    )
    sentence += say("{bad} not accepted", bad=bad) if bad else say("all accepted")
    tables = (
        *_time_tables(matrix),
        _targets_table(matrix),
        _calls_table(matrix),
        _faults_table(matrix),
    )
    notes = [
        *time_notes(matrix),
        *filter(None, [legend_text(matrix)]),
        *caveat_lines(matrix),
        *difference_lines(matrix),
        *timing_lines(matrix),
        *recorded_lines(matrix),
    ]
    title = say("preflight of {file}", file=file)
    document = table_report(title, sentence, tables, notes=notes, call=call)
    return replace(document, outcome="bad" if bad else "good")


def _time_tables(matrix: Matrix) -> tuple[Table, ...]:
    if not matrix.timed:
        return ()
    return (
        Table(TOTALS, tuple(totals_rows(matrix)), "Sums"),
        Table(CALLS, tuple(call_rows(matrix)), "Calls by their time"),
    )


def _targets_table(matrix: Matrix) -> Table:
    rows = tuple(
        (
            label,
            summary.lines,
            summary.runs,
            summary.overflows or "",
            summary.refused,
            summary.failed,
            summary.malformed,
            summary.unknown,
            summary.not_fine,
            short_bytes_text(summary.peak.workspace_bytes) if summary.peak else "",
        )
        for label, summary in matrix.summaries().items()
    )
    return Table(COUNTS, rows, "Targets")


def _calls_table(matrix: Matrix) -> Table:
    budget = matrix.policy.max_workspace
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (
            row.line,
            row.count,
            str(row.remarks.get("name", "")),
            row.op,
            row.inputs,
            *(cell_text(row.cells.get(label), budget) for label in matrix.labels),
        )
        for row in matrix.rows
    )
    headings = ("line", "count", "name", "operator", "inputs", *matrix.labels)
    return Table(headings, rows, "Calls: workspace, or the code")


def _faults_table(matrix: Matrix) -> Table:
    rows = tuple(
        (
            LEVELS[fault.level],
            fault.word,
            fault.op,
            lines_text(fault.rows),
            ", ".join(fault.labels),
            fault.reason,
        )
        for level in LEVELS
        for fault in matrix.faults(level)
    )
    headings = ("level", "fault", "operator", "where", "targets", "why")
    return Table(headings, rows, "Not accepted")
