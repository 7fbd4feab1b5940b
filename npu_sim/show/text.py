"""Plans and results as text, and calls as commands and programs.

The outcome comes first, then the reasons, then the changes.
"""

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from types import MappingProxyType
from typing import Any

from npu_sim.cores import default_release, release_suffix
from npu_sim.framework.describing import PLURALS
from npu_sim.framework.execution import OrderMask, Result
from npu_sim.language import Text, Verbatim, bytes_text, grouped, joined, say, translated
from npu_sim.numbers.formats import TensorSpec, shape_text
from npu_sim.operators.loading import load_operator
from npu_sim.plans.answers import Evidence
from npu_sim.plans.model import (
    OVERFLOWS,
    REFUSED,
    RUNS,
    Decision,
    Flip,
    Launch,
    LaunchTensor,
    Memory,
    Plan,
    ProfileKey,
    Workspace,
    WorkspacePart,
)

Line = tuple[str, str, str]
"""Label, value, and a note."""
MIB = 1 << 20
"""Bytes of a mebibyte."""
LINE_STYLES = MappingProxyType({OVERFLOWS: "red", REFUSED: "red"})
"""Styles of the lines that report a problem, by label."""
EVIDENCE_NOTES = MappingProxyType(
    {
        Evidence.MODEL: "not published by the vendor: a model",
        Evidence.UNKNOWN: "not published by the vendor and not modelled: counted 0",
    }
)
"""What an evidence other than exact means."""


def plan_headline(plan: Plan, outcome: str = "") -> str:
    """Return the outcome in one line; ``outcome`` replaces the plan's own unless empty."""
    return say(
        "{title} on {product_title}, {soc}{release_suffix}: {outcome}",
        title=plan.title,
        product_title=plan.product_title,
        soc=plan.soc,
        release_suffix=release_suffix(plan.release),
        outcome=outcome or plan.outcome,
    )


def used_percent(memory: Memory) -> int:
    """Return how much of a memory is used, in percent; more than all of it is at least 101."""
    percent = round(100 * memory.used_bytes / memory.capacity_bytes)
    return max(percent, 101) if memory.used_bytes > memory.capacity_bytes else percent


def overflow_text(plan: Plan) -> str:
    """Return the reason why a plan overflows; empty for other plans."""
    memory = plan.overflow
    if memory is None:
        return ""
    return say(
        "the buffers take {used_bytes} bytes, {percent} of the {capacity_bytes} that the Unified "
        "Buffer of {soc} has; the product does not check it, and what the device computes is not "
        "known",
        used_bytes=memory.used_bytes,
        percent=f"{used_percent(memory)} %",
        capacity_bytes=memory.capacity_bytes,
        soc=plan.soc,
    )


def path_text(plan: Plan) -> str:
    """Return the path of a plan, with its tiling key if it has one."""
    if plan.tiling_key is None:
        return plan.path
    return Text("{path}, tiling key {tiling_key}", path=plan.path, tiling_key=str(plan.tiling_key))


def plan_lines(plan: Plan) -> Iterator[Line]:
    """Yield the body of a plan as labelled lines."""
    idle = say("; {idle_cores} idle", idle_cores=plan.idle_cores) if plan.idle_cores else ""
    cores = say(
        "{block_dim} of {cores_available} {core_kind}",
        block_dim=plan.block_dim,
        cores_available=plan.cores_available,
        core_kind=plan.core_kind,
    )
    count = len(plan.launches)
    order = say("{launches}, one after the other", launches=count) if count > 1 else ""
    overflow = overflow_text(plan)
    if overflow:
        yield "overflows", "the Unified Buffer", overflow
    yield "path", path_text(plan), plan.path_reason
    if plan.block_dim:
        yield "cores", cores, plan.cores_note + idle
    if plan.per_core:
        yield "per core", plan.per_core, ""
    if plan.launches:
        yield "launches", launched_text(plan.launches), order
    yield from map(_memory_line, plan.memories)
    yield _workspace_line(plan.workspace)
    for one in plan.order:
        yield "order", one.in_words, one.reason
    for caveat in plan.caveats:
        yield "caveat", caveat.in_words, caveat.code
    for read in plan.profile_keys:
        yield "profile", f"{read.key} {read.value}", profile_key_text(plan, read)
    for cells in evidence_cells(plan):
        yield "evidence", *cells
    if plan.rules_source:
        yield "rules", plan.rules_source, ""


