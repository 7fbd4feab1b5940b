"""How long every launch of a call takes at least, one after the other.

Source: specification page ``timeline``, "The whole call". A launch without a published plan moves its tensors, every element once, on
all cores, or on as many as it is started on, at the published rate of one core: the larger of reading and writing.
"""

from collections.abc import Sequence

from npu_sim.cores import Profile
from npu_sim.plans.launches import Launch, LaunchTensor
from npu_sim.plans.model import Plan
from npu_sim.timelines.calibration import Calibration
from npu_sim.timelines.estimates import estimate_of
from npu_sim.timelines.model import LaunchTime, PhaseTime
from npu_sim.timelines.rates import memory_rate


def launch_times(
    plan: Plan,
    profile: Profile,
    phases: Sequence[tuple[str, PhaseTime]],
    mhz: float,
    calibration: Calibration | None = None,
) -> tuple[LaunchTime, ...]:
    """Return the bound of every launch of a plan, and what can be said beyond it.

    Parameters
    ----------
    plan, profile
        A plan, and what it was made for.
    phases
        The phases of its program, each with the kernel it belongs to.
    mhz
        The clock that cycles are divided by.
    calibration
        What a profile of the device says, for estimates.
    """
    found = []
    for launch in plan.launches:
        own = [phase for kernel, phase in phases if kernel == launch.kernel]
        if own:
            us, binds = (
                sum(phase.us for phase in own),
                max(own, key=lambda phase: phase.us).binding_pipe,
            )
        else:
            us, binds = _moving_us(launch, profile, mhz)
        found.append((launch, us, binds, bool(own)))
    total = sum(us for _, us, _, _ in found)
    said = [estimate_of(launch, plan, profile, mhz, calibration) for launch in plan.launches]
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
        for (launch, us, binds, planned), (estimate, missing) in zip(found, said, strict=True)
    )


def _moving_us(launch: Launch, profile: Profile, mhz: float) -> tuple[float, str]:
    """Return the microseconds of moving a launch's tensors, and which way takes longer; nothing for what no AI core runs."""
    cores = profile.chip.vector_cores if launch.block_dim is None else launch.block_dim
    if cores == 0:
        return 0.0, ""
    ways = {
        "reading": _cycles(launch.inputs, profile, writes=False),
        "writing": _cycles(launch.outputs, profile, writes=True),
    }
    longer = max(ways, key=lambda way: ways[way])
    return ways[longer] / cores / mhz, longer


def _cycles(tensors: Sequence[LaunchTensor], profile: Profile, *, writes: bool) -> float:
    return sum(
        tensor.bytes / memory_rate(profile.chip, tensor.bytes, writes=writes) for tensor in tensors
    )
