"""Lower-bound timelines: the shortest possible duration of a call at published rates.

Source: specification page ``timeline``. Nothing here is measured. Kernel launches and scalar
instructions count 0. A launch without a published plan moves every element of its tensors once, on
all cores or on those it is started on, at the published rate of one core; reading and writing
overlap. Estimates, where they exist, are listed beside the bound.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence

import numpy as np

from npu_sim.cores import Profile
from npu_sim.language import Text, joined
from npu_sim.plans.model import Launch, LaunchTensor, Plan
from npu_sim.timelines.model import (
    CoreTime,
    Estimator,
    LaunchTime,
    OtherBound,
    PhaseTime,
    Timeline,
    estimate_of_call,
)
from npu_sim.timelines.program import (
    COPY_PIPES,
    READING_PIPE,
    WRITING_PIPES,
    Copy,
    Phase,
    Program,
    Work,
    weighted_work,
)
from npu_sim.timelines.schedule import (
    Scheduler,
    clock_mhz,
    copied_bytes,
    cycles,
    moving_cycles,
    rate_name,
    work_kind,
)

NEVER_COUNTED = ("kernel launch", "scalar instructions")
"""Not published for any product: 0 in every bound."""

COPIES_ONLY = Text("copies only")
"""Coverage of a bound that counts no computation: its rates or its kernels are not published."""

CoreTimes = dict[int, tuple[float, np.ndarray]]
"""End of every core and busy time of its pipes in a phase, in cycles."""


def timeline(plan: Plan, profile: Profile, program: Program, estimator: Estimator) -> Timeline:
    """Return the lower-bound schedule of a plan, with the estimates of its launches.

    - ``plan``, ``profile``: a plan and the profile it was made for.
    - ``program``: work of the cores in the plan's kernels.
    - ``estimator``: estimates the launches of this plan.
    """
    mhz = clock_mhz(profile)
    times = [_phase_times(Scheduler(phase, profile), mhz) for phase in program.phases]
    phases = tuple(phase for phase, _ in times)
    cores = _core_times(program, [cores for _, cores in times], mhz)
    kernel_us = sum(phase.us for phase in phases)
    kernels = [phase.kernel or plan.kernel for phase in program.phases]
    launches = _launch_times(estimator, list(zip(kernels, phases, strict=True)), mhz)
    bound_us = sum(launch.us for launch in launches)
    estimate_us, estimate_without = estimate_of_call(launches)
    slowest = max(cores, key=lambda core: core.us, default=None)
    busy = slowest.busy_us if slowest else {}
    rated, unrated = _computation(program, profile)
    mean = sum(core.us for core in cores) / len(cores) if cores else 0.0
    not_counted = (*program.not_counted, *_besides_bytes(plan, launches))
    return Timeline(
        plan=plan,
        operator=plan.operator,
        rules_source=plan.rules_source,
        title=plan.title,
        product=plan.product,
        soc=plan.soc,
        kernel=plan.kernel,
        path=plan.path,
        arguments=plan.arguments,
        clock_mhz=mhz,
        clock="vector clock" if profile.chip.vector_clock_mhz else "core clock",
        clock_doubt=profile.chip.clock_doubt,
        bound_us=bound_us,
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
        read_bytes=_traffic(program, (READING_PIPE,)),
        written_bytes=_traffic(program, WRITING_PIPES),
        phases=phases,
        cores=cores,
        coverage=_coverage(rated, unrated, launches, program),
        unknown_rates=tuple(sorted({rate_name(work, profile) for work in unrated})),
        not_counted=(*not_counted, *NEVER_COUNTED) if launches else not_counted,
        assumptions=program.assumptions,
        otherwise=tuple(
            _other_bound(assumption, other, profile, bound_us - kernel_us)
            for assumption, other in program.otherwise
        ),
    )


def copies_us(plan: Plan, profile: Profile, program: Program) -> float:
    """Return the lower bound of a call in us that counts its copies alone.

    Copies have a published rate on every product, so these bounds count the same work where those
    of :func:`timeline` differ in their coverage.
    """
    mhz = clock_mhz(profile)
    phases = [
        (
            phase.kernel or plan.kernel,
            _phase_times(Scheduler(phase, profile, copies_alone=True), mhz)[0],
        )
        for phase in program.phases
    ]
    return sum(_launch_bound(launch, phases, profile, mhz)[0] for launch in plan.launches)


def _other_bound(
    assumption: str, phases: tuple[Phase, ...], profile: Profile, besides_us: float
) -> OtherBound:
    """Return the bound under another assumption; ``besides_us`` is that of the other launches."""
    mhz = clock_mhz(profile)
    kernel_us = sum(_phase_times(Scheduler(phase, profile), mhz)[0].us for phase in phases)
    return OtherBound(assumption=assumption, bound_us=besides_us + kernel_us, kernel_us=kernel_us)


def _launch_times(
    estimator: Estimator, phases: Sequence[tuple[str, PhaseTime]], mhz: float
) -> tuple[LaunchTime, ...]:
    """Return the bound and the estimate of every launch; ``phases`` are named by kernel."""
    launches = estimator.plan.launches
    bounds = [_launch_bound(launch, phases, estimator.profile, mhz) for launch in launches]
    total = sum(us for us, _, _ in bounds)
    estimates = map(estimator.estimate, launches)
    return tuple(
        LaunchTime(
            kernel=launch.kernel,
            us=us,
            share=us / total if total else 0.0,
            binds=binds,
            planned=planned,
            read_bytes=launch.read_bytes,
            written_bytes=launch.written_bytes,
            evidence=launch.evidence,
            estimate=estimate,
            estimate_missing=missing,
        )
        for launch, (us, binds, planned), (estimate, missing) in zip(
            launches, bounds, estimates, strict=True
        )
    )


def _launch_bound(
    launch: Launch, phases: Iterable[tuple[str, PhaseTime]], profile: Profile, mhz: float
) -> tuple[float, str, bool]:
    """Return the microseconds of a launch, what binds, and whether its kernel is planned."""
    phases_of_kernel = [phase for kernel, phase in phases if kernel == launch.kernel]
    if phases_of_kernel:
        longest = max(phases_of_kernel, key=lambda phase: phase.us)
        return sum(phase.us for phase in phases_of_kernel), longest.binding_pipe, True
    cores = profile.chip.vector_cores if launch.block_dim is None else launch.block_dim
    if cores == 0:
        return 0.0, "", False
    directions = {
        "reading": _moving_cycles(launch.inputs, profile, writes=False),
        "writing": _moving_cycles(launch.outputs, profile, writes=True),
    }
    longer = max(directions, key=lambda direction: directions[direction])
    return directions[longer] / cores / mhz, longer, False


def _moving_cycles(tensors: Sequence[LaunchTensor], profile: Profile, *, writes: bool) -> float:
    return sum(
        moving_cycles(profile.chip, tensor.bytes, tensor.bytes, writes=writes) for tensor in tensors
    )


def _besides_bytes(plan: Plan, bounds: Sequence[LaunchTime]) -> tuple[str, ...]:
    """Return what the bound omits: launches off the AI cores, and work besides moving bytes."""
    moving = dict.fromkeys(bound.kernel for bound in bounds if not bound.planned and bound.binds)
    return (
        *(
            Text("{kernel} {note}", kernel=launch.kernel, note=launch.note)
            for launch in plan.launches
            if launch.block_dim == 0
        ),
        *((Text("all but the bytes of {moving}", moving="/".join(moving)),) if moving else ()),
    )


def _phase_times(scheduler: Scheduler, mhz: float) -> tuple[PhaseTime, CoreTimes]:
    """Return the time of a phase, and the times of its cores."""
    phase = scheduler.phase
    times: CoreTimes = dict.fromkeys(phase.cores, (0.0, np.zeros(0)))
    for nodes, cores in phase.cores_by_work.items():
        times |= dict.fromkeys(cores, (scheduler.finish(nodes), scheduler.busy(nodes)))
    slowest = max(times, key=lambda core: times[core][0], default=0)
    end, busy = times.get(slowest, (0.0, None))
    binding = "" if busy is None else phase.pipes[int(busy.argmax())]
    whole = PhaseTime(name=phase.name, us=end / mhz, slowest_core=slowest, binding_pipe=binding)
    return whole, times


def _core_times(program: Program, times: Sequence[CoreTimes], mhz: float) -> tuple[CoreTime, ...]:
    """Return the times of every core, all phases together; ``times`` are those of the phases."""
    pipes = list(dict.fromkeys(pipe for phase in program.phases for pipe in phase.pipes))
    cores = []
    for core in sorted({core for phase in program.phases for core in phase.cores}):
        busy, total = dict.fromkeys(pipes, 0.0), 0.0
        for phase, of_phase in zip(program.phases, times, strict=True):
            if core in of_phase:
                end, of_pipes = of_phase[core]
                total += end / mhz
                for pipe, value in zip(phase.pipes, of_pipes, strict=True):
                    busy[pipe] += float(value) / mhz
        cores.append(CoreTime(core=core, us=total, busy_us=busy))
    return tuple(cores)


def _works(program: Program) -> Iterator[tuple[int, str, Work]]:
    """Yield how often all cores do a piece of work, its pipe, and the work."""
    for phase in program.phases:
        for nodes, cores in phase.cores_by_work.items():
            for times, pipe, work in weighted_work(nodes):
                yield len(cores) * times, phase.pipes[pipe], work


def _traffic(program: Program, pipes: Collection[str]) -> int:
    """Return the bytes that all cores copy on some pipes."""
    works = _works(program)
    return sum(times * copied_bytes(work) for times, pipe, work in works if pipe in pipes)


def _computation(program: Program, profile: Profile) -> tuple[set[Work], set[Work]]:
    """Return the work other than copies: with a published rate, and without one."""
    works: set[tuple[Work, str]] = {
        (work, pipe) for _, pipe, work in _works(program) if not isinstance(work, Copy)
    }
    rated = {work for work, pipe in works if cycles(work, profile, pipe) is not None}
    return rated, {work for work, _ in works} - rated


def _coverage(
    rated: set[Work], unrated: set[Work], launches: Sequence[LaunchTime], program: Program
) -> str:
    """Return the coverage of a bound, reduced by missing rates; empty if all work is counted.

    Launches besides the operator's kernels count by their bytes on every product.
    """
    if launches and not rated and (unrated or not program.phases):
        return COPIES_ONLY
    kinds = sorted({work_kind(work) for work in unrated})
    return Text("without {kinds}", kinds=joined(kinds, ", ")) if kinds else ""
