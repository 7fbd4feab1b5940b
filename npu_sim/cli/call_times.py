"""Output of the commands that show the times of a file of calls."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from npu_sim.cli.options import Json, Report
from npu_sim.cli.output import print_json, print_text, with_progress
from npu_sim.cli.report_files import reproducing_command, write_report

if TYPE_CHECKING:
    from npu_sim.questions.preflight import Matrix

NOT_ACCEPTED = 1
"""Exit code if at least one call is not accepted, or a line is invalid."""
Products = Annotated[
    str | None,
    typer.Option(
        "--products",
        "--product",
        help="all, names with commas, or profile files; for lines that name none.",
    ),
]
Socs = Annotated[
    str | None,
    typer.Option(
        "--socs", "--soc", help="SoCs, with commas, which imply their products; all for every one."
    ),
]
Releases = Annotated[
    str | None,
    typer.Option(
        "--release",
        help="Releases of the product's software, with commas; the newest when left out.",
    ),
]
CallsFile = Annotated[
    Path | None,
    typer.Option(
        "--calls",
        help="File of calls, such as npu-sim record writes, in place of an operator: times of all "
        "calls and their sums; - for standard input.",
    ),
]


@dataclass(frozen=True)
class CallTimesOptions:
    """Options of ``npu-sim timeline`` without an operator."""

    calls: CallsFile = None
    products: Products = None
    soc: Socs = None
    release: Releases = None
    report: Report = None
    json_output: Json = False


def call_times_command(ctx: typer.Context, options: CallTimesOptions) -> None:
    """Show the times of a file of calls."""
    if ctx.invoked_subcommand is not None:
        if options != CallTimesOptions():
            ctx.fail("options of the operator stand after its name; --calls takes no operator")
        return
    if options.calls is None:
        ctx.fail("write an operator with its arguments, or --calls FILE")
    from npu_sim.functions import preflight

    calls = options.calls
    matrix = with_progress(
        lambda report: preflight(
            calls,
            products=options.products,
            soc=options.soc,
            release=options.release,
            timed=True,
            progress=report,
        )
    )
    print_call_times(matrix, options.calls.name, options.report, json_output=options.json_output)
    if matrix.faults():
        sys.exit(NOT_ACCEPTED)


def print_call_times(
    matrix: "Matrix", name: str, report: Path | None, *, json_output: bool
) -> None:
    """Print the times of a file of calls, and write their report if a path is given."""
    write_matrix_report(matrix, name, report)
    if json_output:
        print_json("preflight", {"file": name, **matrix.as_dict()})
        return
    from npu_sim.show.call_times import call_times_view

    print_text(call_times_view(matrix))


def write_matrix_report(matrix: "Matrix", name: str, report: Path | None) -> None:
    """Write the report of a preflight if a path is given; ``name`` is that of the calls."""
    if report is None:
        return
    from npu_sim.cores import DEFAULT_PRODUCT
    from npu_sim.releases import default_release
    from npu_sim.show.reports.preflight import preflight_report

    device: dict[tuple[str, ...], object] = {
        ("--products", "--product", "--socs", "--soc"): DEFAULT_PRODUCT,
        ("--release",): default_release(),
    }
    write_report(report, preflight_report(matrix, name, reproducing_command(device)))
