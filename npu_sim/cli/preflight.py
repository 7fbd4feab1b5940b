"""``npu-sim preflight``: check a file of calls."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from npu_sim.cli.options import DEFAULT_PRODUCT, Json, writable

NOT_FINE = 1
"""Exit code when some line is refused, failed, malformed, or not as it expects."""
Calls = Annotated[Path, typer.Argument(help="File of calls, one JSON object a line; - for standard input.")]
Default = Annotated[str, typer.Option("--product", help="Product of lines that name neither product nor SoC.")]
OutFile = Annotated[
    Path | None,
    typer.Option("--out", callback=writable, help="File for the results: one JSON object a line, with the whole plan."),
]
JUnit = Annotated[Path | None, typer.Option("--junit", callback=writable, help="File for JUnit XML.")]

EPILOG = """A line: {"op": "embedding_dense_backward", "product": "atlas_a2", "inputs": {"grad": "4096x512:bf16",
"indices": "4096:int32", "num_weights": 32000}, "deterministic": true, "expect": {"block_dim": 48}}. soc instead of product,
limits, and the name of a vendor kernel with the inputs of its golden data work too. Exit code 0: every line runs, or is as it
expects; 1: some line is not; 2: the file cannot be read."""


def preflight_command(
    calls: Calls, product: Default = DEFAULT_PRODUCT, out: OutFile = None, junit: JUnit = None, json_output: Json = False
) -> None:
    """Check a file of calls: statuses, plans and peak workspace, without data."""
    from npu_sim.files.reading import lines_of
    from npu_sim.questions.preflight import Checked, Summary, check_lines
    from npu_sim.show.preflight_report import SHOWN_PROBLEMS, JUnitFile, result_lines, summary_view

    summary, problems, report = Summary(), list[Checked](), JUnitFile(calls.name)
    shown = []
    try:
        file = sys.stdin.buffer if str(calls) == "-" else calls.open("rb")
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"{calls}: {getattr(error, 'strerror', error)}") from None
    directory = calls.parent if str(calls) != "-" else None
    with file, result_lines(out) as write:
        for checked in check_lines(lines_of(file), product, directory):
            summary.add(checked)
            if not checked.fine and len(problems) < SHOWN_PROBLEMS:
                problems.append(checked)
            write(checked)
            if junit is not None:
                report.add(checked)
            if json_output:
                shown.append(checked.as_dict(whole=False))
    if junit is not None:
        report.write(junit)
    if json_output:
        print(json.dumps({"summary": summary.as_dict(), "results": shown}, indent=2, ensure_ascii=False))
    else:
        from rich.console import Console

        Console(highlight=False).print(summary_view(summary, problems))
    if summary.not_fine:
        sys.exit(NOT_FINE)
