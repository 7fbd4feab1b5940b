"""``npu-sim emulate``."""

import contextlib
import io
import os
import shlex
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from npu_sim.cli.interruption import INTERRUPTION
from npu_sim.cli.options import CallOptions, Json, Report, Seed, command
from npu_sim.cli.output import print_answer, write_document
from npu_sim.cli.output_files import require_writable
from npu_sim.cli.printing import print_text
from npu_sim.cli.progress import with_progress
from npu_sim.cli.reproducing import command_on, reproducing_command
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
from npu_sim.cores import Profile
from npu_sim.framework.target import CoreOrder
from npu_sim.language import Text, say
from npu_sim.status import UsageError, tip

EPILOG = Text(
    "Matrix products, attention and everything that is not listed are this CPU's: differences "
    "between two emulated runs are caused by the operators alone, and the absolute loss is not "
    "that of a device. Options stand before the script. The exit code is the script's."
)
STEPS = 20
COMPARED: dict[str, Literal["first"] | bool] = {"first": "first", "all": True, "none": False}


@dataclass(frozen=True, kw_only=True)
class EmulateOptions(CallOptions):
    """Options of ``npu-sim emulate``."""

    core_order: CoreOrder = "sequential"
    seed: Seed = 0
    fused: Annotated[
        str | None,
        typer.Option(
            help="Operators to replace, such as rms_norm,swi_glu; all but moe_token_permute and "
            "moe_token_unpermute when left out."
        ),
    ] = None
    strict: Annotated[
        bool, typer.Option(help="End where the product refuses a call of the model.")
    ] = False
    compare: Annotated[
        str,
        typer.Option(
            help="Calls that are compared with what the program computes: first (of each place), "
            "all or none."
        ),
    ] = "first"
    out: Annotated[
        Path | None,
        typer.Option(
            help="File for the calls, which npu-sim preflight reads.", callback=require_writable
        ),
    ] = None
    ablate: Annotated[
        bool,
        typer.Option(
            help="Run the script once for each operator alone, once with all, and once with one "
            "weight moved by one unit in the last place; print what differs."
        ),
    ] = False
    steps: Annotated[
        int | None,
        typer.Option(
            help="With --ablate: steps of the optimizer that each run makes; 20 when left out."
        ),
    ] = None
    report: Report = None
    json: Json = False


@command(epilog=EPILOG, settings=SETTINGS)
def emulate_command(
    script: Script, options: EmulateOptions, arguments: ScriptArguments = None
) -> None:
    """Run a training script with the product's arithmetic in its model's operators, forward and
    backward.
    """
    require_script(script)
    if options.compare not in COMPARED:
        raise UsageError(
            "compare",
            "compare = {compare} is not known",
            "{tip}one of: {known}",
            compare=options.compare,
            known=", ".join(COMPARED),
            tip=tip(options.compare, COMPARED),
        )
    _require_consistent(options)
    names = None
    if options.fused is not None:
        names = [name.strip() for name in options.fused.split(",")]
    passed_on = own_options(arguments, EmulateOptions)
    if options.ablate:
        _ablate(script, arguments or [], options, names)
    else:
        _emulate(script, arguments or [], options, names)
    if passed_on:
        print_text(say(ORDER, options=" ".join(passed_on)), error=True)


def _reproducing(profile: Profile) -> str:
    """Return the command that reproduces a report: options stand before the script."""
    words, typed = shlex.split(command_on(profile)), len(shlex.split(reproducing_command({})))
    return shlex.join([*words[:2], *words[typed:], *words[2:typed]])


def _require_consistent(options: EmulateOptions) -> None:
    """Raise UsageError for an option that has no effect beside the others."""
    if options.ablate:
        given = {
            "--out": options.out is not None,
            "--strict": options.strict,
            "--compare": options.compare != "first",
        }
        wrong = [name for name, is_given in given.items() if is_given]
        if wrong:
            raise UsageError(
                "ablate",
                "--ablate has no {options}: it compares whole runs",
                "leave {options} out, or --ablate",
                options=", ".join(wrong),
            )
    elif options.steps is not None:
        raise UsageError(
            "steps", "--steps is an option of --ablate", "add --ablate, or leave --steps out"
        )


def _ablate(
    script: Path, arguments: list[str], options: EmulateOptions, names: list[str] | None
) -> None:
    """Run a script once for each operator, and print what differs.

    Only the first run prints its own text.
    """
    with _without_torch_as_usage():
        from npu_sim.torch.ablation import ablation

    page = None if options.report is None else options.report.absolute()
    directory, shown = Path.cwd(), sys.stderr if options.json else sys.stdout
    outputs = iter([shown])

    def run() -> None:
        os.chdir(directory)  # the script may change it
        with contextlib.redirect_stdout(next(outputs, io.StringIO())):
            run_script(script, arguments)

    study = with_progress(
        lambda progress: ablation(
            run,
            options.profile(),
            steps=STEPS if options.steps is None else options.steps,
            deterministic=options.deterministic,
            core_order=options.core_order,
            limits=options.limits,
            seed=options.seed,
            fused=names,
            progress=progress,
        )
    )
    write_document(page, study, _reproducing(study.target.profile))
    print_answer("ablation", study, json=options.json)


@contextlib.contextmanager
def _without_torch_as_usage() -> Iterator[None]:
    """Report a missing PyTorch as a usage error."""
    try:
        yield
    except ImportError as error:
        raise UsageError("emulate", "{error}", error=error) from None


def _emulate(
    script: Path, arguments: list[str], options: EmulateOptions, names: list[str] | None
) -> None:
    """Run a script with the product's arithmetic, and print the report."""
    with _without_torch_as_usage():
        from npu_sim.torch import emulate

    page = options.report  # the script may change the directory
    page = None if page is None else page.absolute()
    with contextlib.ExitStack() as running:
        if options.json:  # standard output holds the JSON alone
            running.enter_context(contextlib.redirect_stdout(sys.stderr))
        emulation = running.enter_context(
            emulate(
                options.profile(),
                deterministic=options.deterministic,
                limits=options.limits,
                core_order=options.core_order,
                seed=options.seed,
                fused=names,
                strict=options.strict,
                compare=COMPARED[options.compare],
                path=options.out,
            )
        )

        def finish() -> None:
            with warnings.catch_warnings():
                # The report says when no call was replaced.
                warnings.simplefilter("ignore", UserWarning)
                running.close()
            if emulation.recording.forked:  # the process that emulates prints the report
                return
            write_document(page, emulation, _reproducing(emulation.target.profile))
            print_answer("emulation", emulation, json=options.json)

        try:
            with before_exit(finish):
                run_script(script, arguments)
        except KeyboardInterrupt:
            INTERRUPTION.report(say("interrupted: the report is of what ran so far"))
            finish()
            raise
        finish()
