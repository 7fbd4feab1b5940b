"""A recording as text: the calls, what could not be recognised, and what is not modelled."""

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table

SHOWN_KERNELS = 12


def recording_view(recording: Mapping[str, Any], file: str) -> RenderableType:
    """Return a recording, as plain data, as something rich can print; ``file`` is where its calls were written."""
    calls, lost, kernels = recording["calls"], recording["not_recognised"], recording["not_modelled"]
    parts: list[RenderableType] = [f"{sum(one['count'] for one in calls)} calls, {len(calls)} different, in {file}"]
    if calls:
        table = _table("count", "op", "inputs", "from")
        for one in calls:
            inputs = ", ".join(f"{name} {value}" for name, value in one["inputs"].items())
            table.add_row(str(one["count"]), one["op"], inputs, one.get("name", ""))
        parts += ["", table]
    if lost:
        table = _table("count", "not recognised", "why", "from")
        for one in lost:
            place = one.get("name") or (f"{one['file']}:{one['line']}" if "file" in one else "")
            table.add_row(str(one["count"]), one["what"], one["why"], place)
        parts += ["", table]
    if kernels:
        shown = [f"{name} {count}" for name, count in list(kernels.items())[:SHOWN_KERNELS]]
        more = f", and {len(kernels) - SHOWN_KERNELS} more kinds" if len(kernels) > SHOWN_KERNELS else ""
        parts += ["", f"not modelled: {', '.join(shown)}{more}"]
    return Group(*parts, "", f"next: npu-sim preflight {file} --products all")


def _table(*names: str) -> Table:
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 0))
    for name in names:
        table.add_column(name, justify="right" if name == "count" else "left", overflow="fold")
    return table
