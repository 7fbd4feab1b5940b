"""The report of a preflight: the matrix, the reasons, and what can differ between runs."""

from dataclasses import replace

from npu_sim.language import say
from npu_sim.language.quantities import short_bytes_text
from npu_sim.questions.preflight import ACCEPTED, ERROR, INFORMATIONAL, Matrix
from npu_sim.show.call_times import CALLS, NOTE, TOTALS, call_rows, totals_rows
from npu_sim.show.preflight import (
    caveat_lines,
    cell_text,
    difference_lines,
    legend_text,
    lines_text,
    recorded_lines,
    timing_lines,
)
from npu_sim.show.reports.document import Cell, Document, Table, table_report

COUNTS = (
    *("target", "calls", "run", "overflow", "refused", "no tiling", "malformed", "unknown"),
    *("not accepted", "peak workspace"),
)
"""Headings of the counts of every target."""
LEVELS = {ERROR: "fails", INFORMATIONAL: "informational", ACCEPTED: "in the baseline"}


def preflight_report(matrix: Matrix, file: str, call: str) -> Document:
    """Return the report of a preflight; ``call`` is the command that reproduces it."""
    faults = [fault for level in LEVELS for fault in matrix.faults(level)]
    summaries = matrix.summaries()
    lines = sum(row.count if matrix.timed else row.lines for row in matrix.rows)
    bad = sum(summary.not_fine for summary in summaries.values())
    sentence = say(
        "{file}: {lines} calls, {rows} of them distinct, on {labels}: ",
        file=file,
        lines=lines,
        rows=len(matrix.rows),
        labels=", ".join(matrix.labels),
    )
    sentence += say("{bad} not accepted", bad=bad) if bad else say("all accepted")
    counts = tuple(
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
        for label, summary in summaries.items()
    )
    calls: tuple[tuple[Cell, ...], ...] = tuple(
        (
            row.line,
            row.count,
            str(row.remarks.get("name", "")),
            row.op,
            row.inputs,
            *(
                cell_text(row.cells.get(label), matrix.policy.max_workspace)
                for label in matrix.labels
            ),
        )
        for row in matrix.rows
    )
    headings = ("line", "count", "name", "operator", "inputs", *matrix.labels)
    tables = [
        Table(COUNTS, counts, "Targets"),
        Table(headings, calls, "Calls: workspace, or the code"),
    ]
    if matrix.timed:
        tables = [
            Table(TOTALS, tuple(totals_rows(matrix)), "Sums"),
            Table(CALLS, tuple(call_rows(matrix)), "Calls by their time"),
            *tables,
        ]
    if faults:
        reasons = tuple(
            (
                LEVELS[fault.level],
                fault.word,
                fault.op,
                lines_text(fault.rows),
                ", ".join(fault.labels),
                fault.reason,
            )
            for fault in faults
        )
        columns = ("level", "fault", "operator", "where", "targets", "why")
        tables.append(Table(columns, reasons, "Not accepted"))
    notes = [
        *([NOTE] if matrix.timed else []),
        *filter(None, [legend_text(matrix)]),
        *caveat_lines(matrix),
        *difference_lines(matrix),
        *timing_lines(matrix),
        *recorded_lines(matrix),
    ]
    title = say("preflight of {file}", file=file)
    document = table_report(title, sentence, tables, notes=notes, call=call)
    return replace(document, outcome="bad" if bad else "good")
