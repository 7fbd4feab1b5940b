"""The result of a timeline: lower bounds from published rates, and estimates of launches.

Nothing is measured. Source of the estimates: specification page ``estimate``; of a calibration its
section "A user's own profile". Two things are estimated: the busy time of the vector pipe where the
instructions of a kernel are published, and the duration of a launch that moves far more bytes than
the L2 holds. For every other launch a sentence states why there is no estimate. A calibration has
clock, memory ceilings and vector factor of a device.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from npu_sim.cores import Profile
from npu_sim.files.reading import read_yaml
from npu_sim.language import Argument, Text, joined, percent_text
from npu_sim.plans.answers import Evidence, Frozen, Printed, TextField
from npu_sim.plans.model import Launch, Plan
from npu_sim.status import UsageError
from npu_sim.timelines.schedule import clock_mhz
from npu_sim.timelines.vector_pipe import (
    COMPARED_DEVICE,
    ESTIMATED_ARCHITECTURES,
    NARROWING,
    SUM_OF_BLOCKS,
    InstructionLists,
    Issue,
    Issues,
)


class CoreTime(Frozen):
    """One core: its end without waiting at barriers and the busy time of its pipes, in us."""

    core: int
    us: float
    busy_us: dict[str, float]


class PhaseTime(Frozen):
    """Part of a kernel between two barriers: as long as its slowest core, in us."""

    name: TextField
    us: float
    slowest_core: int
    binding_pipe: str


class BankConflict(Frozen):
    """Bank-group conflicts of the Unified Buffer on the longest core."""

    between: TextField
    """Operands in the same bank groups."""
    factor: float
    """Mean slowdown of a repeat: 2 when two sources start in the same group."""
    cycles: float
    """Cycles added."""


class VectorEstimate(Frozen):
    """Estimated busy time of the vector pipe; not a measurement."""

    of: Literal["vector pipe"] = "vector pipe"
    vector_cycles: float
    """Mean cycles of a working core, as a profiler's counter shows them."""
    slowest_cycles: float
    """Cycles of the slowest core."""
    vector_us: float
    """Mean cycles in microseconds."""
    low_us: float
    """Lower end of the range in microseconds."""
    high_us: float
    """Upper end of the range in microseconds."""
    instructions: int
    """Vector instructions of the slowest core."""
    startup_share: float
    """Fraction of the cycles spent in start-up; fewer, longer instructions reduce it."""
    conflict_share: float
    """Fraction of the cycles added by bank conflicts."""
    conflicts: tuple[BankConflict, ...] = ()
    """The conflicts, the most expensive first."""
    evidence: str
    """Source of the estimate."""
    note: TextField = ""
    """Remark; empty when there is none."""


class LaunchEstimate(Frozen):
    """Estimated duration in us of a launch that streams through memory; ``us`` may be unknown."""

    of: Literal["launch"] = "launch"
    us: float | None
    low_us: float
    high_us: float
    evidence: str


class LaunchTime(Frozen):
    """One launch of a call."""

    kernel: str
    """Name of the kernel in a profiler."""
    us: float
    """Lower bound in microseconds; 0 when no AI core runs it."""
    share: float
    """Fraction of the call's bound."""
    binds: str
    """Binding pipe; ``reading`` or ``writing`` when only the bytes of its tensors are counted."""
    planned: bool
    """Whether the plan describes the work of its cores."""
    read_bytes: int
    """Bytes of its inputs, every element once."""
    written_bytes: int
    """Bytes of its outputs, every element once."""
    evidence: Evidence
    """Certainty that it is launched."""
    estimate: VectorEstimate | LaunchEstimate | None = None
    """Estimate beyond the bound; None when there is none."""
    estimate_missing: TextField = ""
    """Reason for a missing estimate, in one sentence; empty when there is one."""


class Change(Frozen):
    """A change of the call and the bound of the changed call."""

    change: TextField
    """The change, for instance ``grad_dtype = float32``."""
    bound_us: float
    """Bound of the changed call, in microseconds."""
    saved_share: float
    """Reduction as a fraction of the original bound; negative when the bound grows."""
    without: tuple[TextField, ...] = ()
    """Kernels no longer launched, one entry for every launch."""
    note: TextField = ""
    """Remark."""


class ModePrice(Frozen):
    """Cost of a call with the determinism switch off or on."""

    deterministic: bool
    """The switch."""
    launches: int
    """Number of kernels launched."""
    workspace_bytes: int
    """Workspace of the call."""
    workspace_unknown: tuple[TextField, ...] = ()
    """Parts of the workspace whose size is not published."""
    bound_us: float | None = None
    """Lower bound in microseconds; None when it cannot be compared with that of the other mode."""
    coverage: TextField = ""
    """Coverage of the bound, as in :class:`Timeline`."""
    unbounded: tuple[TextField, ...] = ()
    """The reason: kernels that only this mode launches and of which only the bytes are known."""


