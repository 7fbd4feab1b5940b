"""The trace of one call."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from npu_sim.cores import Profile
from npu_sim.operators.timelines import timed_plan, timeline
from npu_sim.plans.model import Plan
from npu_sim.questions.explain import with_changes
from npu_sim.timelines.tracks import write_trace


def write_trace_of(path: Path, plan: Plan, profile: Profile) -> Mapping[str, Any]:
    """Write the lower-bound timeline of a call as a trace; return the timeline in JSON form."""
    write_trace(path, [timed_plan(plan, profile)])
    return with_changes(timeline(plan, profile), plan, profile).as_dict()
