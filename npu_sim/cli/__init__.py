"""The command line ``npu-sim``."""

import errno
import sys
from io import TextIOWrapper
from operator import attrgetter
from pathlib import Path
from typing import Any

import typer

from npu_sim.cli.app import app
from npu_sim.cli.errors import report
from npu_sim.cli.interruption import INTERRUPTED, INTERRUPTION
from npu_sim.cli.printing import discard_output
from npu_sim.files.writing import FULL_DISK, cannot_write
from npu_sim.language import using_arguments
from npu_sim.status import NpuSimError

COMMAND_ERROR: Any = typer.BadParameter.__base__
"""Base class of typer's errors for arguments it cannot parse; typer does not export it."""


NOT_PRINTED = 1
"""Exit code when standard output is closed or its disk is full."""


def main() -> None:
    """Run the command line.

    Exits with 2 when a call is refused or overflows, 64 for a usage error, 130 for an interruption.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # Untrusted text may contain characters that the terminal cannot show.
            stream.reconfigure(errors="backslashreplace")
    try:
        with using_arguments(attrgetter("option")):
            sys.exit(_run(_operators_first(sys.argv[1:])))
    except KeyboardInterrupt:
        INTERRUPTION.report()
        sys.exit(INTERRUPTED)
    except SystemExit as end:
        if end.code == INTERRUPTED:  # typer turns an interruption into this exit
            INTERRUPTION.report()
        raise


def _run(typed: list[str]) -> int:
    """Run a command; return its exit code, also where standard output cannot take its answer."""
    try:
        code = _exit_code(typed)
        sys.stdout.flush()  # where the disk of a redirected output may be full
    except OSError as error:
        if error.errno not in (errno.EPIPE, *FULL_DISK):
            raise
        discard_output()
        if error.errno != errno.EPIPE:
            report(cannot_write("out", Path("standard output"), error), as_json=False)
        return NOT_PRINTED
    return code


def _exit_code(typed: list[str]) -> int:
    """Run a command; return its exit code."""
    as_json = "--json" in typed
    try:
        return typer.main.get_command(app).main(typed, standalone_mode=False) or 0
    except (NpuSimError, COMMAND_ERROR) as error:
        return report(error, as_json=as_json)
    except Exception as error:
        from npu_sim.framework.registration import own_error

        own = None if INTERRUPTION.raised else own_error(error)
        if own is None:
            raise
        return report(own, as_json=as_json)


def _operators_first(typed: list[str]) -> list[str]:
    """Move ``--operators FILE`` to the front, so that it is accepted anywhere."""
    files: list[str] = []
    others: list[str] = []
    arguments = iter(typed)
    for argument in arguments:
        if argument == "--operators":
            files += [argument, next(arguments, "")]
        elif argument.startswith("--operators="):
            files.append(argument)
        else:
            others.append(argument)
    return files + others