class OtherBound(Frozen):
    """Bound of a call under the opposite of one of its assumptions."""

    assumption: TextField
    """What is assumed about the data instead, for instance that every probs is 0."""
    bound_us: float
    """Bound of the call in microseconds."""
    kernel_us: float
    """Bound of its planned kernels in microseconds."""


class Timeline(Printed, Frozen):
    """The lower-bound schedule of one call on one SoC."""

    label: Literal["lower bound"] = "lower bound"
    """Kind of the times."""
    operator: str
    title: str
    product: str
    soc: str
    kernel: str
    path: TextField
    """``operator``, ``title``, ``product``, ``soc``, ``kernel`` and ``path``: as in the plan."""
    arguments: dict[str, Any]
    clock_mhz: float
    """The clock that converts cycles to time."""
    clock: Literal["vector clock", "core clock"]
    """Name of this clock."""
    clock_doubt: TextField = ""
    """Why the SoC may run at another clock, which the bound would follow; empty without a doubt."""
    bound_us: float
    """Lower bound of the call in microseconds: the sum of its launches."""
    launches: tuple[LaunchTime, ...] = ()
    """Every launch, in launch order."""
    estimate_us: float | None = None
    """Sum of the launches' estimates when each of them covers a whole launch, else None."""
    estimate_without: tuple[TextField, ...] = ()
    """Kernels of the launches without such an estimate."""
    changes: tuple[Change, ...] = ()
    """Changes that remove the largest launches; filled by
    :func:`npu_sim.questions.explain.with_changes`."""
    determinism: tuple[ModePrice, ...] = ()
    """The call with the determinism switch off and on; filled likewise, and empty when one of the
    modes is refused."""
    kernel_us: float
    """Bound of the planned kernels alone; the following fields describe these."""
    binding_pipe: str
    """Busiest pipe of the slowest core."""
    busy_share: dict[str, float]
    """Busy time of the slowest core's pipes as a fraction of the kernels' bound."""
    copy_share: float
    """The largest such fraction among the copy pipes."""
    imbalance: float
    """Time of the slowest core over the mean of the working cores."""
    read_bytes: int
    """Bytes copied from global memory by all cores, padded to 32-byte blocks."""
    written_bytes: int
    """Bytes copied to global memory likewise."""
    tensor_bytes: int = 0
    """Bytes of the tensors that these kernels read, every element once."""
    tensor_reads: dict[str, float] = Field(default={})
    """How often each of these tensors is read: bytes copied from it over its bytes. Empty where the
    copies are not known by tensor."""
    phases: tuple[PhaseTime, ...] = ()
    """The kernels' bound by phase."""
    cores: tuple[CoreTime, ...] = ()
    """The kernels' bound by core."""
    coverage: TextField = ""
    """Empty if all listed work is counted, else ``copies only`` or ``without`` some instructions.
    Bounds of different coverage are not compared."""
    unknown_rates: tuple[str, ...] = ()
    """Instructions without a published rate, counted as 0."""
    not_counted: tuple[TextField, ...] = ()
    """Work that the bound leaves out."""
    assumptions: tuple[TextField, ...] = Field(default=())
    """Assumptions about the data."""
    otherwise: tuple[OtherBound, ...] = ()
    """Bounds under the opposite of an assumption, where it follows from the call; data between the
    two has a bound between them."""
    rules_source: TextField = ""
    """As in the plan."""
    plan: Plan | None = Field(default=None, exclude=True)
    """The plan itself, for pictures."""

    def as_dict(self) -> Mapping[str, Any]:
        """Return the timeline as plain data, as printed by ``--json``."""
        return self.model_dump(mode="json")


Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]

READS_AND_WRITES, READS_ONLY, WRITES_ONLY = "reads and writes", "reads only", "writes only"
KINDS = (READS_AND_WRITES, READS_ONLY, WRITES_ONLY)
"""Kinds of launches that stream through memory; each has its own ceiling (page, "Streaming
launches")."""


class Ceiling(Frozen):
    """Memory throughput of launches of one kind."""

    tb_per_s: Positive
    """Bytes read and written over duration, in 10^12 bytes per second; the median over shapes."""
    shapes: Annotated[int, Field(ge=1)]
    """Number of shapes."""
    low_error: float | None = None
    """Smallest error of a shape's duration predicted from the other shapes; None with one shape."""
    high_error: float | None = None
    """Largest such error."""


