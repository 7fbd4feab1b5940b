"""The result of a timeline: lower bounds from published rates, never measured times."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from npu_sim.plans.answers import Evidence, Frozen, Printed, TextField


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
    """Bank-group conflicts of the Unified Buffer on the longest core.

    Attributes
    ----------
    between
        Operands in the same bank groups.
    factor
        Mean slowdown of a repeat: 2 when two sources start in the same group.
    cycles
        Cycles added.
    """

    between: TextField
    factor: float
    cycles: float


class VectorEstimate(Frozen):
    """Estimated busy time of the vector pipe; not a measurement.

    Attributes
    ----------
    vector_cycles, slowest_cycles
        Mean cycles of a working core, as a profiler's counter shows them, and those of the slowest.
    vector_us, low_us, high_us
        The mean in microseconds and its range.
    instructions
        Vector instructions of the slowest core.
    startup_share
        Fraction of the cycles spent in start-up; fewer, longer instructions reduce it.
    conflict_share
        Fraction of the cycles added by bank conflicts.
    conflicts
        The conflicts, the most expensive first.
    evidence
        Source of the estimate.
    note
        Remark; empty when there is none.
    """

    of: Literal["vector pipe"] = "vector pipe"
    vector_cycles: float
    slowest_cycles: float
    vector_us: float
    low_us: float
    high_us: float
    instructions: int
    startup_share: float
    conflict_share: float
    conflicts: tuple[BankConflict, ...] = ()
    evidence: str
    note: TextField = ""


class LaunchEstimate(Frozen):
    """Estimated duration in us of a launch that streams through memory; ``us`` may be unknown."""

    of: Literal["launch"] = "launch"
    us: float | None
    low_us: float
    high_us: float
    evidence: str


class LaunchTime(Frozen):
    """One launch of a call.

    Attributes
    ----------
    kernel
        Name of the kernel in a profiler.
    us
        Lower bound in microseconds; 0 when no AI core runs it.
    share
        Fraction of the call's bound.
    binds
        Binding pipe; ``reading`` or ``writing`` when only the bytes of its tensors are counted.
    planned
        Whether the plan describes the work of its cores.
    read_bytes, written_bytes
        Bytes of its tensors, every element once.
    evidence
        Certainty that it is launched.
    estimate
        Estimate beyond the bound; None when there is none.
    estimate_missing
        Reason for a missing estimate, in one sentence; empty when there is one.
    """

    kernel: str
    us: float
    share: float
    binds: str
    planned: bool
    read_bytes: int
    written_bytes: int
    evidence: Evidence
    estimate: VectorEstimate | LaunchEstimate | None = None
    estimate_missing: TextField = ""


class Change(Frozen):
    """A change of the call and the bound of the changed call.

    Attributes
    ----------
    change
        The change, for instance ``grad_dtype = float32``.
    bound_us
        Bound of the changed call, in microseconds.
    saved_share
        Reduction as a fraction of the original bound; negative when the bound grows.
    without
        Kernels no longer launched, one entry for every launch.
    note
        Remark.
    """

    change: TextField
    bound_us: float
    saved_share: float
    without: tuple[TextField, ...] = ()
    note: TextField = ""


class ModePrice(Frozen):
    """Cost of a call with the determinism switch off or on.

    Attributes
    ----------
    deterministic
        The switch.
    launches
        Number of kernels launched.
    workspace_bytes, workspace_unknown
        Workspace, and its parts whose size is not published.
    bound_us
        Lower bound in microseconds; None when it cannot be compared with that of the other mode.
    unbounded
        The reason: kernels that only this mode launches and of which only the bytes are known.
    """

    deterministic: bool
    launches: int
    workspace_bytes: int
    workspace_unknown: tuple[TextField, ...] = ()
    bound_us: float | None = None
    unbounded: tuple[TextField, ...] = ()


class OtherBound(Frozen):
    """Bound of a call under the opposite of one of its assumptions.

    Attributes
    ----------
    assumption
        What is assumed about the data instead, for instance that every probs is 0.
    bound_us, kernel_us
        Bound of the call and of its planned kernels, in microseconds.
    """

    assumption: TextField
    bound_us: float
    kernel_us: float


class Timeline(Printed, Frozen):
    """The lower-bound schedule of one call on one SoC.

    Attributes
    ----------
    label
        Kind of the times.
    operator, title, product, soc, kernel, path
        As in the plan.
    clock_mhz, clock
        The clock that converts cycles to time, and its name.
    bound_us
        Lower bound of the call in microseconds: the sum of its launches.
    launches
        Every launch, in launch order.
    estimate_us
        Sum of the launches' estimates when each of them covers a whole launch, else None.
    estimate_without
        Kernels of the launches without such an estimate.
    changes, determinism
        Changes that remove the largest launches, and the call with the determinism switch off and
        on; filled by :func:`npu_sim.questions.faster_calls.with_changes`. ``determinism`` is empty
        when one of the modes is refused.
    kernel_us
        Bound of the planned kernels alone; the following fields describe these.
    binding_pipe
        Busiest pipe of the slowest core.
    busy_share
        Busy time of the slowest core's pipes as a fraction of the kernels' bound.
    copy_share
        The largest such fraction among the copy pipes.
    imbalance
        Time of the slowest core over the mean of the working cores.
    read_bytes, written_bytes
        Bytes copied from and to global memory by all cores, padded to 32-byte blocks.
    phases, cores
        The kernels' bound by phase and by core.
    unknown_rates
        Instructions without a published rate, counted as 0.
    not_counted
        Work that the bound leaves out.
    assumptions
        Assumptions about the data.
    otherwise
        Bounds under the opposite of an assumption, where it follows from the call; data between
        the two has a bound between them.
    rules_source
        As in the plan.
    """

    label: Literal["lower bound"] = "lower bound"
    operator: str
    title: str
    product: str
    soc: str
    kernel: str
    path: TextField
    arguments: dict[str, Any]
    clock_mhz: float
    clock: Literal["vector clock", "core clock"]
    bound_us: float
    launches: tuple[LaunchTime, ...] = ()
    estimate_us: float | None = None
    estimate_without: tuple[TextField, ...] = ()
    changes: tuple[Change, ...] = ()
    determinism: tuple[ModePrice, ...] = ()
    kernel_us: float
    binding_pipe: str
    busy_share: dict[str, float]
    copy_share: float
    imbalance: float
    read_bytes: int
    written_bytes: int
    phases: tuple[PhaseTime, ...] = ()
    cores: tuple[CoreTime, ...] = ()
    unknown_rates: tuple[str, ...] = ()
    not_counted: tuple[TextField, ...] = ()
    assumptions: tuple[TextField, ...] = Field(default=())
    otherwise: tuple[OtherBound, ...] = ()
    rules_source: TextField = ""

    def as_dict(self) -> Mapping[str, Any]:
        """Return the timeline as plain data, as printed by ``--json``."""
        return self.model_dump(mode="json")
