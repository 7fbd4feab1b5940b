"""A timeline as tracks: consecutive launches of a call, and the pipes of its slowest core."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from npu_sim.cores import Profile
from npu_sim.plans.model import Plan
from npu_sim.timelines.model import LaunchTime, Timeline
from npu_sim.timelines.program import Phase, Program, weighted_work
from npu_sim.timelines.rates import copied_bytes, elements
from npu_sim.timelines.schedule import Piece, Scheduler

EVENTS_OF_A_PIPE = 96
"""Approximate number of events for one core and pipe, whatever the number of tiles."""
FEMTOSECONDS = 9
"""Decimals of a microsecond to which times are rounded."""


class TimedPlan(NamedTuple):
    """A plan with the profile it was made for, its program and its timeline."""

    plan: Plan
    profile: Profile
    program: Program
    bound: Timeline


@dataclass(frozen=True)
class PlacedPhase:
    """A phase of a planned kernel and its start in microseconds."""

    phase: Phase
    scheduler: Scheduler
    start_us: float


@dataclass(frozen=True)
class PlacedLaunch:
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


def piece_work(piece: Piece, phase: Phase) -> dict[str, tuple[int, int]]:
    """Return bytes and elements of a piece on every pipe."""
    totals = dict.fromkeys(phase.pipes, (0, 0))
    for times, pipe, work in weighted_work(piece.nodes):
        moved, touched = totals[phase.pipes[pipe]]
        totals[phase.pipes[pipe]] = (
            moved + times * copied_bytes(work),
            touched + times * elements(work),
        )
    return totals


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
        ``title``, ``soc``, ``bound_us``; ``launches`` with ``kernel``, ``start_us``, ``us``,
        ``share``, ``binds``, ``planned``; the number of the slowest ``core`` (None without one) and
        its ``pipes`` with ``pipe``, ``busy_us`` and ``events``: ``name``, ``phase``, ``start_us``,
        ``us``, ``tiles``, ``bytes``, ``elements``. An event of several tiles lasts as long as the
        pipe works on them, without the gaps between them.
    """
    bound = timed.bound
    slowest = max(bound.cores, key=lambda core: core.us, default=None)
    events: dict[str, list[dict[str, Any]]] = {
        pipe: [] for pipe in (slowest.busy_us if slowest else ())
    }
    launches = []
    for placed in placed_launches(timed):
        launch = placed.launch
        launches.append(
            {
                "kernel": launch.kernel,
                "start_us": placed.start_us,
                "us": launch.us,
                "share": launch.share,
                "binds": launch.binds,
                "planned": launch.planned,
            }
        )
        for phase in placed.phases:
            if slowest and slowest.core in phase.phase.cores:
                for piece in phase.scheduler.pieces(phase.phase.cores[slowest.core], max_events):
                    for pipe, event in _events(piece, phase, bound.clock_mhz):
                        events[pipe].append(event)
    return {
        "title": bound.title,
        "soc": bound.soc,
        "bound_us": bound.bound_us,
        "launches": launches,
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


def _events(piece: Piece, placed: PlacedPhase, mhz: float) -> Iterator[tuple[str, dict[str, Any]]]:
    work = piece_work(piece, placed.phase)
    for pipe, start, busy in zip(placed.phase.pipes, piece.start, piece.busy, strict=True):
        if busy > 0:
            moved, touched = work[pipe]
            yield (
                pipe,
                {
                    "name": piece.name,
                    "phase": placed.phase.name,
                    "tiles": piece.tiles,
                    "bytes": moved,
                    "elements": touched,
                    "start_us": round(placed.start_us + start / mhz, FEMTOSECONDS),
                    "us": round(busy / mhz, FEMTOSECONDS),
                },
            )
