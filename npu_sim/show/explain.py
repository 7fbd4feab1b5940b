"""An explanation of a plan as text."""

from collections.abc import Iterable, Iterator, Sequence
from math import isclose
from typing import Any

from rich.console import RenderableType

from npu_sim.language import Text, bytes_text, count_text, joined, percent_text, say, translated
from npu_sim.plans.answers import Evidence
from npu_sim.plans.model import Decision, Launch, Memory, Plan, Workspace
from npu_sim.questions.explain import Explanation, NearbyPlan
from npu_sim.show import pictures_of, view_of
from npu_sim.show.forms.layout import Column, Paragraph, Table, after_gap, part, stack
from npu_sim.show.limits import bound_text
from npu_sim.show.plans import OUTCOME_STYLES
from npu_sim.show.text import (
    evidence_cells,
    memory_name,
    overflow_text,
    path_text,
    plan_headline,
    profile_key_text,
    tensors_text,
    values_text,
)
from npu_sim.show.times import about_us, determinism_lines, estimate_note, estimate_text
from npu_sim.show.workspaces import workspace_tables
from npu_sim.timelines.model import BankConflict, Estimate, VectorEstimate

SHOWN_NEARBY = 4
SHOWN_CONFLICTS = 3
EQUAL_ALIGNMENT = 2
"""Cycle factor of two sources that start in the same bank group (specification page ``estimate``,
"Bank groups")."""
Row = Sequence[str]


@view_of.register
def explanation_view(explanation: Explanation) -> RenderableType:
    """Return an explanation as a rich renderable."""
    plan = explanation.plan
    if plan is None:
        return _refusal_view(explanation)
    overflow = overflow_text(plan)
    decisions = (
        _decision_rows(number, decision) for number, decision in enumerate(plan.decisions, 1)
    )
    nearby = explanation.nearby[:SHOWN_NEARBY]
    changes = [_nearby_row(change) for change in nearby] or [("nothing nearby takes another path",)]
    count = len(plan.launches)
    title = "launches: {launches}, one after the other" if count > 1 else "launches: {launches}"
    memories = (
        _section(_memory_title(memory), _memory_rows(memory), right=(1, 2))
        for memory in plan.memories
    )
    areas = ("", workspace_tables(plan.workspace, indent=2)) if plan.workspace.nodes else ()
    return stack(
        Paragraph(plan_headline(plan), OUTCOME_STYLES[plan.outcome], is_line=True),
        *_section("overflows the Unified Buffer", [(overflow,)] if overflow else []),
        *_section("path", _path_rows(plan)),
        *_section("decisions", [row for rows in decisions for row in rows]),
        *_section(
            "nearest changes",
            changes,
            styles=["red" if change.refusal else "" for change in nearby],
        ),
        *_section("cores", _core_rows(plan)),
        *_section(say(title, launches=count), _launch_rows(plan.launches)),
        *(part for parts in memories for part in parts),
        *_section(
            "estimates (lower bound: npu-sim timeline)", _estimate_rows(explanation.estimates)
        ),
        *_section("size limits, other arguments unchanged", _limit_rows(explanation)),
        *_section(_workspace_title(plan.workspace), _workspace_rows(plan.workspace), right=(1,)),
        *areas,
        *_section("order", _order_rows(plan, explanation.other_mode)),
        *_section(
            "deterministic computation off and on",
            [(value, note) for _, value, note in determinism_lines(explanation.determinism)],
        ),
        *_section(
            "keys of the profile without effect",
            [(f"{key.key} {key.value}", profile_key_text(plan, key)) for key in plan.profile_keys],
        ),
        *_section(
            "computed otherwise by frameworks, in several kernels", _unfused_rows(explanation)
        ),
        *_section("caveats", [(caveat.in_words, caveat.code) for caveat in plan.caveats]),
        *_section("evidence", evidence_cells(plan)),
        *_section("rules", [(plan.rules_source,)] if plan.rules_source else []),
    )


