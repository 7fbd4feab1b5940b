"""Timelines as Chrome trace events, as Perfetto and the vendor's viewer open them.

One process for every SoC; in it one thread for the launches of the call, one after the other, and one for every core and pipe of the
planned kernels. A core with more tiles than a picture can show gets its first and last tiles one by one and the rest as merged events:
a merged event is drawn as long as the pipe works, without the gaps between its tiles, so that the durations of a track always add up to
the busy time of the table.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from npu_sim.cores import Profile
from npu_sim.files.writing import write_text
from npu_sim.plans.model import Plan
from npu_sim.timelines import program_of, timeline
from npu_sim.timelines.model import LaunchTime, Timeline
from npu_sim.timelines.program import Phase
from npu_sim.timelines.schedule import Piece
from npu_sim.timelines.tracks import EVENTS_OF_A_PIPE, FEMTOSECONDS, piece_work, placed_launches

LAUNCHES = 1
"""Thread of the launches; those of cores and pipes follow."""

Event = dict[str, Any]


def trace(
    plans: Sequence[tuple[Plan, Profile]], events_per_track: int = EVENTS_OF_A_PIPE
) -> dict[str, Any]:
    """Return the trace of plans side by side, one process each.

    Parameters
    ----------
    plans
        Plans with the profiles they were made for.
    events_per_track
        About how many events a track may have before runs of tiles are merged.
    """
    events: list[Event] = []
    merged = 0
    bounds = [timeline(plan, profile) for plan, profile in plans]
    for process, ((plan, profile), bound) in enumerate(zip(plans, bounds, strict=True), start=1):
        own = list(_process(process, plan, profile, bound, events_per_track))
        merged += sum(event["args"].get("tiles", 1) > 1 for event in own)
        events += own
    return {
        "traceEvents": events,
        "displayTimeUnit": "ns",
        "otherData": {
            "label": "lower bound from published rates; nothing here is measured",
            "merged_events": merged,
            "merging": "an event with args.tiles > 1 stands for that many tiles; it is as long as the pipe works on them, gaps left out",
            "timelines": [
                {
                    "soc": one.soc,
                    "operator": one.operator,
                    "arguments": one.arguments,
                    "bound_us": one.bound_us,
                    "launches": [launch.model_dump(mode="json") for launch in one.launches],
                    "unknown_rates": list(one.unknown_rates),
                    "not_counted": list(one.not_counted),
                    "assumptions": list(one.assumptions),
                }
                for one in bounds
            ],
        },
    }


def write_trace(path: Path, plans: Sequence[tuple[Plan, Profile]]) -> None:
    """Write a trace to a file, whole or not at all."""
    write_text(path, json.dumps(trace(plans), ensure_ascii=False, separators=(",", ":")))


def _process(
    process: int, plan: Plan, profile: Profile, bound: Timeline, most: int
) -> Iterator[Event]:
    program = program_of(plan)
    yield _metadata("process_name", process, 0, f"{plan.soc}: {plan.title} (lower bound)")
    pipes = list(dict.fromkeys(pipe for phase in program.phases for pipe in phase.pipes))
    cores = sorted({core for phase in program.phases for core in phase.cores})
    threads = {
        core: {pipe: LAUNCHES + 1 + core * len(pipes) + place for place, pipe in enumerate(pipes)}
        for core in cores
    }
    yield from _thread(process, LAUNCHES, "launches")
    for core, own in threads.items():
        for pipe, thread in own.items():
            yield from _thread(process, thread, f"core {core} {pipe}")
    for placed in placed_launches(plan, profile, program, bound):
        yield _launch_event(placed.launch, process, placed.start_us)
        for one in placed.phases:
            for core, nodes in one.phase.cores.items():
                for piece in one.scheduler.pieces(nodes, most):
                    yield from _events(
                        piece, one.phase, process, threads[core], one.start_us, bound.clock_mhz
                    )


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
    piece: Piece, phase: Phase, process: int, threads: dict[str, int], begin: float, mhz: float
) -> Iterator[Event]:
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
