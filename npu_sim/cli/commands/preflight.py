"""Commands on files of calls: ``preflight`` checks one, ``model`` and ``record`` make one."""

import contextlib
import inspect
import json
import os
import runpy
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from npu_sim.cli.lazy import cores, questions, show
from npu_sim.cli.operators import named_values
from npu_sim.cli.options import WRITES, Option, Options, chosen_release, command
from npu_sim.cli.output import (
    INTERRUPTION,
    print_json,
    print_text,
    reproducing_command,
    write_report,
)
from npu_sim.language import Text, Verbatim, say, translated, using_arguments
from npu_sim.status import UsageError

NOT_ACCEPTED = 1
"""Exit code if at least one call is not accepted, or a line is invalid."""
DEVICE: dict[str, Option] = {
    "products": Option(flags="--products,--product"),
    "soc": Option(flags="--socs,--soc"),
    "releases": Option("Every release of the product's software.", bool, False),
}
"""Options that take several values."""
Calls = Annotated[
    Path,
    typer.Argument(
        help=(
            "File of calls, one JSON object a line, such as npu-sim record writes; - for "
            "standard input."
        )
    ),
]
Config = Annotated[
    str,
    typer.Argument(
        help="config.json of a model, or a type of model that transformers knows, such as llama."
    ),
]

EPILOGS = {
    "preflight": (
        'A line: {"op": "embedding_dense_backward", "product": "atlas_a2", "inputs": {"grad": '
        '"4096x512:bf16", "indices": "4096:int32", '
        '"num_weights": 32000}, "deterministic": true, "expect": {"block_dim": 48}}. Other keys: '
        "soc (instead of product), release, limits, name, count. op may also be the name of a "
        "vendor's kernel, with the kernel's inputs. Exit code 0: every "
        "call is accepted, or matches its expect; 1: at least one call is not accepted, a line is "
        "invalid, or npu_sim models no call of a target; 64: the file cannot be read, or no line "
        "of it is a call. In a GitHub workflow, "
        "problems are marked at their lines."
    ),
    "model": (
        "The installed transformers build the model on PyTorch's meta device; its forward and "
        "backward pass are recorded. Nothing is downloaded or computed. Exit code 1: at least one "
        "call is refused."
    ),
    "record": (
        "No device and no torch_npu are needed: the names of torch_npu that this package "
        "knows can be imported while the script runs. Options stand before the script. The exit "
        "code is the script's; when it fails, no file is written."
    ),
}


@command(
    "npu_sim.functions:preflight",
    "products soc release releases max_workspace fail_on informational baseline write_baseline "
    "lines out junit sarif timeline report json",
    **DEVICE,
    baseline=Option(kind=Path | None),
    write_baseline=Option(
        "Accept all findings and write them to this file, for --baseline.",
        Path | None,
        extra=WRITES,
    ),
    lines=Option("Print only what is not accepted, as file:line: error: message.", bool, False),
    out=Option(
        "File for the results: one JSON object a line, with the whole plan.",
        Path | None,
        extra=WRITES,
    ),
    junit=Option("File for JUnit XML.", Path | None, extra=WRITES),
    sarif=Option("File for SARIF 2.1.0, which code hosts show.", Path | None, extra=WRITES),
    timeline=Option(
        "Add launches, lower bounds and estimates of every call, and their sums.", bool, False
    ),
)
def preflight_command(calls: Calls, options: Options) -> None:
    """Check a file of calls on products, SoCs and releases: statuses, plans and peak workspace,
    without data.
    """
    matrix = options.answer(
        calls,
        release=chosen_release(options),
        timed=options.timeline,
        whole=options.out is not None,
    )

    with using_arguments(show.preflight.in_a_line):
        _write(matrix, calls, options)
        _print(matrix, calls, options)
    if matrix.faults():
        sys.exit(NOT_ACCEPTED)


def _write(matrix: "questions.preflight.Matrix", calls: Path, options: Options) -> None:
    """Write the files given in the options, and the step summary of a GitHub workflow."""
    if options.write_baseline is not None:
        matrix.accept_all()
        questions.preflight.write_baseline(options.write_baseline, matrix.baseline)
    if options.sarif is not None:
        show.preflight_files.write_sarif(options.sarif, matrix, str(calls))
    if options.out is not None:
        show.preflight_files.write_results(options.out, matrix)
    if options.junit is not None:
        show.preflight_files.write_junit(options.junit, matrix, str(calls))
    _write_report(matrix, calls.name, options)
    step_summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if step_summary:
        # Appended, because all commands of a step write to this file.
        with Path(step_summary).open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(show.preflight_files.markdown(matrix))


