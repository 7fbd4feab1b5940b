"""What every core does, tile by tile, as data for a page that steps through it.

Loops stay loops: a page finds tile number n of a core by walking them, so that billions of tiles are a few hundred bytes.
"""

import json
from dataclasses import dataclass, field
from typing import Any

from npu_sim.plans.model import Memory, Plan
from npu_sim.registry import load_operator
from npu_sim.timelines import program_of
from npu_sim.timelines.program import Node, Phase, Tile, tiles
from npu_sim.timelines.rates import copied_bytes, elements
from npu_sim.timelines.step_table import Step, StepTable, View


def step_table(plan: Plan) -> StepTable:
    """Return what an operator declares of its tiles; empty where it declares nothing."""
    operator = load_operator(plan.operator)
    if not operator.has_hook("steps") or not plan.block_dim:
        return StepTable((), {})
    table: StepTable = operator.hook("steps")(plan)
    return table


def steps(plan: Plan) -> dict[str, Any]:
    """Return the tiles of every core of a plan.

    Returns
    -------
    dict
        ``title``, ``soc``, ``path``, ``why`` (sentences about how the work is cut); ``cores``: ranges by core; ``views`` of tensors;
        ``memories``; ``tiles``: what each kind of tile does; ``phases``: for each its ``name``, the number of its ``memories``, and
        ``programs``, numbered; ``of_core`` says which program a core has. A program is a list of nodes; a node is the number of a
        tile, or a loop as a list: axis, start, step, count, tiles of one iteration, and the nodes of its body.
    """
    table, program = step_table(plan), program_of(plan)
    kinds = _Kinds(table, tuple(one.name for memory in plan.memories for one in memory.allocations))
    phases = []
    for phase in program.phases:
        programs: dict[str, int] = {}
        of_core = {}
        for core, nodes in phase.cores.items():
            written = json.dumps([kinds.node(node, phase) for node in nodes], separators=(",", ":"))
            of_core[core] = programs.setdefault(written, len(programs))
        phases.append(
            {
                "name": phase.name,
                "kernel": phase.kernel or plan.kernel,
                "memories": [
                    number
                    for number, memory in enumerate(plan.memories)
                    if _belongs(memory, phase, table)
                ],
                "programs": [json.loads(written) for written in programs],
                "of_core": of_core,
            }
        )
    return {
        "title": plan.title,
        "soc": plan.soc,
        "path": plan.path,
        "why": [sentence for sentence in (plan.path_reason, plan.per_core) if sentence],
        "cores": {
            work.core: {name: list(ends) for name, ends in work.ranges.items()}
            for work in plan.cores
        },
        "views": [_view(view) for view in table.views],
        "memories": [_memory(memory) for memory in plan.memories],
        "tiles": kinds.described,
        "phases": phases,
    }


def _belongs(memory: Memory, phase: Phase, table: StepTable) -> bool:
    return memory.phase in ("", table.memories.get(phase.name, phase.name))


def _view(view: View) -> dict[str, Any]:
    return {
        "name": view.name,
        "rows": view.rows,
        "columns": view.columns,
        "by_row": list(view.by_row.items()),
        "by_column": list(view.by_column.items()),
    }


def _memory(memory: Memory) -> dict[str, Any]:
    return {
        **memory.model_dump(mode="json"),
        "used_bytes": memory.used_bytes,
        "free_bytes": memory.free_bytes,
    }


@dataclass
class _Kinds:
    """Kinds of tiles, numbered as they are met; ``allocations`` are live where an operator does not say which."""

    table: StepTable
    allocations: tuple[str, ...]
    numbers: dict[str, int] = field(default_factory=dict)
    described: list[dict[str, Any]] = field(default_factory=list)

    def node(self, node: Node, phase: Phase) -> Any:
        """Return a node as data."""
        if not isinstance(node, Tile):
            return [
                node.axis,
                node.start,
                node.step,
                node.count,
                tiles(node.body),
                [self.node(one, phase) for one in node.body],
            ]
        found = self._tile(node, phase)
        key = json.dumps(found, sort_keys=True)
        if key not in self.numbers:
            self.numbers[key] = len(self.described)
            self.described.append(found)
        return self.numbers[key]

    def _tile(self, tile: Tile, phase: Phase) -> dict[str, Any]:
        step = self.table.steps.get((phase.name, tile.note)) or Step(
            tile.note, live=self.allocations
        )
        work = {
            pipe: {"bytes": sum(map(copied_bytes, works)), "elements": sum(map(elements, works))}
            for pipe, works in zip(phase.pipes, tile.work, strict=True)
            if works
        }
        tensors = {
            "reads": step.reads,
            "writes": step.writes,
            "holds": step.holds,
            "by_data": step.by_data,
        }
        return {"note": tile.note, "says": step.says, **tensors, "live": step.live, "work": work}
