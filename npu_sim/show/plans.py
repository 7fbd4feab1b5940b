"""Reports of plans, runs and timelines."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from npu_sim.framework.execution import Result
from npu_sim.language import Text, count_text, joined, percent_text, say, time_text
from npu_sim.operators.timelines import steps, tracks_of
from npu_sim.plans.model import Plan
from npu_sim.show.layout import (
    Block,
    Document,
    Drawing,
    Paragraph,
    Picture,
    Section,
    Table,
    filled,
    lines_table,
)
from npu_sim.show.pictures import (
    core_map,
    memory_colours,
    memory_map,
    memory_title,
    order_strip,
    order_strips,
    workspace_colours,
    workspace_map,
)
from npu_sim.show.studies import ROWS_TITLE, rows_blocks
from npu_sim.show.text import (
    change_lines,
    flip_text,
    plan_command,
    plan_headline,
    plan_lines,
    result_lines,
    tables_of_workspace,
    tensors_text,
    values_text,
)
from npu_sim.show.timelines import (
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
from npu_sim.studies.determinism import VariableRows
from npu_sim.tiling import flattened
from npu_sim.timelines.model import LaunchTime, Timeline


def plan_sections(plan: Plan, titles: Collection[str] | None = None) -> tuple[Section, ...]:
    """Return the non-empty sections of a plan, or those with the given titles."""
    return filled(
        *(
            (title, blocks(plan))
            for title, blocks in SECTIONS.items()
            if titles is None or title in titles
        )
    )


def _plan_blocks(plan: Plan) -> tuple[Block, ...]:
    pictured = {"workspace", "buffer", *(memory.name for memory in plan.memories)}
    device = ("product", "soc", "release", "deterministic", "limits")
    return (
        lines_table(line for line in plan_lines(plan) if line[0] not in pictured),
        Table(
            ("argument", "value"),
            (*plan.arguments.items(), *((name, getattr(plan, name)) for name in device)),
            "the call",
            folded=True,
        ),
    )


def _cores_blocks(plan: Plan) -> tuple[Block, ...]:
    legend = (
        "numbered bars: which core takes which range; cells: filled and coloured by their share of "
        "the largest, dashed when idle; a click on one shows its steps"
    )
    return (Picture(core_map(plan), legend),) if plan.cores else ()


def _memory_blocks(plan: Plan) -> tuple[Block, ...]:
    if not plan.memories:
        return ()
    rows = tuple(
        (memory_title(memory), allocation.name, allocation.bytes, allocation.note)
        for memory in plan.memories
        for allocation in memory.allocations
    )
    colours = tuple(
        colour
        for memory in plan.memories
        for colour, _ in memory_colours(memory)[: len(memory.allocations)]
    )
    headings, folded = ("memory", "buffer", "bytes", "note"), len(rows) > 16
    return Picture(memory_map(plan.memories)), Table(
        headings, rows, "every buffer", folded=folded, colours=colours
    )


def _workspace_blocks(plan: Plan) -> tuple[Block, ...]:
    """Return the parts of a workspace as a picture and a table, and where its areas lie."""
    workspace = plan.workspace
    if not workspace.parts:
        return (Paragraph("none needed"),)
    rows = tuple(
        (part.name, part.bytes, part.kind, part.evidence.value, part.note)
        for part in workspace.parts
    )
    headings = ("part", "bytes", "kind", "evidence", "note")
    unknown = joined((part.name for part in workspace.unknown), ", ")
    return (
        Picture(workspace_map(workspace.parts, workspace.total_bytes)),
        Table(headings, rows, colours=workspace_colours(workspace.parts)),
        *(
            replace(table, caption=title, folded=True)
            for title, table in tables_of_workspace(workspace).items()
        ),
        *([Paragraph(Text("The total leaves out: {parts}", parts=unknown))] if unknown else []),
    )


def _launch_blocks(plan: Plan) -> tuple[Block, ...]:
    return (
        Table(
            (
                "launch",
                "kernel",
                "reads",
                "writes",
                "bytes read",
                "bytes written",
                "cores",
                "evidence",
            ),
            [
                (
                    str(number),
                    launch.kernel,
                    tensors_text(launch.inputs),
                    tensors_text(launch.outputs),
                    count_text(launch.read_bytes),
                    count_text(launch.written_bytes),
                    "" if launch.block_dim is None else str(launch.block_dim),
                    launch.evidence.value + (Text("; {note}", launch) if launch.note else ""),
                )
                for number, launch in enumerate(plan.launches)
            ],
        ),
    )


def _decision_blocks(plan: Plan) -> tuple[Block, ...]:
    table = Table(
        ("decision", "condition", "now", "holds", "effect", "changes at"),
        tuple(
            (
                decision.name,
                decision.condition,
                values_text(decision),
                "yes" if decision.outcome else "no",
                decision.effect,
                flip_text(plan, decision) or "nothing by itself",
            )
            for decision in plan.decisions
        ),
    )
    return table, lines_table(change_lines(plan))


SECTIONS: Mapping[str, Callable[[Plan], tuple[Block, ...]]] = MappingProxyType(
    {
        "Plan": _plan_blocks,
        "Cores": _cores_blocks,
        "On-chip memory of one core": _memory_blocks,
        "Workspace in global memory": _workspace_blocks,
        "Launches": _launch_blocks,
        "Decisions": _decision_blocks,
        "Tiling": lambda plan: (
            Table(
                ("field", "value"),
                [
                    (name, value if isinstance(value, str | int | float) else str(value))
                    for name, value in flattened(plan.tiling)
                ],
                "every field, under the vendor's name",
                folded=True,
            ),
        ),
    }
)
"""Sections of a plan by title, in order."""


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


def steps_section(plan: Plan) -> Section:
    """Return one core tile by tile."""
    legend = (
        "The strip left of a tensor shows where the core's rows lie in the whole tensor. The frame "
        "is what this core has of it, or everything; blue is copied in, orange is copied out, "
        "purple is kept in on-chip memory from a tile before."
    )
    return Section("One core, step by step", (Drawing("drawSteps", steps(plan), legend),))


def plan_report(plan: Plan, command: str = "") -> Document:
    """Return the report of a plan with its work over time.

    ``command`` is the command that reproduces it; the plain ``npu-sim plan`` command if empty.
    """
    headline = plan_headline(plan)
    sections = (*plan_sections(plan), *_drawn(plan))
    command = command or plan_command(plan, plan.product)
    return Document(headline, headline, sections, command, document_outcome(plan))


def result_report(result: Result, command: str = "", rows: Sequence[VariableRows] = ()) -> Document:
    """Return the report of a run: its results, then its plan with its work over time.

    - ``result``: the results.
    - ``command``: command that reproduces the run; empty for data of a program.
    - ``rows``: rows that can differ between runs.
    """
    plan = result.plan
    lines = tuple(line for line in result_lines(result) if line[0] != "time")
    seconds = Table(("stage", "seconds"), tuple(result.seconds.items()), "wall time", folded=True)
    legend = "Coloured parts depend on timing; the colour is stronger where more elements do."
    strips = (Picture(order_strip(strip), legend) for strip in order_strips(result))
    headline = plan_headline(plan, "ran" if plan.overflow is None else "")
    sections = (
        Section("Run", (lines_table(lines), seconds, *strips)),
        *filled((ROWS_TITLE, rows_blocks(rows))),
        *plan_sections(plan),
        *_drawn(plan),
    )
    return Document(headline, headline, sections, command, document_outcome(plan))


def document_outcome(plan: Plan) -> str:
    """Return the outcome of a report on a plan: ``bad`` if the plan overflows."""
    return "good" if plan.overflow is None else "bad"


def _drawn(plan: Plan) -> tuple[Section, ...]:
    """Return the sections that scripts draw; none if the call is not timed."""
    work = tracks_of(plan)
    return () if work is None else (time_section(work), steps_section(plan))


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
        time_section(work, say("Work over time: {name}, {soc}", timeline, name=name))
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
        return say("none: {estimate_missing}", launch)
    return Text(
        "{estimate}; {estimate_note}",
        estimate=estimate_text(launch.estimate),
        estimate_note=estimate_note(launch.estimate),
    )
