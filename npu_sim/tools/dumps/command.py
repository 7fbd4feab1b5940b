"""The command ``dump``."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from npu_sim.cli.options import BOTH_MODES, Option, Options, command
from npu_sim.cli.output import reproducing_command, show_answer

DIFFERENT = 1
"""Exit code of a dump with an impossible value, a difference from the other one, or nothing that
could be compared with it."""
Folder = Annotated[Path, typer.Argument(help="Folder that msprobe wrote, with step and rank.")]


@command(
    "npu_sim.tools.dumps.reading:read_dump",
    "against product soc release deterministic verify report json",
    against=Option(kind=Path | None),
    deterministic=BOTH_MODES,
)
def dump_command(folder: Folder, options: Options) -> None:
    """List the calls of our operators in an msprobe dump, find values that cannot be, and the
    calls whose outputs differ from another dump although their inputs are equal.
    """
    reading = options.answer(folder)
    show_answer("dump", reading, options, reproducing_command({}))
    if reading.failed:
        sys.exit(DIFFERENT)
