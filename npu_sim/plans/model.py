"""The data model of a plan: launches, workspace, memories, decisions, and the plan itself.

One model serves every operator; text, JSON, reports, comparisons and the explorer are made from it.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from math import prod
from typing import Any, Literal, TypeVar

from pydantic import Field, PrivateAttr, TypeAdapter, computed_field

from npu_sim.cores import Profile, load_profile
from npu_sim.language import Text
from npu_sim.numbers.arrays import Shape
from npu_sim.numbers.formats import itemsize
from npu_sim.plans.answers import Evidence, Frozen, FrozenDict, Printed, ReadOnlyDict, TextField


class WorkspacePart(Frozen):
    """One part of the workspace in global memory.

    Attributes
    ----------
    name
        What it is.
    bytes
        Size as it counts in the total; 0 for ``unknown`` parts.
    kind
        ``system``, ``kernel`` (the kernel's own areas), ``intermediate`` (a tensor between two
        kernels) or ``alignment``.
    evidence
        How sure the size is.
    note
        Remark, for instance which tensors lie in the same bytes.
    """

    name: TextField
    bytes: int
    kind: Literal["system", "kernel", "intermediate", "alignment"]
    evidence: Evidence = Evidence.EXACT
    note: TextField = ""


class WorkspaceNode(Frozen):
    """One kernel of a call, in launch order; nodes are numbered from 0."""

    name: TextField
    """Name of the kernel."""
    inputs: tuple[str, ...] = ()
    """Tensors it reads; those that no earlier node wrote belong to the user."""
    outputs: tuple[str, ...] = ()
    """Intermediate tensors it writes; what goes to the user's own memory is not listed."""
    workspace: tuple[WorkspacePart, ...] = ()
    """Its own workspace by part; empty when it has none."""


class WorkspaceArea(Frozen):
    """Where a tensor or a kernel's own area lies in the workspace, and how long."""

    name: TextField
    """What lies there: the name of a tensor, or of a part of a kernel's own workspace."""
    offset: int
    """Bytes from the start of the workspace."""
    bytes: int
    """Size without padding."""
    bucket: int
    """Position in :attr:`Workspace.buckets`."""
    first_node: int
    """First node of its lifetime."""
    last_node: int
    """Last node of its lifetime, included."""


class WorkspaceBucket(Frozen):
    """Memory that areas use one after the other: place and size with padding."""

    offset: int
    bytes: int


class Workspace(Printed, Frozen):
    """What the first-stage call returns, with its parts."""

    total_bytes: int
    """Size a user must allocate, without the unknown parts."""
    kernel_bytes: int
    """The main kernel's own workspace, from its tiling."""
    parts: tuple[WorkspacePart, ...]
    """The parts; their bytes add up to ``total_bytes``."""
    nodes: tuple[WorkspaceNode, ...] = ()
    """The kernels of the call; empty when nothing runs."""
    areas: tuple[WorkspaceArea, ...] = ()
    """What lies where and how long; areas of one bucket lie in the same memory."""
    buckets: tuple[WorkspaceBucket, ...] = ()
    """The memory in which areas lie; the bytes of all buckets add up to ``total_bytes``."""

    @property
    def unknown(self) -> tuple[WorkspacePart, ...]:
        """Parts whose size is not published."""
        return tuple(part for part in self.parts if part.evidence is Evidence.UNKNOWN)


class LaunchTensor(Frozen):
    """A tensor as a kernel sees it."""

    name: TextField
    """Name of the argument, or of the tensor between two kernels; views of one storage share it."""
    shape: Shape
    """Shape as the kernel sees it."""
    dtype: str
    """Dtype as the kernel sees it."""
    intermediate: bool = False
    """Whether it lies in the workspace, not in the user's memory."""

    @property
    def bytes(self) -> int:
        """Bytes of all elements."""
        return prod(self.shape) * itemsize(self.dtype)

    def viewed(self, shape: Shape, dtype: str = "") -> "LaunchTensor":
        """Return the same storage with another shape, and another dtype of the same size."""
        return LaunchTensor(
            name=self.name, shape=shape, dtype=dtype or self.dtype, intermediate=self.intermediate
        )


