"""A recording as text: calls, unrecognised calls, and kernels that are not modelled."""

from collections.abc import Mapping
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
            "{total} calls, {different} different, in {file}",
            total=sum(one["count"] for one in calls),
            different=len(calls),
            file=visible(str(file)),
        )
    ]
    if calls:
        rows = []
        for one in calls:
            inputs = ", ".join(f"{name} {value}" for name, value in one["inputs"].items())
            rows.append((f"{one['count']}x", one["op"], inputs, one.get("name", "")))
        parts += [
            "",
            Table(
                (
                    *_COUNTED,
                    Column("op", key=True),
                    Column("inputs", wraps=True, plain=True),
                    Column("from", wraps=True),
                ),
                rows,
            ),
        ]
    if lost:
        rows = []
        for one in lost:
            place = one.get("name") or (f"{one['file']}:{one['line']}" if "file" in one else "")
            rows.append((f"{one['count']}x", one["what"], one["why"], place))
        columns = (
            *_COUNTED,
            Column("not recognised", key=True),
            Column("why", wraps=True, plain=True),
            Column("from", wraps=True),
        )
        parts += ["", Table(columns, rows)]
    if kernels:
        shown = [f"{name} {count}" for name, count in list(kernels.items())[:SHOWN_KERNELS]]
        more = (
            say(", and {kernels} more kinds", kernels=len(kernels) - SHOWN_KERNELS)
            if len(kernels) > SHOWN_KERNELS
            else ""
        )
        parts += ["", say("not modelled: {shown}{more}", shown=", ".join(shown), more=more)]
    return stack(*parts, "", say("next: npu-sim preflight {file} --products all", file=file))
