"""Output of commands: text, JSON, reports, traces, progress, errors, interruptions, exit codes.

Text is as wide as the terminal. Errors show options as they are typed. Ctrl-C gives one line of
output and exit code 130 within a second, in any state of the process.

A report shows the command that reproduces it: the command as typed, with defaults written out, so
that the line gives the same report where other defaults hold.
"""

import json
import os
import shlex
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Any, NoReturn

from rich.console import Console, RenderableType

from npu_sim.cli.lazy import (
    cores,
    files,
    framework,
    operators,
    plans,
    questions,
    show,
    studies,
    timelines,
)
from npu_sim.language import (
    Argument,
    Text,
    Verbatim,
    percent_text,
    say,
    translated,
    visible,
    with_arguments,
    with_changed_fields,
)
from npu_sim.registry import find_operator
from npu_sim.status import AclnnError, NpuSimError, UsageError, closest, refusal_text

REFUSED_EXIT_CODE = 2
"""Exit code of a call that does not run: the product refuses it, or its buffers overflow."""


def print_text(*parts: RenderableType, error: bool = False) -> None:
    """Print an answer on standard output, or an error on standard error.

    Text is as wide as the terminal or ``COLUMNS``; in a pipe or a file lines are not wrapped.
    """
    stream = sys.stderr if error else sys.stdout
    width = None if stream.isatty() or os.environ.get("COLUMNS") else show.layout.UNLIMITED
    console = Console(highlight=False, width=width, stderr=error, force_jupyter=False)
    show.layout.print_to(console, show.layout.stack(*parts))


def print_json(form: str, data: Mapping[str, Any]) -> None:
    """Print a JSON document; ``form`` is its name in :mod:`npu_sim.files.writing`."""
    text = json.dumps({"schema": files.writing.schema(form), **data}, indent=2, ensure_ascii=False)
    print(visible(text, lines=True))


def print_csv(records: Iterable[Mapping[str, Any]]) -> None:
    """Print records in JSON form as CSV, with a column for every field of nested records."""
    columns = plans.answers.columns_of(records)
    print(
        visible(show.layout.csv_text([*columns], zip(*columns.values(), strict=True)), lines=True),
        end="",
    )


def print_answer(form: str, answer: Any, *, as_json: bool, csv: str = "") -> None:
    """Print an answer as a JSON document of a form, or as text.

    ``csv`` is the key of its records if they are printed as CSV instead.
    """
    if csv:
        print_csv(answer.as_dict()[csv])
        return
    if as_json:
        print_json(form, with_arguments(answer.as_dict()))
        return

    print_text(show.view_of(answer))


def show_answer(form: str, answer: Any, options: Any, command: str, csv: str = "") -> None:
    """Write the report and the picture of an answer, as far as options name files, and print it.

    - ``command``: command that reproduces the report.
    - ``csv``: key of the records that ``--csv`` prints.
    """
    write_report(options.report, lambda: replace(show.document_of(answer), command=command))
    write_figure(getattr(options, "figure", None), answer)
    as_csv = csv and options.csv
    print_answer(form, answer, as_json=options.json, csv=csv if as_csv else "")


def with_progress(work: Callable[[Callable[[str, float], None]], Any]) -> Any:
    """Return ``work(report)``, showing a progress bar on standard error if that is a terminal.

    ``report(stage, fraction)`` is called with the name of a stage and the part done, 0 to 1; an
    interruption prints both.
    """
    last = "", 0.0

    def report(stage: str, fraction: float) -> None:
        nonlocal last
        last = stage, fraction
        if bar is not None:
            bar.update(task, description=translated(stage), completed=fraction)

    bar = None
    try:
        if not sys.stderr.isatty():
            return work(report)
        from rich.progress import Progress

        with Progress(console=Console(stderr=True, force_jupyter=False), transient=True) as bar:
            task = bar.add_task("", total=1.0)
            return work(report)
    except KeyboardInterrupt:
        stage, fraction = last
        if fraction:
            INTERRUPTION.report(
                say("interrupted: {stage}, {done} done", stage=stage, done=percent_text(fraction))
            )
        raise


def exit_unless_runs(plan: "plans.model.Plan") -> None:
    """Exit with the code of a plan that overflows; called after everything is printed."""
    if plan.overflow is not None:
        sys.exit(REFUSED_EXIT_CODE)