class Calibration(Frozen):
    """A calibration, as written by ``npu-sim profile --calibrate``."""

    source: str
    """Name of the profile's file."""
    soc: str
    """SoC assumed for the profile."""
    release: str
    """Release assumed for the profile."""
    vector_cores: Annotated[int, Field(ge=1)]
    """Vector cores of the device."""
    clock_mhz: Positive
    """Clock of the vector cores."""
    vector_shapes: Annotated[int, Field(ge=0)] = 0
    """Number of shapes whose counters agree on the error of vector estimates; 0 when they differ or
    are too few."""
    vector_factor: Positive | None = None
    """Factor for vector cycles; None when the published numbers are used."""
    ceilings: dict[str, Ceiling] = Field(default_factory=dict)
    """Memory ceilings by kind of launch."""

    def require_device(self, profile: Profile) -> None:
        """Check that the calibration can belong to a SoC.

        Raises UsageError when the SoC has a different number of vector cores.
        """
        cores = profile.chip.vector_cores
        if cores != self.vector_cores:
            raise UsageError(
                "calibration",
                "the calibration from {source} is of a device with {vector_cores} vector "
                "cores, {device} has {cores}",
                "{soc}, or calibrate on a profile of {device}",
                source=self.source,
                vector_cores=self.vector_cores,
                device=profile.soc,
                cores=cores,
                soc=Argument("soc", self.soc),
            )


def load_calibration(file: str | Path) -> Calibration:
    """Read a calibration.

    Raises UsageError for a file that is unreadable or no calibration; the message names file, line
    and key.
    """
    document = read_yaml(Path(file), "calibration", "name what npu-sim profile --calibrate wrote")
    try:
        return Calibration.model_validate(dict(document.data))
    except ValidationError as error:
        raise document.validation_error(
            error, Calibration.model_fields, Ceiling.model_fields
        ) from None


Estimate = VectorEstimate | LaunchEstimate

COMPARED = "published rates, compared with one device"
NOT_COMPARED = "from published rates; not validated on a device"
PROFILED = "profile"
TWO_DEVICES = "two public devices"

COMPARED_BAND, NOT_COMPARED_BAND, STREAMING_BAND = 0.10, 0.25, 0.15
"""Relative error of an estimate (page, first table)."""
MOSTLY_START_UP, START_UP_RANGE = 0.6, (0.85, 1.10)
"""Fraction of start-up above which an estimate may be about 10 % high, and the range printed then
(page, "Residuals")."""
DOUBTFUL_SHARE = 0.1
"""Fraction of the least certain instruction above which a note names it (page, "Residuals")."""
STREAMED_BYTES = 400_000_000
"""Smaller launches are not estimated: L2 dominates (page, "Streaming launches")."""
BYTES_PER_US = 1e6
"""One TB/s."""
STREAMING = {
    "Cast": READS_AND_WRITES,
    "Mul": READS_AND_WRITES,
    "MemSet": WRITES_ONLY,
    "ZerosLike": WRITES_ONLY,
}
"""Kernels that stream through memory. The kernel that copies a strided tensor is not published."""
TWO_CEILINGS = {READS_AND_WRITES: (0.614, 2.2), READS_ONLY: (0.678, 1.7), WRITES_ONLY: (0.794, 1.8)}
"""TB/s of the slowest and of the fastest public device (page, "Streaming launches")."""


def streamed_bytes(kind: str, read: int, written: int) -> int:
    """Return the bytes that a launch of this kind moves."""
    return {READS_ONLY: read, WRITES_ONLY: written}.get(kind, read + written)


@dataclass(frozen=True)
class Estimator:
    """Estimates the launches of one plan."""

    plan: Plan
    """The plan."""
    profile: Profile
    """The profile that it was made for."""
    instructions: Callable[[Plan], InstructionLists] | None
    """Lists the vector instructions of the plan's kernel; None when the operator has no such
    list."""
    calibration: Calibration | None = None
    """Measured rates of a device; None without one."""
    mhz: float | None = None
    """Vector clock; None for that of the calibration, or of the SoC without one."""

    def estimate(self, launch: Launch) -> tuple[Estimate | None, str]:
        """Return the estimate of a launch and "", or None and one sentence with the reason."""
        if launch.block_dim == 0:
            return None, "No AI core runs it."
        if launch.kernel in STREAMING:
            return _streaming(STREAMING[launch.kernel], launch, self.calibration)
        if launch.kernel != self.plan.kernel:
            return None, "How long such a launch takes beyond its bytes is not published."
        npu_arch = self.profile.npu_arch
        if npu_arch not in ESTIMATED_ARCHITECTURES:
            return None, Text(
                "Start-ups of vector instructions are not published for architecture {npu_arch}.",
                npu_arch=npu_arch,
            )
        if self.instructions is None:
            return None, "There is no instruction list of this kernel yet."
        lists = self.instructions(self.plan)
        if not lists.cores:
            return None, "The page of this kernel does not state where its operands lie."
        mhz = self.mhz or (self.calibration and self.calibration.clock_mhz)
        mhz = mhz or clock_mhz(self.profile)
        return vector_estimate(lists, self.profile, mhz, self.calibration), ""

    def estimates(self) -> tuple[tuple[str, Estimate], ...]:
        """Return kernel and estimate of every launch that has an estimate."""
        estimates = [(launch.kernel, self.estimate(launch)[0]) for launch in self.plan.launches]
        return tuple((kernel, estimate) for kernel, estimate in estimates if estimate is not None)


