"""The kernels, areas and buckets of a workspace as tables."""

from collections.abc import Iterable

from rich.console import RenderableType

from npu_sim.language import bytes_text, count_text, joined, say
from npu_sim.plans.answers import Evidence
from npu_sim.plans.model import Workspace, WorkspaceArea, WorkspaceNode
from npu_sim.show.forms.layout import Column, Paragraph, Table, stack
from npu_sim.show.text import name_text


def workspace_tables(workspace: Workspace, indent: int = 0) -> RenderableType:
    """Return kernels, areas and buckets as tables."""
    if not workspace.nodes:
        return Paragraph("no kernel needs any")
    kernels, areas, buckets = tables_of_workspace(workspace, indent).values()
    return stack(kernels, "", areas, "", buckets)


def tables_of_workspace(workspace: Workspace, indent: int = 0) -> dict[str, Table]:
    """Return the tables of kernels, areas and buckets by their titles; none without kernels."""
    if not workspace.nodes:
        return {}
    names = {str(area.name): area.name for area in workspace.areas}

    def named(tensors: Iterable[str]) -> str:
        return joined((name_text(names.get(name, name)) for name in tensors), ", ")

    def areas_of(number: int) -> str:
        return joined((area.name for area in workspace.areas if area.bucket == number), ", ")

    kernels = (
        Column("node", lambda item: str(item[0]), right=True, key=True),
        Column("kernel", lambda item: item[1].name, wraps=True),
        Column("reads", lambda item: named(item[1].inputs), wraps=True),
        Column("writes for later", lambda item: named(item[1].outputs), wraps=True),
        Column("own workspace", lambda item: _own(item[1]), wraps=True),
    )
    areas = (
        Column("area", lambda area: area.name, wraps=True, key=True),
        Column("bytes", lambda area: count_text(area.bytes), right=True),
        Column("offset", lambda area: count_text(area.offset), right=True),
        Column("bucket", lambda area: str(area.bucket), right=True),
        Column("lives at", _lifetime, wraps=True),
    )
    buckets = (
        Column("bucket", lambda item: str(item[0]), right=True, key=True),
        Column("bytes", lambda item: count_text(item[1].bytes), right=True),
        Column("offset", lambda item: count_text(item[1].offset), right=True),
        Column("areas in it", lambda item: areas_of(item[0]), wraps=True),
    )
    return {
        "Kernels": Table(kernels, list(enumerate(workspace.nodes)), indent=indent),
        "Areas": Table(areas, workspace.areas, indent=indent),
        "Buckets": Table(buckets, list(enumerate(workspace.buckets)), indent=indent),
    }


def _lifetime(area: WorkspaceArea) -> str:
    """Return the kernels from the first to the last that use an area."""
    if area.first_node == area.last_node:
        return say("node {first_node}", first_node=area.first_node)
    return say(
        "nodes {first_node} to {last_node}", first_node=area.first_node, last_node=area.last_node
    )


def _own(node: WorkspaceNode) -> str:
    """Return the size of a kernel's own workspace; empty for none."""
    evidence = {part.evidence for part in node.workspace}
    if evidence == {Evidence.UNKNOWN}:
        return "unknown, counted as 0"
    size = bytes_text(sum(part.bytes for part in node.workspace))
    model = ", model" if Evidence.MODEL in evidence else ""
    return say("{size}{model}", size=size, model=model) if evidence else ""
