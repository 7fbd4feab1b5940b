"""What an operator states of a plan: its description, and conditions as data."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from npu_sim.cores import Device
from npu_sim.framework.arguments import Number
from npu_sim.framework.case import Case
from npu_sim.framework.operator import Hook
from npu_sim.language import Text
from npu_sim.plans.answers import Evidence
from npu_sim.plans.model import (
    Allocation,
    Caveat,
    CoreWork,
    Decision,
    Flip,
    Later,
    Launch,
    Memory,
    OutputOrder,
    Workspace,
    WorkspacePart,
    caveat,
)
from npu_sim.plans.workspace import executor_workspace, kernel_workspace
from npu_sim.tiling.common import SYSTEM_WORKSPACE_BYTES, Range, vendor_fields


@dataclass(frozen=True, kw_only=True)
class Description:
    """What an operator states of the plan of a call, under the names of the plan's fields.

    Without ``launches`` one kernel runs; without ``evidence`` it is that of the declaration.
    """

    path: str
    kernel: str = ""
    path_reason: str = ""
    tiling_key: int | None = None
    schedule_mode: int | None = None
    block_dim: int = 0
    cores_note: str = ""
    per_core: str = ""
    tiling: Mapping[str, Any] = field(default_factory=dict)
    cores: Later[CoreWork] = ()
    memories: Later[Memory] = ()
    decisions: Later[Decision] = ()
    workspace: Workspace = Workspace(total_bytes=0, kernel_bytes=0, parts=())
    launches: Later[Launch] | None = None
    order: Later[OutputOrder] = ()
    caveats: tuple[Caveat, ...] = ()
    evidence: Evidence | None = None


DESCRIBE: Hook[Callable[[Case], Description]] = Hook("describe", "plan")
DESCRIBE_EMPTY: Hook[Callable[[Case], Description]] = Hook("describe_empty", "plan")


RELEASE_INFERRED = "release_inferred"
"""Code of the caveat of :func:`release_inferred`; the evidence of its plan is a model."""


def release_inferred(case: Case, argument: str, what: str, outputs: str) -> Caveat:
    """Return the caveat of a call that sources later than the last published release changed.

    - ``outputs``: names of the outputs, with blanks between, that the release before can give.
    """
    return caveat(
        RELEASE_INFERRED,
        argument,
        "{what}: read in sources of September to November 2026; that release {release} ships them "
        "is inferred",
        what=what,
        release=case.profile.release,
        not_modelled=outputs,
    )


@dataclass(frozen=True)
class Condition:
    """A condition that a planner tests, and what follows from it.

    Attributes
    ----------
    name
        Its name.
    text
        The condition, over named values.
    holds
        ``holds(row, device, rules)``: the function with which the planner tests it.
    yes, no
        What follows when it holds, and when it does not.
    vary
        Axes, or aliases of axes, of which the nearest value that flips it is searched.
    candidates
        ``candidates(row, device, rules)`` yields values to try, nearest first, by axis of ``vary``.
        Other axes are searched by bisection, which misses flips that do not last until the end of
        the axis.
    """

    name: str
    text: str
    holds: Callable[[Any, Device, Any], bool]
    yes: str
    no: str = ""
    vary: tuple[str, ...] = ()
    candidates: Mapping[str, Callable[[Any, Device, Any], Iterable[int]]] = field(
        default_factory=dict
    )


def decision(case: Case, condition: Condition, **values: int | float | str | bool) -> Decision:
    """Return a condition as the plan shows it; ``values`` are the numbers that its text names."""
    outcome = bool(condition.holds(case.row, case.device, case.rules))
    return Decision(
        name=condition.name,
        condition=condition.text,
        values=values,
        outcome=outcome,
        effect=condition.yes if outcome else condition.no,
        flips=tuple(
            flip
            for name in condition.vary
            if case.searches_flips
            for flip in _flips(case, condition, name, outcome)
        ),
    )


def _flips(case: Case, condition: Condition, name: str, outcome: bool) -> list[Flip]:
    """Search the nearest value of one axis that flips a condition."""
    axis = case.operator.axis(name)
    now = int(getattr(case.row, axis.name))

    def flipped(value: int) -> bool:
        row = case.row._replace(**{axis.name: value})
        return bool(condition.holds(row, case.device, case.rules)) != outcome

    if name in condition.candidates:
        found = filter(flipped, condition.candidates[name](case.row, case.device, case.rules))
        return [Flip(argument=name, value=value) for value in found][:1]
    if isinstance(axis, Number):
        ends = (nearest_change(flipped, now, end) for end in (axis.low, axis.high))
        changes = [value for value in ends if value is not None]
        nearest = sorted(changes, key=lambda value: abs(value - now))
        return [Flip(argument=name, value=value) for value in nearest[:1]]
    codes = range(len(getattr(axis, "words", (False, True))))
    # Of two names as near, the later one.
    nearest = sorted(filter(flipped, codes), key=lambda code: (abs(code - now), -code))
    attribute = case.operator.by_name.get(axis.name)
    kind = int if getattr(attribute, "kind", None) is int else str
    return [Flip(argument=name, value=kind(str(axis.value(code)).lower())) for code in nearest[:1]]


def nearest_change(flipped: Callable[[int], bool], now: int, end: int) -> int | None:
    """Return the nearest value towards ``end`` that changes a condition, by bisection."""
    direction, step, last = (1 if end > now else -1), 1, now
    while last != end:
        value = min(now + step, end) if direction > 0 else max(now - step, end)
        if flipped(value):
            while abs(value - last) > 1:
                middle = (value + last) // 2
                value, last = (middle, last) if flipped(middle) else (value, middle)
            return value
        last, step = value, 2 * step
    return None


PLURALS = {
    "column": "columns",
    "element": "elements",
    "expert": "experts",
    "group": "groups",
    "id": "ids",
    "input channel": "input channels",
    "line": "lines",
    "output channel": "output channels",
    "padded step": "padded steps",
    "piece": "pieces",
    "row": "rows",
    "sample": "samples",
    "sorted row": "sorted rows",
    "tap": "taps",
    "term": "terms",
    "tile": "tiles",
    "time step": "time steps",
    "token": "tokens",
    "weight row": "weight rows",
}
"""Units and their plurals, which are entries of the catalogue."""


def plural(unit: str) -> str:
    """Return the plural of a unit; that of a user's operator has an s."""
    return PLURALS.get(unit, f"{unit}s")


