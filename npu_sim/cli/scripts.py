"""Scripts that commands run: ``record`` and ``emulate``."""

import contextlib
import os
import runpy
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from npu_sim.status import UsageError

Script = Annotated[
    Path,
    typer.Argument(
        help="Python script that trains a PyTorch model, on the CPU or on the meta device."
    ),
]
ScriptArguments = Annotated[list[str] | None, typer.Argument(help="Arguments of the script.")]
SETTINGS = {"allow_interspersed_args": False, "ignore_unknown_options": False}
"""Arguments after the script belong to the script."""
ORDER = "{options} belong to the script; options of npu-sim stand before it"


def require_script(script: Path) -> None:
    """Raise UsageError for a script that is not a file."""
    if not script.is_file():
        raise UsageError(
            "script",
            "{script}: no such file",
            "the Python script to run, then its own arguments",
            script=script,
        )


def own_options(arguments: Sequence[str] | None, options: type[Any]) -> list[str]:
    """Return arguments of the script that are options of the command, perhaps by mistake."""
    names = {f"--{option.name.replace('_', '-')}" for option in fields(options)}
    return [name for name in arguments or () if name.partition("=")[0] in names]


@contextlib.contextmanager
def before_exit(finish: Callable[[], None]) -> Iterator[None]:
    """Call ``finish`` when the block ends this process with ``os._exit(0)``, as launchers do."""
    leave, owner = os._exit, os.getpid()

    def finish_and_leave(status: int) -> NoReturn:
        try:
            if status == 0 and os.getpid() == owner:
                finish()
                sys.stdout.flush()
        except Exception:
            traceback.print_exc()
            status = 1
        finally:
            leave(status)

    os._exit = finish_and_leave
    try:
        yield
    finally:
        os._exit = leave


def _with_frames_of(error: Exception, script: Path) -> Exception:
    """Return an error of a script without the frames that ran the script."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename != str(script):
        frames = frames.tb_next
    return error.with_traceback(frames or error.__traceback__)


def run_script(script: Path, arguments: list[str]) -> None:
    """Run a script as ``python script.py`` does."""
    arguments_before, path_before = sys.argv, sys.path
    sys.argv, sys.path = [str(script), *arguments], [str(script.resolve().parent), *path_before]
    try:
        runpy.run_path(str(script), run_name="__main__")
    except SystemExit as end:
        if end.code not in (None, 0):
            raise
    except Exception as error:
        traceback.print_exception(_with_frames_of(error, script))
        sys.exit(1)
    finally:
        sys.argv, sys.path = arguments_before, path_before
