"""A timeline over time: tracks for pictures, Chrome trace events, and steps tile by tile.

Tracks are the launches of a call and the pipes of its slowest core. In a trace every SoC is a
process. Its first thread shows the launches of the call, one after the other; every core and pipe
of the planned kernels is a thread of its own. When a core has more tiles than a picture can show,
its first and last tiles are separate events and the others are merged. A merged event lasts as long
as the pipe works, without the gaps between its tiles, so the durations of a track always add up to
the busy time of the table.
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from npu_sim.cores import Profile
from npu_sim.files.writing import write_text
from npu_sim.language import Text
from npu_sim.plans.model import Plan
from npu_sim.timelines.model import LaunchTime, Timeline
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
    weighted_work,
)
from npu_sim.timelines.schedule import Piece, Scheduler, copied_bytes, elements

EVENTS_OF_A_PIPE = 96
"""Approximate number of events for one core and pipe, whatever the number of tiles."""
FEMTOSECONDS = 9
"""Decimals of a microsecond to which times are rounded."""
LAUNCHES = 1
"""Thread of the launches; the threads of cores and pipes follow."""

Event = dict[str, Any]


class TimedPlan(NamedTuple):
    """A plan with the profile it was made for, its program and its timeline."""

    plan: Plan
    profile: Profile
    program: Program
    bound: Timeline


class PlacedPhase(NamedTuple):
    """A phase of a planned kernel and its start in microseconds."""

    phase: Phase
    scheduler: Scheduler
    start_us: float


class PlacedLaunch(NamedTuple):
    """A launch, its start in microseconds, and the phases of its kernel when that is planned."""

    launch: LaunchTime
    start_us: float
    phases: tuple[PlacedPhase, ...]


def placed_launches(timed: TimedPlan) -> Iterator[PlacedLaunch]:
    """Yield the launches of a call one after the other, with the phases of their kernels."""
    plan, profile, program, bound = timed
    begin = 0.0
    for launch in bound.launches:
        start, phases = begin, []
        for phase in program.phases:
            if (phase.kernel or plan.kernel) == launch.kernel:
                scheduler = Scheduler(phase, profile)
                phases.append(PlacedPhase(phase, scheduler, start))
                ends = (scheduler.finish(nodes) for nodes in phase.cores_by_work)
                start += max(ends, default=0.0) / bound.clock_mhz
        yield PlacedLaunch(launch, begin, tuple(phases))
        begin += launch.us


class PipeEvent(NamedTuple):
    """Work of one pipe on a piece: its times in microseconds, bytes and elements."""

    pipe: str
    start_us: float
    end_us: float
    busy_us: float
    bytes: int
    elements: int


def _pipe_events(piece: Piece, placed: PlacedPhase, mhz: float) -> Iterator[PipeEvent]:
    """Yield what every busy pipe does on a piece."""
    pipes, begin = placed.phase.pipes, placed.start_us
    moved, touched = dict.fromkeys(pipes, 0), dict.fromkeys(pipes, 0)
    for times, pipe, work in weighted_work(piece.nodes):
        moved[pipes[pipe]] += times * copied_bytes(work)
        touched[pipes[pipe]] += times * elements(work)
    for name, start, busy in zip(pipes, piece.start, piece.busy, strict=True):
        if busy > 0:
            ends = begin + start / mhz, begin + (start + busy) / mhz
            yield PipeEvent(name, *ends, busy / mhz, moved[name], touched[name])


def tracks(timed: TimedPlan, max_events: int = EVENTS_OF_A_PIPE) -> dict[str, Any]:
    """Return the launches of a call and the pipes of its slowest core.

    Parameters
    ----------
    timed
        A plan with its timeline.
    max_events
        Approximate number of events of a pipe above which runs of tiles are merged.

    Returns
    -------
    dict
        ``title``, ``soc``, ``bound_us``, ``coverage``; ``launches`` with ``kernel``, ``start_us``,
        ``us``, ``share``, ``binds``, ``planned``; the number of the slowest ``core`` (None without
        one) and its ``pipes`` with ``pipe``, ``busy_us`` and ``events``: ``name``, ``phase``,
        ``start_us``, ``us``, ``tiles``, ``bytes``, ``elements``. An event of several tiles lasts as
        long as the pipe works on them, without the gaps between them.
    """
    bound = timed.bound
    slowest = max(bound.cores, key=lambda core: core.us, default=None)
    events: dict[str, list[dict[str, Any]]] = {
        pipe: [] for pipe in (slowest.busy_us if slowest else ())
    }
    placed_of_call = list(placed_launches(timed))
    for phase in (phase for placed in placed_of_call for phase in placed.phases):
        nodes = phase.phase.cores.get(slowest.core, ()) if slowest else ()
        for piece in phase.scheduler.pieces(nodes, max_events):
            for event in _pipe_events(piece, phase, bound.clock_mhz):
                events[event.pipe].append(_drawn(event, piece, phase))
    return {
        "title": bound.title,
        "soc": bound.soc,
        "bound_us": bound.bound_us,
        "coverage": bound.coverage,
        "launches": [
            {
                "kernel": launch.kernel,
                "start_us": start_us,
                "us": launch.us,
                "share": launch.share,
                "binds": launch.binds,
                "planned": launch.planned,
            }
            for launch, start_us, _ in placed_of_call
        ],
        "core": slowest.core if slowest else None,
        "pipes": [
            {
                "pipe": pipe,
                "busy_us": slowest.busy_us[pipe] if slowest else 0.0,
                "events": pipe_events,
            }
            for pipe, pipe_events in events.items()
        ],
    }


def _drawn(event: PipeEvent, piece: Piece, placed: PlacedPhase) -> dict[str, Any]:
    return {
        "name": piece.name,
        "phase": placed.phase.name,
        "tiles": piece.tiles,
        "bytes": event.bytes,
        "elements": event.elements,
        "start_us": round(event.start_us, FEMTOSECONDS),
        "us": round(event.busy_us, FEMTOSECONDS),
    }


def trace(timed_plans: Sequence[TimedPlan]) -> dict[str, Any]:
    """Return the trace of plans side by side, one process each.

    Beyond about ``EVENTS_OF_A_PIPE`` events of a track, runs of tiles are merged.
    """
    events = [
        event
        for process, timed in enumerate(timed_plans, start=1)
        for event in _process(process, timed)
    ]
    return {
        "traceEvents": events,
        "displayTimeUnit": "ns",
        "otherData": {
            "label": "lower bound from published rates; nothing here is measured",
            "merged_events": sum(event["args"].get("tiles", 1) > 1 for event in events),
            "merging": "an event with args.tiles > 1 represents that many tiles; its length "
            "is the time the pipe works on them, without gaps",
            "timelines": [
                {
                    "soc": bound.soc,
                    "operator": bound.operator,
                    "arguments": bound.arguments,
                    "bound_us": bound.bound_us,
                    "coverage": bound.coverage,
                    "launches": [launch.model_dump(mode="json") for launch in bound.launches],
                    "unknown_rates": list(bound.unknown_rates),
                    "not_counted": list(bound.not_counted),
                    "assumptions": list(bound.assumptions),
                }
                for bound in (timed.bound for timed in timed_plans)
            ],
        },
    }


def write_trace(path: Path, timed_plans: Sequence[TimedPlan]) -> None:
    """Write a trace to a file atomically."""
    write_text(path, json.dumps(trace(timed_plans), ensure_ascii=False, separators=(",", ":")))


def _process(process: int, timed: TimedPlan) -> Iterator[Event]:
    plan, program, mhz = timed.plan, timed.program, timed.bound.clock_mhz
    yield _metadata(
        "process_name",
        process,
        0,
        Text("{soc}: {title} (lower bound)", soc=plan.soc, title=plan.title),
    )
    pipes = list(dict.fromkeys(pipe for phase in program.phases for pipe in phase.pipes))
    cores = sorted({core for phase in program.phases for core in phase.cores})
    threads = {
        core: {
            pipe: LAUNCHES + 1 + core * len(pipes) + position for position, pipe in enumerate(pipes)
        }
        for core in cores
    }
    yield from _thread(process, LAUNCHES, "launches")
    for core, thread_events in threads.items():
        for pipe, thread in thread_events.items():
            yield from _thread(process, thread, Text("core {core} {pipe}", core=core, pipe=pipe))
    for placed in placed_launches(timed):
        launch, start, end = placed.launch, placed.start_us, placed.start_us + placed.launch.us
        arguments = {
            "read_bytes": launch.read_bytes,
            "written_bytes": launch.written_bytes,
            "binds": launch.binds,
            "planned": launch.planned,
        }
        yield _span(launch.kernel, "launch", (process, LAUNCHES), (start, end), arguments)
        for phase in placed.phases:
            for core, nodes in phase.phase.cores.items():
                for piece in phase.scheduler.pieces(nodes, EVENTS_OF_A_PIPE):
                    yield from _events(piece, phase, process, threads[core], mhz)


def _thread(process: int, thread: int, name: str) -> Iterator[Event]:
    yield _metadata("thread_name", process, thread, name)
    yield {
        "ph": "M",
        "name": "thread_sort_index",
        "pid": process,
        "tid": thread,
        "args": {"sort_index": thread},
    }


def _metadata(name: str, process: int, thread: int, value: str) -> Event:
    return {"ph": "M", "name": name, "pid": process, "tid": thread, "args": {"name": value}}


def _events(
    piece: Piece, placed: PlacedPhase, process: int, threads: dict[str, int], mhz: float
) -> Iterator[Event]:
    for event in _pipe_events(piece, placed, mhz):
        arguments = {
            "bytes": event.bytes,
            "elements": event.elements,
            "tiles": piece.tiles,
            "phase": placed.phase.name,
        }
        track, times = (process, threads[event.pipe]), (event.start_us, event.end_us)
        yield _span(piece.name, event.pipe, track, times, arguments)


def _span(
    name: str,
    category: str,
    track: tuple[int, int],
    times: tuple[float, float],
    arguments: dict[str, Any],
) -> Event:
    """Return the event of a duration on a track (process and thread), from start to end."""
    first, last = (round(us, FEMTOSECONDS) for us in times)
    return {
        "ph": "X",
        "name": name,
        "cat": category,
        "pid": track[0],
        "tid": track[1],
        "ts": first,
        "dur": round(last - first, FEMTOSECONDS),
        "args": arguments,
    }


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
        "memories": [
            {
                **memory.model_dump(mode="json"),
                "used_bytes": memory.used_bytes,
                "free_bytes": memory.free_bytes,
            }
            for memory in plan.memories
        ],
        "tiles": [description for _, description in kinds.numbered.values()],
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


@dataclass
class _Kinds:
    """Kinds of tiles, numbered in order of appearance.

    ``allocations`` are the live ones of a tile that is not described.
    """

    allocations: tuple[str, ...]
    numbered: dict[str, tuple[int, dict[str, Any]]] = field(default_factory=dict)

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
        kind = len(self.numbered), description
        return self.numbered.setdefault(json.dumps(description), kind)[0]

    def _tile(self, tile: Tile, phase: Phase) -> dict[str, Any]:
        step = tile.step
        return {
            "note": step.note,
            "says": step.note if step.says is None else step.says,
            "reads": step.reads,
            "writes": step.writes,
            "holds": step.holds,
            "by_data": step.by_data,
            "live": self.allocations if step.says is None else step.live,
            "work": {
                pipe: {
                    "bytes": sum(map(copied_bytes, works)),
                    "elements": sum(map(elements, works)),
                }
                for pipe, works in zip(phase.pipes, tile.work, strict=True)
                if works
            },
        }