def counted(number: int, unit: str) -> str:
    """Return a number of units: ``1 row``, ``86 rows``."""
    return Text("{number} {unit}", number=number, unit=unit if number == 1 else plural(unit))


def spread(counts: Sequence[int], unit: str) -> str:
    """Return how evenly work is spread over cores: ``86 rows each, the last one 54``."""
    first = Text("{count} each", count=counted(counts[0], unit))
    if len(set(counts)) == 1:
        return first
    if len(set(counts[:-1])) == 1:
        return Text("{first}, the last one {count}", first=first, count=counts[-1])
    return Text(
        "{most} on {most_count} cores, {fewest} on {fewest_count}",
        most=counted(max(counts), unit),
        most_count=list(counts).count(max(counts)),
        fewest=min(counts),
        fewest_count=list(counts).count(min(counts)),
    )


def ub_memory(
    case: Case, buffers: Mapping[str, int], phase: str = "", notes: Mapping[str, str] | None = None
) -> Memory:
    """Return the Unified Buffer of a core.

    ``buffers`` are bytes by name, ``notes`` remarks on some of them; buffers of 0 bytes are left
    out.
    """
    allocations = tuple(
        Allocation(name=name, bytes=size, note=(notes or {}).get(name, ""))
        for name, size in buffers.items()
        if size > 0
    )
    capacity = case.device.ub_bytes
    return Memory(name="UB", phase=phase, capacity_bytes=capacity, allocations=allocations)


SYSTEM_WORKSPACE = WorkspacePart(
    name="system", bytes=SYSTEM_WORKSPACE_BYTES, kind="system", note="16 MiB on every SoC"
)
"""What planners ask for that do not read the size from the chip."""


