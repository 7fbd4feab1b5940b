"""Reports of plans, runs and timelines."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from npu_sim.framework.execution import Result
from npu_sim.language import Text, count_text, joined
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
                    launch.evidence.value
                    + (Text("; {note}", note=launch.note) if launch.note else ""),
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
    legend = (
        "Coloured parts can differ between runs; the colour is stronger where more elements can."
    )
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
