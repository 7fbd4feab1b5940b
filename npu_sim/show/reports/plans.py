"""Reports of one plan, one run, and timelines."""

from collections.abc import Mapping, Sequence
from typing import Any

from npu_sim.framework.prepared import Prepared
from npu_sim.framework.results import Result
from npu_sim.language import say
from npu_sim.operators.timelines import is_timed
from npu_sim.plans.model import Plan
from npu_sim.show.open_rows import HEADINGS as HEADINGS_OF_ROWS
from npu_sim.show.open_rows import NOTE as ROWS_NOTE
from npu_sim.show.open_rows import row_cells, rows_title
from npu_sim.show.reports.commands import plan_command
from npu_sim.show.reports.document import (
    Block,
    Cell,
    Document,
    Lines,
    Picture,
    Section,
    Table,
    Text,
)
from npu_sim.show.reports.html import embedded
from npu_sim.show.reports.order import order_strips
from npu_sim.show.reports.plan_sections import plan_sections
from npu_sim.show.reports.svg import order_strip
from npu_sim.show.reports.work import steps_section, time_section
from npu_sim.show.text import plan_headline, result_lines
from npu_sim.show.timelines import (
    NOT_MEASURED,
    caution_lines,
    determinism_lines,
    estimate_note,
    estimate_text,
)
from npu_sim.studies.open_rows import OpenRows
from npu_sim.timelines.model import LaunchTime, Timeline


def plan_report(plan: Plan, call: str = "", work: Mapping[str, Any] | None = None) -> Document:
    """Return the report of a plan: what runs, on which cores, in which buffers, and why.

    Parameters
    ----------
    plan
        The plan.
    call
        The command that makes it again; one that plans the call on the product of that name when empty.
    work
        Its work over time, from :func:`npu_sim.timelines.tracks.tracks`; left out when None.
    """
    headline = plan_headline(plan)
    sections = (*plan_sections(plan), *_drawn(plan, work))
    return Document(
        headline,
        headline,
        sections,
        call or plan_command(plan, plan.product),
        document_outcome(plan),
    )


def result_report(
    result: Result,
    call: str = "",
    rows: Sequence[OpenRows] = (),
    work: Mapping[str, Any] | None = None,
) -> Document:
    """Return the report of a run: what it adds to its plan, then the plan.

    Parameters
    ----------
    result
        What the run gave.
    call
        The command that makes it again; none when empty, as data from a program have no name on the command line.
    rows
        What can differ between runs, to be listed.
    work
        Its work over time, from :func:`npu_sim.timelines.tracks.tracks`; left out when None.
    """
    plan = result.plan
    lines = tuple(line for line in result_lines(result) if line[0] != "time")
    seconds = Table(("stage", "seconds"), tuple(result.seconds.items()), "wall time", folded=True)
    blocks: list[Block] = [Lines(lines), seconds]
    blocks += [
        Picture(
            order_strip(strip),
            "coloured: depends on timing, the stronger the more of it; full where all does",
        )
        for strip in order_strips(result)
    ]
    headline = plan_headline(plan, "ran" if plan.overflow is None else "")
    sections = (
        Section("Run", tuple(blocks)),
        *rows_sections(rows),
        *plan_sections(plan),
        *_drawn(plan, work),
    )
    return Document(headline, headline, sections, call, document_outcome(plan))


def document_outcome(plan: Plan) -> str:
    """Return what the colour of a report's sentence says."""
    return "good" if plan.overflow is None else "bad"


def rows_sections(every: Sequence[OpenRows]) -> tuple[Section, ...]:
    """Return the section of the rows that can differ between runs; none when nothing was asked for."""
    tables = tuple(
        Table(HEADINGS_OF_ROWS, tuple(row_cells(rows)), rows_title(rows))
        for rows in every
        if len(rows.table)
    )
    return (Section("Rows that can differ", (*tables, Text(ROWS_NOTE))),) if tables else ()


def _drawn(plan: Plan, work: Mapping[str, Any] | None) -> tuple[Section, ...]:
    """Return what the page draws of a plan; nothing when nothing runs, or nothing is known of the tiles."""
    if not is_timed(plan):
        return ()
    return (*((time_section(work),) if work else ()), steps_section(plan))


def plan_html(plan: Plan) -> str:
    """Return the report of a plan for notebooks."""
    return embedded(plan_report(plan))