def kernel_parts(case: Case, sizes: Mapping[str, int]) -> tuple[WorkspacePart, ...]:
    """Return the workspace of a kernel: the system's, and its own parts by name."""
    system = WorkspacePart(name="system", bytes=case.device.system_workspace_bytes, kind="system")
    parts = (WorkspacePart(name=name, bytes=size, kind="kernel") for name, size in sizes.items())
    return (system, *parts)


def vector_plan(
    case: Case,
    *,
    path: str,
    ranges: Sequence[Range],
    unit: str = "row",
    buffers: Mapping[str, int] | None = None,
    notes: Mapping[str, str] | None = None,
    memories: Later[Memory] | None = None,
    path_reason: str = "",
    per_core: str = "",
    kernel: str = "",
    tiling: Any = None,
    fields: Mapping[str, Any] | None = None,
    cores: Later[CoreWork] = (),
    workspace: Sequence[WorkspacePart] = (),
    launches: Sequence[Launch] | None = None,
    conditions: Later[Decision] = (),
    order: Later[OutputOrder] = (),
    caveats: Iterable[Caveat] = (),
    evidence: Evidence | None = None,
) -> Description:
    """Return the description of a plan whose kernel runs on vector cores.

    Parameters
    ----------
    case
        The checked call.
    tiling
        The tiling of the kernel, by default that of the case: a NamedTuple with ``block_dim``, and
        ``tiling_key`` and ``schedule_mode`` where the kernel has them.
    fields
        Tiling fields under the vendor's names; by default those of the table of fields.
    conditions
        Decisions of the planner: conditions with the numbers they were tested with.
    path, path_reason, per_core, order, caveats, evidence
        As in the plan; without ``order`` no output depends on timing, as every part belongs to one
        core.
    buffers, notes
        Bytes in the Unified Buffer of a core by name, and remarks; what has no bytes is left out.
    memories
        The Unified Buffer by phase, in place of ``buffers``.
    ranges, unit
        What every core works on, half-open, and what it is called.
    cores
        The work of every core where it has ranges besides ``ranges``.
    kernel
        Name of the kernel; the operator's title when empty.
    workspace
        The kernel's own workspace by part; the system workspace alone when empty.
    launches
        The launches of an operator with several kernels, which have the workspace.
    """
    tiling, title = case.tiling if tiling is None else tiling, kernel or case.operator.title
    mode = getattr(tiling, "schedule_mode", -1)
    parts = tuple(workspace) or kernel_parts(case, {})
    if launches is None:
        total = kernel_workspace(parts, case.copies, title)
    else:
        total = executor_workspace(launches, getattr(tiling, "workspace_bytes", 0))

    def fixed() -> Iterable[OutputOrder]:
        reason = Text("every {unit} belongs to one core", unit=unit)
        return (
            OutputOrder(output=output.output, fixed=True, reason=reason) for output in case.outputs
        )

    return Description(
        kernel=title,
        path=path,
        path_reason=path_reason,
        tiling_key=getattr(tiling, "tiling_key", None),
        schedule_mode=mode if mode >= 0 else None,
        block_dim=tiling.block_dim,
        cores_note=spread([stop - start for start, stop in ranges], unit),
        per_core=per_core,
        tiling=vendor_fields(tiling, case.rules) if fields is None else fields,
        cores=cores or (lambda: core_works({plural(unit): ranges})),
        memories=memories or (lambda: (ub_memory(case, buffers or {}, notes=notes),)),
        decisions=conditions,
        workspace=total,
        launches=launches,
        order=order or fixed,
        caveats=tuple(caveats),
        evidence=evidence,
    )


def core_works(ranges: Mapping[str, Sequence[Range]], cores: int = 0) -> list[CoreWork]:
    """Return the work of every core from the ranges of the first cores by unit.

    There are ``cores`` cores, by default as many as ranges of one unit.
    """
    return [
        CoreWork(
            core=core,
            ranges={unit: known[core] for unit, known in ranges.items() if core < len(known)},
        )
        for core in range(cores or max(map(len, ranges.values())))
    ]
