"""Timelines as Chrome trace events, for Perfetto and the vendor's viewer.

Every SoC is a process. Its first thread shows the launches of the call, one after the other; every
core and pipe of the planned kernels is a thread of its own. When a core has more tiles than a
picture can show, its first and last tiles are separate events and the others are merged. A merged
event lasts as long as the pipe works, without the gaps between its tiles, so the durations of a
track always add up to the busy time of the table.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from npu_sim.files.writing import write_text
from npu_sim.language import Text
from npu_sim.timelines.model import LaunchTime
from npu_sim.timelines.schedule import Piece
from npu_sim.timelines.tracks import (
    EVENTS_OF_A_PIPE,
    FEMTOSECONDS,
    PlacedPhase,
    TimedPlan,
    piece_work,
    placed_launches,
)

LAUNCHES = 1
"""Thread of the launches; the threads of cores and pipes follow."""

Event = dict[str, Any]


def trace(timed_plans: Sequence[TimedPlan]) -> dict[str, Any]:
    """Return the trace of plans side by side, one process each.

    Beyond about ``EVENTS_OF_A_PIPE`` events of a track, runs of tiles are merged.
    """
    events: list[Event] = []
    merged = 0
    for process, timed in enumerate(timed_plans, start=1):
        process_events = list(_process(process, timed))
        merged += sum(event["args"].get("tiles", 1) > 1 for event in process_events)
        events += process_events
    return {
        "traceEvents": events,
        "displayTimeUnit": "ns",
        "otherData": {
            "label": "lower bound from published rates; nothing here is measured",
            "merged_events": merged,
            "merging": "an event with args.tiles > 1 represents that many tiles; its length "
            "is the time the pipe works on them, without gaps",
            "timelines": [
                {
                    "soc": bound.soc,
                    "operator": bound.operator,
                    "arguments": bound.arguments,
                    "bound_us": bound.bound_us,
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
        yield _launch_event(placed.launch, process, placed.start_us)
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


def _launch_event(launch: LaunchTime, process: int, begin: float) -> Event:
    first, last = round(begin, FEMTOSECONDS), round(begin + launch.us, FEMTOSECONDS)
    return {
        "ph": "X",
        "name": launch.kernel,
        "cat": "launch",
        "pid": process,
        "tid": LAUNCHES,
        "ts": first,
        "dur": round(last - first, FEMTOSECONDS),
        "args": {
            "read_bytes": launch.read_bytes,
            "written_bytes": launch.written_bytes,
            "binds": launch.binds,
            "planned": launch.planned,
        },
    }


def _metadata(name: str, process: int, thread: int, value: str) -> Event:
    return {"ph": "M", "name": name, "pid": process, "tid": thread, "args": {"name": value}}


def _events(
    piece: Piece, placed: PlacedPhase, process: int, threads: dict[str, int], mhz: float
) -> Iterator[Event]:
    phase, begin = placed.phase, placed.start_us
    work = piece_work(piece, phase)
    for pipe, start, busy in zip(phase.pipes, piece.start, piece.busy, strict=True):
        if busy <= 0:
            continue
        first = round(begin + start / mhz, FEMTOSECONDS)
        last = round(begin + (start + busy) / mhz, FEMTOSECONDS)
        moved, touched = work[pipe]
        arguments = {"bytes": moved, "elements": touched, "tiles": piece.tiles, "phase": phase.name}
        yield {
            "ph": "X",
            "name": piece.name,
            "cat": pipe,
            "pid": process,
            "tid": threads[pipe],
            "ts": first,
            "dur": round(last - first, FEMTOSECONDS),
            "args": arguments,
        }
