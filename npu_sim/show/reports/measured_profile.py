"""The report of a measured profile: measured times with their lower bounds as bars."""

from collections.abc import Sequence

from markupsafe import Markup

from npu_sim.language import say
from npu_sim.language.quantities import time_text
from npu_sim.questions.measured_groups import CallGroup, MeasuredGroup
from npu_sim.questions.measured_profile import MeasuredProfile
from npu_sim.show.measured_profile import (
    LAUNCHED,
    call_assumption_lines,
    call_rows,
    file_lines,
    group_lines,
    headline,
)
from npu_sim.show.reports.document import (
    Block,
    Document,
    Drawing,
    Lines,
    Picture,
    Prose,
    Section,
    Table,
)
from npu_sim.show.reports.plans import PERFETTO
from npu_sim.show.reports.svg import WIDTH, bar, caption, picture

ROW = 40
"""Height of a row of bars in pixels."""
BAR = 16
"""Height of a bar in pixels."""


TRACE_NOTE = "--trace trace.json writes the measured launches and their bounds to a file."
ORIGIN = "Times were measured on a device; bounds and estimates are from published rates."
"""Origin of the numbers, for the footer."""


def measured_report(answer: MeasuredProfile, call: str = "") -> Document:
    """Return the report of a profile; ``call`` is the command that reproduces it."""
    sections = [Section("The file", (Lines(tuple(file_lines(answer))),))]
    bars = [(group, group.as_dict()) for group in answer.groups if group.possible_calls]
    if bars:
        named = [
            (
                say("{kernel}, {times}x", kernel=facts["kernel"], times=facts["count"]),
                facts["median_us"],
                facts["bound_us"],
            )
            for _, facts in bars
        ]
        note = "Median measured time; the pink part is the lower bound from published rates."
        sections.append(Section("Measured beside bound", (Picture(time_bars(named), note),)))
    sections += [
        Section(
            say("Call {operator}", calls.calls[0].possible.plan),
            (
                _call_picture(calls),
                *_call_over_time(calls),
                Table(LAUNCHED, tuple(call_rows(calls))),
                Lines(tuple(call_assumption_lines(calls))),
            ),
        )
        for calls in answer.calls
    ]
    sections += [
        Section(_title(group), (Lines(tuple(group_lines(group))),)) for group in answer.groups
    ]
    sentence = headline(answer)
    return Document(sentence, sentence, tuple(sections), call, origin=ORIGIN)


def _title(group: MeasuredGroup) -> str:
    facts = group.as_dict()
    return f"{facts['kernel']} {', '.join(facts['inputs'] or ['shapes unknown'])}"


def _call_picture(calls: CallGroup) -> Picture:
    launches = calls.as_dict()["launches"]
    return Picture(
        time_bars(
            [(launch["kernel"], launch["median_us"], launch["bound_us"]) for launch in launches]
        ),
        "Launches in launch order.",
    )


def _call_over_time(calls: CallGroup) -> tuple[Block, ...]:
    """Draw the launches of a call in order, with measured times and bounds."""
    facts, plan = calls.as_dict(), calls.calls[0].possible.plan
    launches, start = [], 0.0
    for launch in facts["launches"]:
        bound = launch["bound_us"] or 0.0
        times = {"start_us": start, "us": bound, "measured_us": launch["median_us"]}
        share = bound / facts["bound_us"] if facts["bound_us"] else 0.0
        launches.append({"kernel": launch["kernel"], "share": share, "binds": "", **times})
        start += bound
    head = {"title": plan.title, "soc": plan.soc, "bound_us": facts["bound_us"]}
    data = {**head, "launches": launches, "core": None, "pipes": []}
    note = "Measured above, the lower bounds of the same launches below."
    return (Drawing("drawGantt", data, note), Prose(TRACE_NOTE), Prose(PERFETTO))


def time_bars(rows: Sequence[tuple[str, float, float | None]]) -> Markup:
    """Draw measured times as bars from 0, with the part that is their lower bound.

    - ``rows``: name, measured time and bound in microseconds; the bound is None if unknown.
    """
    longest = max((max(measured, bound or 0.0) for _, measured, bound in rows), default=0.0)
    scale = WIDTH / (longest or 1.0)
    parts = []
    for position, (name, measured, bound) in enumerate(rows):
        y = position * ROW
        time = time_text(measured)
        text = f"{name}: {time}"
        bars = [(say("{name}: measured {time}", name=name, time=time), measured, "c0")]
        if bound is not None:
            least = time_text(bound)
            text = say(
                "{name}: {measured}, at least {bound}", name=name, measured=time, bound=least
            )
            bars.append((say("{name}: bound {time}", name=name, time=least), bound, "c3"))
        parts.append(caption(text, y + 14))
        for title, us, colour in bars:
            parts.append(bar(0, y + 20, us * scale, colour, title, height=BAR))
    return picture(len(rows) * ROW + 4, parts, "measured times and their lower bounds")
