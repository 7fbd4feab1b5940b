"""Sections of one plan: what is shown under which title."""

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Any

from npu_sim.plans.model import Plan
from npu_sim.show.launches import HEADINGS, launch_rows
from npu_sim.show.reports.core_map import core_map
from npu_sim.show.reports.document import Block, Lines, Picture, Section, Table, Text
from npu_sim.show.reports.svg import (
    memory_colours,
    memory_map,
    memory_title,
    workspace_colours,
    workspace_map,
)
from npu_sim.show.text import change_lines, flip_text, plan_lines


def plan_sections(plan: Plan, titles: Collection[str] | None = None) -> tuple[Section, ...]:
    """Return the sections of a plan, all that have something to show or those of some titles; nothing else is asked of the plan."""
    found = (
        (title, blocks(plan))
        for title, blocks in SECTIONS.items()
        if titles is None or title in titles
    )
    return tuple(Section(title, blocks) for title, blocks in found if blocks)


def _plan_blocks(plan: Plan) -> tuple[Block, ...]:
    pictured = {"workspace", "buffer", *(memory.name for memory in plan.memories)}
    return (
        Lines(tuple(line for line in plan_lines(plan) if line[0] not in pictured)),
        _call_table(plan),
    )


def _cores_blocks(plan: Plan) -> tuple[Block, ...]:
    legend = (
        "numbered bars: who takes which range; cells: filled and coloured by their share of the largest, dashed when idle; "
        "a click on one shows its steps"
    )
    return (Picture(core_map(plan), legend),) if plan.cores else ()


def _memory_blocks(plan: Plan) -> tuple[Block, ...]:
    return (Picture(memory_map(plan.memories)), _memory_table(plan)) if plan.memories else ()


def _launch_blocks(plan: Plan) -> tuple[Block, ...]:
    return (Table(HEADINGS, tuple(launch_rows(plan.launches))),) if plan.launches else ()


def _decision_blocks(plan: Plan) -> tuple[Block, ...]:
    return (_decision_table(plan), Lines(tuple(change_lines(plan)))) if plan.decisions else ()


def _tiling_blocks(plan: Plan) -> tuple[Block, ...]:
    fields = tuple(flat(plan.tiling))
    return (
        (Table(("field", "value"), fields, "every field, under the vendor's name", folded=True),)
        if fields
        else ()
    )


def _call_table(plan: Plan) -> Table:
    rows: list[tuple[str, Any]] = list(plan.arguments.items())
    rows += [
        ("product", plan.product),
        ("soc", plan.soc),
        ("release", plan.release),
        ("deterministic", plan.deterministic),
        ("limits", plan.limits),
    ]
    return Table(("argument", "value"), tuple(rows), "the call", folded=True)


def _memory_table(plan: Plan) -> Table:
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
    return Table(
        ("memory", "buffer", "bytes", "note"),
        rows,
        "every buffer",
        folded=len(rows) > 16,
        colours=colours,
    )


def workspace_blocks(plan: Plan) -> tuple[Block, ...]:
    """Return the parts of a workspace, drawn and as a table."""
    workspace = plan.workspace
    if not workspace.parts:
        return (Text("none needed"),)
    rows = tuple(
        (part.name, part.bytes, part.kind, part.evidence.value, part.note)
        for part in workspace.parts
    )
    table = Table(
        ("part", "bytes", "kind", "evidence", "note"),
        rows,
        colours=workspace_colours(workspace.parts),
    )
    unknown = (
        (Text("The total leaves out: " + ", ".join(part.name for part in workspace.unknown)),)
        if workspace.unknown
        else ()
    )
    return (Picture(workspace_map(workspace.parts, workspace.total_bytes)), table, *unknown)


def _decision_table(plan: Plan) -> Table:
    rows = tuple(
        (
            decision.name,
            decision.condition,
            ", ".join(f"{name} = {value}" for name, value in decision.values.items()),
            "yes" if decision.outcome else "no",
            decision.effect,
            flip_text(plan, decision) or "nothing by itself",
        )
        for decision in plan.decisions
    )
    return Table(("decision", "condition", "now", "holds", "so", "turns around at"), rows)


def flat(fields: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Flatten nested fields to (dotted name, value)."""
    rows: list[tuple[str, Any]] = []
    for name, value in fields.items():
        if isinstance(value, dict):
            rows += flat(value, f"{prefix}{name}.")
        else:
            rows.append(
                (
                    prefix + name,
                    value if isinstance(value, str | int | float | bool) else str(value),
                )
            )
    return rows


SECTIONS: Mapping[str, Callable[[Plan], tuple[Block, ...]]] = MappingProxyType(
    {
        "Plan": _plan_blocks,
        "Cores": _cores_blocks,
        "On-chip memory of one core": _memory_blocks,
        "Workspace in global memory": workspace_blocks,
        "Launches": _launch_blocks,
        "Decisions": _decision_blocks,
        "Tiling": _tiling_blocks,
    }
)
"""What is shown of a plan under which title, in this order."""