class Launch(Frozen):
    """One kernel that the device starts."""

    kernel: str
    """Its name, as profilers print it."""
    inputs: tuple[LaunchTensor, ...] = ()
    """Tensors it reads."""
    outputs: tuple[LaunchTensor, ...] = ()
    """Tensors it writes, or adds to in place."""
    block_dim: int | None = None
    """Number of cores that the kernel is launched on; None if it is not published, 0 if no AI core
    runs it."""
    is_node: bool = True
    """Whether the executor has a node for it. False for a kernel that another kernel's launch
    starts, such as MemSet."""
    evidence: Evidence = Evidence.EXACT
    """How sure it is that this kernel is launched here."""
    note: TextField = ""
    """Remark."""
    workspace: tuple[WorkspacePart, ...] = Field(default=(), exclude=True)
    """The kernel's own workspace by part; empty when it has none. Printed with the workspace."""

    @property
    def read_bytes(self) -> int:
        """Bytes of the tensors it reads, every element once."""
        return sum(tensor.bytes for tensor in self.inputs)

    @property
    def written_bytes(self) -> int:
        """Bytes of the tensors it writes, every element once."""
        return sum(tensor.bytes for tensor in self.outputs)


def intermediate(name: str, shape: Shape, dtype: str) -> LaunchTensor:
    """Return a tensor between two launches."""
    return LaunchTensor(name=name, shape=shape, dtype=dtype, intermediate=True)


def contiguous_copy(name: str, shape: Shape, dtype: str, copy: str = "") -> Launch:
    """Return the launch that copies a tensor to a contiguous one, by default ``contiguous NAME``.

    The kernel depends on the strides, which are not part of a plan: the launch has the name of the
    executor's step.
    """
    source = LaunchTensor(name=name, shape=shape, dtype=dtype)
    target = intermediate(copy or Text("contiguous {name}", name=name), shape, dtype)
    return Launch(kernel="Contiguous", inputs=(source,), outputs=(target,), evidence=Evidence.MODEL)


class ProfileKey(Frozen):
    """A key that a user's profile changes without effect on the tiling of a call."""

    key: str
    """The key."""
    value: int
    """Its value in the profile."""
    shipped: int
    """Its value in the product that ships with the SoC."""
    product: str
    """That product."""
    assumed: int | None = None
    """Value that the operator's planner assumes; None where it does not use the key."""
    source: TextField = ""
    """Source of the assumed value."""
    if_asked: TextField = ""
    """What the planner would do if it read the key from the device; a model. Empty if unknown."""


RUNS, OVERFLOWS, REFUSED = "runs", "overflows", "refused"
"""Outcomes of a call: ``overflows`` when the product accepts it and its buffers do not fit; a
refused call has no plan."""


class Flip(Frozen):
    """The nearest value of one argument that changes a decision, and its consequences."""

    argument: str
    """Changed argument."""
    value: int | str
    """Its new value."""
    outcome: str = ""
    """Outcome of the changed call; empty where it was not planned."""
    path: TextField = ""
    """Path of the changed call."""
    tiling_key: int | None = None
    """Tiling key of the changed call."""
    changes_path: bool = False
    """Whether path, tiling key or kernel change, or the call is refused."""
    effect: TextField = ""
    """Consequence of the changed decision."""
    refusal: TextField = ""
    """Why the changed call is refused; empty when it is not."""


class Decision(Frozen):
    """One condition that the planner tested."""

    name: TextField
    """Name of the condition."""
    condition: TextField
    """The test, written with the names in ``values``."""
    values: FrozenDict[int | float | str | bool]
    """The numbers it was tested with."""
    outcome: bool
    """Whether it held."""
    effect: TextField
    """What follows from the outcome."""
    flips: tuple[Flip, ...] = ()
    """Nearest values of single arguments that flip the outcome; empty when none does."""


