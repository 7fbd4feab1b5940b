"""Tiles of every core as data for a page that steps through them, and their descriptions.

Loops stay loops: the page finds tile number n of a core by walking them, so billions of tiles take
a few hundred bytes.
"""

import json
from collections import Counter
from collections.abc import Mapping
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
    tiles,
    weighted_tiles,
)
from npu_sim.timelines.rates import copied_bytes, elements


@dataclass(frozen=True, slots=True)
class View:
    """A tensor as rows and columns, and the axes of the program that step over them.

    Attributes
    ----------
    name
        Name of the tensor.
    rows, columns
        Size of the tensor, with leading dimensions merged as in the kernel.
    by_row, by_column
        Axes of the program that step over the tensor, outermost first, with the rows or columns of
        one step of length 1. The first axis counts from the start of the tensor, every other one
        from the position of the axis before it. Axes outside a tile are skipped. A tile with none
        of them covers the core's range of such an axis in the plan, or the whole tensor.
    """

    name: str
    rows: int
    columns: int = 1
    by_row: Mapping[str, float] = field(default_factory=dict)
    by_column: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Step:
    """Description of one kind of tile.

    Attributes
    ----------
    says
        Its operation in one sentence; ``{axis}`` stands for the tile's range of that axis.
    reads, writes, holds
        Names of views of which parts are copied in, copied out, or on chip since an earlier tile.
    live
        On-chip allocations in use during the tile; names that the plan lacks are ignored.
    by_data
        Those of the views whose rows depend on the data.
    """

    says: str
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    holds: tuple[str, ...] = ()
    live: tuple[str, ...] = ()
    by_data: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StepTable:
    """Descriptions of the tiles of an operator's program.

    Attributes
    ----------
    views
        Tensors in the order in which they are drawn.
    steps
        Descriptions by phase and note of a tile.
    memories
        Names of phases in the plan's memories, by phase of the program, where the two differ.
    """

    views: tuple[View, ...]
    steps: Mapping[tuple[str, str], Step]
    memories: Mapping[str, str] = field(default_factory=dict)


def steps(plan: Plan, program: Program, table: StepTable) -> dict[str, Any]:
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
    kinds = _Kinds(
        table, tuple(item.name for memory in plan.memories for item in memory.allocations)
    )
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


def tensor_reads(program: Program, table: StepTable) -> dict[str, int]:
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
                step = table.steps.get((phase.name, tile.note))
                copies = [work for work in tile.work[pipe] if isinstance(work, Copy)]
                if not copies or (step is not None and not step.reads):
                    continue
                if step is None or sum(copy.times for copy in copies) != len(step.reads):
                    return {}
                single_copies = [
                    replace(copy, times=1) for copy in copies for _ in range(copy.times)
                ]
                for name, copy in zip(step.reads, single_copies, strict=True):
                    read[name] += len(cores) * times * copied_bytes(copy)
    return dict(read)


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
    """Kinds of tiles, numbered in order of appearance.

    ``allocations`` are the live ones of a tile that the table does not describe.
    """

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
                [self.node(child, phase) for child in node.body],
            ]
        description = self._tile(node, phase)
        key = json.dumps(description, sort_keys=True)
        if key not in self.numbers:
            self.numbers[key] = len(self.described)
            self.described.append(description)
        return self.numbers[key]

    def _tile(self, tile: Tile, phase: Phase) -> dict[str, Any]:
        undescribed = Step(tile.note, live=self.allocations)
        step = self.table.steps.get((phase.name, tile.note), undescribed)
        work = {
            pipe: {"bytes": sum(map(copied_bytes, works)), "elements": sum(map(elements, works))}
            for pipe, works in zip(phase.pipes, tile.work, strict=True)
            if works
        }
        return {
            "note": tile.note,
            "says": step.says,
            "reads": step.reads,
            "writes": step.writes,
            "holds": step.holds,
            "by_data": step.by_data,
            "live": step.live,
            "work": work,
        }
