"""Lower-bound timelines: how fast a plan could run at the published rates, and what would bind.

Source: specification page ``timeline``. There is no device to time and nothing here is measured: a bound says that no execution
of the call can be faster. What launching costs and scalar instructions count 0. Estimates, where there are any, stand beside the bound.
"""

from collections.abc import Sequence

import numpy as np

from npu_sim.cores import Profile
from npu_sim.plans.model import Plan
from npu_sim.registry import load_operator
from npu_sim.timelines.calibration import Calibration
from npu_sim.timelines.estimates import estimate_of_call
from npu_sim.timelines.launches import launch_times
from npu_sim.timelines.model import CoreTime, LaunchTime, PhaseTime, Timeline
from npu_sim.timelines.program import COPY_PIPES, WRITING_PIPES, Copy, Phase, Program, weighted_work
from npu_sim.timelines.rates import clock_mhz, copied_bytes, cycles, rate_name
from npu_sim.timelines.schedule import Scheduler

NEVER_COUNTED = ("kernel launch", "scalar instructions")
"""Not published for any product: 0 in every bound."""
READING_PIPE = "MTE2"


def is_timed(plan: Plan) -> bool:
    """Whether anything runs, and its operator says what its cores do."""
    return plan.block_dim > 0 and load_operator(plan.operator).has_hook("program")


def program_of(plan: Plan) -> Program:
    """Return what the cores of a plan do, tile by tile."""
    if not plan.block_dim:
        return Program(())
    program: Program = load_operator(plan.operator).hook("program")(plan)
    return program


def timeline(plan: Plan, profile: Profile, calibration: Calibration | None = None) -> Timeline:
    """Return the lower-bound schedule of a plan, and what can be said beyond the bound.

    Parameters
    ----------
    plan
        A plan made for ``profile``.
    profile
        Product and SoC, with their published rates.
    calibration
        What a profile of the device says, for estimates; no bound changes.
    """
    program = program_of(plan)
    mhz = clock_mhz(profile)
    measured = [_phase_cycles(phase, profile) for phase in program.phases]
    phases = tuple(
        _phase_time(phase, *cycles, mhz)
        for phase, cycles in zip(program.phases, measured, strict=True)
    )
    cores = _core_times(program, measured, mhz)
    kernel_us = sum(phase.us for phase in phases)
    owners = [phase.kernel or plan.kernel for phase in program.phases]
    launches = launch_times(plan, profile, list(zip(owners, phases, strict=True)), mhz, calibration)
    estimate_us, estimate_without = estimate_of_call(launches)
    slowest = max(cores, key=lambda core: core.us, default=None)
    busy = slowest.busy_us if slowest else {}
    read, written = _traffic(program)
    mean = sum(core.us for core in cores) / len(cores) if cores else 0.0
    return Timeline(
        operator=plan.operator,
        title=plan.title,
        product=plan.product,
        soc=plan.soc,
        kernel=plan.kernel,
        path=plan.path,
        arguments=plan.arguments,
        clock_mhz=mhz,
        clock="vector clock" if profile.chip.vector_clock_mhz else "core clock",
        bound_us=sum(launch.us for launch in launches),
        launches=launches,
        estimate_us=estimate_us,
        estimate_without=estimate_without,
        kernel_us=kernel_us,
        binding_pipe=max(busy, key=lambda pipe: busy[pipe], default=""),
        busy_share={pipe: us / kernel_us if kernel_us else 0.0 for pipe, us in busy.items()},
        copy_share=max((us for pipe, us in busy.items() if pipe in COPY_PIPES), default=0.0)
        / kernel_us
        if kernel_us
        else 0.0,
        imbalance=slowest.us / mean if slowest and mean else 1.0,
        read_bytes=read,
        written_bytes=written,
        phases=phases,
        cores=cores,
        unknown_rates=_unknown_rates(program, profile),
        not_counted=(
            *program.not_counted,
            *_besides_bytes(plan, launches),
            *(NEVER_COUNTED if launches else ()),
        ),
        assumptions=program.assumptions,
    )


def _besides_bytes(plan: Plan, bounds: Sequence[LaunchTime]) -> tuple[str, ...]:
    """Return what is left out of the launches without a published plan, and those that no AI core runs."""
    off = tuple(
        f"{launch.kernel} {launch.note}" for launch in plan.launches if launch.block_dim == 0
    )
    moving = dict.fromkeys(bound.kernel for bound in bounds if not bound.planned and bound.binds)
    return (*off, *((f"all but the bytes of {'/'.join(moving)}",) if moving else ()))


PhaseCycles = tuple[dict[int, float], dict[int, np.ndarray]]
"""For every core, when it is done and how long every pipe is busy."""


def _phase_cycles(phase: Phase, profile: Profile) -> PhaseCycles:
    scheduler = Scheduler(phase, profile)
    done, ends, busy = {}, {}, {}
    for core, nodes in phase.cores.items():
        if nodes not in done:
            done[nodes] = scheduler.finish(nodes), scheduler.busy(nodes)
        ends[core], busy[core] = done[nodes]
    return ends, busy


def _phase_time(
    phase: Phase, ends: dict[int, float], busy: dict[int, np.ndarray], mhz: float
) -> PhaseTime:
    slowest = max(ends, key=lambda core: ends[core], default=0)
    binding = phase.pipes[int(busy[slowest].argmax())] if busy else ""
    return PhaseTime(
        name=phase.name,
        us=ends[slowest] / mhz if ends else 0.0,
        slowest_core=slowest,
        binding_pipe=binding,
    )


def _core_times(program: Program, measured: list[PhaseCycles], mhz: float) -> tuple[CoreTime, ...]:
    numbers = sorted({core for phase in program.phases for core in phase.cores})
    pipes = list(dict.fromkeys(pipe for phase in program.phases for pipe in phase.pipes))
    cores = []
    for core in numbers:
        busy, total = dict.fromkeys(pipes, 0.0), 0.0
        for phase, (ends, work) in zip(program.phases, measured, strict=True):
            if core in ends:
                total += ends[core] / mhz
                for pipe, value in zip(phase.pipes, work[core], strict=True):
                    busy[pipe] += float(value) / mhz
        cores.append(CoreTime(core=core, us=total, busy_us=busy))
    return tuple(cores)


def _traffic(program: Program) -> tuple[int, int]:
    read = written = 0
    for phase in program.phases:
        totals: dict[object, tuple[int, int]] = {}
        for nodes in phase.cores.values():
            if nodes not in totals:
                totals[nodes] = _copied(phase, nodes)
            read, written = read + totals[nodes][0], written + totals[nodes][1]
    return read, written


def _copied(phase: Phase, nodes: tuple) -> tuple[int, int]:  # type: ignore[type-arg]
    read = written = 0
    for times, pipe, work in weighted_work(nodes):
        if phase.pipes[pipe] == READING_PIPE:
            read += times * copied_bytes(work)
        elif phase.pipes[pipe] in WRITING_PIPES:
            written += times * copied_bytes(work)
    return read, written


def _unknown_rates(program: Program, profile: Profile) -> tuple[str, ...]:
    names = {
        rate_name(work)
        for phase in program.phases
        for nodes in set(phase.cores.values())
        for _, pipe, work in weighted_work(nodes)
        if not isinstance(work, Copy) and cycles(work, profile, phase.pipes[pipe]) is None
    }
    return tuple(sorted(names))