def result_html(result: Result) -> str:
    """Return the report of a run for notebooks."""
    return embedded(result_report(result))


def prepared_html(prepared: Prepared) -> str:
    """Return the plan of a prepared call as notebooks show it."""
    return plan_html(prepared.plan)


def timeline_html(timeline: Timeline) -> str:
    """Return a timeline as notebooks show it."""
    return embedded(timeline_report([("as given", timeline)]))


MOST_DRAWN = 4
"""Calls that a report of many draws over time."""
TIMELINE_HEADINGS = (
    *(
        "call",
        "SoC",
        "clock MHz",
        "lower bound us",
        "kernel us",
        "binds",
        "busy share of the kernel",
        "imbalance",
    ),
    *("kernel reads, bytes", "kernel writes, bytes"),
)
LAUNCH_HEADINGS = (
    "call",
    "SoC",
    "kernel",
    "at least us",
    "estimate",
    "share",
    "binds",
    "bytes read",
    "bytes written",
    "evidence",
)


def timeline_report(
    timelines: Sequence[tuple[str, Timeline]],
    works: Sequence[Mapping[str, Any]] = (),
    call: str = "",
) -> Document:
    """Return the report of named timelines: the comparison, the launches of every call, then what the bounds leave out.

    Parameters
    ----------
    timelines
        Timelines with the names of their calls.
    works
        The work over time of the first of them, at most ``MOST_DRAWN``, from :func:`npu_sim.timelines.tracks.tracks`.
    call
        The command that makes it again.
    """
    first = timelines[0][1]
    lowest = min((one for _, one in timelines), key=lambda one: one.bound_us)
    sentence = say(
        "{title}: no faster than {bound_us:.6g} us on {soc} (lower bound)",
        title=first.title,
        bound_us=lowest.bound_us,
        soc=lowest.soc,
    )
    bounds = Table(TIMELINE_HEADINGS, tuple(_timeline_row(name, one) for name, one in timelines))
    launches = Table(
        LAUNCH_HEADINGS, tuple(row for name, one in timelines for row in _launch_times(name, one))
    )
    changes = tuple(
        (change.change, change.bound_us, change.saved_share, ", ".join(change.without))
        for _, one in timelines
        for change in one.changes
    )
    changed = (
        (Table(("change", "at least us", "saved share", "without"), changes, "the call, changed"),)
        if changes
        else ()
    )
    prices = tuple(line for _, one in timelines for line in determinism_lines(one.determinism))
    priced = (Lines(prices),) if prices else ()
    cautions = tuple(dict.fromkeys(line for _, one in timelines for line in caution_lines(one)))
    sections = (
        Section("Lower bounds", (bounds, Text(NOT_MEASURED))),
        *(
            _drawn_over_time(name, one, work)
            for (name, one), work in zip(timelines, works, strict=False)
        ),
        Section("Launches, one after the other", (launches, *changed, *priced)),
        Section("Not in the bound", (Lines(cautions),)),
    )
    return Document(sentence, sentence, sections, call)


def _drawn_over_time(name: str, one: Timeline, work: Mapping[str, Any]) -> Section:
    return time_section(work, say("Work over time: {name}, {soc}", name=name, soc=one.soc))


def _timeline_row(name: str, one: Timeline) -> tuple[Cell, ...]:
    busy = ", ".join(f"{pipe} {share:.6g}" for pipe, share in one.busy_share.items())
    kernel = (
        one.kernel_us,
        one.binding_pipe,
        busy,
        one.imbalance,
        one.read_bytes,
        one.written_bytes,
    )
    return (name, one.soc, one.clock_mhz, one.bound_us, *kernel)


def _estimate_cell(launch: LaunchTime) -> str:
    """Return a launch's estimate with its range and what it rests on, or why there is none."""
    if launch.estimate is None:
        return say("none: {estimate_missing}", estimate_missing=launch.estimate_missing)
    return f"{estimate_text(launch.estimate)}; {estimate_note(launch.estimate)}"


def _launch_times(name: str, one: Timeline) -> list[tuple[Cell, ...]]:
    return [
        (
            name,
            one.soc,
            launch.kernel,
            launch.us,
            _estimate_cell(launch),
            launch.share,
            launch.binds,
            launch.read_bytes,
            launch.written_bytes,
            launch.evidence.value,
        )
        for launch in one.launches
    ]
