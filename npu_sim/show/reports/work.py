"""Sections that the page draws itself: the call over time, and one core tile by tile."""

from collections.abc import Mapping
from typing import Any

from npu_sim.operators.timelines import steps
from npu_sim.plans.model import Plan
from npu_sim.show.reports.document import Drawing, Section, Text

TIME_CAPTION = (
    "Lower bounds from published rates. A bar of several tiles is as long as its pipe works on them, the gaps between them left out. "
    "Plus and minus zoom, arrow keys move, Home shows everything."
)
PERFETTO = (
    "All cores, not only the slowest: --trace trace.json writes the same as a file. Open ui.perfetto.dev in a browser and choose "
    "Open trace file; the file stays on your machine. MindStudio Insight and chrome://tracing open it too."
)
STEPS_CAPTION = (
    "Left of a tensor: where in all of its rows the frame lies. The frame is what this core has of it, or everything; blue comes in, "
    "orange goes out, purple is kept in on-chip memory from a tile before."
)


def time_section(data: Mapping[str, Any], title: str = "Work over time") -> Section:
    """Return the launches of a call and the pipes of its slowest core, from :func:`npu_sim.timelines.tracks.tracks`."""
    return Section(title, (Drawing("drawGantt", data, TIME_CAPTION), Text(PERFETTO)))


def steps_section(plan: Plan) -> Section:
    """Return one core tile by tile."""
    return Section("One core, step by step", (Drawing("drawSteps", steps(plan), STEPS_CAPTION),))
