"""Reports of timelines."""

from collections.abc import Mapping, Sequence
from typing import Any

from npu_sim.language import Text, joined, percent_text, say, time_text
from npu_sim.show.forms.layout import (
    Column,
    Document,
    Drawing,
    Paragraph,
    Section,
    Table,
    lines_table,
)
from npu_sim.show.times import (
    NOT_MEASURED,
    bound_cell,
    busy_text,
    caution_lines,
    copies_cell,
    coverage_lines,
    covered_time,
    determinism_lines,
    estimate_note,
    estimate_text,
    lowest_text,
)
from npu_sim.timelines.model import LaunchTime, Timeline

PERFETTO = (
    "Open it with ui.perfetto.dev in a browser ('Open trace file'), where it stays on your "
    "machine, or with MindStudio Insight or chrome://tracing."
)
"""What to do with a trace."""
TRACE_NOTES = (
    Paragraph("--trace trace.json writes all cores, not only the slowest, to a file."),
    Paragraph(PERFETTO),
)
"""How to write a trace, and what to do with it."""


def time_section(
    data: Mapping[str, Any], title: str = "Work over time", notes: Sequence[Paragraph] = TRACE_NOTES
) -> Section:
    """Return the launches of a call and the pipes of its slowest core.

    - ``data``: from :func:`npu_sim.timelines.tracks.tracks`.
    - ``notes``: paragraphs below the drawing.
    """
    return Section(
        title,
        (
            Drawing(
                "drawGantt",
                data,
                "Lower bounds from published rates. The length of a bar of several tiles is the "
                "busy time of the pipe, without the gaps between tiles. "
                "Plus and minus zoom, arrow keys move, Home shows everything.",
            ),
            *notes,
        ),
    )


CALL = (Column("call", lambda item: item[0]), Column("SoC", lambda item: item[1].soc))
"""First columns of tables whose records begin with the name of a call and its timeline."""
MOST_DRAWN = 4
"""Maximum number of calls drawn over time in one report."""


def single_timeline_report(timeline: Timeline) -> Document:
    """Return the report of one timeline."""
    return timeline_report([("as given", timeline, None)])


def timeline_report(
    compared: Sequence[tuple[str, Timeline, float | None]],
    works: Sequence[Mapping[str, Any]] = (),
    command: str = "",
) -> Document:
    """Return the report of named timelines: comparison, launches, and what the bounds leave out.

    - ``compared``: timelines of one operator with the names of their calls, and the bounds of
      their copies alone in microseconds, or None; at least one.
    - ``works``: work over time of the first ``MOST_DRAWN`` of them, from
      :func:`npu_sim.timelines.tracks.tracks`.
    - ``command``: command that reproduces the report.
    """
    timelines = [(name, timeline) for name, timeline, _ in compared]
    sentence = lowest_text(
        [timeline for _, timeline in timelines], [copies for *_, copies in compared]
    )
    coverages = coverage_lines(timeline.coverage for _, timeline in timelines)
    changes = Table(
        (
            *CALL,
            Column("change", lambda item: item[2].change),
            Column("at least", lambda item: covered_time(item[2].bound_us, item[1].coverage)),
            Column("saved", lambda item: percent_text(item[2].saved_share)),
            Column("without", lambda item: joined(item[2].without, ", ")),
        ),
        [(name, timeline, change) for name, timeline in timelines for change in timeline.changes],
        "the call, changed",
    )
    prices = Table(
        (
            *CALL,
            Column("deterministic computation off and on", lambda item: item[2]),
            Column("note", lambda item: item[3]),
        ),
        [
            (name, timeline, price, note)
            for name, timeline in timelines
            for _, price, note in determinism_lines(timeline.determinism)
        ],
    )
    cautions = dict.fromkeys(line for _, timeline in timelines for line in caution_lines(timeline))
    drawn = (
        time_section(
            work,
            say("Work over time: {name}, {soc}", name=name, soc=timeline.soc),
            TRACE_NOTES if work is works[-1] else (),
        )
        for (name, timeline), work in zip(timelines, works, strict=False)
    )
    tables = (_launches_table(timelines), *(table for table in (changes, prices) if table.rows))
    sections = (
        Section(
            "Lower bounds",
            (_bounds_table(compared), Paragraph(NOT_MEASURED), *map(Paragraph, coverages)),
        ),
        *drawn,
        Section("Launches, one after the other", tables),
        Section("Not in the bound", (lines_table(cautions),)),
    )
    return Document(sentence, sentence, sections, command)


def _bounds_table(compared: Sequence[tuple[str, Timeline, float | None]]) -> Table:
    columns = (
        *CALL,
        Column("clock MHz", lambda item: item[1].clock_mhz),
        Column("lower bound", lambda item: bound_cell(item[1].bound_us, item[1].coverage)),
        Column("copies alone", lambda item: copies_cell(item[2])),
        Column("kernel", lambda item: time_text(item[1].kernel_us)),
        Column("limited by", lambda item: item[1].binding_pipe),
        Column("busy share of the kernel", lambda item: busy_text(item[1])),
        Column("imbalance", lambda item: item[1].imbalance),
        Column("kernel reads, bytes", lambda item: item[1].read_bytes),
        Column("kernel writes, bytes", lambda item: item[1].written_bytes),
    )
    return Table(columns, compared)


def _launches_table(timelines: Sequence[tuple[str, Timeline]]) -> Table:
    columns = (
        *CALL,
        Column("kernel", lambda item: item[2].kernel),
        Column("at least", lambda item: time_text(item[2].us)),
        Column("estimate", lambda item: _estimate_cell(item[2])),
        Column("share", lambda item: percent_text(item[2].share)),
        Column("limited by", lambda item: item[2].binds),
        Column("bytes read", lambda item: item[2].read_bytes),
        Column("bytes written", lambda item: item[2].written_bytes),
        Column("evidence", lambda item: item[2].evidence.value),
    )
    launches = [
        (name, timeline, launch) for name, timeline in timelines for launch in timeline.launches
    ]
    return Table(columns, launches)


def _estimate_cell(launch: LaunchTime) -> str:
    """Return a launch's estimate with its range and evidence, or why there is none."""
    if launch.estimate is None:
        return say("none: {estimate_missing}", estimate_missing=launch.estimate_missing)
    return Text(
        "{estimate}; {estimate_note}",
        estimate=estimate_text(launch.estimate),
        estimate_note=estimate_note(launch.estimate),
    )
