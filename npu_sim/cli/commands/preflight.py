"""``npu-sim preflight``: check a file of calls."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from npu_sim.cli.call_times import NOT_ACCEPTED, Products, Releases, Socs, write_matrix_report
from npu_sim.cli.options import Json, Report, require_writable
from npu_sim.cli.output import print_json, print_text, with_progress

if TYPE_CHECKING:
    from npu_sim.questions.preflight import Matrix

Calls = Annotated[
    Path,
    typer.Argument(
        help=(
            "File of calls, one JSON object a line, such as npu-sim record writes; - for "
            "standard input."
        )
    ),
]
MaxWorkspace = Annotated[
    str | None,
    typer.Option(
        "--max-workspace", help="Largest workspace a call may need: bytes, or 256MiB, 2GiB."
    ),
]
FailOn = Annotated[
    str,
    typer.Option(
        "--fail-on",
        help="Outcomes that are not accepted, separated by commas: refused, caveat, timing, "
        "unknown.",
    ),
]
OutFile = Annotated[
    Path | None,
    typer.Option(
        "--out",
        callback=require_writable,
        help="File for the results: one JSON object a line, with the whole plan.",
    ),
]
JUnit = Annotated[
    Path | None, typer.Option("--junit", callback=require_writable, help="File for JUnit XML.")
]
Sarif = Annotated[
    Path | None,
    typer.Option(
        "--sarif", callback=require_writable, help="File for SARIF 2.1.0, which code hosts show."
    ),
]
Lines = Annotated[
    bool,
    typer.Option("--lines", help="Print only what is not accepted, as file:line: error: message."),
]
Informational = Annotated[
    str | None,
    typer.Option(
        "--informational",
        help="Products, with commas, whose findings are shown but do not change the exit code.",
    ),
]
BaselineFile = Annotated[
    Path | None,
    typer.Option(
        "--baseline", help="File of accepted findings; entries that are no longer found are named."
    ),
]
WriteBaseline = Annotated[
    Path | None,
    typer.Option(
        "--write-baseline",
        callback=require_writable,
        help="Accept all findings and write them to this file, for --baseline.",
    ),
]
Timed = Annotated[
    bool,
    typer.Option("--timeline", help="Add launches, lower bounds and estimates, and their sums."),
]

EPILOG = (
    'A line: {"op": "embedding_dense_backward", "product": "atlas_a2", "inputs": {"grad": '
    '"4096x512:bf16", "indices": "4096:int32", '
    '"num_weights": 32000}, "deterministic": true, "expect": {"block_dim": 48}}. Other keys: soc '
    "(instead of product), release, limits, name, count. op may also be the name of a vendor's "
    "kernel, with the kernel's inputs. Exit code 0: every "
    "call is accepted, or matches its expect; 1: at least one call is not accepted, or a line is "
    "invalid; 64: the file cannot be read, or no line of it is a call. In a GitHub workflow, "
    "problems are marked at their lines."
)


@dataclass(frozen=True)
class PreflightOptions:
    """Options of ``npu-sim preflight``."""

    products: Products = None
    soc: Socs = None
    release: Releases = None
    max_workspace: MaxWorkspace = None
    fail_on: FailOn = "refused"
    informational: Informational = None
    baseline: BaselineFile = None
    write_baseline: WriteBaseline = None
    lines: Lines = False
    out: OutFile = None
    junit: JUnit = None
    sarif: Sarif = None
    timeline: Timed = False
    report: Report = None
    json_output: Json = False


def preflight_command(calls: Calls, options: PreflightOptions) -> None:
    """Check a file of calls on products, SoCs and releases: statuses, plans and peak workspace,
    without data.
    """
    from npu_sim.functions import preflight

    matrix = with_progress(
        lambda report: preflight(
            calls,
            products=options.products,
            soc=options.soc,
            release=options.release,
            fail_on=options.fail_on,
            max_workspace=options.max_workspace,
            informational=options.informational,
            baseline=options.baseline,
            timed=options.timeline,
            whole=options.out is not None,
            progress=report,
        )
    )
    _write(matrix, calls, options)
    _print(matrix, calls, options)
    if matrix.faults():
        sys.exit(NOT_ACCEPTED)


def _write(matrix: "Matrix", calls: Path, options: PreflightOptions) -> None:
    """Write the files given in the options, and the step summary of a GitHub workflow."""
    from npu_sim.questions.preflight import write_baseline
    from npu_sim.show.preflight import markdown, write_junit, write_results, write_sarif

    if options.write_baseline is not None:
        matrix.accept_all()
        write_baseline(options.write_baseline, matrix.baseline)
    if options.sarif is not None:
        write_sarif(options.sarif, matrix, str(calls))
    if options.out is not None:
        write_results(options.out, matrix)
    if options.junit is not None:
        write_junit(options.junit, matrix, str(calls))
    write_matrix_report(matrix, calls.name, options.report)
    step_summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if step_summary:
        # Appended, because all commands of a step write to this file.
        path = Path(step_summary)
        with path.open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(markdown(matrix))


def _print(matrix: "Matrix", calls: Path, options: PreflightOptions) -> None:
    if options.json_output:
        print_json("preflight", {"file": str(calls), **matrix.as_dict()})
        return
    from npu_sim.show.call_times import totals_parts
    from npu_sim.show.preflight import annotations, error_lines, matrix_view

    if options.lines:
        for line in error_lines(matrix, str(calls), str(options.baseline)):
            print(line)
        return
    print_text(matrix_view(matrix), *totals_parts(matrix))
    if os.environ.get("GITHUB_ACTIONS") == "true":
        for line in annotations(matrix, str(calls)):
            print(line)
