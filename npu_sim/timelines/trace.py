"""Timelines as Chrome trace events, as Perfetto and the vendor's viewer open them.

One process for every SoC, one thread for every core and pipe. A core with more tiles than a picture can show gets its first and
last tiles one by one and the rest as merged events: a merged event is drawn as long as the pipe works, without the gaps between
its tiles, so that the durations of a track always add up to the busy time of the table.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from npu_sim.cores import Profile
from npu_sim.files.writing import write_text
from npu_sim.plans.model import Plan
from npu_sim.timelines import clock_mhz, program_of, timeline
from npu_sim.timelines.program import Phase, weighted_work
from npu_sim.timelines.rates import copied_bytes, elements
from npu_sim.timelines.schedule import Piece, Scheduler

EVENTS_PER_TRACK = 96
"""About this many events for one core and pipe, however many tiles there are."""
FEMTOSECONDS = 9
"""Decimals of a microsecond that times are rounded to."""

Event = dict[str, Any]


def trace(plans: Sequence[tuple[Plan, Profile]], events_per_track: int = EVENTS_PER_TRACK) -> dict[str, Any]:
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
    for process, (plan, profile) in enumerate(plans, start=1):
        own = list(_process(process, plan, profile, events_per_track))
        merged += sum(event["args"].get("tiles", 1) > 1 for event in own)
        events += own
    bounds = [timeline(plan, profile) for plan, profile in plans]
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


def _process(process: int, plan: Plan, profile: Profile, most: int) -> Iterator[Event]:
    program, mhz = program_of(plan), clock_mhz(profile)
    yield _metadata("process_name", process, 0, f"{plan.soc}: {plan.title} (lower bound)")
    pipes = list(dict.fromkeys(pipe for phase in program.phases for pipe in phase.pipes))
    named: set[int] = set()
    begin = 0.0
    for phase in program.phases:
        scheduler, length = Scheduler(phase, profile), 0.0
        for core, nodes in phase.cores.items():
            threads = {pipe: core * len(pipes) + pipes.index(pipe) + 1 for pipe in pipes}
            if core not in named:
                named.add(core)
                for pipe, thread in threads.items():
                    yield _metadata("thread_name", process, thread, f"core {core} {pipe}")
                    yield {"ph": "M", "name": "thread_sort_index", "pid": process, "tid": thread, "args": {"sort_index": thread}}
            for piece in scheduler.pieces(nodes, most):
                yield from _events(piece, phase, process, threads, begin, mhz)
            length = max(length, scheduler.finish(nodes) / mhz)
        begin += length


def _metadata(name: str, process: int, thread: int, value: str) -> Event:
    return {"ph": "M", "name": name, "pid": process, "tid": thread, "args": {"name": value}}


def _events(piece: Piece, phase: Phase, process: int, threads: dict[str, int], begin: float, mhz: float) -> Iterator[Event]:
    work = _work(piece, phase)
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


def _work(piece: Piece, phase: Phase) -> dict[str, tuple[int, int]]:
    """Return bytes and elements of a piece on every pipe."""
    totals = dict.fromkeys(phase.pipes, (0, 0))
    for times, pipe, work in weighted_work(piece.nodes):
        moved, touched = totals[phase.pipes[pipe]]
        totals[phase.pipes[pipe]] = moved + times * copied_bytes(work), touched + times * elements(work)
    return totals
