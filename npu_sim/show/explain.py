"""An explanation of a plan as text."""

from collections.abc import Sequence
from math import isclose

from rich.console import RenderableType

from npu_sim.language import Text, count_text, joined, say
from npu_sim.language.quantities import bytes_text, percent_text
from npu_sim.plans.answers import Evidence
from npu_sim.plans.model import Decision, Launch, Memory, Plan, Workspace
from npu_sim.questions.explain import Explanation, SizeLimit
from npu_sim.questions.nearby_plans import NearbyPlan
from npu_sim.registry import find_operator
from npu_sim.show.layout import Column, Paragraph, Table, render, stack
from npu_sim.show.limits import bound_text
from npu_sim.show.text import (
    OUTCOME_STYLES,
    memory_name,
    overflow_text,
    plan_headline,
    profile_key_text,
    tensors_text,
    values_text,
)
from npu_sim.show.timelines import about_us, determinism_lines, estimate_note, estimate_text
from npu_sim.timelines.estimates import Estimate
from npu_sim.timelines.model import BankConflict, VectorEstimate

SHOWN_NEARBY = 4
SHOWN_CONFLICTS = 3
EQUAL_ALIGNMENT = 2
"""Cycle factor of two sources that start in the same bank group (specification page ``estimate``,
"Bank groups")."""
Row = Sequence[str]


def explanation_text(explanation: Explanation, width: int | None = None) -> str:
    """Return an explanation as text."""
    return render(explanation_view(explanation), width)


def explanation_view(explanation: Explanation) -> RenderableType:
    """Return an explanation as a rich renderable."""
    plan = explanation.plan
    if plan is None:
        return _refusal_view(explanation)
    key = say(", tiling key {tiling_key}", plan) if plan.tiling_key is not None else ""
    parts: list[RenderableType] = [
        Paragraph(plan_headline(plan), OUTCOME_STYLES[plan.outcome], is_line=True)
    ]
    overflow = overflow_text(plan)
    parts += _section("overflows the Unified Buffer", [(overflow,)] if overflow else [])
    parts += _section(
        "path",
        [
            (Text("{path}{key}", plan, key=key),),
            *([(plan.path_reason,)] if plan.path_reason else []),
        ],
    )
    parts += _section(
        "decisions",
        [
            row
            for number, one in enumerate(plan.decisions, 1)
            for row in _decision_rows(number, one)
        ],
    )
    nearby = explanation.nearby[:SHOWN_NEARBY]
    rows = [_nearby_row(one) for one in nearby] or [("nothing nearby takes another path",)]
    parts += _section(
        "nearest changes", rows, styles=["red" if one.refusal else "" for one in nearby]
    )
    parts += _section(
        "cores",
        [
            (
                say("{block_dim} of {cores_available} {core_kind}, {idle_cores} idle", plan),
                plan.cores_note,
            ),
            (plan.per_core,),
        ],
    )
    parts += _section(
        say("launches: {launches}, one after the other", launches=len(plan.launches)),
        _launch_rows(plan.launches),
    )
    for memory in plan.memories:
        parts += _section(_memory_title(memory), _memory_rows(memory), right=1)
    parts += _section(
        "estimate beside the bound of npu-sim timeline", estimate_rows(explanation.estimates)
    )
    parts += _section("what limits the sizes, the rest as it is", _limit_rows(explanation.limits))
    parts += _section(_workspace_title(plan.workspace), _workspace_rows(plan.workspace), right=1)
    parts += _section("order", _order_rows(plan, explanation.other_mode))
    priced = [(value, note) for _, value, note in determinism_lines(explanation.determinism)]
    parts += _section("deterministic computation off and on", priced)
    keys = [(f"{one.key} {one.value}", profile_key_text(plan, one)) for one in plan.profile_keys]
    parts += _section("keys of the profile without effect", keys)
    parts += _section("caveats", [(caveat.message, caveat.code) for caveat in plan.caveats])
    if plan.evidence is not Evidence.EXACT:
        parts += _section(
            "evidence",
            [
                (
                    say(
                        "{evidence}: not published by the vendor, a model",
                        evidence=plan.evidence.value,
                    ),
                )
            ],
        )
    if plan.rules_source:
        parts += _section("rules", [(plan.rules_source,)])
    return stack(*parts)


def _section(
    title: str, rows: Sequence[Row], right: int | None = None, styles: Sequence[str] = ()
) -> list[RenderableType]:
    """Return a section as a heading and indented columns; nothing if it has no rows."""
    if not rows:
        return []
    columns = [
        Column(right=column == right, wraps=column != right)
        for column in range(max(len(row) for row in rows))
    ]
    return ["", Paragraph(title, "bold"), Table(columns, rows, styles, indent=2)]


def _decision_rows(number: int, decision: Decision) -> list[Row]:
    values = values_text(decision)
    return [
        (f"{number}", _effect_text(decision)),
        (
            "",
            Text("{condition}; {values}", decision, values=values)
            if values
            else decision.condition,
        ),
    ]


def _effect_text(decision: Decision) -> str:
    answer = "yes" if decision.outcome else "no"
    return say("{name}: {answer}, {effect}", decision, answer=answer)


def _nearby_row(nearby: NearbyPlan) -> Row:
    change = (
        f"{nearby.axis.name} {nearby.now} -> {nearby.value}"
        if not isinstance(nearby.now, bool)
        else nearby.step_text
    )
    if nearby.refusal:
        effect = say("refused: {refusal}", nearby)
    elif nearby.changes_path:
        effect = say("takes another path: {path}", nearby)
    else:
        effect = say("same path; turns '{decision}' around", nearby)
    return change, effect


