"""What can be said of a launch beyond its lower bound.

Source: specification page ``estimate``: the busy time of the vector pipe where the instructions of
a kernel are published, and the duration of a launch that moves far more than the L2 holds.
Everything else stays a bound, with a sentence that says why.
"""

from collections import Counter
from collections.abc import Callable, Sequence

from npu_sim.cores import Profile
from npu_sim.plans.launches import Launch
from npu_sim.plans.model import Plan
from npu_sim.registry import load_operator
from npu_sim.timelines.calibration import READS_AND_WRITES, READS_ONLY, WRITES_ONLY, Calibration
from npu_sim.timelines.model import BankConflict, LaunchEstimate, LaunchTime, VectorEstimate
from npu_sim.timelines.rates import clock_mhz
from npu_sim.timelines.vector_pipe import (
    COMPARED_DEVICE,
    ESTIMATED_ARCHITECTURES,
    NARROWING,
    InstructionLists,
    Issue,
    Issues,
)

Estimate = VectorEstimate | LaunchEstimate

COMPARED = "published rates, compared with one device"
NOT_COMPARED = "published rates, not compared"
PROFILED = "profile"
TWO_DEVICES = "two public devices"

COMPARED_BAND, NOT_COMPARED_BAND, STREAMING_BAND = 0.10, 0.25, 0.15
"""How far an estimate may be off, as a share of it (page, first table)."""
MOSTLY_START_UP, START_UP_RANGE = 0.6, (0.85, 1.10)
"""Share of start-up above which an estimate may be some 10 % high, and the range that is printed
then (page, "Residuals")."""
DOUBTFUL_SHARE = 0.1
"""Share of the least sure instruction above which it is said (page, "Residuals")."""
STREAMED_BYTES = 400_000_000
"""Fewer bytes are not estimated: the L2 decides there (page, "Streaming launches")."""
BYTES_PER_US = 1e6
"""One TB/s."""
STREAMING = {
    "Cast": READS_AND_WRITES,
    "Mul": READS_AND_WRITES,
    "MemSet": WRITES_ONLY,
    "ZerosLike": WRITES_ONLY,
}
"""Kernels that stream through memory; which one copies a strided tensor is not published."""
TWO_CEILINGS = {
    READS_AND_WRITES: (0.614, 1.28),
    READS_ONLY: (0.678, 1.66),
    WRITES_ONLY: (0.794, 1.79),
}
"""TB/s of the slower and of the faster public device (page, "Streaming launches")."""


def streamed_bytes(kind: str, read: int, written: int) -> int:
    """Return the bytes that a launch of a kind moves."""
    return {READS_ONLY: read, WRITES_ONLY: written}.get(kind, read + written)


def estimate_of(
    launch: Launch, plan: Plan, profile: Profile, mhz: float, calibration: Calibration | None
) -> tuple[Estimate | None, str]:
    """Return the estimate of a launch, or None and why there is none, in one sentence.

    Parameters
    ----------
    launch
        One of the plan's.
    plan, profile
        A plan, and what it was made for.
    mhz
        Clock of the bound; that of a calibration replaces it.
    calibration
        What a profile of the device says; None without one.
    """
    if launch.block_dim == 0:
        return None, "No AI core runs it."
    if launch.kernel in STREAMING:
        return _streaming(STREAMING[launch.kernel], launch, calibration)
    if launch.kernel != plan.kernel:
        return None, "How long such a launch takes beyond its bytes is not published."
    if not load_operator(plan.operator).has_hook("instructions"):
        return None, "There is no instruction list of this kernel yet."
    if profile.npu_arch not in ESTIMATED_ARCHITECTURES:
        return (
            None,
            f"Start-ups of vector instructions are not published for architecture {profile.npu_arch}.",
        )
    lists: InstructionLists = load_operator(plan.operator).hook("instructions")(plan)
    return vector_estimate(
        lists, profile, calibration.clock_mhz if calibration else mhz, calibration
    ), ""


