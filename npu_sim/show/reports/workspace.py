"""The report of a workspace: its parts, and where each area lies and how long."""

from npu_sim.plans.model import Plan
from npu_sim.show.reports.commands import plan_command
from npu_sim.show.reports.document import Document, Section, Table
from npu_sim.show.reports.plan_sections import workspace_blocks
from npu_sim.show.workspace import (
    AREAS,
    BUCKETS,
    KERNELS,
    area_rows,
    bucket_rows,
    kernel_rows,
    workspace_title,
)


def workspace_report(plan: Plan, product: str = "") -> Document:
    """Return the report of a plan's workspace; ``product`` is how the caller named the product, when that is not its name."""
    headline, workspace = workspace_title(plan), plan.workspace
    tables = (
        ("Kernels", KERNELS, kernel_rows(workspace)),
        ("Areas", AREAS, area_rows(workspace)),
        ("Buckets", BUCKETS, bucket_rows(workspace)),
    )
    listed = (
        Section(title, (Table(headings, tuple(rows)),)) for title, headings, rows in tables if rows
    )
    command = plan_command(plan, product or plan.product).replace(" plan ", " workspace ", 1)
    return Document(
        headline,
        headline,
        (Section("Workspace in global memory", workspace_blocks(plan)), *listed),
        command,
    )
