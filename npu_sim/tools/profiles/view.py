"""Profiles of a device as text, report and trace, calibrations and comparisons of profiles.

Measured times stand beside their lower bounds.
"""

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import accumulate
from pathlib import Path
from typing import Any

import yaml
from markupsafe import Markup
from rich.console import RenderableType

from npu_sim.language import Text, joined, percent_text, say, time_text
from npu_sim.plans.model import Plan
from npu_sim.show import document_of, view_of
from npu_sim.show.diff import nearby_text
from npu_sim.show.forms.layout import (
    Block,
    Column,
    Document,
    Drawing,
    Paragraph,
    Picture,
    Table,
    after_gap,
    filled,
    lines_table,
    stack,
)
from npu_sim.show.forms.svg import WIDTH, bar, caption, picture
from npu_sim.show.text import Line, path_text, plan_command
from npu_sim.show.timeline_report import PERFETTO
from npu_sim.show.times import (
    assumption_lines,
    bound_cell,
    covered_time,
    estimate_note,
    estimate_text,
)
from npu_sim.timelines.model import Calibration, Ceiling
from npu_sim.tools.profiles.calibrate import CalibrationAnswer
from npu_sim.tools.profiles.measured_calls import CallGroup, MeasuredDevice, MeasuredGroup
from npu_sim.tools.profiles.measured_profile import KernelChange, MeasuredProfile, ProfileComparison

SHOWN_KERNELS = 6
"""Number of unmodelled kernels shown by name; the rest are counted."""
NOTE = "bound: published rates, never measured; no execution of the plan can be faster"


def headline(answer: MeasuredProfile) -> str:
    """Return the outcome in one line."""
    found = say(
        "{modelled} of {launches} kernels modelled: {name}, {share} of the measured time",
        modelled=answer.modelled,
        launches=len(answer.launches),
        name=Path(answer.file).name,
        share=percent_text(answer.modelled_share),
    )
    count = answer.faster_than_bound
    return (
        say("{found}; {count} faster than the bound", found=found, count=count) if count else found
    )


@view_of.register
def measured_profile_view(
    answer: MeasuredProfile, details: str = "all", pattern: str = ""
) -> RenderableType:
    """Return a measured profile as a rich renderable, one row for equal launches.

    - ``details``: a kernel whose plan and counters are added, or ``all``.
    - ``pattern``: kernels that are shown; see :func:`is_chosen`.
    """
    groups = [group for group in answer.groups if is_chosen(group.launches[0].kernel, pattern)]
    chosen = [
        group for group in groups if details.lower() in ("all", group.launches[0].kernel.lower())
    ]
    parts: list[RenderableType] = []
    for calls in answer.calls:
        if any(is_chosen(launch.kernel, pattern) for launch in calls.plan.launches):
            parts += (
                "",
                Paragraph(_call_title(calls), "bold", is_line=True),
                Paragraph(plan_command(calls.plan, calls.plan.product), "dim", is_line=True),
                _call_table(calls),
                lines_table(_call_assumption_lines(calls)),
            )
    parts += after_gap(_groups_table(groups, answer.total_us))
    for group in chosen:
        parts += after_gap(lines_table(group_lines(group)), _group_title(group))
    if groups and not chosen:
        parts += ["", Paragraph("--details KERNEL or --details all: plan and counters", "dim")]
    return stack(
        Paragraph(
            headline(answer), f"bold {'red' if answer.faster_than_bound else 'green'}", is_line=True
        ),
        "",
        lines_table(file_lines(answer, pattern)),
        *parts,
    )


GroupFacts = tuple[MeasuredGroup, Mapping[str, Any]]
"""Equal launches, and the same as plain data."""


