"""The command line ``npu-sim``."""

import sys
from io import TextIOWrapper

import typer

from npu_sim.cli.app import app
from npu_sim.cli.errors import USAGE, CommandError, report_error, usage_error
from npu_sim.cli.interruption import INTERRUPTED, INTERRUPTION
from npu_sim.status import NpuSimError


def main() -> None:
    """Run the command line; exit 2 when a call is refused or overflows, 64 for a mistake of the caller, 130 when it is interrupted."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(
                errors="backslashreplace"
            )  # a stranger's text may have characters that the terminal does not
    try:
        sys.exit(_run(_operators_first(sys.argv[1:])))
    except KeyboardInterrupt:
        INTERRUPTION.say()
        sys.exit(INTERRUPTED)
    except SystemExit as end:
        if end.code == INTERRUPTED:  # what typer makes of an interruption
            INTERRUPTION.say()
        raise


def _run(typed: list[str]) -> int:
    """Run a command; return its exit code."""
    as_json = "--json" in typed
    try:
        return typer.main.get_command(app).main(typed, standalone_mode=False) or 0
    except NpuSimError as error:
        return report_error(error, as_json=as_json)
    except CommandError as error:
        mistake = usage_error(error)
        return USAGE if mistake is None else report_error(mistake, as_json=as_json)


def _operators_first(typed: list[str]) -> list[str]:
    """Move ``--operators FILE`` to the front, so that it may stand anywhere."""
    files: list[str] = []
    others: list[str] = []
    words = iter(typed)
    for word in words:
        if word == "--operators":
            files += [word, next(words, "")]
        elif word.startswith("--operators="):
            files.append(word)
        else:
            others.append(word)
    return files + others
