"""The kernels, areas and buckets of a workspace as tables."""

from rich.console import RenderableType

from npu_sim.language import bytes_text, count_text, joined, say
from npu_sim.plans.answers import Evidence
from npu_sim.plans.model import Workspace, WorkspaceNode
from npu_sim.show.layout import Column, Paragraph, Table, stack
from npu_sim.show.text import name_text

SIZES = (Column("bytes", right=True), Column("offset", right=True))
KERNELS = (
    Column("node", right=True, key=True),
    *(Column(name, wraps=True) for name in ("kernel", "reads", "writes for later")),
    Column("own workspace", wraps=True),
)
AREAS = (
    Column("area", wraps=True, key=True),
    *SIZES,
    Column("bucket", right=True),
    Column("lives at", wraps=True),
)
BUCKETS = (Column("bucket", right=True, key=True), *SIZES, Column("areas in it", wraps=True))


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
    kernels = [
        (
            str(number),
            node.name,
            *(
                joined((name_text(names.get(name, name)) for name in tensors), ", ")
                for tensors in (node.inputs, node.outputs)
            ),
            _own(node),
        )
        for number, node in enumerate(workspace.nodes)
    ]
    areas = [
        (
            area.name,
            count_text(area.bytes),
            count_text(area.offset),
            str(area.bucket),
            say("node {first_node}", first_node=area.first_node)
            if area.first_node == area.last_node
            else say(
                "nodes {first_node} to {last_node}",
                first_node=area.first_node,
                last_node=area.last_node,
            ),
        )
        for area in workspace.areas
    ]
    buckets = [
        (
            str(number),
            count_text(bucket.bytes),
            count_text(bucket.offset),
            joined((area.name for area in workspace.areas if area.bucket == number), ", "),
        )
        for number, bucket in enumerate(workspace.buckets)
    ]
    return {
        "Kernels": Table(KERNELS, kernels, indent=indent),
        "Areas": Table(AREAS, areas, indent=indent),
        "Buckets": Table(BUCKETS, buckets, indent=indent),
    }


def _own(node: WorkspaceNode) -> str:
    """Return the size of a kernel's own workspace; empty for none."""
    evidence = {part.evidence for part in node.workspace}
    if evidence == {Evidence.UNKNOWN}:
        return "unknown, counted as 0"
    size = bytes_text(sum(part.bytes for part in node.workspace))
    model = ", model" if Evidence.MODEL in evidence else ""
    return say("{size}{model}", size=size, model=model) if evidence else ""