def _groups_table(groups: Sequence[MeasuredGroup], whole_us: float) -> Table:
    """Return equal launches, a row each; ``whole_us`` is the measured time of the file."""

    def share(item: GroupFacts) -> str:
        return percent_text(item[1]["total_us"] / whole_us) if whole_us else ""

    columns = (
        Column("kernel", _kernel, wraps=True, key=True),
        Column("launches", lambda item: str(item[1]["count"]), right=True),
        Column("share", share, right=True),
        Column("measured", lambda item: time_text(item[1]["median_us"]), right=True),
        Column("bound", _bound, right=True),
        Column("gap", _gap, right=True),
        Column(
            "estimate",
            lambda item: estimate_text(item[0].estimate) if item[0].estimate else "",
            wraps=True,
        ),
        Column("busiest pipe", _busiest),
    )
    return Table(
        columns,
        [(group, group.as_dict()) for group in groups],
        styles=["red" if group.faster_than_bound else "" for group in groups],
    )


def _kernel(item: GroupFacts) -> str:
    return " ".join((item[1]["kernel"], ", ".join(item[1]["inputs"] or ())))


def _bound(item: GroupFacts) -> str:
    group, facts = item
    return bound_cell(facts["bound_us"], group.coverage) if facts["bound_us"] else ""


def _gap(item: GroupFacts) -> str:
    facts = item[1]
    return f"{facts['median_us'] / facts['bound_us']:.1f}x" if facts["bound_us"] else ""


def _busiest(item: GroupFacts) -> str:
    group, facts = item
    pipe, measured_us = group.busiest_pipe, facts["median_us"]
    if not pipe or not measured_us:
        return ""
    return f"{pipe} {percent_text(group.busy_us[pipe] / measured_us)}"


def file_lines(answer: MeasuredProfile, pattern: str = "") -> Iterator[Line]:
    """Yield the device and the unmodelled kernels of the file."""
    shown = [
        f"{kernel} {time_text(time)}"
        for kernel, time in answer.not_modelled.items()
        if is_chosen(kernel, pattern)
    ]
    more = len(shown) - SHOWN_KERNELS
    kernels = ", ".join(shown[:SHOWN_KERNELS]) + (
        say(" and {shown} more", shown=more) if more > 0 else ""
    )
    if answer.device is not None:
        yield from _device_lines(answer, answer.device)
    if shown:
        yield "not modelled", kernels, "measured time in total"
    if answer.untimed:
        yield "left out", _launches_text(answer.untimed), Text("without a recorded time")
    yield from _faster_lines(answer, pattern)
    if answer.groups:
        yield "note", NOTE, ""


def _launches_text(count: int) -> str:
    return say("1 launch" if count == 1 else "{count} launches", count=count)


def _faster_lines(answer: MeasuredProfile, pattern: str) -> list[Line]:
    """Return the launches that took less time than any execution of their plan can."""
    kernels = [
        say(
            "{kernel} {time} against {bound}",
            kernel=group.launches[0].kernel,
            time=time_text(min(group.times)),
            bound=time_text(group.bound_us),
        )
        for group in answer.groups
        if group.faster_than_bound and is_chosen(group.launches[0].kernel, pattern)
    ]
    if not kernels:
        return []
    listed = kernels[:SHOWN_KERNELS]
    if len(kernels) > SHOWN_KERNELS:
        listed.append(say("{count} more", count=len(kernels) - SHOWN_KERNELS))
    return [
        (
            "faster than the bound",
            joined(listed, ", "),
            "the SoC is another one (--soc), the file has other times or shapes than the launches, "
            "or the bound is wrong: npu-sim kit finds out which on the device",
        )
    ]


def _device_lines(answer: MeasuredProfile, device: MeasuredDevice) -> list[Line]:
    others = (
        say("; also consistent with {others}: set --soc to choose", others=", ".join(device.others))
        if device.others
        else ""
    )
    return [
        ("SoC", device.profile.soc, device.found_by + others),
        ("release", answer.release, answer.release_found_by),
    ]


