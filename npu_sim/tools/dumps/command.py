"""The command ``dump``."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from npu_sim.cli.options import BothModes, DeviceOptions, Json, Report, command
from npu_sim.cli.output import print_answer, write_document
from npu_sim.cli.progress import with_progress
from npu_sim.cli.reproducing import reproducing_command
from npu_sim.tools.dumps.reader import read_dump

DIFFERENT = 1
"""Exit code of a dump with an impossible value, a difference from the other one, or nothing that
could be compared with it."""
Folder = Annotated[Path, typer.Argument(help="Folder that msprobe wrote, with step and rank.")]


@dataclass(frozen=True, kw_only=True)
class DumpOptions(DeviceOptions):
    """Options of ``npu-sim dump``."""

    against: Path | None = None
    deterministic: BothModes = None
    verify: bool = True
    report: Report = None
    json: Json = False


@command(read_dump)
def dump_command(folder: Folder, options: DumpOptions) -> None:
    """List the calls of our operators in an msprobe dump, find values that cannot be, and the
    calls whose outputs differ from another dump although their inputs are equal.
    """
    reading = with_progress(
        lambda progress: read_dump(
            folder,
            against=options.against,
            product=options.product,
            soc=options.soc,
            release=options.release,
            deterministic=options.deterministic,
            verify=options.verify,
            progress=progress,
        )
    )
    write_document(options.report, reading, reproducing_command({}))
    print_answer("dump", reading, json=options.json)
    if reading.failed:
        sys.exit(DIFFERENT)
