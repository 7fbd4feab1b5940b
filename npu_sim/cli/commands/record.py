"""``npu-sim record``."""

import contextlib
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from npu_sim.cli.interruption import INTERRUPTION
from npu_sim.cli.options import Json, command
from npu_sim.cli.printing import print_json, print_text
from npu_sim.cli.scripts import (
    ORDER,
    SETTINGS,
    Script,
    ScriptArguments,
    before_exit,
    own_options,
    require_script,
    run_script,
)
from npu_sim.language import Verbatim, say
from npu_sim.show.preflight import recording_view
from npu_sim.status import UsageError

EPILOG = (
    "No device and no torch_npu are needed: the names of torch_npu that this package "
    "knows can be imported while the script runs. Options stand before the script. The exit "
    "code is the script's; when it fails, no file is written, unless it fails at a name of "
    "torch_npu that is not available: then the file has the calls up to there."
)


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
    require_script(script)
    passed_on = own_options(arguments, RecordOptions)
    if options.out.exists() and not options.overwrite:
        raise UsageError(
            "out",
            "{target} exists already",
            ORDER if passed_on else "replace it with --overwrite, or name another",
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
                print_text(say(ORDER, options=" ".join(passed_on)), error=True)

        try:
            with before_exit(finish):
                run_script(script, arguments or [])
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