def _call_title(calls: CallGroup) -> str:
    call = calls.as_dict()
    return say(
        "call {call}: {times}x, {measured} (fastest {fastest}), bound {bound}",
        call=call["operator"],
        times=call["count"],
        measured=time_text(call["median_us"]),
        fastest=time_text(call["min_us"]),
        bound=covered_time(call["bound_us"], calls.timeline.coverage),
    )


def _call_table(calls: CallGroup) -> Table:
    """Return the launches of a call, a row each; unknown cells are empty."""
    columns = (
        Column("launch", lambda launch: launch["kernel"], key=True),
        Column("measured", lambda launch: time_text(launch["median_us"]), right=True),
        Column("share", lambda launch: percent_text(launch["share"]), right=True),
        Column("bound", lambda launch: time_text(launch["bound_us"]), right=True),
        Column("cores", lambda launch: _number(launch["measured_block_dim"]), right=True),
    )
    return Table(columns, calls.as_dict()["launches"])


def _number(value: int | None) -> str:
    return "" if value is None else str(value)


def _call_assumption_lines(calls: CallGroup) -> list[Line]:
    """Return what the bound of a call assumes."""
    return assumption_lines(
        calls.timeline.assumptions,
        [(launch.assumption, launch.bound_us) for launch in calls.timeline.otherwise],
    )


def _group_title(group: MeasuredGroup) -> str:
    facts = group.as_dict()
    return say(
        "{kernel} {inputs}: {times}x, {measured}",
        kernel=facts["kernel"],
        inputs=", ".join(facts["inputs"] or ["shapes unknown"]),
        times=facts["count"],
        measured=time_text(facts["median_us"]),
    )


def group_lines(group: MeasuredGroup) -> list[Line]:
    """Return a group of equal launches as labelled lines."""
    facts = group.as_dict()
    measured = say(
        "median; {spread}",
        spread=say(
            "{fastest} to {slowest}, {total} in total",
            fastest=time_text(facts["min_us"]),
            slowest=time_text(facts["max_us"]),
            total=time_text(facts["total_us"]),
        ),
    )
    return [("measured", time_text(facts["median_us"]), measured), *_planned_lines(group, facts)]


def _planned_lines(group: MeasuredGroup, facts: Mapping[str, Any]) -> list[Line]:
    """Return the plan of equal launches as labelled lines, or why there is none."""
    if group.refusal is not None:
        why = say(
            "{count}: no call of this operator starts such a kernel",
            count=int(group.refusal.status),
        )
        return [("refused", group.refusal.message, why)]
    if group.unidentified_argument:
        return [("unknown", group.unidentified_argument, "")]
    if not group.possible_calls:
        return [("unknown", "no call of this operator starts such a launch", "")]
    share = facts["bound_over_measured"]
    busy = (
        say("busiest by the counters: {facts}", facts=facts["busiest_pipe"])
        if facts["busiest_pipe"]
        else "the file has no counters"
    )
    note = say(
        "{percent} of the median, {fastest} of the fastest",
        percent=percent_text(share or 0.0),
        fastest=percent_text(facts["bound_over_fastest"] or 0.0),
    )
    measured = facts["measured_block_dim"]
    agree = "as planned" if measured == facts["planned_block_dim"] else "not as planned"
    if measured is None:
        agree = "not in the file"
    cores = say(
        "{planned} planned, {measured} measured",
        planned=facts["planned_block_dim"],
        measured="?" if measured is None else measured,
    )
    key = facts["tiling_key"]
    key_text = "" if key is None else say(", tiling key {facts}", facts=str(key))
    return [
        ("bound", bound_cell(facts["bound_us"], group.coverage), note),
        *assumption_lines(
            group.assumptions, [(other.assumption, other.kernel_us) for other in group.otherwise]
        ),
        ("limited by", facts["binding_pipe"], busy),
        *_estimate_lines(group),
        *_gap_lines(group),
        ("cores", cores, agree),
        ("path", Text("{path}{key}", path=facts["path"], key=key_text), ""),
        *(_other_line(call.plan, facts["arguments"]) for call in group.possible_calls[1:]),
        *(("changes", nearby_text(change), "") for change in group.nearby[:1]),
    ]


