"""Parts of a plan made from a tiling: cores, buffers, tiling fields, and conditions as data."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from npu_sim.framework.axes import Number
from npu_sim.framework.case import Case
from npu_sim.language import Text
from npu_sim.plans.model import (
    Allocation,
    Caveat,
    CoreWork,
    Decision,
    Flip,
    Memory,
    OutputOrder,
    WorkspacePart,
)
from npu_sim.plans.workspace import kernel_workspace
from npu_sim.tiling.fields import vendor_fields


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
        Axes of which the nearest value that flips it is searched.
    """

    name: str
    text: str
    holds: Callable[[Any, Any, Any], bool]
    yes: str
    no: str
    vary: tuple[str, ...] = ()


def decision(case: Case, condition: Condition, **values: int | str | bool) -> Decision:
    """Return a condition as the plan shows it; ``values`` add to the fields of the row."""
    outcome = bool(condition.holds(case.row, case.device, case.rules))
    tested = {
        name: getattr(case.row, name)
        for name in case.row._fields
        if name in condition.text.replace("(", " ").replace(")", " ").split()
    }
    return Decision(
        name=condition.name,
        condition=condition.text,
        values={**tested, **values},
        outcome=outcome,
        effect=condition.yes if outcome else condition.no,
        flips=tuple(
            flip for name in condition.vary for flip in _flips(case, condition, name, outcome)
        ),
    )


def decided(
    name: str,
    condition: str,
    values: Mapping[str, int | float | str | bool],
    outcome: bool,
    effects: tuple[str, str],
    *flips: tuple[str, int | str],
) -> Decision:
    """Return a decision whose outcome and flips the caller has computed; else see :func:`decision`.

    ``effects`` are what follows when it holds and when not, ``flips`` arguments and values that
    flip it.
    """
    return Decision(
        name=name,
        condition=condition,
        values=values,
        outcome=outcome,
        effect=effects[not outcome],
        flips=tuple(Flip(argument=argument, value=value) for argument, value in flips),
    )


def _flips(case: Case, condition: Condition, name: str, outcome: bool) -> list[Flip]:
    """Search the nearest value of one axis, on both sides, that flips a condition."""
    axis, now = case.operator.axis(name), int(getattr(case.row, name))

    def flipped(value: int) -> bool:
        return (
            bool(condition.holds(case.row._replace(**{name: value}), case.device, case.rules))
            != outcome
        )

    if not isinstance(axis, Number):
        words = range(len(getattr(axis, "words", (False, True))))
        return [
            Flip(argument=name, value=str(axis.value(code)).lower())
            for code in words
            if code != now and flipped(code)
        ][:1]
    found = [
        value
        for value in (
            nearest_change(flipped, now, axis.low),
            nearest_change(flipped, now, axis.high),
        )
        if value is not None
    ]
    return (
        [Flip(argument=name, value=min(found, key=lambda value: abs(value - now)))] if found else []
    )


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
    "output channel": "output channels",
    "padded step": "padded steps",
    "piece": "pieces",
    "row": "rows",
    "sample": "samples",
    "sorted row": "sorted rows",
    "tap": "taps",
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


def vector_plan(
    case: Case,
    *,
    path: str,
    buffers: Mapping[str, int],
    ranges: Sequence[tuple[int, int]],
    unit: str = "row",
    path_reason: str = "",
    per_core: str = "",
    kernel: str = "",
    workspace: Sequence[WorkspacePart] = (),
    conditions: Sequence[Decision] = (),
    order: Sequence[OutputOrder] = (),
    caveats: Sequence[Caveat] = (),
    notes: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return the fields of the plan of an operator with one vector kernel.

    Parameters
    ----------
    case
        The checked call; its tiling has ``block_dim``, and ``tiling_key`` and ``schedule_mode``
        where the kernel has them.
    path, path_reason, per_core, conditions, order, caveats
        As in the plan; without ``order`` no output depends on timing, as every part belongs to one
        core.
    buffers, notes
        Bytes in the Unified Buffer of a core by name, and remarks; what has no bytes is left out.
    ranges, unit
        What every core works on, half-open, and what it is called.
    kernel
        Name of the kernel; the operator's title when empty.
    workspace
        The kernel's own workspace by part; the system workspace alone when empty.
    """
    tiling, title = case.tiling, kernel or case.operator.title
    system = WorkspacePart(name="system", bytes=case.device.system_workspace_bytes, kind="system")
    fixed = (
        OutputOrder(
            output=output.output,
            fixed=True,
            reason=Text("every {unit} belongs to one core", unit=unit),
        )
        for output in case.outputs
    )
    mode = getattr(tiling, "schedule_mode", -1)
    return {
        "kernel": title,
        "path": path,
        "path_reason": path_reason,
        "tiling_key": getattr(tiling, "tiling_key", None),
        "schedule_mode": mode if mode >= 0 else None,
        "block_dim": tiling.block_dim,
        "cores_note": spread([stop - start for start, stop in ranges], unit),
        "per_core": per_core,
        "tiling": vendor_fields(tiling, case.rules),
        "cores": lambda: tuple(
            CoreWork(core=core, ranges={plural(unit): units}) for core, units in enumerate(ranges)
        ),
        "memories": (ub_memory(case, buffers, notes=notes),),
        "decisions": tuple(conditions),
        "workspace": kernel_workspace(tuple(workspace) or (system,), case.copies, title),
        "order": tuple(order) or tuple(fixed),
        "caveats": tuple(caveats),
    }
