"""A workspace as tables: kernels, areas with offsets and lifetimes, buckets."""

from collections.abc import Sequence

from rich.console import RenderableType

from npu_sim.language import Text, count_text, joined, say
from npu_sim.language.quantities import bytes_text
from npu_sim.plans.model import Plan, Workspace, WorkspaceArea, WorkspaceNode
from npu_sim.releases import release_suffix
from npu_sim.show.layout import Column, Paragraph, Table, stack
from npu_sim.show.text import name_text

KERNELS = ("node", "kernel", "reads", "writes for later", "own workspace")
AREAS = ("area", "bytes", "offset", "bucket", "lives at")
BUCKETS = ("bucket", "bytes", "offset", "areas in it")
_NUMBERS = ("node", "bytes", "offset", "bucket")


def workspace_title(plan: Plan) -> str:
    """Return call, SoC and size in one line."""
    place = f"{plan.product_title}, {plan.soc}{release_suffix(plan.release)}"
    return say(
        "{title} on {place}: {workspace_headline}",
        plan,
        place=place,
        workspace_headline=workspace_headline(plan.workspace),
    )


def workspace_headline(workspace: Workspace) -> str:
    """Return the size in one line."""
    unknown = joined((part.name for part in workspace.unknown), ", ")
    return say(
        "{size} of workspace{unknown}",
        size=bytes_text(workspace.total_bytes),
        unknown=Text(" + unknown ({unknown})", unknown=unknown) if unknown else "",
    )


def workspace_view(workspace: Workspace) -> RenderableType:
    """Return a workspace as a rich renderable."""
    return stack(workspace_headline(workspace), "", workspace_tables(workspace))


def workspace_tables(workspace: Workspace) -> RenderableType:
    """Return kernels, areas and buckets as tables."""
    if not workspace.nodes:
        return Paragraph("no kernel needs any")
    tables = (
        (KERNELS, kernel_rows(workspace)),
        (AREAS, area_rows(workspace)),
        (BUCKETS, bucket_rows(workspace)),
    )
    kernels, areas, buckets = (_table(names, rows) for names, rows in tables)
    return stack(kernels, "", areas, "", buckets)


def _table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    columns = [
        Column(name, right=name in _NUMBERS, wraps=name not in _NUMBERS, key=number == 0)
        for number, name in enumerate(names)
    ]
    return Table(columns, rows)


def kernel_rows(workspace: Workspace) -> list[tuple[str, ...]]:
    """Return one row per kernel, under ``KERNELS``."""
    return [
        (str(number), node.name, _names_text(node.inputs), _names_text(node.outputs), _own(node))
        for number, node in enumerate(workspace.nodes)
    ]


def _names_text(names: Sequence[str]) -> str:
    return joined(map(name_text, names), ", ")


def _own(node: WorkspaceNode) -> str:
    if not node.workspace:
        return ""
    if all(part.evidence.value == "unknown" for part in node.workspace):
        return "unknown, counted as 0"
    model = ", model" if any(part.evidence.value == "model" for part in node.workspace) else ""
    size = bytes_text(sum(part.bytes for part in node.workspace))
    return say("{size}{model}", size=size, model=model)


def area_rows(workspace: Workspace) -> list[tuple[str, ...]]:
    """Return one row per area, under ``AREAS``."""
    rows: list[tuple[str, ...]] = []
    for area in workspace.areas:
        place = (count_text(area.bytes), count_text(area.offset), str(area.bucket))
        rows.append((area.name, *place, _nodes_text(area)))
    return rows


def _nodes_text(area: WorkspaceArea) -> str:
    if area.first_node == area.last_node:
        return say("node {first_node}", area)
    return say("nodes {first_node} to {last_node}", area)


def bucket_rows(workspace: Workspace) -> list[tuple[str, ...]]:
    """Return one row per bucket, under ``BUCKETS``."""
    rows: list[tuple[str, ...]] = []
    for number, bucket in enumerate(workspace.buckets):
        areas = joined((area.name for area in workspace.areas if area.bucket == number), ", ")
        rows.append((str(number), count_text(bucket.bytes), count_text(bucket.offset), areas))
    return rows
