"""``npu-sim preflight``: check a file of calls."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from npu_sim.cli.options import Json, Report, require_writable
from npu_sim.cli.output import print_json, show
from npu_sim.cli.report_files import reproducing_command, write_report
from npu_sim.language import Text
from npu_sim.status import UsageError

if TYPE_CHECKING:
    from npu_sim.questions.preflight import Matrix

NOT_FINE = 1
"""Exit code if at least one call is not accepted, or a line is invalid."""
Calls = Annotated[
    Path,
    typer.Argument(
        help=(
            "File of calls, one JSON object a line, such as npu-sim record writes; - for "
            "standard input."
        )
    ),
]
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
    typer.Option("--soc", help="SoCs, with commas, which imply their products; all for every one."),
]
Releases = Annotated[
    str | None,
    typer.Option(
        "--release",
        help="Releases of the product's software, with commas; the newest when left out.",
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

EPILOG = (
    'A line: {"op": "embedding_dense_backward", "product": "atlas_a2", "inputs": {"grad": '
    '"4096x512:bf16", "indices": "4096:int32", '
    '"num_weights": 32000}, "deterministic": true, "expect": {"block_dim": 48}}. soc instead of '
    "product, release, limits, name, count, and "
    "the name of a vendor kernel with the inputs of its golden data work too. Exit code 0: every "
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
    out: OutFile = None
    junit: JUnit = None
    report: Report = None
    json_output: Json = False


def preflight_command(calls: Calls, options: PreflightOptions) -> None:
    """Check a file of calls on products, SoCs and releases: statuses, plans and peak workspace,
    without data.
    """
    from npu_sim.cores import DEFAULT_PRODUCT
    from npu_sim.files.reading import lines_of
    from npu_sim.questions.preflight import check_file, chosen_targets, policy_of
    from npu_sim.releases import default_release

    try:
        targets = chosen_targets(options.products, options.soc, options.release)
        policy = policy_of(options.fail_on, options.max_workspace)
        file = sys.stdin.buffer if str(calls) == "-" else calls.open("rb")
        with file:
            matrix = check_file(
                lines_of(file),
                targets,
                policy,
                calls.parent if str(calls) != "-" else None,
                whole=options.out is not None,
            )
    except OSError as error:
        message = Text("{calls}: cannot be read: {strerror}", error, calls=calls)
        raise UsageError("calls", message, "a file of calls, one JSON object a line") from None
    except UsageError as error:
        if error.argument != "calls":
            raise
        raise UsageError(
            "calls", Text("{calls}: {message}", error, calls=calls), error.hint
        ) from None
    device = {
        ("--products", "--product", "--soc"): DEFAULT_PRODUCT,
        ("--release",): options.release or default_release(),
    }
    _write(matrix, calls, options, reproducing_command(device))
    _print(matrix, calls, options.json_output)
    if matrix.faults():
        sys.exit(NOT_FINE)


def _write(matrix: "Matrix", calls: Path, options: PreflightOptions, command: str) -> None:
    """Write the files given in the options, and the step summary of a GitHub workflow."""
    from npu_sim.show.preflight import markdown, write_junit, write_results

    if options.out is not None:
        write_results(options.out, matrix)
    if options.junit is not None:
        write_junit(options.junit, matrix, str(calls))
    if options.report is not None:
        from npu_sim.show.reports.preflight import preflight_report

        write_report(options.report, preflight_report(matrix, calls.name, command))
    step_summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if step_summary:
        # Appended, because all commands of a step write to this file.
        path = Path(step_summary)
        with path.open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(markdown(matrix))


def _print(matrix: "Matrix", calls: Path, json_output: bool) -> None:
    if json_output:
        by_target = {label: summary.as_dict() for label, summary in matrix.summaries().items()}
        data = {
            "file": str(calls),
            "summary": matrix.summary().as_dict(),
            "targets": by_target,
            "recorded": matrix.recorded,
        }
        print_json("preflight", {**data, "results": list(matrix.results())})
        return
    from npu_sim.show.preflight import annotations, matrix_view

    show(matrix_view(matrix))
    if os.environ.get("GITHUB_ACTIONS") == "true":
        for line in annotations(matrix, str(calls)):
            print(line)
