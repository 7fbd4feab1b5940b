"""``npu-sim diff``: one call on every product and SoC."""

import json
from typing import Annotated, Any

import typer

from npu_sim.cli.options import Deterministic, Json, LimitsOption, Report

Products = Annotated[str, typer.Option("--products", "--product", help="all, names with commas, or profile files ending in .yaml.")]
Socs = Annotated[str | None, typer.Option("--soc", help="SoCs, with commas; all when left out.")]


def diff_command(
    operator: str,
    arguments: dict[str, Any],
    products: Products = "all",
    soc: Socs = None,
    deterministic: Deterministic = False,
    limits: LimitsOption = "documented",
    report: Report = None,
    json_output: Json = False,
) -> None:
    """Compare one call across products and SoCs: outcome, path, cores, buffer, workspace and order."""
    from npu_sim.cli.arguments import typed_specs
    from npu_sim.questions.compare import compare

    specs = typed_specs(operator, arguments)
    comparison = compare(operator, products=products, soc=soc, deterministic=deterministic, limits=limits, **specs)  # type: ignore[arg-type]
    if report is not None:
        from npu_sim.files.writing import write_text
        from npu_sim.show.reports import render
        from npu_sim.show.reports.comparisons import diff_report

        write_text(report, render(diff_report(comparison)))
    if json_output:
        print(json.dumps(comparison.as_dict(), indent=2, ensure_ascii=False))
        return
    from rich.console import Console

    from npu_sim.show.compare import comparison_view

    Console(highlight=False).print(comparison_view(comparison))