def _path_rows(plan: Plan) -> Iterator[Row]:
    yield (path_text(plan),)
    if plan.path_reason:
        yield (plan.path_reason,)


def _core_rows(plan: Plan) -> list[Row]:
    used = say(
        "{block_dim} of {cores_available} {core_kind}, {idle_cores} idle",
        block_dim=plan.block_dim,
        cores_available=plan.cores_available,
        core_kind=plan.core_kind,
        idle_cores=plan.idle_cores,
    )
    return [(used, plan.cores_note), (plan.per_core,)]


def _unfused_rows(explanation: Explanation) -> list[Row]:
    """Return the forms of an output that frameworks compute; that of all outputs once."""
    forms: dict[str, list[str]] = {}
    for output, form in explanation.unfused:
        forms.setdefault(form, []).append(output)
    return [(", ".join(outputs), form) for form, outputs in forms.items()]


def _section(
    title: str, rows: Iterable[Row], right: Sequence[int] = (), styles: Sequence[str] = ()
) -> tuple[RenderableType, ...]:
    """Return a section as a heading and indented columns; nothing if it has no rows."""
    listed = list(rows)
    columns = [
        Column("", part(column), right=column in right, wraps=column not in right)
        for column in range(max(map(len, listed), default=0))
    ]
    return after_gap(Table(columns, listed, styles=styles, indent=2), title)


def _decision_rows(number: int, decision: Decision) -> list[Row]:
    effect = say(
        "{name}: {answer}, {effect}",
        name=decision.name,
        answer="yes" if decision.outcome else "no",
        effect=decision.effect,
    )
    values = values_text(decision)
    condition = Text("{condition}; {values}", condition=decision.condition, values=values)
    return [(f"{number}", effect), ("", condition if values else decision.condition)]


def _nearby_row(nearby: NearbyPlan) -> Row:
    if nearby.refusal:
        effect = say("refused: {refusal}", refusal=nearby.refusal)
    elif nearby.changes_path:
        effect = say("selects {path}", path=nearby.path)
    else:
        effect = say("same path; {effect}", effect=nearby.effect) if nearby.effect else "same path"
    return say("{change} (now {before})", change=nearby.change, before=nearby.before), effect


def _launch_rows(launches: Sequence[Launch]) -> Iterator[Row]:
    for number, launch in enumerate(launches):
        cores = (
            Text(" on {block_dim} cores", block_dim=launch.block_dim) if launch.block_dim else ""
        )
        exact = launch.evidence is Evidence.EXACT
        yield (
            f"{number}",
            Text(
                "{kernel}{cores}{evidence}{note}",
                kernel=launch.kernel,
                cores=" on 1 core" if launch.block_dim == 1 else cores,
                evidence="" if exact else Text(", {value}", value=launch.evidence.value),
                note=Text("; {note}", note=launch.note) if launch.note else "",
            ),
        )
        if launch.inputs:
            size, tensors = bytes_text(launch.read_bytes), tensors_text(launch.inputs)
            yield ("", say("reads {size}: {tensors}", size=size, tensors=tensors))
        size, tensors = bytes_text(launch.written_bytes), tensors_text(launch.outputs)
        yield ("", say("writes {size}: {tensors}", size=size, tensors=tensors))


def _estimate_rows(estimates: Sequence[tuple[str, Estimate]]) -> Iterator[Row]:
    """Yield the estimate of each kernel, and the gain from other instructions or buffers."""
    for kernel, estimate in estimates:
        yield (
            Text("{kernel}: {estimate}", kernel=kernel, estimate=estimate_text(estimate)),
            estimate_note(estimate),
        )
        if isinstance(estimate, VectorEstimate):
            yield (
                say(
                    "{instructions} instructions start up in {start_up} us",
                    instructions=estimate.instructions,
                    start_up=about_us(estimate.startup_share * estimate.vector_us),
                ),
                "half as many, each twice as long, would save half of this",
            )
            for conflict in estimate.conflicts[:SHOWN_CONFLICTS]:
                yield _conflict_row(conflict, estimate)


