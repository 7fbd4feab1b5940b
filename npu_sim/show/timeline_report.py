"""Reports of timelines."""

from collections.abc import Mapping, Sequence
from typing import Any

from npu_sim.language import Text, joined, percent_text, say, time_text
from npu_sim.show.layout import Document, Drawing, Paragraph, Section, Table, lines_table
from npu_sim.show.times import (
    NOT_MEASURED,
    bound_cell,
    busy_text,
    caution_lines,
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


def time_section(data: Mapping[str, Any], title: str = "Work over time") -> Section:
    """Return the launches of a call and the pipes of its slowest core.

    ``data`` is from :func:`npu_sim.timelines.tracks.tracks`.
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
            Paragraph("--trace trace.json writes all cores, not only the slowest, to a file."),
            Paragraph(PERFETTO),
        ),
    )


MOST_DRAWN = 4
"""Maximum number of calls drawn over time in one report."""


def single_timeline_report(timeline: Timeline) -> Document:
    """Return the report of one timeline."""
    return timeline_report([("as given", timeline)])


def timeline_report(
    timelines: Sequence[tuple[str, Timeline]],
    works: Sequence[Mapping[str, Any]] = (),
    command: str = "",
) -> Document:
    """Return the report of named timelines: comparison, launches, and what the bounds leave out.

    - ``timelines``: timelines of one operator with the names of their calls; at least one.
    - ``works``: work over time of the first ``MOST_DRAWN`` of them, from
      :func:`npu_sim.timelines.tracks.tracks`.
    - ``command``: command that reproduces the report.
    """
    sentence = lowest_text([timeline for _, timeline in timelines])
    coverages = coverage_lines(timeline.coverage for _, timeline in timelines)
    changes = Table(
        ("call", "SoC", "change", "at least", "saved", "without"),
        [
            (
                name,
                timeline.soc,
                change.change,
                covered_time(change.bound_us, timeline.coverage),
                percent_text(change.saved_share),
                joined(change.without, ", "),
            )
            for name, timeline in timelines
            for change in timeline.changes
        ],
        "the call, changed",
    )
    prices = Table(
        ("call", "SoC", "deterministic computation off and on", "note"),
        [
            (name, timeline.soc, price, note)
            for name, timeline in timelines
            for _, price, note in determinism_lines(timeline.determinism)
        ],
    )
    cautions = dict.fromkeys(line for _, timeline in timelines for line in caution_lines(timeline))
    drawn = (
        time_section(work, say("Work over time: {name}, {soc}", name=name, soc=timeline.soc))
        for (name, timeline), work in zip(timelines, works, strict=False)
    )
    tables = (_launches_table(timelines), *(table for table in (changes, prices) if table.rows))
    sections = (
        Section(
            "Lower bounds",
            (_bounds_table(timelines), Paragraph(NOT_MEASURED), *map(Paragraph, coverages)),
        ),
        *drawn,
        Section("Launches, one after the other", tables),
        Section("Not in the bound", (lines_table(cautions),)),
    )
    return Document(sentence, sentence, sections, command)


def _bounds_table(timelines: Sequence[tuple[str, Timeline]]) -> Table:
    return Table(
        (
            *("call", "SoC", "clock MHz", "lower bound", "kernel", "limited by"),
            *("busy share of the kernel", "imbalance"),
            *("kernel reads, bytes", "kernel writes, bytes"),
        ),
        [
            (
                name,
                timeline.soc,
                timeline.clock_mhz,
                bound_cell(timeline.bound_us, timeline.coverage),
                time_text(timeline.kernel_us),
                timeline.binding_pipe,
                busy_text(timeline),
                timeline.imbalance,
                timeline.read_bytes,
                timeline.written_bytes,
            )
            for name, timeline in timelines
        ],
    )


def _launches_table(timelines: Sequence[tuple[str, Timeline]]) -> Table:
    return Table(
        (
            *("call", "SoC", "kernel", "at least", "estimate", "share", "limited by"),
            *("bytes read", "bytes written", "evidence"),
        ),
        [
            (
                name,
                timeline.soc,
                launch.kernel,
                time_text(launch.us),
                _estimate_cell(launch),
                percent_text(launch.share),
                launch.binds,
                launch.read_bytes,
                launch.written_bytes,
                launch.evidence.value,
            )
            for name, timeline in timelines
            for launch in timeline.launches
        ],
    )


def _estimate_cell(launch: LaunchTime) -> str:
    """Return a launch's estimate with its range and evidence, or why there is none."""
    if launch.estimate is None:
        return say("none: {estimate_missing}", estimate_missing=launch.estimate_missing)
    return Text(
        "{estimate}; {estimate_note}",
        estimate=estimate_text(launch.estimate),
        estimate_note=estimate_note(launch.estimate),
    )
