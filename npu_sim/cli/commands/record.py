"""``npu-sim record``: the calls that a training script makes."""

import contextlib
import runpy
import sys
import traceback
from pathlib import Path
from typing import Annotated

import typer

from npu_sim.cli.interruption import INTERRUPTION
from npu_sim.cli.options import Json
from npu_sim.cli.output import print_json, print_text
from npu_sim.language import Text, Verbatim, say
from npu_sim.status import UsageError

SETTINGS = {"allow_interspersed_args": False, "ignore_unknown_options": False}
"""Arguments after the script belong to the script."""
Script = Annotated[
    Path,
    typer.Argument(
        help="Python script that trains a PyTorch model, on the CPU or on the meta device."
    ),
]
Arguments = Annotated[list[str] | None, typer.Argument(help="Arguments of the script.")]
OutFile = Annotated[
    Path, typer.Option("--out", help="File for the calls, which npu-sim preflight reads.")
]

EPILOG = (
    "No device and no torch_npu are needed: the names of torch_npu that this package knows can be "
    "imported while the script runs. Options stand before the script. The exit code is the "
    "script's; when it fails, no file is written."
)


def record_command(
    script: Script,
    arguments: Arguments = None,
    out: OutFile = Path("calls.jsonl"),
    json_output: Json = False,
) -> None:
    """Run a training script and write down the calls it makes of the operators, forward and
    backward.
    """
    if not script.is_file():
        message = Text("{script}: no such file", script=script)
        raise UsageError("script", message, "the Python script to run, then its own arguments")
    try:
        from npu_sim.torch import record
    except ImportError as error:
        raise UsageError("record", str(error)) from None
    from npu_sim.show.recordings import recording_view

    file = out.absolute()  # the script may change the directory
    # With --json, standard output holds the JSON alone.
    with (
        contextlib.redirect_stdout(sys.stderr) if json_output else contextlib.nullcontext(),
        record(file) as recording,
    ):
        try:
            _run(script, arguments or [])
        except KeyboardInterrupt:
            text = "interrupted: {count} calls recorded so far, {out} is not written"
            INTERRUPTION.report(say(text, count=len(recording), out=Verbatim(str(out))))
            raise
    if recording.forked:  # the process that records writes the calls
        return
    if json_output:
        print_json("calls", recording.as_dict())
        return
    print_text(recording_view(recording.as_dict(), str(out)))


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
