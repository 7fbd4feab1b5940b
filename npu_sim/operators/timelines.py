"""Timelines of plans: pass what a plan's operator derives from it to :mod:`npu_sim.timelines`."""

from typing import Any

from npu_sim.cores import Profile
from npu_sim.framework.operator import INSTRUCTIONS, PROGRAM, Operator, find_hook
from npu_sim.operators.loading import load_operator
from npu_sim.plans.model import Plan
from npu_sim.registry import family_of
from npu_sim.timelines import bounds
from npu_sim.timelines import tracks as pipe_tracks
from npu_sim.timelines.model import Calibration, Estimator, Timeline
from npu_sim.timelines.program import Program
from npu_sim.timelines.tracks import EVENTS_OF_A_PIPE, TimedPlan


def _declaration(plan: Plan) -> Operator:
    """Return the declaration that made a plan, which depends on the product's architecture."""
    declared = load_operator(plan.operator)
    return declared.on_family(family_of(plan.npu_arch))


def is_timed(plan: Plan) -> bool:
    """Return whether a kernel runs and its operator declares a program."""
    return plan.block_dim > 0 and _declaration(plan).has_hook(PROGRAM)


def program_of(plan: Plan) -> Program:
    """Return the work of every core, tile by tile.

    Raises UsageError when the operator declares no program.
    """
    if not plan.block_dim:
        return Program(())
    return _declaration(plan).hook(PROGRAM)(plan)


def estimator(
    plan: Plan, profile: Profile, calibration: Calibration | None = None, mhz: float | None = None
) -> Estimator:
    """Return the estimator of a plan's launches; ``mhz`` replaces the clock of the SoC."""
    instructions = find_hook(_declaration(plan), INSTRUCTIONS)
    return Estimator(plan, profile, instructions, calibration, mhz)


def timeline(
    plan: Plan,
    profile: Profile,
    calibration: Calibration | None = None,
    mhz: float | None = None,
    *,
    estimated: bool = True,
) -> Timeline:
    """Return the lower-bound schedule of a plan, with estimates where they exist.

    - ``plan``: a plan made for ``profile``.
    - ``profile``: product and SoC, with their published rates.
    - ``calibration``, ``mhz``: measured rates and clock of a device, for estimates; bounds do not
      depend on them.
    - ``estimated``: whether launches are estimated, which takes most of the time.

    Raises UsageError when the operator declares no program.
    """
    estimates = (
        estimator(plan, profile, calibration, mhz) if estimated else Estimator(plan, profile, None)
    )
    return bounds.timeline(plan, profile, program_of(plan), estimates)


def copies_us(plan: Plan, profile: Profile) -> float:
    """Return the lower bound of a plan in us that counts copies alone, on every product the same.

    Raises UsageError when the operator declares no program.
    """
    return bounds.copies_us(plan, profile, program_of(plan))


def with_reads(found: Timeline, plan: Plan) -> Timeline:
    """Return a timeline with how often its planned kernels read each of their tensors."""
    planned = {launch.kernel for launch in found.launches if launch.planned}
    launches = [launch for launch in plan.launches if launch.kernel in planned]
    tensors = {tensor.name: tensor.bytes for launch in launches for tensor in launch.inputs}
    copied = pipe_tracks.tensor_reads(program_of(plan))
    reads = {name: copied.get(name, 0) / size for name, size in tensors.items() if size}
    if any(times < 1.0 for times in reads.values()):  # the data decides what is read
        reads = {}
    return found.model_copy(
        update={
            "tensor_bytes": sum(launch.read_bytes for launch in launches),
            "tensor_reads": reads,
        }
    )


def tracks(
    plan: Plan, profile: Profile, bound: Timeline, max_events: int = EVENTS_OF_A_PIPE
) -> dict[str, Any]:
    """Return launches and pipes of a timeline: see :func:`npu_sim.timelines.tracks.tracks`."""
    return pipe_tracks.tracks(TimedPlan(plan, profile, program_of(plan), bound), max_events)


def tracks_of(plan: Plan) -> dict[str, Any] | None:
    """Return launches and pipes of a plan's timeline; None when the plan is not timed."""
    if not is_timed(plan):
        return None
    return tracks(plan, plan.profile, timeline(plan, plan.profile))


def timed_plan(plan: Plan, profile: Profile) -> TimedPlan:
    """Return a plan with its program and timeline, for :func:`npu_sim.timelines.tracks.trace`."""
    return TimedPlan(plan, profile, program_of(plan), timeline(plan, profile))


def steps(plan: Plan) -> dict[str, Any]:
    """Return the tiles of every core: see :func:`npu_sim.timelines.tracks.steps`."""
    return pipe_tracks.steps(plan, program_of(plan))