def _other_line(plan: Plan, arguments: Mapping[str, Any]) -> Line:
    """Return another call that launches may belong to, and what differs from the first one's."""
    differences = ", ".join(
        f"{name} {value}" for name, value in plan.arguments.items() if value != arguments.get(name)
    )
    return (
        "or",
        path_text(plan),
        say(
            "{mode}: not stated in the file",
            mode="deterministic" if plan.deterministic else differences,
        ),
    )


def _estimate_lines(group: MeasuredGroup) -> list[Line]:
    """Return the estimate and its counter, with a warning if they differ by more than the band."""
    if group.estimate is None:
        return []
    verdict = "outside the estimate" if group.is_outside_estimate else "within the estimate"
    label = "vector time" if group.estimate.of == "vector pipe" else "measured"
    measured = [(label, time_text(group.measured_us), verdict)] if group.measured_us else []
    return [("estimate", estimate_text(group.estimate), estimate_note(group.estimate)), *measured]


def _gap_lines(group: MeasuredGroup) -> list[Line]:
    """Return why the launch takes longer than its bound, as far as counters show it."""
    gap = group.pipe_gap
    if gap is None:
        return []
    waiting = say(
        "the busiest pipe, {pipe}, waits {time}",
        pipe=group.busiest_pipe,
        time=time_text(gap["waiting_us"]),
    )
    return [
        (
            "gap",
            say(
                "{pipe} is busy {busy}, {bound} in the bound",
                pipe=gap["pipe"],
                busy=time_text(gap["busy_us"]),
                bound=time_text(gap["bound_us"]),
            ),
            waiting,
        )
    ]


def is_chosen(kernel: str, pattern: str) -> bool:
    """Return whether a kernel's name contains a pattern with ``*`` and ``?``, in any case."""
    return fnmatchcase(kernel.lower(), f"*{pattern.lower()}*")


MEASURED, BOUND = 1, 2
"""Thread numbers of each stream: measured times and lower bounds."""


def measured_trace(answer: MeasuredProfile) -> dict[str, Any]:
    """Return Chrome trace events: one process per stream, with a measured and a bound lane."""
    bounds = {
        launch.line: (bound.us, "")
        for calls in answer.calls
        for launches in calls.calls
        for launch, bound in zip(launches, calls.timeline.launches, strict=True)
    } | {
        launch.line: (group.bound_us, group.binding_pipe)
        for group in answer.groups
        if group.possible_calls
        for launch in group.launches
    }
    names = dict.fromkeys(launch.stream for launch in answer.launches)
    streams = {stream: number for number, stream in enumerate(names, start=1)}
    begin = min((measured.start_us for measured in answer.launches), default=0.0)
    events = [
        event
        for stream, process in streams.items()
        for event in (
            _name("process_name", process, 0, say("device/stream {stream}", stream=stream)),
            _name("thread_name", process, MEASURED, "measured"),
            _name("thread_name", process, BOUND, "lower bound"),
        )
    ]
    for measured in answer.launches:
        place = {
            "ph": "X",
            "pid": streams[measured.stream],
            "ts": measured.start_us - begin,
            "name": measured.kernel,
        }
        events.append(
            {
                **place,
                "tid": MEASURED,
                "dur": measured.duration_us,
                "args": {
                    "line": measured.line,
                    "block_dim": measured.block_dim,
                    "inputs": [str(spec) for spec in measured.inputs or ()],
                },
            }
        )
        if measured.line in bounds:
            bound, binding = bounds[measured.line]
            facts = {"line": measured.line, "binds": binding}
            events.append({**place, "tid": BOUND, "dur": bound, "args": facts})
    return {
        "traceEvents": events,
        "displayTimeUnit": "ns",
        "otherData": {
            "label": "measured launches as the file has them; lower bounds from published rates",
            "file": answer.file,
        },
    }