def vector_estimate(
    lists: InstructionLists, profile: Profile, mhz: float, calibration: Calibration | None = None
) -> VectorEstimate:
    """Return the busy time of the vector pipe for the instructions of at least one core."""
    counts = Counter(lists.cores.values())
    factor = (calibration.vector_factor if calibration else None) or 1

    def cycles(issues: Issues) -> float:
        return factor * sum(issue.cycles for issue in issues)

    def mean(quantity: Callable[[Issue], float]) -> float:
        total = sum(count * sum(map(quantity, issues)) for issues, count in counts.items())
        return factor * total / counts.total()

    mean_cycles, start_up = mean(lambda issue: issue.cycles), mean(lambda issue: issue.start_up)
    narrowing = mean(lambda issue: issue.cycles if issue.kind == NARROWING else 0)
    longest = max(counts, key=cycles)
    device = profile.chip.short_soc_version, profile.chip.vector_cores, profile.release
    profiled = calibration is not None and calibration.vector_shapes > 0
    compared = lists.compared and (profiled or device == COMPARED_DEVICE)
    band, evidence = (COMPARED_BAND, COMPARED) if compared else (NOT_COMPARED_BAND, NOT_COMPARED)
    low, high = START_UP_RANGE if start_up > MOSTLY_START_UP * mean_cycles else (1 - band, 1 + band)
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
        evidence=PROFILED if profiled else evidence,
        note=joined(_doubts(narrowing / mean_cycles, lists), "; "),
    )


def _doubts(narrowing: float, lists: InstructionLists) -> Iterator[str]:
    """Yield what makes an estimate less sure; ``narrowing`` is the share of narrowing casts."""
    if narrowing > DOUBTFUL_SHARE:
        yield Text(
            "{share} of it is {narrowing}, the least sure entry",
            share=percent_text(narrowing),
            narrowing=NARROWING,
        )
    if SUM_OF_BLOCKS in lists.kinds:
        yield Text(
            "the start-up of sums of blocks is not published, that of the sum of a repeat stands "
            "for it"
        )


def _conflicts(issues: Issues, factor: float) -> tuple[BankConflict, ...]:
    added: dict[str, float] = {}
    alone: dict[str, float] = {}
    for issue in issues:
        cycles = issue.cycles - issue.start_up - issue.conflict_cycles
        added[issue.between] = added.get(issue.between, 0.0) + factor * issue.conflict_cycles
        alone[issue.between] = alone.get(issue.between, 0.0) + factor * cycles
    conflicts = [
        BankConflict(between=name, factor=1 + cycles / alone[name], cycles=cycles)
        for name, cycles in added.items()
        if cycles
    ]
    return tuple(sorted(conflicts, key=lambda conflict: -conflict.cycles))


def _streaming(
    kind: str, launch: Launch, calibration: Calibration | None
) -> tuple[LaunchEstimate | None, str]:
    moved = streamed_bytes(kind, launch.read_bytes, launch.written_bytes)
    if moved < STREAMED_BYTES:
        return None, Text(
            "It moves {moved} bytes: below {streamed_bytes} the L2 decides how fast.",
            moved=moved,
            streamed_bytes=STREAMED_BYTES,
        )
    if calibration is None:
        slow, fast = (moved / (ceiling * BYTES_PER_US) for ceiling in TWO_CEILINGS[kind])
        return LaunchEstimate(us=None, low_us=fast, high_us=slow, evidence=TWO_DEVICES), ""
    if kind not in calibration.ceilings:
        return None, Text(
            "The calibration from {source} has no ceiling of the kind '{kind}'.",
            source=calibration.source,
            kind=kind,
        )
    us = moved / (calibration.ceilings[kind].tb_per_s * BYTES_PER_US)
    low, high = (1 - STREAMING_BAND) * us, (1 + STREAMING_BAND) * us
    return LaunchEstimate(us=us, low_us=low, high_us=high, evidence=PROFILED), ""


def estimate_of_call(launches: Sequence[LaunchTime]) -> tuple[float | None, tuple[str, ...]]:
    """Return the estimate of a call and the kernels without an estimate of their duration.

    The estimate is None unless every launch has one.
    """
    times = [
        launch.estimate.us if isinstance(launch.estimate, LaunchEstimate) else None
        for launch in launches
    ]
    known = [us for us in times if us is not None]
    without = tuple(launch.kernel for launch, us in zip(launches, times, strict=True) if us is None)
    return (None if without or not known else sum(known)), without
