"""``npu-sim workspace``: what lies where in the workspace of a call, and how long."""

from dataclasses import dataclass
from typing import Any

from npu_sim.cli.options import CallOptions, Figure, Json, Report
from npu_sim.cli.output import exit_unless_runs, print_json, print_text
from npu_sim.cli.report_files import write_figure, write_report


@dataclass(frozen=True)
class WorkspaceOptions(CallOptions):
    """Options of ``npu-sim workspace``."""

    report: Report = None
    figure: Figure = None
    json_output: Json = False


def workspace_command(operator: str, arguments: dict[str, Any], options: WorkspaceOptions) -> None:
    """Show the workspace of a call: kernels, lifetimes, buckets and offsets."""
    from npu_sim.cli.arguments import typed_specs
    from npu_sim.operators import plan

    result = plan(operator, **options.keywords(), **typed_specs(operator, arguments))
    if options.report is not None:
        from npu_sim.show.reports.plans import workspace_report

        write_report(options.report, workspace_report(result, options.product or ""))
    write_figure(options.figure, result.workspace)
    if options.json_output:
        data = {
            "operator": result.operator,
            "product": result.product,
            "soc": result.soc,
            "release": result.release,
            "deterministic": options.deterministic,
            "rules_source": result.rules_source,
        }
        workspace = result.workspace.model_dump(mode="json")
        print_json("workspace", {"outcome": result.outcome, **data, "workspace": workspace})
    else:
        from npu_sim.show.layout import Paragraph, lines_table
        from npu_sim.show.text import OUTCOME_STYLES, overflow_text
        from npu_sim.show.workspace import workspace_tables, workspace_title

        overflow = [overflow_text(result), ""] if result.overflow is not None else []
        source = lines_table([("rules", result.rules_source)] if result.rules_source else [])
        print_text(
            Paragraph(workspace_title(result), OUTCOME_STYLES[result.outcome], is_line=True),
            "",
            *overflow,
            workspace_tables(result.workspace),
            *(("", source) if result.rules_source else ()),
        )
    exit_unless_runs(result)