def vector_estimate(
    lists: InstructionLists, profile: Profile, mhz: float, calibration: Calibration | None = None
) -> VectorEstimate:
    """Return how long the vector pipe is busy for the instructions of a kernel's cores, at least one."""
    counts, factor = (
        Counter(lists.cores.values()),
        (calibration.vector_factor if calibration else None) or 1,
    )

    def cycles(issues: Issues) -> float:
        return factor * sum(issue.cycles for issue in issues)

    def mean(of: Callable[[Issue], float]) -> float:
        return (
            factor
            * sum(count * sum(map(of, issues)) for issues, count in counts.items())
            / counts.total()
        )

    mean_cycles, start_up = mean(lambda issue: issue.cycles), mean(lambda issue: issue.start_up)
    narrowing = mean(lambda issue: issue.cycles if issue.kind == NARROWING else 0)
    longest = max(counts, key=cycles)
    device = profile.chip.short_soc_version, profile.chip.vector_cores, profile.release
    profiled = calibration is not None and calibration.vector_shapes > 0
    compared = lists.compared and (profiled or device == COMPARED_DEVICE)
    band = COMPARED_BAND if compared else NOT_COMPARED_BAND
    low, high = START_UP_RANGE if start_up > MOSTLY_START_UP * mean_cycles else (1 - band, 1 + band)
    doubt = f"{narrowing / mean_cycles:.0%} of it is {NARROWING}, the least sure entry"
    return VectorEstimate(
        vector_cycles=mean_cycles,
        slowest_cycles=cycles(longest),
        vector_us=mean_cycles / mhz,
        low_us=low * mean_cycles / mhz,
        high_us=high * mean_cycles / mhz,
        instructions=sum(issue.times for issue in longest),
        startup_share=start_up / mean_cycles,
        conflict_share=mean(lambda issue: issue.conflict_cycles) / mean_cycles,
        conflicts=_conflicts(longest, factor),
        evidence=PROFILED if profiled else COMPARED if compared else NOT_COMPARED,
        note=doubt if narrowing > DOUBTFUL_SHARE * mean_cycles else "",
    )


def estimates_of(plan: Plan, profile: Profile) -> tuple[tuple[str, Estimate], ...]:
    """Return the kernel and the estimate of every launch that has one, at the published clock of the SoC."""
    said = [
        (launch.kernel, estimate_of(launch, plan, profile, clock_mhz(profile), None)[0])
        for launch in plan.launches
    ]
    return tuple((kernel, estimate) for kernel, estimate in said if estimate is not None)


def _conflicts(issues: Issues, factor: float) -> tuple[BankConflict, ...]:
    added: dict[str, float] = {}
    alone: dict[str, float] = {}
    for issue in issues:
        added[issue.between] = added.get(issue.between, 0.0) + factor * issue.conflict_cycles
        alone[issue.between] = alone.get(issue.between, 0.0) + factor * (
            issue.cycles - issue.start_up - issue.conflict_cycles
        )
    found = [
        BankConflict(between=name, factor=1 + cycles / alone[name], cycles=cycles)
        for name, cycles in added.items()
        if cycles
    ]
    return tuple(sorted(found, key=lambda one: -one.cycles))


def _streaming(
    kind: str, launch: Launch, calibration: Calibration | None
) -> tuple[LaunchEstimate | None, str]:
    moved = streamed_bytes(kind, launch.read_bytes, launch.written_bytes)
    if moved < STREAMED_BYTES:
        return None, f"It moves {moved} bytes: below {STREAMED_BYTES} the L2 decides how fast."
    if calibration is None:
        slow, fast = (moved / (ceiling * BYTES_PER_US) for ceiling in TWO_CEILINGS[kind])
        return LaunchEstimate(us=None, low_us=fast, high_us=slow, evidence=TWO_DEVICES), ""
    if kind not in calibration.ceilings:
        return (
            None,
            f"The calibration from {calibration.source} has no ceiling of the kind '{kind}'.",
        )
    us = moved / (calibration.ceilings[kind].tb_per_s * BYTES_PER_US)
    low, high = (1 - STREAMING_BAND) * us, (1 + STREAMING_BAND) * us
    return LaunchEstimate(us=us, low_us=low, high_us=high, evidence=PROFILED), ""


def estimate_of_call(launches: Sequence[LaunchTime]) -> tuple[float | None, tuple[str, ...]]:
    """Return the estimate of a call, None unless every launch has one of its duration, and the kernels that have none."""
    times = [
        one.estimate.us if isinstance(one.estimate, LaunchEstimate) else None for one in launches
    ]
    without = tuple(one.kernel for one, us in zip(launches, times, strict=True) if us is None)
    return (None if without or not times else sum(us for us in times if us is not None)), without