def _print(matrix: "questions.preflight.Matrix", calls: Path, options: Options) -> None:
    if options.json:
        print_json("preflight", {"file": str(calls), **matrix.as_dict()})
        return

    if options.lines:
        for line in show.preflight_files.error_lines(matrix, str(calls), str(options.baseline)):
            print(line)
        return
    print_text(show.preflight.matrix_view(matrix), *show.preflight.times_parts(matrix))
    if os.environ.get("GITHUB_ACTIONS") == "true":
        for line in show.preflight_files.annotations(matrix, str(calls)):
            print(line)


def _write_report(matrix: "questions.preflight.Matrix", name: str, options: Options) -> None:
    """Write the report of a preflight if a path is given; ``name`` is that of the calls."""
    reproducing = reproducing_command(
        {
            ("--products", "--product", "--socs", "--soc"): cores.DEFAULT_PRODUCT,
            ("--release",): cores.default_release(),
        }
    )
    write_report(options.report, lambda: show.preflight.preflight_report(matrix, name, reproducing))


@command(
    "npu_sim.functions:model",
    "batch sequence dtype optimizer set products soc release releases deterministic "
    "out report json",
    **DEVICE,
    set=Option(
        "Value of the configuration to replace, such as num_hidden_layers=2; may be repeated.",
        list[str] | None,
        extra={"metavar": "NAME=VALUE"},
    ),
    out=Option(kind=Path | None, extra=WRITES),
)
def model_command(config: Config, options: Options) -> None:
    """Show the calls of a step of training of a model: outcome, path, launches, workspace, lower
    bound and estimate of each and in total, and where products differ.
    """
    sizes = named_values("set", options.set or (), inspect.signature(options.function).parameters)
    values = {name: _json_or_text(text) for name, text in sizes.items()}
    matrix = options.answer(config, release=chosen_release(options), **values)
    _write_report(matrix, config, options)
    if options.json:
        print_json("preflight", {"file": config, **matrix.as_dict()})
    else:
        print_text(show.preflight.call_times_view(matrix))
    if matrix.faults():
        sys.exit(NOT_ACCEPTED)


def _json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


SETTINGS = {"record": {"allow_interspersed_args": False, "ignore_unknown_options": False}}
"""Arguments after the script belong to the script."""
Script = Annotated[
    Path,
    typer.Argument(
        help="Python script that trains a PyTorch model, on the CPU or on the meta device."
    ),
]
ScriptArguments = Annotated[list[str] | None, typer.Argument(help="Arguments of the script.")]


@command(
    "",
    "out overwrite json",
    out=Option("File for the calls, which npu-sim preflight reads.", Path, Path("calls.jsonl")),
    overwrite=Option("Replace the file of an earlier recording.", bool, False),
)
def record_command(options: Options, script: Script, arguments: ScriptArguments = None) -> None:
    """Run a training script and write down the calls it makes of the operators, forward and
    backward.
    """
    if not script.is_file():
        message = Text("{script}: no such file", script=script)
        raise UsageError("script", message, "the Python script to run, then its own arguments")
    own_options = ("--out", "--overwrite", "--json")
    passed_on = [name for name in arguments or () if name.partition("=")[0] in own_options]
    order = Text(
        "{options} belong to the script; options of npu-sim stand before it",
        options=" ".join(passed_on),
    )
    if options.out.exists() and not options.overwrite:
        message = Text("{target} exists already", target=options.out)
        hint = order if passed_on else "replace it with --overwrite, or name another"
        raise UsageError("out", message, hint)
    try:
        from npu_sim.torch import record
    except ImportError as error:
        raise UsageError("record", str(error)) from None

    out = options.out
    file = out.absolute()  # the script may change the directory
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
                print_text(show.preflight.recording_view(recording.as_dict(), str(out)))
            if passed_on:
                print_text(Verbatim(translated(order)), error=True)

        try:
            with _before_exit(finish):
                _run(script, arguments or [])
        except KeyboardInterrupt:
            text = "interrupted: {count} calls recorded so far, {out} is not written"
            INTERRUPTION.report(say(text, count=len(recording), out=Verbatim(str(out))))
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
