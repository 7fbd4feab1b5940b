"""Tiles of every core as data for a page that steps through them.

Loops stay loops: the page finds tile number n of a core by walking them, so billions of tiles take
a few hundred bytes.
"""

import json
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

from npu_sim.plans.model import Memory, Plan
from npu_sim.timelines.program import (
    READING_PIPE,
    Copy,
    Node,
    Phase,
    Program,
    Tile,
    View,
    tiles,
    weighted_tiles,
)
from npu_sim.timelines.rates import copied_bytes, elements


def steps(plan: Plan, program: Program) -> dict[str, Any]:
    """Return the tiles of every core of a plan.

    Returns
    -------
    dict
        ``title``, ``soc``, ``path``; ``why``: sentences about the division of the work; ``cores``:
        ranges by core; ``views`` of tensors; ``memories``; ``tiles``: the kinds of tiles;
        ``phases``, each with ``name``, ``kernel``, the indices of its ``memories``, its
        ``programs``, and ``of_core``: the index of a core's program. A program is a list of nodes.
        A node is the index of a tile, or a loop as a list: axis, start, step, count, tiles of one
        iteration, and the nodes of its body.
    """
    kinds = _Kinds(tuple(item.name for memory in plan.memories for item in memory.allocations))
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
                    if memory.phase in ("", phase.memory or phase.name)
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
        "views": [_view(view) for view in program.views],
        "memories": [_memory(memory) for memory in plan.memories],
        "tiles": kinds.described,
        "phases": phases,
    }


def tensor_reads(program: Program) -> dict[str, int]:
    """Return the bytes copied in from every tensor, all cores together.

    The copies of a tile are those of the tensors that its description reads, one each, in that
    order; the dictionary is empty where this does not hold. A tile that reads no tensor copies from
    the workspace.
    """
    read: Counter[str] = Counter()
    for phase in program.phases:
        if READING_PIPE not in phase.pipes:
            continue
        pipe = phase.pipes.index(READING_PIPE)
        for nodes, cores in phase.cores_by_work.items():
            for times, tile in weighted_tiles(nodes):
                reads = tile.step.reads
                copies = [work for work in tile.work[pipe] if isinstance(work, Copy)]
                if not copies or (tile.step.says is not None and not reads):
                    continue
                if sum(copy.times for copy in copies) != len(reads):
                    return {}
                single_copies = [
                    replace(copy, times=1) for copy in copies for _ in range(copy.times)
                ]
                for name, copy in zip(reads, single_copies, strict=True):
                    read[name] += len(cores) * times * copied_bytes(copy)
    return dict(read)


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
    """Kinds of tiles, numbered in order of appearance.

    ``allocations`` are the live ones of a tile that is not described.
    """

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
                [self.node(child, phase) for child in node.body],
            ]
        description = self._tile(node, phase)
        key = json.dumps(description, sort_keys=True)
        if key not in self.numbers:
            self.numbers[key] = len(self.described)
            self.described.append(description)
        return self.numbers[key]

    def _tile(self, tile: Tile, phase: Phase) -> dict[str, Any]:
        step = tile.step
        work = {
            pipe: {"bytes": sum(map(copied_bytes, works)), "elements": sum(map(elements, works))}
            for pipe, works in zip(phase.pipes, tile.work, strict=True)
            if works
        }
        return {
            "note": step.note,
            "says": step.note if step.says is None else step.says,
            "reads": step.reads,
            "writes": step.writes,
            "holds": step.holds,
            "by_data": step.by_data,
            "live": self.allocations if step.says is None else step.live,
            "work": work,
        }