def _launch_rows(launches: Sequence[Launch]) -> list[Row]:
    rows: list[Row] = []
    for number, launch in enumerate(launches):
        cores = ""
        if launch.block_dim:
            plural = "s" if launch.block_dim > 1 else ""
            cores = say(" on {block_dim} core{plural}", launch, plural=plural)
        doubt = Text(", {value}", launch.evidence) if launch.evidence is not Evidence.EXACT else ""
        rows.append(
            (
                f"{number}",
                Text(
                    "{kernel}{cores}{doubt}{value}",
                    launch,
                    cores=cores,
                    doubt=doubt,
                    value=launch.note and "; " + launch.note,
                ),
            )
        )
        if launch.inputs:
            rows.append(
                (
                    "",
                    say(
                        "reads {size}: {tensors}",
                        size=bytes_text(launch.read_bytes),
                        tensors=tensors_text(launch.inputs),
                    ),
                )
            )
        rows.append(
            (
                "",
                say(
                    "writes {size}: {tensors}",
                    size=bytes_text(launch.written_bytes),
                    tensors=tensors_text(launch.outputs),
                ),
            )
        )
    return rows


def estimate_rows(estimates: Sequence[tuple[str, Estimate]]) -> list[Row]:
    """Return the estimate of each kernel, and the gain from other instructions or buffers."""
    rows: list[Row] = []
    for kernel, estimate in estimates:
        rows.append(
            (
                Text("{kernel}: {estimate}", kernel=kernel, estimate=estimate_text(estimate)),
                estimate_note(estimate),
            )
        )
        if isinstance(estimate, VectorEstimate):
            start_up = about_us(estimate.startup_share * estimate.vector_us)
            rows.append(
                (
                    say(
                        "{instructions} instructions start up in {start_up} us",
                        estimate,
                        start_up=start_up,
                    ),
                    "half as many, twice as long, save half of it",
                )
            )
            rows += [_conflict_row(one, estimate) for one in estimate.conflicts[:SHOWN_CONFLICTS]]
    return rows


def _conflict_row(conflict: BankConflict, estimate: VectorEstimate) -> Row:
    how = (
        "start in the same bank group"
        if isclose(conflict.factor, EQUAL_ALIGNMENT)
        else "share bank groups"
    )
    saved = say(
        "without that {cycles:.1%} less of the longest core's {slowest_cycles:.0f} cycles",
        estimate,
        cycles=conflict.cycles / estimate.slowest_cycles,
    )
    return say("{between} {how}: {factor:.3g} cycles a repeat", conflict, how=how), saved


def _memory_title(memory: Memory) -> str:
    phase = Text(", {phase}", memory) if memory.phase else ""
    title = say(
        "{name} of a core{phase}: {used_bytes} of {capacity_bytes} bytes",
        memory,
        name=memory_name(memory),
        phase=phase,
    )
    return (
        title
        if memory.evidence is Evidence.EXACT
        else say("{title} ({evidence})", title=title, evidence=memory.evidence.value)
    )


def _memory_rows(memory: Memory) -> list[Row]:
    shares = sorted(memory.allocations, key=lambda one: -one.bytes)
    rows = [
        (one.name, str(one.bytes), percent_text(one.bytes / memory.capacity_bytes), one.note)
        for one in shares
    ]
    return [
        *rows,
        (
            "free",
            str(memory.free_bytes),
            percent_text(memory.free_bytes / memory.capacity_bytes),
            "",
        ),
    ]


def _limit_rows(limits: Sequence[SizeLimit]) -> list[Row]:
    rows: list[Row] = []
    for one in limits:
        rows.append(
            (
                f"{one.name} = {one.now}",
                say("documented {bound}", bound=bound_text(one.documented)),
                say("hardware {bound}", bound=bound_text(one.hardware)),
            )
        )
        binding = one.documented.above or one.hardware.above
        if binding is not None:
            rows.append(("", binding.message, ""))
    return rows


def _workspace_title(workspace: Workspace) -> str:
    unknown = " + what is not published" if workspace.unknown else ""
    return say(
        "workspace: {size}{unknown}", size=bytes_text(workspace.total_bytes), unknown=unknown
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


def _order_rows(plan: Plan, other: Plan | None) -> list[Row]:
    rows: list[Row] = [(one.in_words, one.reason) for one in plan.order]
    if other is not None and other.order != plan.order:
        mode = (
            "with deterministic computation"
            if other.deterministic
            else "without deterministic computation"
        )
        states = joined((one.in_words for one in other.order), ", ")
        rows.append(
            (
                mode,
                say(
                    "{states}; {path}; {size} of workspace",
                    other,
                    states=states,
                    size=bytes_text(other.workspace.total_bytes),
                ),
            )
        )
    return rows


def _refusal_view(explanation: Explanation) -> RenderableType:
    error = explanation.refusal
    assert error is not None
    entry = find_operator(explanation.call.operator.name)
    assert entry is not None
    parts: list[RenderableType] = [
        Paragraph(
            say(
                "{title} on {product}: refused, {status} {status_name}",
                entry,
                product=explanation.profile.title,
                status=int(error.status),
                status_name=error.status.name,
            ),
            "bold red",
        ),
        *_section("why", [(error.message,), *([(error.hint,)] if error.hint else [])]),
        *_section("what would be legal, the rest as it is", _limit_rows(explanation.limits)),
    ]
    return stack(*parts)