def evidence_cells(plan: Plan) -> list[tuple[str, str]]:
    """Return the evidence and its meaning; nothing for the usual, exact without a device."""
    if plan.evidence is Evidence.EXACT and not plan.device_evidence:
        return []
    value, device = plan.evidence.value, plan.device_evidence
    both = Text("{evidence}, {device}", evidence=value, device=device)
    return [(both if device else value, EVIDENCE_NOTES.get(plan.evidence, ""))]


def profile_key_text(plan: Plan, key: ProfileKey) -> str:
    """Return why a changed profile key has no effect, and what it would change if it were read."""
    before = say(
        "{shipped} in {product}; path and tiling unchanged",
        shipped=key.shipped,
        product=key.product,
    )
    if key.assumed is None:
        return say("{before}: nothing in the tiling of this call depends on it", before=before)
    return say(
        "{before}: {title} assumes {assumed} on every SoC{if_read}",
        before=before,
        title=plan.title,
        assumed=key.assumed,
        if_read=say(". If it read this key: {if_asked} (model)", if_asked=key.if_asked)
        if key.if_asked
        else "",
    )


def launched_text(launches: Iterable[Launch]) -> str:
    """Return kernels in launch order, equal neighbours joined: ``Transpose x3, ReduceSum``."""
    runs = (
        (kernel, len(list(run))) for kernel, run in groupby(launch.kernel for launch in launches)
    )
    return ", ".join(kernel if count == 1 else f"{kernel} x{count}" for kernel, count in runs)


def memory_name(memory: Memory) -> str:
    """Return the name of an on-chip memory as in the vendor's documents."""
    return "Unified Buffer" if memory.name == "UB" else memory.name


def _memory_line(memory: Memory) -> Line:
    used = say(
        "{used_bytes} of {capacity_bytes} bytes ({percent:.0f} %){phase}",
        used_bytes=memory.used_bytes,
        capacity_bytes=memory.capacity_bytes,
        percent=used_percent(memory),
        phase=say(", {phase}", phase=memory.phase) if memory.phase else "",
    )
    return (
        "buffer" if memory.name == "UB" else memory.name,
        used,
        joined(
            (
                Text("{name} {bytes}", name=allocation.name, bytes=allocation.bytes)
                for allocation in memory.allocations
            ),
            ", ",
        ),
    )


def _workspace_line(workspace: Workspace) -> Line:
    return (
        "workspace",
        Text(
            "{size}{unknown}",
            size=bytes_text(workspace.total_bytes),
            unknown=" + unknown" if workspace.unknown else "",
        ),
        joined(map(_part_text, workspace.parts), ", "),
    )