class Allocation(Frozen):
    """One named buffer in an on-chip memory; ``bytes`` counts all copies of a multiple buffer."""

    name: TextField
    bytes: int
    note: TextField = ""


class Memory(Frozen):
    """One on-chip memory of a core during one phase of the kernel."""

    name: TextField
    """``UB``, ``L1``, ``L0A``, ``L0B`` or ``L0C``."""
    phase: TextField = ""
    """Which part of the kernel; empty when there is only one."""
    capacity_bytes: int
    """Bytes the kernel may use."""
    margin_bytes: int = 0
    """Reserved bytes after the capacity. No planner allocates them, but sizes that are rounded up
    may extend into them."""
    allocations: tuple[Allocation, ...]
    """What lies in it."""
    evidence: Evidence = Evidence.EXACT
    """How sure the layout is."""

    @property
    def used_bytes(self) -> int:
        """Sum of the allocations."""
        return sum(allocation.bytes for allocation in self.allocations)

    @property
    def free_bytes(self) -> int:
        """What is left; negative when the allocations do not fit."""
        return self.capacity_bytes - self.used_bytes

    @property
    def overflows(self) -> bool:
        """Whether the allocations need more than there is, margin included."""
        return self.free_bytes + self.margin_bytes < 0


class Caveat(Frozen):
    """Something the user should know although the call succeeds.

    Attributes
    ----------
    code
        Stable name, for programs.
    message
        What happens, with the numbers.
    argument
        The argument that causes it; empty when none does.
    since, until
        For a likely defect of the product: the release in which it was first seen, and the software
        (a release, or the date of its sources) in which it is fixed; empty where not known.
    not_modelled
        Names of the outputs, with blanks between, in which the device may compute other bits than
        npu_sim, ``*`` for all; empty when npu_sim computes what the device does. ``verify`` calls
        no element of such an output unreachable.
    lacks_input
        Whether it warns that outputs are not written for lack of an optional input. A recorded call
        has no such caveat: the framework gives the input when it reads the outputs.
    """

    code: str
    message: TextField
    argument: str = ""
    since: TextField = ""
    until: TextField = ""
    not_modelled: str = Field(default="", exclude=True)
    lacks_input: bool = Field(default=False, exclude=True)

    @property
    def in_words(self) -> str:
        """The message, with the software that has a likely defect where that is known."""
        if self.until:
            return Text(
                "{message} (seen in release {since}, mended in {until})",
                message=self.message,
                since=self.since,
                until=self.until,
            )
        return (
            Text("{message} (seen in release {since})", message=self.message, since=self.since)
            if self.since
            else self.message
        )


def caveat(
    code: str,
    argument: str,
    template: str,
    /,
    *,
    not_modelled: str = "",
    since: str = "",
    until: str = "",
    **fields: Any,
) -> Caveat:
    """Return a caveat whose message is a :class:`~npu_sim.language.Text` of template and fields."""
    return Caveat(
        code=code,
        argument=argument,
        message=Text(template, **fields),
        since=since,
        until=until,
        not_modelled=not_modelled,
    )


class CoreWork(Frozen):
    """Work of one core: half-open ranges by unit (``rows``, ``weight rows``, ``tiles`` ...)."""

    core: int
    ranges: FrozenDict[tuple[int, int]]


class OutputOrder(Frozen):
    """Whether an output can differ between two runs of the same call.

    Attributes
    ----------
    output
        Name of the output.
    fixed
        Whether its accumulation order is fixed, whatever the determinism switch says, and nothing
        overwrites it.
    reason
        Why.
    race
        Code of the plan's warning on a race that can overwrite it; empty without one.
    """

    output: str
    fixed: bool
    reason: TextField
    race: str = ""

    @property
    def state(self) -> Literal["fixed", "timing", "race"]:
        """Whether it is fixed, depends on the timing of cores, or can be overwritten by a race."""
        if self.race:
            return "race"
        return "fixed" if self.fixed else "timing"

    @property
    def in_words(self) -> str:
        """Output and order: ``grad_weight depends on timing``."""
        if self.race:
            return Text(
                "{output} can be overwritten, see {race}", output=self.output, race=self.race
            )
        return Text(
            "{output} {value}",
            output=self.output,
            value="fixed" if self.fixed else "depends on timing",
        )


