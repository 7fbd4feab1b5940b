"""``npu-sim diff``: one call on every product and SoC, and at every release of their software."""

from typing import Annotated, Any

import typer

from npu_sim.cli.again import command_again
from npu_sim.cli.json_output import print_json
from npu_sim.cli.options import Deterministic, Json, LimitsOption, Report

Products = Annotated[
    str,
    typer.Option(
        "--products", "--product", help="all, names with commas, or profile files ending in .yaml."
    ),
]
Socs = Annotated[str | None, typer.Option("--soc", help="SoCs, with commas; all when left out.")]
Release = Annotated[
    str | None,
    typer.Option(
        "--release", help="Releases of the software, with commas; the newest when left out."
    ),
]
Releases = Annotated[
    bool, typer.Option("--releases", help="Every release, and what an upgrade changes.")
]


def diff_command(
    operator: str,
    arguments: dict[str, Any],
    products: Products = "all",
    soc: Socs = None,
    release: Release = None,
    releases: Releases = False,
    deterministic: Deterministic = False,
    limits: LimitsOption = "documented",
    report: Report = None,
    json_output: Json = False,
) -> None:
    """Compare one call across products, SoCs and releases: outcome, path, cores, buffer, workspace and order."""
    from npu_sim.cli.arguments import typed_specs
    from npu_sim.questions.compare import compare

    specs = typed_specs(operator, arguments)
    comparison = compare(
        operator,
        product=products,
        soc=soc,
        release="all" if releases else release,
        deterministic=deterministic,
        limits=limits,  # type: ignore[arg-type]
        **specs,
    )
    if report is not None:
        from npu_sim.files.writing import write_text
        from npu_sim.releases import default_release
        from npu_sim.show.reports import render
        from npu_sim.show.reports.comparisons import diff_report

        again = command_again(
            {"--products/--product": products, "--release/--releases": release or default_release()}
        )
        write_text(report, render(diff_report(comparison, again)))
    if json_output:
        print_json("diff", comparison.as_dict())
        return
    from npu_sim.cli.console import show
    from npu_sim.show.compare import comparison_view

    show(comparison_view(comparison))
