"""The result of a timeline: lower bounds from published rates, never measured times."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from npu_sim.plans.answers import Evidence, Frozen
from npu_sim.plans.printing import Printed


class CoreTime(Frozen):
    """One core: busy time of every pipe and when it is done, waiting at barriers left out; microseconds, lower bounds."""

    core: int
    us: float
    busy_us: dict[str, float]


class PhaseTime(Frozen):
    """Part of a kernel between two barriers: as long as its slowest core; microseconds, lower bounds."""

    name: str
    us: float
    slowest_core: int
    binding_pipe: str


class BankConflict(Frozen):
    """What bank groups of the Unified Buffer cost the longest core.

    Attributes
    ----------
    between
        What lies in the same bank groups.
    factor
        What the cycles of a repeat are multiplied by, the mean over repeats: 2 when two sources start in the same group.
    cycles
        Cycles it adds.
    """

    between: str
    factor: float
    cycles: float


class VectorEstimate(Frozen):
    """How long the vector pipe is busy, about; never a measurement, and never less than the bound's share of it can be.

    Attributes
    ----------
    vector_cycles, slowest_cycles
        Cycles of the mean working core, which is what a profiler's counter shows, and of the longest one.
    vector_us, low_us, high_us
        The mean in microseconds, and the range to print with it.
    instructions
        Vector instructions of the longest core.
    startup_share
        Share of the cycles that is start-up of instructions: fewer, longer ones save it.
    conflict_share
        Share of the cycles that bank groups add.
    conflicts
        What they are added by, the largest first.
    evidence
        What it rests on.
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
    note: str = ""


class LaunchEstimate(Frozen):
    """How long a launch takes that streams through memory; ``us`` is None where only a range can be said. Microseconds."""

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
        As profilers print it.
    us
        It cannot be faster, in microseconds; 0 where no AI core runs it.
    share
        Of the call's bound.
    binds
        The pipe that binds; ``reading`` or ``writing`` where only the bytes of its tensors are counted.
    planned
        Whether the plan says what its cores do.
    read_bytes, written_bytes
        Bytes of its tensors, every element once.
    evidence
        How sure it is that it is launched.
    estimate
        What can be said beyond the bound; None where nothing can.
    estimate_missing
        Why there is no estimate, in one sentence; empty when there is one.
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
    estimate_missing: str = ""


class Change(Frozen):
    """A change of the call, planned, and what its bound is then.

    Attributes
    ----------
    change
        What is changed, for instance ``grad_dtype = float32``.
    bound_us
        Bound of the changed call, in microseconds.
    saved_share
        How much less that is, as a share of the bound of the call as it is; negative when it is more.
    without
        Kernels that are not launched any more, one entry for every launch.
    note
        Remark.
    """

    change: str
    bound_us: float
    saved_share: float
    without: tuple[str, ...] = ()
    note: str = ""


class ModePrice(Frozen):
    """What a call takes with the determinism switch off or on.

    Attributes
    ----------
    deterministic
        The switch.
    launches
        How many kernels are launched.
    workspace_bytes, workspace_unknown
        Workspace, and its parts whose size is not published.
    bound_us
        Lower bound in microseconds; None where it cannot be held against that of the other mode.
    unbounded
        Why not: kernels that only this mode launches and of which nothing but the bytes is known.
    """

    deterministic: bool
    launches: int
    workspace_bytes: int
    workspace_unknown: tuple[str, ...] = ()
    bound_us: float | None = None
    unbounded: tuple[str, ...] = ()


class Timeline(Printed, Frozen):
    """The lower-bound schedule of one call on one SoC.

    Attributes
    ----------
    label
        What the times are.
    operator, title, product, soc, kernel, path
        As in the plan.
    clock_mhz, clock
        The clock that cycles are divided by, and which one it is.
    bound_us
        No execution of this call can be faster, in microseconds: the sum of its launches.
    launches
        Every launch, in launch order.
    estimate_us
        Sum of the launches' estimates when every one of them is of a whole launch, else None.
    estimate_without
        Kernels of the launches that have no such estimate.
    changes, determinism
        What would remove the largest launches, and the call with the determinism switch off and on; both are filled by
        :func:`npu_sim.questions.faster_calls.with_changes`. ``determinism`` is empty where one of the modes is refused.
    kernel_us
        The bound of the planned kernels alone; what follows speaks of these.
    binding_pipe
        The pipe that works longest on the slowest core.
    busy_share
        For every pipe, how much of the kernels' bound the slowest core's pipe is busy.
    copy_share
        Share of the kernels' bound in which the busiest copy pipe of the slowest core is busy.
    imbalance
        Time of the slowest core over the mean of the working cores.
    read_bytes, written_bytes
        What all cores copy from and to global memory, padded to 32-byte blocks.
    phases, cores
        The kernels' bound by phase and by core.
    unknown_rates
        Instructions without a published rate, counted 0.
    not_counted
        What the bound leaves out.
    assumptions
        What the data is taken to be.
    """

    label: Literal["lower bound"] = "lower bound"
    operator: str
    title: str
    product: str
    soc: str
    kernel: str
    path: str
    arguments: dict[str, Any]
    clock_mhz: float
    clock: Literal["vector clock", "core clock"]
    bound_us: float
    launches: tuple[LaunchTime, ...] = ()
    estimate_us: float | None = None
    estimate_without: tuple[str, ...] = ()
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
    not_counted: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = Field(default=())

    def as_dict(self) -> Mapping[str, Any]:
        """Return the timeline as plain data, the form ``--json`` prints."""
        return self.model_dump(mode="json")
