"""JSON answers to the page: a plan with its pictures, or a refusal with the nearest legal calls."""

import json
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from markupsafe import Markup

from npu_sim.cores import Profile
from npu_sim.files.writing import schema
from npu_sim.framework.arguments import Number, plain_text
from npu_sim.framework.execution import Result
from npu_sim.framework.planning import fixed_call
from npu_sim.language import Text, Verbatim, joined, say, translated, translated_data
from npu_sim.operators import plan
from npu_sim.operators.loading import load_operator
from npu_sim.operators.timelines import steps, timed_plan, timeline, tracks
from npu_sim.plans.model import Plan
from npu_sim.questions.explain import NearestCall, nearby_plans, nearest_calls
from npu_sim.show.forms.html import block_html, render
from npu_sim.show.forms.layout import Document, Picture, Section, lines_table
from npu_sim.show.forms.svg import BAR_HEIGHT, WIDTH, bar, caption, mark, picture
from npu_sim.show.pictures import memory_map, order_strip, order_strips
from npu_sim.show.plan_report import plan_report, plan_sections
from npu_sim.show.text import (
    command_line,
    plan_command,
    plan_headline,
    plan_lines,
    python_call,
    result_lines,
)
from npu_sim.show.times import timeline_lines
from npu_sim.status import AclnnError, NpuSimError, refusal_text
from npu_sim.timelines.tracks import trace
from npu_sim.tools.explorer.state import Call, State, axis_numbers, call_of

SHOWN_AT_ONCE = ("Cores", "On-chip memory of one core", "Workspace in global memory")
SHOWN_AFTER = ("Launches", "Decisions", "Tiling")
"""Sections of a plan that follow every keystroke, and those that follow when the user pauses."""


def refusal(error: NpuSimError) -> dict[str, Any]:
    """Return a refused call or an invalid state as the page shows it."""
    return {
        "outcome": error.outcome,
        "error": error.as_dict(),
        "text": refusal_text(error) if isinstance(error, AclnnError) else str(error),
    }


def failure(error: Exception) -> dict[str, str]:
    """Return a bug as the page shows it, and print its traceback."""
    traceback.print_exception(error)
    return {
        "outcome": "failed",
        "text": say("internal error: {name}: {error}", name=type(error).__name__, error=error),
    }


def plan_answer(state: State, products: Mapping[str, Profile]) -> dict[str, Any]:
    """Plan the call of a state and return the part of the answer that follows every keystroke.

    The slower part is in :func:`work_answer`.

    - ``state``: state of one pane.
    - ``products``: products that can be chosen.
    """
    start = time.perf_counter()
    common: dict[str, Any] = {"numbers": axis_numbers(state)}
    try:
        call = call_of(state, products)
        options = {
            "product": call.product,
            "soc": call.target.profile.soc,
            "release": call.target.profile.release,
            "deterministic": call.target.deterministic,
            "limits": call.target.limits,
        }
        common |= {
            "cli": command_line(call.operator, call.arguments, options),
            "python": python_call(call.operator, call.arguments, options),
            "arguments": {
                name: value for name, value in call.arguments.items() if isinstance(value, str)
            },
        }
        result = plan(call.operator, **call.options)
    except NpuSimError as error:
        return {**refusal(error), **common}
    return {
        "outcome": result.outcome,
        "headline": plan_headline(result),
        "lines": block_html(lines_table(plan_lines(result))),
        "sections": [*map(section_answer, plan_sections(result, SHOWN_AT_ONCE))],
        "milliseconds": 1000 * (time.perf_counter() - start),
        **common,
    }


def work_answer(state: State, products: Mapping[str, Profile]) -> dict[str, Any]:
    """Return the lower bound of a plan, the changes of its path, and the data of its drawings.

    ``time`` is from :func:`npu_sim.timelines.tracks.tracks`, ``steps`` from
    :func:`npu_sim.timelines.tracks.steps`; ``steps`` is None if no core starts.
    """
    try:
        call, result = _planned(state, products)
    except NpuSimError as error:
        return refusal(error)
    bound = timeline(result, call.target.profile)
    return {
        "outcome": result.outcome,
        "bound": block_html(lines_table(timeline_lines(bound))),
        "changes": _changes(call, result),
        "sections": [*map(section_answer, plan_sections(result, SHOWN_AFTER))],
        "time": translated_data(tracks(result, call.target.profile, bound)),
        "steps": translated_data(steps(result)) if result.block_dim else None,
    }


def section_answer(section: Section) -> dict[str, str]:
    """Return a section of a report: its title, and its blocks as markup."""
    return {
        "title": translated(section.title),
        "html": "".join(block_html(block) for block in section.blocks),
    }


def document_answer(document: Document) -> dict[str, Any]:
    """Return a report as the page shows it."""
    return {
        "outcome": "read",
        "good": document.tone == "good",
        "headline": document.sentence,
        "sections": [section_answer(section) for section in document.sections],
    }


def _changes(call: Call, result: Plan) -> list[dict[str, Any]]:
    """Return the nearest changes that select another path, each with that path."""
    fixed = fixed_call(load_operator(call.operator), call.arguments, call.target.deterministic)
    nearby = nearby_plans(result, fixed, call.target.profile, call.target.limits)
    texts = ("decision", "path", "refusal", "effect")
    return [
        {**change.as_dict(), **{name: translated(getattr(change, name)) for name in texts}}
        for change in nearby
    ]


