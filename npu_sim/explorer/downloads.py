"""Files of a call to keep: its report, its trace and its JSON, as the command line writes them."""

import json
from collections.abc import Mapping

from npu_sim.cores import Profile
from npu_sim.explorer.state import Call, State, call_of
from npu_sim.files.schemas import schema
from npu_sim.operators import plan
from npu_sim.operators.timelines import timed_plan, timeline, tracks
from npu_sim.plans.model import Plan
from npu_sim.show.reports.commands import plan_command
from npu_sim.show.reports.html import render
from npu_sim.show.reports.plans import plan_report
from npu_sim.timelines.trace import trace


def report_html(state: State, products: Mapping[str, Profile]) -> str:
    """Return the report of a plan."""
    call, made = _planned(state, products)
    return render(
        plan_report(
            made,
            plan_command(made, call.product),
            tracks(made, call.profile, timeline(made, call.profile)),
        )
    )


def trace_json(state: State, products: Mapping[str, Profile]) -> str:
    """Return the trace of a plan, for Perfetto."""
    call, made = _planned(state, products)
    return json.dumps(
        trace([timed_plan(made, call.profile)]), ensure_ascii=False, separators=(",", ":")
    )


def plan_json(state: State, products: Mapping[str, Profile]) -> str:
    """Return a plan and its lower bound as data."""
    call, made = _planned(state, products)
    bound = timeline(made, call.profile)
    content = {
        "schema": schema("plan"),
        "outcome": made.outcome,
        "plan": made.as_dict(),
        "timeline": bound.as_dict(),
    }
    return json.dumps(content, indent=2, ensure_ascii=False)


def _planned(state: State, products: Mapping[str, Profile]) -> tuple[Call, Plan]:
    call = call_of(state, products)
    return call, plan(call.operator, **call.options)
