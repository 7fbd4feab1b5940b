"""``npu-sim limits``: how large an argument may be, given the others."""

import inspect
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from npu_sim.cli.options import Csv, Deterministic, Figure, Json, ProductList, Release, Report
from npu_sim.cli.output import print_answer
from npu_sim.cli.report_files import reproducing_command, write_figure, write_report

Vary = Annotated[
    list[str] | None,
    typer.Option(
        "--vary",
        help="Name of the size or number to bound, such as dim; every size when left out. "
        "Twice for a frontier: the second may list values, num_weights=1,1000.",
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set", help="A size, dtype or switch by its natural name, such as rows=4096; repeatable."
    ),
]
Socs = Annotated[
    str | None,
    typer.Option("--socs", "--soc", help="SoCs, with commas; one of every kind when left out."),
]


@dataclass(frozen=True)
class LimitsOptions:
    """Options of ``npu-sim limits``."""

    vary: Vary = None
    set_: Set = None
    products: ProductList = "all"
    soc: Socs = None
    release: Release = None
    deterministic: Deterministic = False
    report: Report = None
    figure: Figure = None
    json_output: Json = False
    csv: Csv = False


def limits_command(operator: str, arguments: dict[str, Any], options: LimitsOptions) -> None:
    """Find the documented and the hardware bounds of an argument on every product."""
    from npu_sim.cli.arguments import named_values, typed_specs
    from npu_sim.questions.limits import limits

    natural = named_values("set", options.set_ or (), inspect.signature(limits).parameters)
    table = limits(
        operator,
        options.vary,
        product=options.products,
        soc=options.soc,
        release=options.release,
        deterministic=options.deterministic,
        **{**typed_specs(operator, arguments), **natural},
    )
    if options.report is not None:
        from npu_sim.releases import default_release
        from npu_sim.show.reports.comparisons import limits_report

        release = options.release or default_release()
        command = reproducing_command(
            {("--products", "--product"): options.products, ("--release",): release}
        )
        write_report(options.report, limits_report(table, command))
    write_figure(options.figure, table)
    print_answer("limits", table, as_json=options.json_output, csv="rows" if options.csv else "")