def _name(kind: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "pid": process, "tid": thread, "name": kind, "args": {"name": name}}


ROW = 40
"""Height of a row of bars in pixels."""
BAR = 16
"""Height of a bar in pixels."""


@document_of.register
def measured_report(answer: MeasuredProfile, command: str = "") -> Document:
    """Return the report of a profile; ``command`` is the command that reproduces it."""
    bars = [
        (
            say("{kernel}, {times}x", kernel=facts["kernel"], times=facts["count"]),
            facts["median_us"],
            facts["bound_us"],
        )
        for facts in (group.as_dict() for group in answer.groups if group.possible_calls)
    ]
    note = "Median measured time; the pink part is the lower bound from published rates."
    sections = filled(
        ("The file", [lines_table(file_lines(answer))]),
        ("Measured beside bound", [Picture(time_bars(bars), note)] if bars else []),
        *(
            (
                say("Call {operator}", operator=calls.plan.operator),
                (
                    *_call_pictures(calls),
                    _call_table(calls),
                    lines_table(_call_assumption_lines(calls)),
                ),
            )
            for calls in answer.calls
        ),
        *((_title(group), [lines_table(group_lines(group))]) for group in answer.groups),
    )
    sentence = headline(answer)
    origin = "Times were measured on a device; bounds and estimates are from published rates."
    tone = "bad" if answer.faster_than_bound else "good"
    return Document(sentence, sentence, sections, command, tone, origin)


def _title(group: MeasuredGroup) -> str:
    facts = group.as_dict()
    return f"{facts['kernel']} {', '.join(facts['inputs'] or ['shapes unknown'])}"


def _call_pictures(calls: CallGroup) -> tuple[Block, ...]:
    """Draw the launches of a call in order, with measured times and bounds."""
    facts = calls.as_dict()
    measured = facts["launches"]
    bounds = [launch["bound_us"] for launch in measured]
    launches = [
        {
            "kernel": launch["kernel"],
            "share": bound / facts["bound_us"] if facts["bound_us"] else 0.0,
            "binds": "",
            "start_us": start,
            "us": bound,
            "measured_us": launch["median_us"],
        }
        for launch, bound, start in zip(
            measured, bounds, accumulate(bounds, initial=0.0), strict=False
        )
    ]
    data = {
        "title": calls.plan.title,
        "soc": calls.plan.soc,
        "bound_us": facts["bound_us"],
        "coverage": facts["coverage"],
        "launches": launches,
        "core": None,
        "pipes": [],
    }
    bars = [(launch["kernel"], launch["median_us"], launch["bound_us"]) for launch in measured]
    return (
        Picture(time_bars(bars), "Launches in launch order."),
        Drawing("drawGantt", data, "Measured above, the lower bounds of the same launches below."),
        Paragraph("--trace trace.json writes the measured launches and their bounds to a file."),
        Paragraph(PERFETTO),
    )


def time_bars(rows: Sequence[tuple[str, float, float | None]]) -> Markup:
    """Draw measured times as bars from 0, with the part that is their lower bound.

    - ``rows``: name, measured time and bound in microseconds; the bound is None if unknown.
    """
    scale = WIDTH / (
        max((max(measured, bound or 0.0) for _, measured, bound in rows), default=0.0) or 1.0
    )
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
        parts += [
            caption(text, y + 14),
            *(bar(0, y + 20, us * scale, colour, title, height=BAR) for title, us, colour in bars),
        ]
    return picture(len(rows) * ROW + 4, parts, "measured times and their lower bounds")


def calibration_yaml(calibration: Calibration) -> str:
    """Return a calibration as the YAML file that ``timeline --calibration`` reads."""
    head = (
        "# Written by npu-sim profile --calibrate. Clock in MHz, ceilings in 10^12 bytes "
        "a second; a fact of one machine.\n"
    )
    text: str = yaml.safe_dump(
        calibration.model_dump(mode="json"), sort_keys=False, allow_unicode=True
    )
    return head + text


