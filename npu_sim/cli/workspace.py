"""``npu-sim workspace``: what lies where in the workspace of a call, and how long."""

from typing import Any

from npu_sim.cli.errors import exit_with
from npu_sim.cli.json_output import print_json
from npu_sim.cli.options import Deterministic, Json, LimitsOption, Product, Release, Report, Soc


def workspace_command(
    operator: str,
    arguments: dict[str, Any],
    product: Product = None,
    soc: Soc = None,
    release: Release = None,
    deterministic: Deterministic = False,
    limits: LimitsOption = "documented",
    report: Report = None,
    json_output: Json = False,
) -> None:
    """Show the workspace of a call: kernels, lifetimes, buckets and offsets."""
    from npu_sim.cli.arguments import typed_specs
    from npu_sim.operators import plan

    specs = typed_specs(operator, arguments)
    result = plan(
        operator,
        product=product,
        soc=soc,
        release=release,
        deterministic=deterministic,
        limits=limits,  # type: ignore[arg-type]
        **specs,
    )
    if report is not None:
        from npu_sim.files.writing import write_text
        from npu_sim.show.reports import render
        from npu_sim.show.reports.workspace import workspace_report

        write_text(report, render(workspace_report(result, product or "")))
    if json_output:
        data = {
            "operator": result.operator,
            "product": result.product,
            "soc": result.soc,
            "release": result.release,
            "deterministic": deterministic,
        }
        workspace = result.workspace.model_dump(mode="json")
        print_json("workspace", {"outcome": result.outcome, **data, "workspace": workspace})
    else:
        from npu_sim.cli.console import show
        from npu_sim.show.layout import Paragraph
        from npu_sim.show.text import OUTCOME_STYLES, overflow_text
        from npu_sim.show.workspace import workspace_tables, workspace_title

        overflow = [overflow_text(result), ""] if result.overflow is not None else []
        show(
            Paragraph(workspace_title(result), OUTCOME_STYLES[result.outcome]),
            "",
            *overflow,
            workspace_tables(result.workspace),
        )
    exit_with(result)
