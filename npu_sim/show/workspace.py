"""A workspace as tables: the kernels, what lies where and how long, and what is not known."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from npu_sim.plans.workspace_model import Workspace, WorkspaceNode
from npu_sim.show.text import render

HEADINGS = (("area", "left"), ("bytes", "right"), ("offset", "right"), ("bucket", "right"), ("lives at", "left"))


def workspace_headline(workspace: Workspace) -> str:
    """Return the size in one line."""
    unknown = ", ".join(part.name for part in workspace.unknown)
    return f"{workspace.total_bytes} bytes of workspace{f' + unknown ({unknown})' if unknown else ''}"


def workspace_tables(workspace: Workspace) -> RenderableType:
    """Return kernels, areas and buckets as tables."""
    if not workspace.nodes:
        return Text("no kernel needs any")
    return Group(_kernels(workspace), "", _areas(workspace), "", _buckets(workspace))


def workspace_text(workspace: Workspace, width: int | None = None) -> str:
    """Return a workspace as text."""
    return f"{workspace_headline(workspace)}\n\n{render(workspace_tables(workspace), width)}"


def _table(*headings: tuple[str, str]) -> Table:
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 0))
    for name, justify in headings:
        table.add_column(name, justify="right" if justify == "right" else "left", overflow="fold")
    return table


def _kernels(workspace: Workspace) -> Table:
    table = _table(("node", "right"), ("kernel", "left"), ("reads", "left"), ("writes for later", "left"), ("own workspace", "left"))
    for number, node in enumerate(workspace.nodes):
        table.add_row(str(number), node.name, ", ".join(node.inputs), ", ".join(node.outputs), _own(node))
    return table


def _own(node: WorkspaceNode) -> str:
    if not node.workspace:
        return ""
    if all(part.evidence.value == "unknown" for part in node.workspace):
        return "unknown, counted 0"
    model = ", model" if any(part.evidence.value == "model" for part in node.workspace) else ""
    return f"{sum(part.bytes for part in node.workspace)} bytes{model}"


def _areas(workspace: Workspace) -> Table:
    table = _table(*HEADINGS)
    for area in workspace.areas:
        nodes = f"node {area.first_node}" if area.first_node == area.last_node else f"nodes {area.first_node} to {area.last_node}"
        table.add_row(area.name, str(area.bytes), str(area.offset), str(area.bucket), nodes)
    return table


def _buckets(workspace: Workspace) -> Table:
    table = _table(("bucket", "right"), ("bytes", "right"), ("offset", "right"), ("tenants", "left"))
    for number, bucket in enumerate(workspace.buckets):
        tenants = [area.name for area in workspace.areas if area.bucket == number]
        table.add_row(str(number), str(bucket.bytes), str(bucket.offset), ", ".join(tenants))
    return table