@view_of.register
def calibration_view(answer: CalibrationAnswer) -> RenderableType:
    """Return a calibration as a rich renderable."""
    calibration = answer.calibration
    factor = (
        say("factor {vector_factor:.3f}", vector_factor=calibration.vector_factor)
        if calibration.vector_factor
        else "no factor"
    )
    lines: list[Line] = [
        (
            "read as",
            say("{soc}, release {release}", soc=calibration.soc, release=calibration.release),
            "--soc and --release choose",
        ),
        ("clock", say("{clock_mhz:.0f} MHz", clock_mhz=calibration.clock_mhz), "vector cores"),
        *(
            (say("ceiling, {kind}", kind=kind), f"{found.tb_per_s:.3f} TB/s", _ceiling_note(found))
            for kind, found in calibration.ceilings.items()
        ),
        ("vector pipe", factor, answer.factor_reason),
        *(
            ("skipped", say("{count} launches", count=count), reason)
            for reason, count in answer.skipped.items()
        ),
        *(("warning", warning, "") for warning in answer.warnings),
    ]
    return stack(
        Paragraph(say("calibration from {source}", source=calibration.source), "bold green"),
        "",
        lines_table(lines),
        *after_gap(_shapes(answer)),
    )


def _ceiling_note(ceiling: Ceiling) -> str:
    if ceiling.low_error is None or ceiling.high_error is None:
        return "one shape: its error is not known"
    return say(
        "{shapes} shapes; leave-one-out error {low_error:+.1%} to {high_error:+.1%}",
        shapes=ceiling.shapes,
        low_error=ceiling.low_error,
        high_error=ceiling.high_error,
    )


def _shapes(answer: CalibrationAnswer) -> Table:
    columns = (
        Column(
            "vector pipe of",
            lambda shape: f"{shape.kernel} {shape.inputs[0] if shape.inputs else ''}",
            key=True,
        ),
        Column("launches", lambda shape: str(shape.count), right=True),
        Column(
            "measured", lambda shape: say("{measured_us:.2f} us", measured_us=shape.measured_us)
        ),
        Column(
            "estimate", lambda shape: say("{estimate_us:.2f} us", estimate_us=shape.estimate_us)
        ),
        Column(
            "ratio", lambda shape: f"{shape.ratio:.3f}" + ("" if shape.used else Text(", not used"))
        ),
    )
    return Table(columns, answer.shapes)


@view_of.register
def comparison_view(comparison: ProfileComparison) -> RenderableType:
    """Return a comparison as a rich renderable, one row a kernel."""
    title = say(
        "{after}: {us}; before, {before}: {before_us}",
        after=Path(comparison.file).name,
        before=Path(comparison.against).name,
        us=time_text(comparison.us),
        before_us=time_text(comparison.before_us),
    )
    columns = (
        Column("kernel", lambda change: change.kernel, key=True),
        Column(
            "launches", lambda change: f"{change.launches_before} -> {change.launches}", right=True
        ),
        Column(
            "time before",
            lambda change: time_text(change.before_us) if change.launches_before else "",
            right=True,
        ),
        Column(
            "time after", lambda change: time_text(change.us) if change.launches else "", right=True
        ),
        Column("ratio", _ratio, right=True),
        Column(
            "share",
            lambda change: percent_text(change.share) if change.launches else "",
            right=True,
        ),
    )
    left_out: list[Line] = [
        (when, _launches_text(count), Text("without a recorded time"))
        for when, count in (
            ("left out", comparison.untimed),
            (Text("left out before"), comparison.untimed_before),
        )
        if count
    ]
    return stack(
        Paragraph(title, "bold green", is_line=True),
        "",
        Table(columns, comparison.kernels),
        *after_gap(lines_table(left_out)),
    )


def _ratio(change: KernelChange) -> str:
    if not change.launches:
        return "missing"
    if not change.launches_before:
        return "new"
    return "" if change.ratio is None else f"{change.ratio:.2f}x"