def _part_text(part: WorkspacePart) -> str:
    if part.evidence is Evidence.UNKNOWN:
        return say("{name} unknown", name=part.name)
    is_mib = part.kind == "system" and part.bytes % MIB == 0
    return Text(
        "{name} {size}{model}",
        name=part.name,
        size=say("{bytes} MiB", bytes=part.bytes // MIB) if is_mib else str(part.bytes),
        model=" (model)" if part.evidence is Evidence.MODEL else "",
    )


def change_text(plan: Plan, flip: Flip) -> str:
    """Return the result of a flip: ``rows in pieces``, ``refused``, or changes on the same path."""
    if flip.outcome != RUNS:
        return flip.outcome or "not tried"
    if not flip.changes_path:
        return say("same path; {effect}", effect=flip.effect) if flip.effect else "same path"
    return (
        say("{path}, tiling key {tiling_key}", path=flip.path, tiling_key=str(flip.tiling_key))
        if flip.path == plan.path
        else flip.path
    )


def flip_text(plan: Plan, decision: Decision) -> str:
    """Return the flips of a decision, each with its result."""
    return joined(_flip_text(plan, flip) for flip in decision.flips)


def _flip_text(plan: Plan, flip: Flip) -> str:
    change = Verbatim(f"{flip.argument} = {flip.value}")
    if flip.outcome == RUNS and flip.changes_path:
        return say("{change} selects {path}", change=change, path=change_text(plan, flip))
    return say("{change}: {outcome}", change=change, outcome=change_text(plan, flip))


def change_lines(plan: Plan) -> list[Line]:
    """Return one line per flip, with its result."""
    flips = grouped(
        ((flip.argument, flip.value), (flip, decision))
        for decision in plan.decisions
        for flip in decision.flips
    )
    return [
        (
            "change" if flip.outcome in ("", RUNS) else flip.outcome,
            _flip_text(plan, flip),
            flip.refusal
            or say(
                "decision {names}; now {values}",
                names=joined((decision.name, *(other.name for _, other in others)), ", "),
                values=values_text(decision),
            ),
        )
        for (flip, decision), *others in flips.values()
    ]


def values_text(decision: Decision) -> str:
    """Return the values behind a decision, switches as typed: ``deterministic = false``."""
    return joined(
        (
            Text(
                "{name} = {value}",
                name=name if " " in name else Verbatim(name),
                value=str(value).lower() if isinstance(value, bool) else value,
            )
            for name, value in decision.values.items()
        ),
        ", ",
    )


def order_mask_text(mask: OrderMask) -> str:
    """Return how much of an output depends on the order."""
    return say(
        "{count} of {size} {parts} can be overwritten, see {race}"
        if mask.race
        else "{count} of {size} {parts} depend on timing",
        count=mask.count,
        size=mask.mask.size,
        parts=PLURALS[mask.axis],
        race=mask.race,
    )


def result_lines(result: Result) -> list[Line]:
    """Return the results of a run as labelled lines."""
    value = say("{milliseconds:.1f} ms", milliseconds=1000 * sum(result.seconds.values()))
    note = ", ".join(
        say("{stage} {milliseconds:.1f} ms", stage=k, milliseconds=1000 * v)
        for k, v in result.seconds.items()
    )
    return [
        *(
            ("output", f"{name} {shape_text(array.shape)} {array.dtype}", "")
            for name, array in result.outputs.items()
        ),
        *(
            ("order", Text("{name}: {order}", name=name, order=order_mask_text(mask)), "")
            for name, mask in result.order_dependent.items()
        ),
        *(("caveat", caveat.in_words, caveat.code) for caveat in result.caveats),
        ("time", value, note),
    ]


def tensors_text(tensors: Sequence[LaunchTensor]) -> str:
    """Return tensors with shape and dtype: ``grad 4096x512:bf16, indices 4096:int32``."""
    named = (
        f"{name_text(tensor.name)} {TensorSpec(tensor.shape, tensor.dtype)}" for tensor in tensors
    )
    return joined(named, ", ")


def name_text(name: str) -> str:
    """Return a tensor's name; argument names stay as they are, other names are translated."""
    return translated(name) if " " in name else name


FAMILY = "Ascend"
"""Prefix of SoC names."""
MOST_SOCS = 7
"""Number of SoC names that are listed one by one."""


def socs_text(names: Sequence[str]) -> str:
    """Return SoC names with the family written once: ``Ascend910B1, 910B2, 910B2C``.

    Of more than ``MOST_SOCS`` names the first two and the number of the others.
    """
    if len(names) > MOST_SOCS:
        shown, others = socs_text(names[:2]), len(names) - 2
        return Text("{shown} and {others} more", shown=shown, others=others)
    return ", ".join(
        name if number == 0 else name.removeprefix(FAMILY) for number, name in enumerate(names)
    )


def plan_command(plan: Plan, product: str) -> str:
    """Return the command that shows a plan; ``product`` is a name or a profile file."""
    device = {"soc": plan.soc, "release": plan.release}
    return command_line(
        plan.operator,
        plan.arguments,
        {"product": product, **device, "deterministic": plan.deterministic, "limits": plan.limits},
    )


def python_call(operator: str, arguments: Mapping[str, Any], options: Mapping[str, Any]) -> str:
    """Return a call as a Python program that prints its plan."""
    keywords = {**arguments, **_without_defaults(options)}
    lines = [f"    {operator!r},", *(f"    {name}={value!r}," for name, value in keywords.items())]
    return "import npu_sim\n\nplan = npu_sim.plan(\n" + "\n".join(lines) + "\n)\nprint(plan)\n"


def _without_defaults(options: Mapping[str, Any]) -> dict[str, Any]:
    defaults = {"release": default_release(), "deterministic": False, "limits": "documented"}
    return {name: value for name, value in options.items() if defaults.get(name) != value}


def command_line(operator: str, arguments: Mapping[str, Any], options: Mapping[str, Any]) -> str:
    """Return a call as a command line; its product is a name or a profile file."""
    words = ["npu-sim", "plan", operator]
    outputs = {output.name: output.output for output in load_operator(operator).outputs}
    for name, value in arguments.items():
        flag = outputs.get(name, name).replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            words += [f"--{flag}", str(value)]
    for name, value in _without_defaults(options).items():
        words += [f"--{name}"] if value is True else [f"--{name}", str(value)]
    return shlex.join(words)


def operator_title(operator: str) -> str:
    """Return the title of an operator."""
    return str(load_operator(operator).title)