def reproducing_command(
    defaults: Mapping[tuple[str, ...], object], more: Sequence[str] = ()
) -> str:
    """Return the running command as a line for the shell.

    - ``defaults``: such as ``{("--release",): "9.1"}``; options that were not typed are added.
    - ``more``: further arguments, added as they are.
    """
    line = ["npu-sim", *sys.argv[1:]]
    typed = {argument.partition("=")[0] for argument in line}
    for spellings, value in defaults.items():
        if typed.isdisjoint(spellings):
            line += [spellings[0], str(value)]
    return shlex.join([*line, *more])


def command_on(profile: "cores.Profile", **others: object) -> str:
    """Return the running command with its product, SoC and release written out.

    ``others`` are further options by name.
    """
    device = {"product": profile.name, "soc": profile.soc, "release": profile.release}
    return reproducing_command(
        {("--" + name.replace("_", "-"),): value for name, value in (device | others).items()}
    )


def write_report(path: Path | None, document: Callable[[], "show.layout.Document"]) -> None:
    """Write a report as one HTML file if a path is given; ``document`` makes it."""
    if path is not None:
        files.writing.write_text(path, show.html.render(document()))


def write_figure(path: Path | None, answer: "plans.answers.Printed") -> None:
    """Write the picture of an answer that the name of the file states: ``cores.svg``."""
    if path is not None:
        answer.figure(path.stem.partition("-")[0]).save(path)


def write_files(
    outcome: "plans.model.Plan | framework.execution.Result",
    profile: "cores.Profile",
    options: Any,
    command: str,
    rows: "Sequence[studies.determinism.VariableRows]" = (),
) -> dict[str, Any]:
    """Write report, picture and trace of a plan or a run, as far as options name files.

    Parameters
    ----------
    command
        Command line that reproduces the report.
    rows
        Rows of a run that can differ, to be listed.

    Returns
    -------
    dict
        Data shown in these files besides the outcome, for ``--json``: ``order_strips`` (a run with
        a report) and ``timeline`` (a trace).
    """
    plan = outcome if isinstance(outcome, plans.model.Plan) else outcome.plan
    shown: dict[str, Any] = {}
    if options.report is not None:
        if isinstance(outcome, plans.model.Plan):
            write_report(options.report, lambda: show.plan_report.plan_report(plan, command))
        else:
            shown["order_strips"] = show.pictures.order_strips(outcome)
            write_report(
                options.report, lambda: show.plan_report.result_report(outcome, command, rows)
            )
    write_figure(options.figure, outcome)
    if options.trace is not None:
        timelines.tracks.write_trace(options.trace, [operators.timelines.timed_plan(plan, profile)])
        shown["timeline"] = questions.explain.with_changes(
            operators.timelines.timeline(plan, profile), plan, profile
        ).as_dict()
    return shown


USAGE = 64
"""Exit code of a usage error, from ``sysexits.h``."""


def report(error: Any, *, as_json: bool) -> int:
    """Print an error of npu_sim or of typer: JSON on stdout, or text on stderr.

    Returns the exit code.
    """
    if not isinstance(error, NpuSimError):
        error = usage_error(error)
    if error is None:
        return USAGE
    data = with_arguments(error.as_dict())
    if isinstance(error, AclnnError):
        if as_json:
            print_json("error", {"outcome": error.outcome, "error": data})
        else:
            text = with_changed_fields(error.as_text(), _one_line)
            _print(refusal_text(error, text))
        return REFUSED_EXIT_CODE
    if as_json:
        print_json("usage", {"outcome": error.outcome, **data})
    else:
        message, hint = (
            translated(with_changed_fields(text, _one_line)) for text in (error.message, error.hint)
        )
        _print("\n".join(line for line in (f"npu-sim: {message}", hint) if line))
    return USAGE


def _one_line(field: str) -> str:
    """Return a field with newlines escaped: names from files must not start a line of a log."""
    if isinstance(field, Argument):
        return field
    return Verbatim(visible(field)) if isinstance(field, Verbatim) else visible(field)


def _print(text: str) -> None:
    """Print an error; its lines end at blanks."""
    print_text(show.layout.Paragraph(text, hanging=2, is_translated=True), error=True)


