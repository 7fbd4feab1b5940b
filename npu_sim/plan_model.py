"""The data model of a plan: everything the first stage of a call decides, and why.

One model serves every operator; the text, JSON, reports, comparisons and the explorer are all made from it.
"""

from enum import StrEnum
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class Evidence(StrEnum):
    """How sure a result is."""

    EXACT = "exact"
    """The product's published rule, reproduced."""
    MODEL = "model"
    """Our model of something the vendor does not publish."""
    UNKNOWN = "unknown"
    """Not published and not modelled; counted as 0 and named."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Flip(_Frozen):
    """The nearest value of one argument that would turn a decision around."""

    argument: str
    value: int | str


class Decision(_Frozen):
    """One condition that the planner tested.

    Attributes
    ----------
    name
        Name of the condition.
    condition
        The test, written with the names in ``values``.
    values
        The numbers it was tested with.
    outcome
        Whether it held.
    effect
        What follows from the outcome.
    flips
        Nearest values of single arguments that turn the outcome around; empty when none does.
    """

    name: str
    condition: str
    values: dict[str, int | float | str | bool]
    outcome: bool
    effect: str
    flips: tuple[Flip, ...] = ()


class Allocation(_Frozen):
    """One named buffer in an on-chip memory; ``bytes`` counts every copy when it is buffered more than once."""

    name: str
    bytes: int
    note: str = ""


class Memory(_Frozen):
    """One on-chip memory of a core during one phase of the kernel.

    Attributes
    ----------
    name
        ``UB``, ``L1``, ``L0A``, ``L0B`` or ``L0C``.
    phase
        Which part of the kernel; empty when there is only one.
    capacity_bytes
        Bytes the kernel may use.
    allocations
        What lies in it.
    evidence
        How sure the layout is.
    """

    name: str
    phase: str = ""
    capacity_bytes: int
    allocations: tuple[Allocation, ...]
    evidence: Evidence = Evidence.EXACT

    @property
    def used_bytes(self) -> int:
        """Sum of the allocations."""
        return sum(allocation.bytes for allocation in self.allocations)

    @property
    def free_bytes(self) -> int:
        """What is left; negative when the allocations do not fit."""
        return self.capacity_bytes - self.used_bytes


class WorkspacePart(_Frozen):
    """One part of the workspace in global memory.

    Attributes
    ----------
    name
        What it is.
    bytes
        Size as it counts in the total; 0 for ``unknown`` parts.
    kind
        ``system``, ``kernel`` (the kernel's own areas), ``intermediate`` (a tensor between two kernels) or ``alignment``.
    evidence
        How sure the size is.
    note
        Remark, for instance which tensors share the bytes.
    """

    name: str
    bytes: int
    kind: Literal["system", "kernel", "intermediate", "alignment"]
    evidence: Evidence = Evidence.EXACT
    note: str = ""


class WorkspaceNode(_Frozen):
    """One kernel of a call, in launch order; nodes are numbered from 0.

    Attributes
    ----------
    name
        Name of the kernel.
    inputs
        Tensors it reads; those that no earlier node wrote belong to the user.
    outputs
        Intermediate tensors it writes; what goes to the user's own memory is not listed.
    workspace
        Its own workspace by part; empty when it has none.
    """

    name: str
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    workspace: tuple[WorkspacePart, ...] = ()


class WorkspaceArea(_Frozen):
    """Where a tensor or a kernel's own area lies in the workspace, and how long.

    Attributes
    ----------
    name
        What lies there: the name of a tensor, or of a part of a kernel's own workspace.
    offset, bytes
        Place, from the start of the workspace, and size without padding.
    bucket
        Position in :attr:`Workspace.buckets`.
    first_node, last_node
        The nodes between which it lives, both included.
    """

    name: str
    offset: int
    bytes: int
    bucket: int
    first_node: int
    last_node: int


class WorkspaceBucket(_Frozen):
    """Memory that areas use one after the other: place and size with padding."""

    offset: int
    bytes: int


class Workspace(_Frozen):
    """What the first-stage call returns, with its parts.

    Attributes
    ----------
    total_bytes
        Size a user must allocate, without the unknown parts.
    kernel_bytes
        The main kernel's own workspace, from its tiling.
    parts
        The parts; their bytes add up to ``total_bytes``.
    nodes
        The kernels of the call; empty when nothing runs.
    areas
        What lies where and how long; areas of one bucket share its memory.
    buckets
        The memory the areas share; their bytes add up to ``total_bytes``.
    """

    total_bytes: int
    kernel_bytes: int
    parts: tuple[WorkspacePart, ...]
    nodes: tuple[WorkspaceNode, ...] = ()
    areas: tuple[WorkspaceArea, ...] = ()
    buckets: tuple[WorkspaceBucket, ...] = ()

    @property
    def unknown(self) -> tuple[WorkspacePart, ...]:
        """Parts whose size is not published."""
        return tuple(part for part in self.parts if part.evidence is Evidence.UNKNOWN)

    def __str__(self) -> str:
        from npu_sim.workspace_text import workspace_text

        return workspace_text(self)


class Caveat(_Frozen):
    """Something the user should know although the call succeeds.

    Attributes
    ----------
    code
        Stable name, for programs.
    message
        What happens, with the numbers.
    argument
        The argument that causes it; empty when none does.
    """

    code: str
    message: str
    argument: str = ""


class CoreWork(_Frozen):
    """What one core does: half-open ranges by the name of what is split (``rows``, ``weight rows``, ``tiles`` ...)."""

    core: int
    ranges: dict[str, tuple[int, int]]


class OutputOrder(_Frozen):
    """Whether an output can differ between two runs of the same call.

    Attributes
    ----------
    output
        Name of the output.
    deterministic
        True when the accumulation order is fixed.
    reason
        Why.
    """

    output: str
    deterministic: bool
    reason: str


class Plan(_Frozen):
    """Everything decided before data is seen.

    Attributes
    ----------
    operator, title
        Name here, and in the product documents.
    product, product_title, soc
        What it is planned for.
    deterministic, limits
        The switches of the call.
    arguments
        The call: shapes and dtypes as text, attributes as they are.
    kernel
        Vendor kernel that runs; empty when none does.
    path
        The path taken, in words.
    path_reason
        The condition that decides it, in numbers.
    tiling_key, schedule_mode
        As the vendor numbers them; None where the kernel has none.
    block_dim
        Cores that work.
    cores_available, core_kind
        Cores there are, and what they are called.
    cores_note, per_core
        How the work is split, in words.
    tiling
        Every tiling field under the vendor's name.
    cores
        Ranges of every working core.
    memories
        On-chip memories with every allocation.
    decisions
        Every condition tested on the way.
    workspace
        Size and parts.
    order
        For every output, whether its accumulation order is fixed.
    caveats
        Warnings.
    evidence
        How sure the plan is.
    """

    operator: str
    title: str
    product: str
    product_title: str
    soc: str
    deterministic: bool
    limits: str
    arguments: dict[str, Any]
    kernel: str
    path: str
    path_reason: str = ""
    tiling_key: int | None = None
    schedule_mode: int | None = None
    block_dim: int
    cores_available: int
    core_kind: str
    cores_note: str = ""
    per_core: str = ""
    tiling: dict[str, Any] = Field(default_factory=dict)
    cores: tuple[CoreWork, ...] = ()
    memories: tuple[Memory, ...] = ()
    decisions: tuple[Decision, ...] = ()
    workspace: Workspace
    order: tuple[OutputOrder, ...] = ()
    caveats: tuple[Caveat, ...] = ()
    evidence: Evidence = Evidence.EXACT

    @property
    def idle_cores(self) -> int:
        """Cores without work."""
        return self.cores_available - self.block_dim

    def as_dict(self) -> dict[str, Any]:
        """Return the plan as plain data, the form ``--json`` prints; derived sizes are included."""
        data = self.model_dump(mode="json")
        for memory, dumped in zip(self.memories, data["memories"], strict=True):
            dumped["used_bytes"] = memory.used_bytes
            dumped["free_bytes"] = memory.free_bytes
        for work, dumped in zip(self.cores, data["cores"], strict=True):
            dumped["amounts"] = {name: stop - start for name, (start, stop) in work.ranges.items()}
        data["idle_cores"] = self.idle_cores
        return data

    def __str__(self) -> str:
        from npu_sim.text import plan_text

        return plan_text(self)

    def _repr_html_(self) -> str:
        """Return the report as notebooks show it."""
        from npu_sim.reports import embedded, plan_report

        return embedded(plan_report(self))
