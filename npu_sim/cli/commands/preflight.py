"""``npu-sim preflight``."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from npu_sim.cli.call_files import NOT_ACCEPTED, CallFileOptions, write_matrix_report
from npu_sim.cli.options import command
from npu_sim.cli.output_files import require_writable
from npu_sim.cli.printing import print_json, print_text
from npu_sim.cli.progress import with_progress
from npu_sim.functions import preflight
from npu_sim.language import using_arguments
from npu_sim.questions.preflight import Matrix
from npu_sim.questions.preflight import write_baseline as write_findings
from npu_sim.show.preflight import exit_text, in_a_line, matrix_view, times_parts
from npu_sim.show.preflight.files import (
    annotations,
    error_lines,
    markdown,
    write_junit,
    write_results,
    write_sarif,
)

Calls = Annotated[
    Path,
    typer.Argument(
        help=(
            "File of calls, one JSON object a line, such as npu-sim record writes; - for "
            "standard input."
        )
    ),
]
EPILOG = (
    'A line: {"op": "embedding_dense_backward", "product": "atlas_a2", "inputs": {"grad": '
    '"4096x512:bf16", "indices": "4096:int32", '
    '"num_weights": 32000}, "deterministic": true, "expect": {"block_dim": 48}}. Other keys: '
    "soc (instead of product), release, limits, name, count. op may also be the name of a "
    "vendor's kernel, with the kernel's inputs. Exit code 0: every "
    "call is accepted, or matches its expect; 1: at least one call is not accepted, a line is "
    "invalid, or npu_sim models no call of a target; 64: the file cannot be read, or no line "
    "of it is a call. In a GitHub workflow, "
    "problems are marked at their lines."
)


@dataclass(frozen=True, kw_only=True)
class PreflightOptions(CallFileOptions):
    """Options of ``npu-sim preflight``."""

    max_workspace: str | None = None
    fail_on: str = "refused"
    informational: str | None = None
    baseline: Path | None = None
    write_baseline: Annotated[
        Path | None,
        typer.Option(
            help="Accept all findings and write them to this file, for --baseline.",
            callback=require_writable,
        ),
    ] = None
    lines: Annotated[
        bool, typer.Option(help="Print only what is not accepted, as file:line: error: message.")
    ] = False
    out: Annotated[
        Path | None,
        typer.Option(
            help="File for the results: one JSON object a line, with the whole plan.",
            callback=require_writable,
        ),
    ] = None
    junit: Annotated[
        Path | None, typer.Option(help="File for JUnit XML.", callback=require_writable)
    ] = None
    sarif: Annotated[
        Path | None,
        typer.Option(
            help="File for SARIF 2.1.0, which code hosts show.", callback=require_writable
        ),
    ] = None
    timeline: Annotated[
        bool,
        typer.Option(
            help="Add launches, lower bounds and estimates of every call, and their sums."
        ),
    ] = False


@command(preflight, epilog=EPILOG)
def preflight_command(calls: Calls, options: PreflightOptions) -> None:
    """Check a file of calls on products, SoCs and releases: statuses, plans and peak workspace,
    without data.
    """
    matrix = with_progress(
        lambda progress: preflight(
            calls,
            products=options.products,
            soc=options.soc,
            release=options.chosen_release,
            max_workspace=options.max_workspace,
            fail_on=options.fail_on,
            informational=options.informational,
            baseline=options.baseline,
            timed=options.timeline,
            whole=options.out is not None,
            progress=progress,
        )
    )

    with using_arguments(in_a_line):
        if options.write_baseline is not None:
            matrix.accept_all()
            write_findings(options.write_baseline, matrix.baseline)
        if options.sarif is not None:
            write_sarif(options.sarif, matrix, str(calls))
        if options.out is not None:
            write_results(options.out, matrix)
        if options.junit is not None:
            write_junit(options.junit, matrix, str(calls))
        write_matrix_report(options.report, matrix, calls.name)
        _write_step_summary(matrix)
        if options.json:
            print_json("preflight", {"file": str(calls), **matrix.as_dict()})
        elif options.lines:
            for line in error_lines(matrix, str(calls), str(options.baseline)):
                print(line)
        else:
            _print(matrix, calls)
            if matrix.faults():
                print_text("", exit_text(matrix))
    if matrix.faults():
        sys.exit(NOT_ACCEPTED)


def _write_step_summary(matrix: Matrix) -> None:
    """Add to the summary of the step in a GitHub workflow."""
    step_summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if step_summary:
        # Appended, because all commands of a step write to this file.
        with Path(step_summary).open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(markdown(matrix))


def _print(matrix: Matrix, calls: Path) -> None:
    print_text(matrix_view(matrix), *times_parts(matrix))
    if os.environ.get("GITHUB_ACTIONS") == "true":
        for line in annotations(matrix, str(calls)):
            print(line)
