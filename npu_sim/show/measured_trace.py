"""Measured launches as Chrome trace events, their bounds in a lane below: what Perfetto shows of a profile."""

from typing import Any

from npu_sim.language import say
from npu_sim.questions.measured_profile import MeasuredProfile

MEASURED, BOUND = 1, 2
"""Threads of every stream: what was measured, and how long it takes at least."""


def measured_trace(answer: MeasuredProfile) -> dict[str, Any]:
    """Return the trace of a profile: a process for every stream, with a measured and a bound lane."""
    bounds = {
        one.line: (group.bound_us, group.binding_pipe)
        for group in answer.groups
        if group.cases
        for one in group.launches
    }
    bounds |= {
        one.line: (bound, "")
        for calls in answer.calls
        for call in calls.calls
        for one, bound in zip(call.launches, calls.bounds_us, strict=True)
        if bound is not None and one.line not in bounds
    }
    streams = {
        stream: number
        for number, stream in enumerate(
            dict.fromkeys(one.stream for one in answer.launches), start=1
        )
    }
    begin = min((one.start_us for one in answer.launches), default=0.0)
    events: list[dict[str, Any]] = []
    for stream, process in streams.items():
        events.append(
            _name("process_name", process, 0, say("device/stream {stream}", stream=stream))
        )
        events += [
            _name("thread_name", process, thread, name)
            for thread, name in ((MEASURED, "measured"), (BOUND, "lower bound"))
        ]
    for one in answer.launches:
        place = {
            "ph": "X",
            "pid": streams[one.stream],
            "ts": one.start_us - begin,
            "name": one.kernel,
        }
        arguments = {
            "line": one.line,
            "block_dim": one.block_dim,
            "inputs": [str(spec) for spec in one.inputs or ()],
        }
        events.append({**place, "tid": MEASURED, "dur": one.duration_us, "args": arguments})
        if one.line in bounds:
            bound, binding = bounds[one.line]
            events.append(
                {**place, "tid": BOUND, "dur": bound, "args": {"line": one.line, "binds": binding}}
            )
    label = "measured launches as the file has them; lower bounds from published rates"
    return {
        "traceEvents": events,
        "displayTimeUnit": "ns",
        "otherData": {"label": label, "file": answer.file},
    }


def _name(kind: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "pid": process, "tid": thread, "name": kind, "args": {"name": name}}
