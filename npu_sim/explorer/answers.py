"""What the page is told: a plan with its pictures, or the refusal as the command line words it."""

import time
from collections.abc import Mapping
from typing import Any

from npu_sim.cores import Profile
from npu_sim.explorer.state import Call, State, call_of, flip_key
from npu_sim.operators import plan
from npu_sim.operators.contract.results import Result
from npu_sim.plans.model import Plan
from npu_sim.show.reports.commands import command_line, python_call
from npu_sim.show.reports.document import Lines
from npu_sim.show.reports.html import block_html, lines_html
from npu_sim.show.reports.order import order_strips
from npu_sim.show.reports.plans import plan_sections
from npu_sim.show.reports.svg import order_strip
from npu_sim.show.text import change_text, plan_headline, plan_lines, result_lines
from npu_sim.show.timelines import timeline_lines
from npu_sim.status import AclnnError, NpuSimError, refusal_text
from npu_sim.timelines import timeline

SECTIONS_SHOWN = ("Cores", "On-chip memory of one core", "Workspace in global memory", "Launches", "Decisions", "Tiling")


def refusal(error: NpuSimError) -> dict[str, Any]:
    """Return a refusal, or what is wrong with a state that is no call, as the page shows it."""
    if isinstance(error, AclnnError):
        return {"outcome": "refused", "error": error.as_dict(), "text": refusal_text(error)}
    return {"outcome": "usage", "error": error.as_dict(), "text": str(error)}


def plan_answer(state: State, products: Mapping[str, Profile]) -> dict[str, Any]:
    """Plan the call of a state.

    Parameters
    ----------
    state
        State of the page.
    products
        Products that can be chosen.
    """
    start = time.perf_counter()
    try:
        call = call_of(state, products)
    except NpuSimError as error:
        return refusal(error)
    commands = {
        "cli": _written(command_line, call),
        "python": _written(python_call, call),
        "arguments": {name: value for name, value in call.arguments.items() if isinstance(value, str)},
    }
    try:
        made = plan(call.operator, **call.options)
    except NpuSimError as error:
        return {**refusal(error), **commands}
    bound = timeline(made, call.profile)
    return {
        "outcome": made.outcome,
        "plan": made.as_dict(),
        "timeline": bound.as_dict(),
        "headline": plan_headline(made),
        "lines": lines_html(Lines(tuple(plan_lines(made)))),
        "bound": lines_html(Lines(tuple(timeline_lines(bound)))),
        "sections": [
            {"title": section.title, "html": "".join(block_html(block) for block in section.blocks)}
            for section in plan_sections(made)
            if section.title in SECTIONS_SHOWN
        ],
        "flips": _flips(made),
        "milliseconds": 1000 * (time.perf_counter() - start),
        **commands,
    }


def _written(write: Any, call: Call) -> str:
    text: str = write(call.operator, call.arguments, call.product, call.profile.soc, call.profile.release, call.deterministic, call.limits)
    return text


def _flips(made: Plan) -> list[dict[str, Any]]:
    """Return every change that turns a decision around once, with what comes of it."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for decision in made.decisions:
        for flip in decision.flips:
            one = {
                "decision": decision.name,
                "argument": flip.argument,
                "value": str(flip.value),
                "key": flip_key(made.operator, flip.argument),
                "outcome": flip.outcome,
                "result": change_text(made, flip),
                "refusal": flip.refusal,
            }
            found.setdefault((flip.argument, str(flip.value)), one)
    return list(found.values())


def result_answer(result: Result) -> dict[str, Any]:
    """Return what a run on generated data gave."""
    strips = order_strips(result)
    return {
        "outcome": "ran",
        **result.as_dict(),
        "order_strips": strips,
        "lines": lines_html(Lines(tuple(result_lines(result)))),
        "pictures": [f'<figure><div class="scroll">{order_strip(strip)}</div></figure>' for strip in strips],
    }
