"""Reports of plans and runs."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from npu_sim.framework.execution import Result
from npu_sim.language import Text, count_text, joined
from npu_sim.operators.timelines import steps, tracks_of
from npu_sim.plans.model import Launch, Plan
from npu_sim.show.forms.layout import (
    Block,
    Cell,
    Column,
    Document,
    Drawing,
    Paragraph,
    Picture,
    Section,
    Table,
    filled,
    lines_table,
    part,
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
from npu_sim.show.rows import ROWS_TITLE, rows_blocks
from npu_sim.show.text import (
    change_lines,
    flip_text,
    plan_command,
    plan_headline,
    plan_lines,
    result_lines,
    tensors_text,
    values_text,
)
from npu_sim.show.timeline_report import time_section
from npu_sim.show.workspaces import tables_of_workspace
from npu_sim.studies.determinism import VariableRows
from npu_sim.tiling import flattened


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
            (Column("argument", part(0)), Column("value", part(1))),
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
    rows = [(memory, allocation) for memory in plan.memories for allocation in memory.allocations]
    columns = (
        Column("memory", lambda row: memory_title(row[0])),
        Column("buffer", lambda row: row[1].name),
        Column("bytes", lambda row: row[1].bytes),
        Column("note", lambda row: row[1].note),
    )
    colours = tuple(
        colour
        for memory in plan.memories
        for colour, _ in memory_colours(memory)[: len(memory.allocations)]
    )
    return Picture(memory_map(plan.memories)), Table(
        columns, rows, "every buffer", folded=len(rows) > 16, colours=colours
    )


def _workspace_blocks(plan: Plan) -> tuple[Block, ...]:
    """Return the parts of a workspace as a picture and a table, and where its areas lie."""
    workspace = plan.workspace
    if not workspace.parts:
        return (Paragraph("none needed"),)
    columns = (
        Column("part", lambda area: area.name),
        Column("bytes", lambda area: area.bytes),
        Column("kind", lambda area: area.kind),
        Column("evidence", lambda area: area.evidence.value),
        Column("note", lambda area: area.note),
    )
    unknown = joined((area.name for area in workspace.unknown), ", ")
    blocks: list[Block] = [
        Picture(workspace_map(workspace.parts, workspace.total_bytes)),
        Table(columns, workspace.parts, colours=workspace_colours(workspace.parts)),
        *(
            replace(table, caption=title, folded=True)
            for title, table in tables_of_workspace(workspace).items()
        ),
    ]
    if unknown:
        blocks.append(Paragraph(Text("The total leaves out: {parts}", parts=unknown)))
    return tuple(blocks)


def _launch_blocks(plan: Plan) -> tuple[Block, ...]:
    columns = (
        Column("launch", lambda item: str(item[0])),
        Column("kernel", lambda item: item[1].kernel),
        Column("reads", lambda item: tensors_text(item[1].inputs)),
        Column("writes", lambda item: tensors_text(item[1].outputs)),
        Column("bytes read", lambda item: count_text(item[1].read_bytes)),
        Column("bytes written", lambda item: count_text(item[1].written_bytes)),
        Column("cores", lambda item: "" if item[1].block_dim is None else str(item[1].block_dim)),
        Column("evidence", lambda item: _evidence(item[1])),
    )
    return (Table(columns, list(enumerate(plan.launches))),)


def _evidence(launch: Launch) -> str:
    return launch.evidence.value + (Text("; {note}", note=launch.note) if launch.note else "")


def _decision_blocks(plan: Plan) -> tuple[Block, ...]:
    columns = (
        Column("decision", lambda decision: decision.name),
        Column("condition", lambda decision: decision.condition),
        Column("now", values_text),
        Column("holds", lambda decision: "yes" if decision.outcome else "no"),
        Column("effect", lambda decision: decision.effect),
        Column("changes at", lambda decision: flip_text(plan, decision) or "nothing by itself"),
    )
    table = Table(columns, plan.decisions)
    return table, lines_table(change_lines(plan))


def _tiling_blocks(plan: Plan) -> tuple[Block, ...]:
    columns = (Column("field", part(0)), Column("value", lambda item: _plain(item[1])))
    caption = "every field, under the vendor's name"
    return (Table(columns, list(flattened(plan.tiling)), caption, folded=True),)


def _plain(value: Any) -> Cell:
    return value if isinstance(value, str | int | float) else str(value)


SECTIONS: Mapping[str, Callable[[Plan], tuple[Block, ...]]] = MappingProxyType(
    {
        "Plan": _plan_blocks,
        "Cores": _cores_blocks,
        "On-chip memory of one core": _memory_blocks,
        "Workspace in global memory": _workspace_blocks,
        "Launches": _launch_blocks,
        "Decisions": _decision_blocks,
        "Tiling": _tiling_blocks,
    }
)
"""Sections of a plan by title, in order."""


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
    stages = (Column("stage", part(0)), Column("seconds", part(1)))
    seconds = Table(stages, tuple(result.seconds.items()), "wall time", folded=True)
    strips = (Picture(order_strip(strip)) for strip in order_strips(result))
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
