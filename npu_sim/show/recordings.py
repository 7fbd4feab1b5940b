"""A recording as text: calls, unrecognised calls, and kernels that are not modelled."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import RenderableType

from npu_sim.language import say, visible
from npu_sim.show.layout import Column, Table, stack

SHOWN_KERNELS = 12
_COUNTED = (Column("count", right=True, key=True),)


def recording_view(recording: Mapping[str, Any], file: str) -> RenderableType:
    """Return a recording as a rich renderable; ``file`` is where its calls were written."""
    calls, lost, kernels = (
        recording["calls"],
        recording["not_recognised"],
        recording["not_modelled"],
    )
    parts: list[RenderableType] = [
        say(
            "{total} calls, {distinct} of them distinct, in {file}",
            total=sum(call["count"] for call in calls),
            distinct=len(calls),
            file=visible(str(file)),
        )
    ]
    if calls:
        rows = []
        for call in calls:
            inputs = ", ".join(f"{name} {value}" for name, value in call["inputs"].items())
            rows.append((f"{call['count']}x", call["op"], inputs, call.get("name", "")))
        columns = (
            *_COUNTED,
            Column("op", key=True),
            Column("inputs", wraps=True, plain=True),
            Column("from", wraps=True),
        )
        parts += ["", Table(columns, rows)]
    for title, listed in (("not recognised", lost), ("remark on", recording.get("remarks", ()))):
        if listed:
            parts += ["", _listed(title, listed)]
    if processes := recording.get("processes"):
        names = ", ".join(processes)
        text = say(
            "forked processes made calls that are not recorded: {processes}", processes=names
        )
        parts += ["", text]
    if kernels:
        shown = [f"{name} {count}" for name, count in list(kernels.items())[:SHOWN_KERNELS]]
        more = ""
        if len(kernels) > SHOWN_KERNELS:
            more = say(", and {kernels} more kinds", kernels=len(kernels) - SHOWN_KERNELS)
        parts += ["", say("not modelled: {shown}{more}", shown=", ".join(shown), more=more)]
    return stack(*parts, "", say("next: npu-sim preflight {file} --products all", file=file))


def _listed(title: str, entries: Sequence[Mapping[str, Any]]) -> Table:
    """Return a table of code with a reason and a place."""
    rows = []
    for entry in entries:
        place = entry.get("name") or (f"{entry['file']}:{entry['line']}" if "file" in entry else "")
        rows.append((f"{entry['count']}x", entry["what"], entry["why"], place))
    columns = (
        *_COUNTED,
        Column(title, key=True),
        Column("why", wraps=True, plain=True),
        Column("from", wraps=True),
    )
    return Table(columns, rows)
