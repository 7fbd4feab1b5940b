"""A workspace as tables: the kernels, what lies where and how long, and what is not known."""

from collections.abc import Sequence

from rich.console import RenderableType

from npu_sim.plans.workspace_model import Workspace, WorkspaceArea, WorkspaceNode
from npu_sim.show.layout import Column, Paragraph, Table, render, stack

HEADINGS = ("area", "bytes", "offset", "bucket", "lives at")
_NUMBERS = ("node", "bytes", "offset", "bucket")


def workspace_headline(workspace: Workspace) -> str:
    """Return the size in one line."""
    unknown = ", ".join(part.name for part in workspace.unknown)
    return f"{workspace.total_bytes} bytes of workspace{f' + unknown ({unknown})' if unknown else ''}"


def workspace_tables(workspace: Workspace) -> RenderableType:
    """Return kernels, areas and buckets as tables."""
    if not workspace.nodes:
        return Paragraph("no kernel needs any")
    return stack(_kernels(workspace), "", _areas(workspace), "", _buckets(workspace))


def workspace_text(workspace: Workspace, width: int | None = None) -> str:
    """Return a workspace as text."""
    return render(stack(workspace_headline(workspace), "", workspace_tables(workspace)), width)


def _table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    columns = [Column(name, right=name in _NUMBERS, wraps=name not in _NUMBERS, key=number == 0) for number, name in enumerate(names)]
    return Table(columns, rows)


def _kernels(workspace: Workspace) -> Table:
    rows = [
        (str(number), node.name, ", ".join(node.inputs), ", ".join(node.outputs), _own(node)) for number, node in enumerate(workspace.nodes)
    ]
    return _table(("node", "kernel", "reads", "writes for later", "own workspace"), rows)


def _own(node: WorkspaceNode) -> str:
    if not node.workspace:
        return ""
    if all(part.evidence.value == "unknown" for part in node.workspace):
        return "unknown, counted 0"
    model = ", model" if any(part.evidence.value == "model" for part in node.workspace) else ""
    return f"{sum(part.bytes for part in node.workspace)} bytes{model}"


def _areas(workspace: Workspace) -> Table:
    return _table(HEADINGS, area_rows(workspace))


def area_rows(workspace: Workspace) -> list[tuple[str, ...]]:
    """Return one row for every area, under ``HEADINGS``."""
    return [(area.name, str(area.bytes), str(area.offset), str(area.bucket), _nodes_text(area)) for area in workspace.areas]


def _nodes_text(area: WorkspaceArea) -> str:
    return f"node {area.first_node}" if area.first_node == area.last_node else f"nodes {area.first_node} to {area.last_node}"


def _buckets(workspace: Workspace) -> Table:
    rows = []
    for number, bucket in enumerate(workspace.buckets):
        tenants = [area.name for area in workspace.areas if area.bucket == number]
        rows.append((str(number), str(bucket.bytes), str(bucket.offset), ", ".join(tenants)))
    return _table(("bucket", "bytes", "offset", "tenants"), rows)