Item = TypeVar("Item")
Later = Iterable[Item] | Callable[[], Iterable[Item]]
"""Items of a plan, or a function that returns them."""


def read(items: Later[Item]) -> tuple[Item, ...]:
    """Return items that a function may have to compute."""
    return tuple(items() if callable(items) else items)


class Plan(Printed, Frozen):
    """Everything decided before data is seen.

    Attributes
    ----------
    operator, title
        Name in npu_sim, and in the product documents.
    product, product_title, soc, release
        Target of the plan.
    deterministic, limits
        The switches of the call.
    arguments
        The call: tensors as text with ``shape`` and ``dtype``
        (:class:`~npu_sim.numbers.formats.SpecText`), attributes as they are.
    kernel
        Vendor kernel that runs; empty when none does.
    path
        Description of the path.
    path_reason
        The condition that decides it, in numbers.
    tiling_key, schedule_mode
        As the vendor numbers them; None where the kernel has none.
    block_dim
        Number of cores that the kernel is launched on.
    cores_available, core_kind
        Number and kind of the cores of the product.
    cores_note, per_core
        Description of how the work is split.
    tiling
        Every tiling field under the vendor's name.
    cores
        Ranges of every working core.
    memories
        On-chip memories with every allocation.
    workspace
        Size and parts.
    launches
        Every kernel that the device starts, in launch order; empty when nothing runs.
    order
        For every output, whether its accumulation order is fixed.
    caveats
        Warnings.
    profile_keys
        Keys that a user's profile changes without effect on the tiling.
    evidence
        How sure the plan is; a model unless its planner follows the published rule.
    rules_source
        Where the rules of the product come from; empty for products whose releases were compared
        with golden data.
    npu_arch
        Architecture number of the SoC; 0 when unknown.
    device_evidence
        Devices that confirmed or contradicted the path, as one sentence; empty without any.
    deferred
        (constructor only) The fields that are computed when they are first read, and the profile:
        product, SoC and release. Without them a plan is restored from its data.
    """

    operator: str
    title: str
    product: str
    product_title: str
    soc: str
    release: str
    deterministic: bool
    limits: str
    arguments: FrozenDict[Any]
    kernel: str
    path: TextField
    path_reason: TextField = ""
    tiling_key: int | None = None
    schedule_mode: int | None = None
    block_dim: int
    cores_available: int
    core_kind: str
    cores_note: TextField = ""
    per_core: TextField = ""
    tiling: FrozenDict[Any] = Field(default_factory=ReadOnlyDict)
    workspace: Workspace
    caveats: tuple[Caveat, ...] = ()
    evidence: Evidence = Evidence.MODEL
    rules_source: TextField = ""
    npu_arch: int = 0
    device_evidence: TextField = ""
    _deferred: Mapping[str, Any] = PrivateAttr()

    def __init__(self, *, deferred: Mapping[str, Any] | None = None, **fields: Any) -> None:
        found = deferred or {
            name: TypeAdapter(field.return_type).validate_python(fields.pop(name, ()))
            for name, field in type(self).model_computed_fields.items()
        }
        super().__init__(**fields)
        self._deferred = found

    @computed_field  # type: ignore[prop-decorator]
    @cached_property
    def cores(self) -> tuple[CoreWork, ...]:
        """Ranges of every working core."""
        return read(self._deferred["cores"])

    @computed_field  # type: ignore[prop-decorator]
    @cached_property
    def memories(self) -> tuple[Memory, ...]:
        """On-chip memories with every allocation."""
        return read(self._deferred["memories"])

    @computed_field  # type: ignore[prop-decorator]
    @cached_property
    def decisions(self) -> tuple[Decision, ...]:
        """Every condition that the planner tested."""
        return read(self._deferred["decisions"])

    @computed_field  # type: ignore[prop-decorator]
    @cached_property
    def launches(self) -> tuple[Launch, ...]:
        """Every kernel that the device starts, in launch order."""
        return read(self._deferred["launches"])

    @computed_field  # type: ignore[prop-decorator]
    @cached_property
    def order(self) -> tuple[OutputOrder, ...]:
        """For every output, whether its accumulation order is fixed."""
        return read(self._deferred["order"])

    @computed_field  # type: ignore[prop-decorator]
    @cached_property
    def profile_keys(self) -> tuple[ProfileKey, ...]:
        """Keys that a user's profile changes without effect on the tiling."""
        return read(self._deferred["profile_keys"])

    @property
    def profile(self) -> Profile:
        """Product, SoC and release that it was made for."""
        known: Profile | None = self._deferred.get("profile")
        return known or load_profile(self.product, self.soc, self.release)

    def read_all(self) -> dict[str, tuple[Any, ...]]:
        """Return the fields that are computed when they are first read."""
        return {name: getattr(self, name) for name in type(self).model_computed_fields}

    def __getstate__(self) -> dict[Any, Any]:
        """Pickle what :meth:`read_all` returns in place of the functions."""
        private = {"_deferred": {**self.read_all(), "profile": self._deferred.get("profile")}}
        return {**super().__getstate__(), "__pydantic_private__": private}

    def __eq__(self, other: object) -> bool:
        """Compare every field, those that may have to be computed first last."""
        names = (*type(self).model_fields, *type(self).model_computed_fields)
        return isinstance(other, Plan) and all(
            getattr(self, name) == getattr(other, name) for name in names
        )

    @property
    def overflow(self) -> Memory | None:
        """The Unified Buffer in the phase whose buffers exceed it most; None when they fit.

        Other memories are not considered. The product does not check it; the
        results of the device are then unknown.
        """
        beyond = [memory for memory in self.memories if memory.name == "UB" and memory.overflows]
        return min(beyond, key=lambda memory: memory.free_bytes, default=None)

    @property
    def fullest_memory(self) -> Memory | None:
        """On-chip memory of which the largest part is used; None without one."""
        return max(
            self.memories,
            key=lambda memory: memory.used_bytes / memory.capacity_bytes,
            default=None,
        )

    @property
    def outcome(self) -> str:
        """``runs``, or ``overflows`` for an accepted call with buffers beyond the UB."""
        return RUNS if self.overflow is None else OVERFLOWS

    @property
    def idle_cores(self) -> int:
        """Cores without work."""
        return self.cores_available - self.block_dim

    def as_dict(self) -> dict[str, Any]:
        """Return the plan as plain data, the form ``--json`` prints; derived sizes are included."""
        data = self.model_dump(mode="json")
        # JSON keeps its order of keys.
        names = list(type(self).model_fields)
        before, after = names.index("workspace"), names.index("caveats")
        names = [
            *names[:before],
            "cores",
            "memories",
            "decisions",
            "workspace",
            "launches",
            "order",
            "caveats",
            "profile_keys",
            *names[after + 1 :],
        ]
        data["memories"] = [
            {**dumped, "used_bytes": memory.used_bytes, "free_bytes": memory.free_bytes}
            for memory, dumped in zip(self.memories, data["memories"], strict=True)
        ]
        data["cores"] = [
            {**dumped, "amounts": {name: stop - start for name, (start, stop) in ranges.items()}}
            for ranges, dumped in zip(
                (work.ranges for work in self.cores), data["cores"], strict=True
            )
        ]
        data["launches"] = [
            {**dumped, "read_bytes": launch.read_bytes, "written_bytes": launch.written_bytes}
            for launch, dumped in zip(self.launches, data["launches"], strict=True)
        ]
        derived = {"outcome": self.outcome, "idle_cores": self.idle_cores}
        return {name: data[name] for name in names} | derived
