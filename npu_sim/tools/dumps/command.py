"""The command ``dump``."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from npu_sim.cli.options import BothModes, Json, Report, command
from npu_sim.cli.output import print_answer, write_document
from npu_sim.cli.progress import with_progress
from npu_sim.cli.reproducing import reproducing_command
from npu_sim.tools.dumps.reader import read_dump

DIFFERENT = 1
"""Exit code of a dump with an impossible value, a difference from the other one, or nothing that
could be compared with it."""
Folder = Annotated[Path, typer.Argument(help="Folder that msprobe wrote, with step and rank.")]


@command(read_dump)
def dump_command(
    folder: Folder,
    *,
    against: Path | None = None,
    product: str | None = None,
    soc: str | None = None,
    release: str | None = None,
    deterministic: BothModes = None,
    verify: bool = True,
    report: Report = None,
    json: Json = False,
) -> None:
    """List the calls of our operators in an msprobe dump, find values that cannot be, and the
    calls whose outputs differ from another dump although their inputs are equal.
    """
    reading = with_progress(
        lambda progress: read_dump(
            folder,
            against=against,
            product=product,
            soc=soc,
            release=release,
            deterministic=deterministic,
            verify=verify,
            progress=progress,
        )
    )
    write_document(report, reading, reproducing_command({}))
    print_answer("dump", reading, json=json)
    if reading.failed:
        sys.exit(DIFFERENT)
