"""``npu-sim diff``: one call on every product and SoC, and at every release of their software."""

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from npu_sim.cli.options import Csv, Deterministic, Json, LimitsOption, ProductList, Report
from npu_sim.cli.output import print_answer
from npu_sim.cli.report_files import reproducing_command, write_report
from npu_sim.status import UsageError

Socs = Annotated[
    str | None, typer.Option("--socs", "--soc", help="SoCs, with commas; all when left out.")
]
Release = Annotated[
    str | None,
    typer.Option(
        "--release", help="Releases of the software, with commas; the newest when left out."
    ),
]
Releases = Annotated[
    bool, typer.Option("--releases", help="Every release, and what an upgrade changes.")
]


@dataclass(frozen=True)
class DiffOptions:
    """Options of ``npu-sim diff``."""

    products: ProductList = "all"
    soc: Socs = None
    release: Release = None
    releases: Releases = False
    deterministic: Deterministic = False
    limits: LimitsOption = "documented"
    report: Report = None
    json_output: Json = False
    csv: Csv = False


def diff_command(operator: str, arguments: dict[str, Any], options: DiffOptions) -> None:
    """Compare one call across products, SoCs and releases: outcome, path, cores, buffer, workspace
    and order.
    """
    from npu_sim.cli.arguments import typed_specs
    from npu_sim.questions.compare import compare

    if options.releases and options.release is not None:
        raise UsageError(
            "release", "--release and --releases exclude each other", "leave one of them out"
        )
    comparison = compare(
        operator,
        product=options.products,
        soc=options.soc,
        release="all" if options.releases else options.release,
        deterministic=options.deterministic,
        limits=options.limits,  # type: ignore[arg-type]
        **typed_specs(operator, arguments),
    )
    if options.report is not None:
        from npu_sim.releases import default_release
        from npu_sim.show.reports.comparisons import diff_report

        release = options.release or default_release()
        command = reproducing_command(
            {("--products", "--product"): options.products, ("--release", "--releases"): release}
        )
        write_report(options.report, diff_report(comparison, command))
    print_answer("diff", comparison, as_json=options.json_output, csv="rows" if options.csv else "")
