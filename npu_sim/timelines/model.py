"""The result of a timeline: lower bounds from published rates, never measured times."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from npu_sim.plans.answers import Evidence, Frozen, Printed, TextField
from npu_sim.plans.model import Plan


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
