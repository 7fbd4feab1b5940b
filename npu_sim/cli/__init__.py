"""The command line ``npu-sim``."""

import sys
from io import TextIOWrapper

from npu_sim.cli.app import app
from npu_sim.cli.errors import REFUSED, report_error
from npu_sim.cli.interruption import INTERRUPTED, INTERRUPTION
from npu_sim.status import AclnnError


def main() -> None:
    """Run the command line; exit 2 when a call is refused or its buffers overflow, 130 when it is interrupted."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a stranger's text may have characters that the terminal does not
    try:
        app(_operators_first(sys.argv[1:]))
    except AclnnError as error:
        report_error(error, as_json="--json" in sys.argv)
        sys.exit(REFUSED)
    except KeyboardInterrupt:
        INTERRUPTION.say()
        sys.exit(INTERRUPTED)
    except SystemExit as end:
        if end.code == INTERRUPTED:  # what typer makes of an interruption
            INTERRUPTION.say()
        raise


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
