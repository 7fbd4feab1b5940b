"""Plans and results as text a person reads: the outcome first, then why, then what would change it."""

from collections.abc import Iterable
from itertools import groupby

from rich.console import Group

from npu_sim.operators.contract.results import Result
from npu_sim.plans.answers import Evidence
from npu_sim.plans.launches import Launch
from npu_sim.plans.model import Decision, Memory, Plan
from npu_sim.plans.workspace_model import Workspace
from npu_sim.releases import release_words
from npu_sim.show.layout import Paragraph, lines_table, render, stack

Line = tuple[str, str, str]
"""Label, value, and a note."""
MIB = 1 << 20


def plan_headline(plan: Plan) -> str:
    """Return the outcome in one line."""
    return f"{plan.title} on {plan.product_title}, {plan.soc}{release_words(plan.release)}: runs"


def plan_lines(plan: Plan) -> list[Line]:
    """Return the body of a plan as labelled lines."""
    key = f", tiling key {plan.tiling_key}" if plan.tiling_key is not None else ""
    lines: list[Line] = [("path", f"{plan.path}{key}", plan.path_reason)]
    if plan.block_dim:
        idle = f"; {plan.idle_cores} idle" if plan.idle_cores else ""
        lines.append(("cores", f"{plan.block_dim} of {plan.cores_available} {plan.core_kind}", plan.cores_note + idle))
    if plan.per_core:
        lines.append(("per core", plan.per_core, ""))
    if plan.launches:
        lines.append(
            ("launches", launched_text(plan.launches), f"{len(plan.launches)}, one after the other" if len(plan.launches) > 1 else "")
        )
    lines += [_memory_line(memory) for memory in plan.memories]
    lines.append(_workspace_line(plan.workspace))
    for order in plan.order:
        lines.append(("order", f"{order.output} {'fixed' if order.deterministic else 'depends on timing'}", order.reason))
    lines += [("caveat", caveat.message, caveat.code) for caveat in plan.caveats]
    if plan.evidence is not Evidence.EXACT:
        lines.append(("evidence", plan.evidence.value, "not published by the vendor: our model of it"))
    return lines


def launched_text(launches: Iterable[Launch]) -> str:
    """Return kernels in launch order, a run of equal ones once: ``Transpose x3, ReduceSum``."""
    runs = ((kernel, len(list(run))) for kernel, run in groupby(launch.kernel for launch in launches))
    return ", ".join(kernel if count == 1 else f"{kernel} x{count}" for kernel, count in runs)


def _memory_line(memory: Memory) -> Line:
    label = "buffer" if memory.name == "UB" else memory.name
    phase = f", {memory.phase}" if memory.phase else ""
    share = f"{memory.used_bytes} of {memory.capacity_bytes} bytes ({100 * memory.used_bytes / memory.capacity_bytes:.0f} %){phase}"
    return label, share, ", ".join(f"{allocation.name} {allocation.bytes}" for allocation in memory.allocations)


def _workspace_line(workspace: Workspace) -> Line:
    parts = []
    for part in workspace.parts:
        size = f"{part.bytes // MIB} MiB" if part.kind == "system" and part.bytes % MIB == 0 else str(part.bytes)
        model = " (model)" if part.evidence is Evidence.MODEL else ""
        parts.append(f"{part.name} unknown" if part.evidence is Evidence.UNKNOWN else f"{part.name} {size}{model}")
    unknown = " + unknown" if workspace.unknown else ""
    return "workspace", f"{workspace.total_bytes} bytes{unknown}", ", ".join(parts)


def flip_text(decision: Decision) -> str:
    """Return what would turn a decision around."""
    return " or ".join(f"{flip.argument} = {flip.value}" for flip in decision.flips)


def decision_lines(plan: Plan) -> list[Line]:
    """Return one line for every decision that a single argument would turn around."""
    return [
        ("flips", f"{decision.name} at {flip_text(decision)}", f"now {values_text(decision)}")
        for decision in plan.decisions
        if decision.flips
    ]


def values_text(decision: Decision) -> str:
    """Return what a decision was taken on, switches as they are typed: ``deterministic = false``."""
    return ", ".join(f"{name} = {str(value).lower() if isinstance(value, bool) else value}" for name, value in decision.values.items())


def plan_text(plan: Plan, width: int | None = None) -> str:
    """Return a plan as text."""
    return render(plan_view(plan), width)


def plan_view(plan: Plan) -> Group:
    """Return a plan as something rich can print."""
    return stack(Paragraph(plan_headline(plan), "bold green"), "", lines_table(plan_lines(plan) + decision_lines(plan)))


def result_view(result: Result) -> Group:
    """Return the plan that was carried out and what came of it as something rich can print."""
    plan = result.plan
    return stack(
        Paragraph(plan_headline(plan), "bold green"), "", lines_table(plan_lines(plan) + decision_lines(plan) + result_lines(result))
    )


def result_lines(result: Result) -> list[Line]:
    """Return what a run adds to its plan."""
    lines: list[Line] = []
    for name, array in result.outputs.items():
        lines.append(("output", f"{name} {'x'.join(map(str, array.shape)) or 'scalar'} {array.dtype}", ""))
    for name, mask in result.order_dependent.items():
        share = f"{mask.count} of {mask.mask.size} {mask.axis}s"
        lines.append(("order", f"{name}: {share} depend on timing", ""))
    lines += [("caveat", caveat.message, caveat.code) for caveat in result.caveats]
    lines.append(
        ("time", f"{1000 * sum(result.seconds.values()):.1f} ms", ", ".join(f"{k} {1000 * v:.1f} ms" for k, v in result.seconds.items()))
    )
    return lines