def result_answer(result: Result) -> dict[str, Any]:
    """Return the result of a run on generated data, with the call: fields may change after it."""
    strips, plan = order_strips(result), result.plan
    given = ", ".join(f"{name} {value}" for name, value in plan.arguments.items())
    call = ("call", Verbatim(f"{plan.operator} {given}"), f"{plan.soc}, {plan.release}")
    return {
        "outcome": "ran",
        **result.as_dict(),
        "order_strips": strips,
        "lines": block_html(lines_table((call, *result_lines(result)))),
        "pictures": [
            f'<figure><div class="scroll">{order_strip(strip)}</div></figure>' for strip in strips
        ],
    }


def report_html(state: State, products: Mapping[str, Profile]) -> str:
    """Return the report of a plan."""
    call, result = _planned(state, products)
    return render(plan_report(result, plan_command(result, call.product)))


def trace_json(state: State, products: Mapping[str, Profile]) -> str:
    """Return the trace of a plan, for Perfetto."""
    call, result = _planned(state, products)
    return json.dumps(
        trace([timed_plan(result, call.target.profile)]), ensure_ascii=False, separators=(",", ":")
    )


def plan_json(state: State, products: Mapping[str, Profile]) -> str:
    """Return a plan and its lower bound as data."""
    call, result = _planned(state, products)
    return json.dumps(
        {
            "schema": schema("plan"),
            "outcome": result.outcome,
            "plan": result.as_dict(),
            "timeline": timeline(result, call.target.profile).as_dict(),
        },
        indent=2,
        ensure_ascii=False,
    )


def _planned(state: State, products: Mapping[str, Profile]) -> tuple[Call, Plan]:
    call = call_of(state, products)
    return call, plan(call.operator, **call.options)


MOST_CHANGES = 8
"""Maximum number of changes, and of pictures, that are listed."""


def nearest_answer(state: State, products: Mapping[str, Profile]) -> dict[str, Any]:
    """Return the changes that make a refused call run, nearest first, with pictures.

    - ``state``: state of one pane.
    - ``products``: products that can be chosen.
    """
    try:
        call = call_of(state, products)
    except NpuSimError as error:
        return {"changes": _default_change(state, error), "sections": []}
    nearest = _nearest(call)
    changes = [
        {"key": near.axis.name, "value": plain_text(near.value), "path": translated(near.plan.path)}
        for near in nearest[:MOST_CHANGES]
    ]
    sections = [
        section for near in nearest if isinstance(near.axis, Number) for section in _pictures(near)
    ]
    return {
        "changes": changes or list(_other_places(call, products)),
        "sections": [section_answer(section) for section in sections[:MOST_CHANGES]],
    }


def _default_change(state: State, error: NpuSimError) -> list[dict[str, str]]:
    """Return the change of an invalid value to its default."""
    try:
        operator = load_operator(state.get("operator", ""))
        axis = operator.axis(error.argument)
    except NpuSimError:
        return []
    return [{"key": axis.name, "value": plain_text(axis.default), "path": ""}]


def _nearest(call: Call) -> list[NearestCall]:
    try:
        fixed = fixed_call(load_operator(call.operator), call.arguments, call.target.deterministic)
        return nearest_calls(fixed, call.target.profile, call.target.limits)
    except NpuSimError:  # the tensors do not follow from sizes, so no size can be varied
        return []


def _other_places(call: Call, products: Mapping[str, Profile]) -> Iterator[dict[str, str]]:
    """Yield the first release of the product, and the products, on which the call runs."""
    own = call.target.profile
    first = own.product.oldest_release
    places = [("release", first, own.with_release(first))] if first else []
    places += [
        ("product", name, profile.with_release(own.release)) for name, profile in products.items()
    ]
    for key, value, profile in places:
        with suppress(NpuSimError):
            path = plan(call.operator, **{**call.options, "product": profile}).path
            yield {"key": key, "value": value, "path": translated(path)}


def _pictures(near: NearestCall) -> Iterator[Section]:
    accepted = joined(
        (
            str(first) if first == last else Text("{first} to {last}", first=first, last=last)
            for first, last in near.ranges[:3]
        ),
        ", ",
    )
    now = Text(
        "now {name} = {now}; accepted: {accepted}",
        name=near.axis.name,
        now=near.now,
        accepted=accepted,
    )
    if min(int(near.value), int(near.now)) >= 0:
        title = Text("Legal values of {name}", name=near.axis.name)
        yield Section(title, (Picture(legal_values_map(near), now),))
    if near.plan.memories:
        title = Text(
            "On-chip memory of one core at {name} = {value}", name=near.axis.name, value=near.value
        )
        yield Section(title, (Picture(memory_map(near.plan.memories)),))


def legal_values_map(near: NearestCall) -> Markup:
    """Draw the legal values of a number from 0 on, and a mark at the given value."""
    now, value = int(near.now), int(near.value)
    end = max(now, value) * 1.1 + 1
    parts = [bar(0, 20, WIDTH, "free")]
    for first, last in near.ranges:
        if first <= end:
            width = (min(last + 1, end) - first) * WIDTH / end
            parts.append(bar(first * WIDTH / end, 20, width, "c0 legal"))
    edge = now * WIDTH / end
    anchor, y = "end" if edge > WIDTH / 2 else "start", BAR_HEIGHT + 40
    parts += [
        mark(edge, 14),
        caption(f"{near.axis.name} = {now}", 10, edge, anchor),
        caption("0", y),
        caption(str(value), y, value * WIDTH / end, "middle"),
    ]
    label = Text(
        "{name} = {now}, nearest accepted value {value}", name=near.axis.name, now=now, value=value
    )
    return picture(BAR_HEIGHT + 46, parts, label)