def _conflict_row(conflict: BankConflict, estimate: VectorEstimate) -> Row:
    how = (
        "start in the same bank group"
        if isclose(conflict.factor, EQUAL_ALIGNMENT)
        else "share bank groups"
    )
    return (
        say(
            "{between} {how}: {factor:.3g} cycles a repeat",
            between=conflict.between,
            how=how,
            factor=conflict.factor,
        ),
        say(
            "without it the slowest core takes {share} less than its {cycles} cycles",
            share=percent_text(conflict.cycles / estimate.slowest_cycles),
            cycles=round(estimate.slowest_cycles),
        ),
    )


def _memory_title(memory: Memory) -> str:
    title = say(
        "{name} of a core{phase}: {used_bytes} of {capacity_bytes} bytes",
        name=memory_name(memory),
        phase=Text(", {phase}", phase=memory.phase) if memory.phase else "",
        used_bytes=memory.used_bytes,
        capacity_bytes=memory.capacity_bytes,
    )
    if memory.evidence is Evidence.EXACT:
        return title
    return say("{title} ({evidence})", title=title, evidence=memory.evidence.value)


def _memory_rows(memory: Memory) -> list[Row]:
    largest_first = sorted(memory.allocations, key=lambda allocation: -allocation.bytes)
    sizes = [(area.name, area.bytes, area.note) for area in largest_first]
    return [
        (name, str(size), percent_text(size / memory.capacity_bytes), note)
        for name, size, note in [*sizes, ("free", memory.free_bytes, "")]
    ]


def _limit_rows(explanation: Explanation) -> Iterator[Row]:
    for limit in explanation.limits:
        yield (
            f"{limit.size} = {explanation.call.values[limit.size]}",
            say("documented {bound}", bound=bound_text(limit.documented)),
            say("hardware {bound}", bound=bound_text(limit.hardware)),
        )
        binding = limit.documented.above or limit.hardware.above
        if binding is not None:
            yield ("", binding.message, "")


def _workspace_title(workspace: Workspace) -> str:
    return say(
        "workspace: {size}{unknown}",
        size=bytes_text(workspace.total_bytes),
        unknown=" + what is not published" if workspace.unknown else "",
    )


def _workspace_rows(workspace: Workspace) -> list[Row]:
    return [
        (
            part.name,
            "?" if part.evidence is Evidence.UNKNOWN else count_text(part.bytes),
            part.kind,
            part.evidence.value if part.evidence is not Evidence.EXACT else "",
            part.note,
        )
        for part in workspace.parts
    ]


def _order_rows(plan: Plan, other: Plan | None) -> Iterator[Row]:
    yield from ((order.in_words, order.reason) for order in plan.order)
    if other is not None and other.order != plan.order:
        mode = (
            "with deterministic computation"
            if other.deterministic
            else "without deterministic computation"
        )
        yield (
            mode,
            say(
                "{states}; {path}; {size} of workspace",
                states=joined((order.in_words for order in other.order), ", "),
                path=other.path,
                size=bytes_text(other.workspace.total_bytes),
            ),
        )


def _refusal_view(explanation: Explanation) -> RenderableType:
    error = explanation.refusal
    assert error is not None
    hint = [(line,) for line in translated(error.hint).split("\n") if line]
    return stack(
        Paragraph(
            say(
                "{title} on {product}: refused, {status} {status_name}",
                title=explanation.call.operator.title,
                product=explanation.profile.title,
                status=int(error.status),
                status_name=error.status.name,
            ),
            "bold red",
        ),
        *_section("why", [(error.message,), *hint]),
        *_section("what would be legal, other arguments unchanged", _limit_rows(explanation)),
    )


@pictures_of.register
def _explanation_pictures(explanation: Explanation) -> Any:
    return pictures_of(explanation.plan)
