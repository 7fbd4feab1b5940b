"""``npu-sim record``."""

import contextlib
import os
import runpy
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from npu_sim.cli.interruption import INTERRUPTION
from npu_sim.cli.options import Json, command
from npu_sim.cli.printing import print_json, print_text
from npu_sim.language import Verbatim, say
from npu_sim.show.preflight import recording_view
from npu_sim.status import UsageError

Script = Annotated[
    Path,
    typer.Argument(
        help="Python script that trains a PyTorch model, on the CPU or on the meta device."
    ),
]
ScriptArguments = Annotated[list[str] | None, typer.Argument(help="Arguments of the script.")]
EPILOG = (
    "No device and no torch_npu are needed: the names of torch_npu that this package "
    "knows can be imported while the script runs. Options stand before the script. The exit "
    "code is the script's; when it fails, no file is written, unless it fails at a name of "
    "torch_npu that is not available: then the file has the calls up to there."
)
SETTINGS = {"allow_interspersed_args": False, "ignore_unknown_options": False}
"""Arguments after the script belong to the script."""


@dataclass(frozen=True, kw_only=True)
class RecordOptions:
    """Options of ``npu-sim record``."""

    out: Annotated[
        Path, typer.Option(help="File for the calls, which npu-sim preflight reads.")
    ] = Path("calls.jsonl")
    overwrite: Annotated[bool, typer.Option(help="Replace the file of an earlier recording.")] = (
        False
    )
    json: Json = False


@command(epilog=EPILOG, settings=SETTINGS)
def record_command(
    script: Script, options: RecordOptions, arguments: ScriptArguments = None
) -> None:
    """Run a training script and write down the calls it makes of the operators, forward and
    backward.
    """
    if not script.is_file():
        raise UsageError(
            "script",
            "{script}: no such file",
            "the Python script to run, then its own arguments",
            script=script,
        )
    own_options = ("--out", "--overwrite", "--json")
    passed_on = [name for name in arguments or () if name.partition("=")[0] in own_options]
    order = "{options} belong to the script; options of npu-sim stand before it"
    if options.out.exists() and not options.overwrite:
        raise UsageError(
            "out",
            "{target} exists already",
            order if passed_on else "replace it with --overwrite, or name another",
            target=options.out,
            options=" ".join(passed_on),
        )
    try:
        from npu_sim.torch import record
    except ImportError as error:
        raise UsageError("record", "{error}", error=error) from None

    file = options.out.absolute()  # the script may change the directory
    with contextlib.ExitStack() as watching:
        if options.json:  # standard output holds the JSON alone
            watching.enter_context(contextlib.redirect_stdout(sys.stderr))
        recording = watching.enter_context(record(file))

        def finish() -> None:
            watching.close()  # writes the calls
            if recording.forked:  # the process that records writes them
                return
            if options.json:
                print_json("calls", recording.as_dict())
            else:
                print_text(recording_view(recording.as_dict(), str(options.out)))
            if passed_on:
                print_text(say(order, options=" ".join(passed_on)), error=True)

        try:
            with _before_exit(finish):
                _run(script, arguments or [])
        except SystemExit as end:
            from npu_sim.torch.stand_in import ended_at_missing_name

            if ended_at_missing_name(end):
                text = "{out} has the {count} calls up to this name, which is not available here"
                reached = say(text, count=len(recording), out=Verbatim(str(options.out)))
                print_text(Verbatim(reached), error=True)
            raise
        except KeyboardInterrupt:
            text = "interrupted: {count} calls recorded so far, {out} is not written"
            INTERRUPTION.report(say(text, count=len(recording), out=Verbatim(str(options.out))))
            raise
    finish()


@contextlib.contextmanager
def _before_exit(finish: Callable[[], None]) -> Iterator[None]:
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


def _run(script: Path, arguments: list[str]) -> None:
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
