"""The command ``kit``."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from npu_sim.cli.options import Json, Report, command
from npu_sim.cli.output import print_answer, write_document
from npu_sim.cli.progress import with_progress
from npu_sim.cli.reproducing import reproducing_command
from npu_sim.plans.answers import Progress
from npu_sim.status import UsageError
from npu_sim.tools.device_kit.answers import KitCheck
from npu_sim.tools.device_kit.check import check_kit
from npu_sim.tools.device_kit.folder import OUT, kit
from npu_sim.tools.device_kit.rehearsal import rehearse_kit

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
EPILOG = (
    "npu-sim kit --rehearse FOLDER shows what the result will look like. Copy the folder to the "
    "machine with the device, run python run_on_device.py there, copy it back, then npu-sim kit "
    "--check FOLDER. Without a device: npu-sim kit --ttk FOLDER, the printed command where the "
    "vendor's toolkit is installed, then --check. Exit code 1: something is not as planned."
)


@dataclass(frozen=True, kw_only=True)
class KitOptions:
    """Options of ``npu-sim kit``."""

    soc: str | None = None
    release: str | None = None
    out: str = OUT
    ttk: str | None = None
    check: Annotated[
        Path | None,
        typer.Option(
            help="Judge the results that a device or the operator test kit wrote into this "
            "folder, and write evidence.jsonl there."
        ),
    ] = None
    rehearse: Annotated[
        Path | None,
        typer.Option(
            help="Run the script of this folder on a device that npu_sim plays, and judge the "
            "results: what --check will show. Needs PyTorch; nothing is written into the folder."
        ),
    ] = None
    report: Report = None
    json: Json = False


@command(kit, epilog=EPILOG)
def kit_command(options: KitOptions, calls: Calls = None) -> None:
    """Write calls for your device, with a script that runs them, and judge its results."""
    if options.check is None and options.rehearse is None:
        if options.report is not None:
            raise UsageError(
                "report",
                "--report shows the results of a device",
                "add --check FOLDER or --rehearse FOLDER",
            )
        written = with_progress(
            lambda progress: kit(
                calls,
                soc=options.soc,
                release=options.release,
                out=options.out,
                ttk=options.ttk,
                progress=progress,
            )
        )
        print_answer("kit", written, json=options.json)
        return
    given = {
        "CALLS": calls,
        "--ttk": options.ttk,
        "--check": options.check,
        "--rehearse": options.rehearse,
    }
    both = [name for name, value in given.items() if value is not None]
    if len(both) > 1:
        message = "{first} and {second} exclude each other"
        raise UsageError(
            both[1].strip("-"), message, "leave one of them out", first=both[0], second=both[1]
        )

    def judged(progress: Progress) -> KitCheck:
        if options.rehearse is not None:
            return rehearse_kit(options.rehearse, progress=progress)
        assert options.check is not None
        return check_kit(options.check, progress=progress)

    answer = with_progress(judged)
    write_document(options.report, answer, reproducing_command({}))
    print_answer("kit_check", answer, json=options.json)
    if answer.contradicted:
        sys.exit(CONTRADICTED)
