"""JSON answers to the page: a plan with its pictures, or the refusal of the command line."""

import json
import time
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

from npu_sim.cores import Profile
from npu_sim.explorer.state import Call, State, axis_numbers, call_of
from npu_sim.files.schemas import schema
from npu_sim.framework.execution import Result
from npu_sim.framework.fixed_calls import fixed_call
from npu_sim.language import say, translated, translated_data
from npu_sim.operators import plan
from npu_sim.operators.timelines import steps, timed_plan, timeline, tracks
from npu_sim.plans.model import Plan
from npu_sim.questions.nearby_plans import nearby_plans
from npu_sim.registry import load_operator
from npu_sim.show.reports.commands import command_line, plan_command, python_call
from npu_sim.show.reports.document import Document, Lines, Section
from npu_sim.show.reports.html import block_html, render
from npu_sim.show.reports.pictures import order_strip, order_strips
from npu_sim.show.reports.plans import plan_report, plan_sections
from npu_sim.show.text import plan_headline, plan_lines, result_lines
from npu_sim.show.timelines import timeline_lines
from npu_sim.status import AclnnError, NpuSimError, refusal_text
from npu_sim.timelines.trace import trace

SHOWN_AT_ONCE = ("Cores", "On-chip memory of one core", "Workspace in global memory")
SHOWN_AFTER = ("Launches", "Decisions", "Tiling")
"""Sections of a plan that follow every keystroke, and those that follow when the user pauses."""


def refusal(error: NpuSimError) -> dict[str, Any]:
    """Return a refused call or an invalid state as the page shows it."""
    text = refusal_text(error) if isinstance(error, AclnnError) else str(error)
    return {"outcome": error.outcome, "error": error.as_dict(), "text": text}


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
    numbers = axis_numbers(state)
    try:
        call = call_of(state, products)
    except NpuSimError as error:
        return {**refusal(error), "numbers": numbers}
    written = (call.operator, call.arguments, call.product, call.target)
    texts = {name: value for name, value in call.arguments.items() if isinstance(value, str)}
    common = {
        "numbers": numbers,
        "cli": command_line(*written),
        "python": python_call(*written),
        "arguments": texts,
    }
    try:
        result = plan(call.operator, **call.options)
    except NpuSimError as error:
        return {**refusal(error), **common}
    return {
        "outcome": result.outcome,
        "headline": plan_headline(result),
        "lines": block_html(Lines(tuple(plan_lines(result)))),
        "sections": _sections(result, SHOWN_AT_ONCE),
        "milliseconds": 1000 * (time.perf_counter() - start),
        **common,
    }


def work_answer(state: State, products: Mapping[str, Profile]) -> dict[str, Any]:
    """Return the lower bound of a plan, the changes of its path, and the data of its drawings.

    ``time`` is from :func:`npu_sim.timelines.tracks.tracks`, ``steps`` from
    :func:`npu_sim.timelines.steps.steps`; ``steps`` is None if no core starts.
    """
    try:
        call, result = _planned(state, products)
    except NpuSimError as error:
        return refusal(error)
    bound = timeline(result, call.target.profile)
    return {
        "outcome": result.outcome,
        "bound": block_html(Lines(tuple(timeline_lines(bound)))),
        "changes": _changes(call, result),
        "sections": _sections(result, SHOWN_AFTER),
        "time": translated_data(tracks(result, call.target.profile, bound)),
        "steps": translated_data(steps(result)) if result.block_dim else None,
    }


def _sections(result: Plan, titles: Sequence[str]) -> list[dict[str, str]]:
    return [section_answer(section) for section in plan_sections(result, titles)]


def section_answer(section: Section) -> dict[str, str]:
    """Return a section of a report: its title, and its blocks as markup."""
    return {
        "title": translated(section.title),
        "html": "".join(block_html(block) for block in section.blocks),
    }


def document_answer(document: Document) -> dict[str, Any]:
    """Return a report as the page shows it."""
    sections = [section_answer(section) for section in document.sections]
    return {
        "outcome": "read",
        "good": document.outcome == "good",
        "headline": document.sentence,
        "sections": sections,
    }


def _changes(call: Call, result: Plan) -> list[dict[str, Any]]:
    """Return the nearest changes that select another path, each with that path."""
    fixed = fixed_call(load_operator(call.operator), call.arguments, call.target.deterministic)
    nearby = nearby_plans(result, fixed, call.target.profile, call.target.limits)
    return [
        {
            **change.as_dict(),
            "decision": translated(change.decision),
            "path": translated(change.path),
            "refusal": translated(change.refusal),
            "effect": translated(change.effect),
        }
        for change in nearby
    ]


def result_answer(result: Result) -> dict[str, Any]:
    """Return the result of a run on generated data."""
    strips = order_strips(result)
    return {
        "outcome": "ran",
        **result.as_dict(),
        "order_strips": strips,
        "lines": block_html(Lines(tuple(result_lines(result)))),
        "pictures": [
            f'<figure><div class="scroll">{order_strip(strip)}</div></figure>' for strip in strips
        ],
    }


def report_html(state: State, products: Mapping[str, Profile]) -> str:
    """Return the report of a plan."""
    call, result = _planned(state, products)
    profile, command = call.target.profile, plan_command(result, call.product)
    return render(plan_report(result, command, tracks(result, profile, timeline(result, profile))))


def trace_json(state: State, products: Mapping[str, Profile]) -> str:
    """Return the trace of a plan, for Perfetto."""
    call, result = _planned(state, products)
    content = trace([timed_plan(result, call.target.profile)])
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"))


def plan_json(state: State, products: Mapping[str, Profile]) -> str:
    """Return a plan and its lower bound as data."""
    call, result = _planned(state, products)
    bound = timeline(result, call.target.profile)
    content = {
        "schema": schema("plan"),
        "outcome": result.outcome,
        "plan": result.as_dict(),
        "timeline": bound.as_dict(),
    }
    return json.dumps(content, indent=2, ensure_ascii=False)


def _planned(state: State, products: Mapping[str, Profile]) -> tuple[Call, Plan]:
    call = call_of(state, products)
    return call, plan(call.operator, **call.options)
