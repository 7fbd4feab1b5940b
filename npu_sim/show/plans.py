"""Plans and workspaces as text; their reports and pictures."""

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType

from npu_sim.language import Text, bytes_text, joined, say
from npu_sim.plans.model import OVERFLOWS, RUNS, Plan, Workspace
from npu_sim.show import document_of, pictures_of, view_of
from npu_sim.show.forms.layout import Paragraph, lines_table, stack
from npu_sim.show.text import LINE_STYLES, Line, change_lines, plan_headline, plan_lines
from npu_sim.show.workspaces import workspace_tables

OUTCOME_STYLES = {RUNS: "bold green", OVERFLOWS: "bold red"}
"""Styles of the headline, by outcome."""


@view_of.register
def plan_view(plan: Plan, results: Sequence[Line] = ()) -> Group:
    """Return a plan, and the results of its run if any, as a rich renderable."""
    headline = Paragraph(plan_headline(plan), OUTCOME_STYLES[plan.outcome], is_line=True)
    return stack(
        headline,
        "",
        lines_table((*plan_lines(plan), *change_lines(plan), *results), styles=LINE_STYLES),
    )


@document_of.register
def _plan_document(plan: Plan) -> Any:
    from npu_sim.show.plan_report import plan_report  # reports load studies and pictures

    return plan_report(plan)


@pictures_of.register
def _plan_pictures(plan: Plan) -> Any:
    from npu_sim.show.pictures import plan_pictures

    return plan_pictures(plan)


@view_of.register
def workspace_view(workspace: Workspace) -> RenderableType:
    """Return a workspace as a rich renderable."""
    unknown = joined((part.name for part in workspace.unknown), ", ")
    size = say(
        "{size} of workspace{unknown}",
        size=bytes_text(workspace.total_bytes),
        unknown=Text(" + unknown ({unknown})", unknown=unknown) if unknown else "",
    )
    return stack(size, "", workspace_tables(workspace))


@pictures_of.register
def _workspace_pictures(workspace: Workspace) -> Any:
    from npu_sim.show.pictures import workspace_pictures

    return workspace_pictures(workspace)
