"""The command ``kit``."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from npu_sim.cli.options import Option, Options, command
from npu_sim.cli.output import print_answer, reproducing_command, show_answer, with_progress
from npu_sim.status import UsageError
from npu_sim.tools.device_kit.check import check_kit

CONTRADICTED = 1
"""Exit code if anything that a device did is not as planned."""
Calls = Annotated[
    str | None,
    typer.Argument(
        metavar="[CALLS]",
        help="File of calls, such as npu-sim record writes; without it, small calls that take "
        "every path of every operator that the SoC has and torch_npu reaches.",
    ),
]
EPILOGS = {
    "kit": "Copy the folder to the machine with the device, run python run_on_device.py there, "
    "copy it back, then npu-sim kit --check FOLDER. Exit code 1: something is not as planned."
}


@command(
    "npu_sim.tools.device_kit.folder:kit",
    "soc release out check report json",
    out=Option(kind=str, default="kit"),
    check=Option(
        "Judge the results that a device wrote into this folder, and write evidence.jsonl there.",
        Path | None,
    ),
)
def kit_command(calls: Calls = None, *, options: Options) -> None:
    """Write calls for your device, with a script that runs them, and judge its results."""
    if options.check is None:
        if options.report is not None:
            raise UsageError(
                "report", "--report shows the results of a device", "add --check FOLDER"
            )
        print_answer("kit", options.answer(calls), as_json=options.json)
        return
    if calls is not None:
        raise UsageError("calls", "CALLS and --check exclude each other", "leave one of them out")

    answer = with_progress(lambda report: check_kit(options.check, progress=report))
    show_answer("kit_check", answer, options, reproducing_command({}))
    if answer.contradicted:
        sys.exit(CONTRADICTED)