def _error_hint(error: Any) -> str:
    """Return the names of an error's option or argument; older versions of typer want a context."""
    hint = error.param.get_error_hint
    text: str = hint(error.ctx) if signature(hint).parameters else hint()
    return text


def _typer_text(error: Any) -> str:
    """Return the message of typer's error; sentences that typer alone has stay English."""
    match type(error).__name__:
        case "NoSuchOption":
            name = Verbatim(error.option_name)
            own_name = _documented_option(error.option_name, error.ctx)
            near = own_name or closest(error.option_name, error.possibilities or ())
            return Text("No such option: {name}", name=name) + near
        case "MissingParameter":
            return Text("Missing argument {name}.", name=Verbatim(_error_hint(error)))
        case "BadParameter":
            name = Verbatim(_error_hint(error))
            return Text("Invalid value for {name}: {message}", error, name=name)
    return str(error.format_message())


def _documented_option(name: str, ctx: Any) -> str:
    """Return the hint at the option of an argument that has another name in the documents."""
    entry = find_operator(ctx.info_name) if ctx is not None and ctx.info_name else None
    arguments = operators.loading.load_operator(entry.name).arguments if entry else ()
    named = {argument.parameter: argument.name for argument in arguments}
    option = named.get(name.lstrip("-"), "").replace("_", "-")
    return closest(option, [f"--{option}"]) if option else ""


def usage_error(error: Any) -> UsageError | None:
    """Return typer's error as a usage error; None if typer has printed the help instead."""
    if type(error).__name__ == "NoArgsIsHelpError":
        return None
    option = str(getattr(error, "option_name", ""))
    name = getattr(getattr(error, "param", None), "name", None) or option.lstrip("-")
    return UsageError(name, _typer_text(error), _help_hint(error.ctx))


def _help_hint(ctx: Any) -> str:
    """Return where the help of a command is."""
    where = f"{ctx.command_path if ctx is not None else 'npu-sim'} --help"
    return Text("for help: {where}", where=where)


def unknown_command(name: str, known: Iterable[str], ctx: Any) -> UsageError:
    """Return the error of a command that is not among the known ones."""
    return UsageError(
        "", Text("No such command: {name}", name=repr(name)) + closest(name, known), _help_hint(ctx)
    )


INTERRUPTED = 128 + signal.SIGINT
"""Exit code of a command that was interrupted."""

GRACE_SECONDS = 0.7
"""Time for a normal exit after SIGINT."""


class Interruption:
    """Handling of SIGINT.

    Python raises KeyboardInterrupt only between two bytecode instructions, and the exception is
    lost in callbacks whose errors a library ignores. Both happen while kernels are compiled. A
    thread therefore watches for the signal as well and ends the process if it has not ended soon
    after. Files are written whole or not at all, so no file is left incomplete.

    Attributes
    ----------
    raised
        The last KeyboardInterrupt; None before an interruption. Its traceback keeps the objects of
        the interrupted functions until the process ends: llvmlite crashes when it frees a module
        that it was passing on.
    """

    def __init__(self) -> None:
        self.raised: KeyboardInterrupt | None = None
        self._unreported = threading.Lock()

    def report(self, text: str = "interrupted") -> None:
        """Print a line about the interruption, the first time only."""
        if self._unreported.acquire(blocking=False):
            with suppress(OSError, ValueError):
                print(text, file=sys.stderr, flush=True)

    def interrupt(self, *_: object) -> NoReturn:
        """Raise KeyboardInterrupt and record it, as a library may catch, replace or ignore it."""
        self.raised = KeyboardInterrupt()
        sys.unraisablehook = lambda _: None
        raise self.raised

    def watch(self) -> None:
        """Start watching; call this from the main thread."""
        reader, writer = socket.socketpair()
        writer.setblocking(False)
        signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        threading.Thread(target=self._end, args=(reader, writer), daemon=True).start()

    def _end(self, reader: socket.socket, _writer: socket.socket) -> None:
        while signal.SIGINT not in reader.recv(16):
            pass
        time.sleep(GRACE_SECONDS)
        self.report()
        os._exit(INTERRUPTED)


INTERRUPTION = Interruption()
"""The instance of this process."""
