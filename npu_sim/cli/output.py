"""Output of commands: text as wide as the terminal, JSON, reports, traces, progress, exit codes.

A report shows the command that reproduces it: the command as typed, with defaults written out, so
that the line gives the same report where other defaults hold.
"""

import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from npu_sim.cli.interruption import INTERRUPTION
from npu_sim.language import Verbatim, say, translated, visible, with_changed_fields
from npu_sim.language.quantities import percent_text

if TYPE_CHECKING:
    from rich.console import RenderableType

    from npu_sim.cores import Profile
    from npu_sim.framework.execution import Result
    from npu_sim.plans.answers import Printed
    from npu_sim.plans.model import Plan
    from npu_sim.show.document import Document
    from npu_sim.studies.determinism import VariableRows

REFUSED = 2
"""Exit code of a call that does not run: the product refuses it, or its buffers overflow."""


_OPTION = re.compile(
    r"(?<![A-Za-z0-9_])(products?|soc|release|limits|deterministic|core_order|seed|resume|engine"
    r"|vary|set|out)"
    r"=(?:\"([^\"]*)\"|([A-Za-z0-9_.]+))"
)
_FUNCTION = re.compile(r"(?<![A-Za-z0-9_])npu_sim\.([a-z]+)(?![A-Za-z0-9_])")


def in_shell_form(text: str, render: Callable[[str], str] = str) -> str:
    """Return a rendered message with options and functions in command-line form.

    ``limits="hardware"`` becomes ``--limits hardware``. Fields that are :class:`Verbatim`, such as
    paths, stay unchanged.
    """
    verbatim: dict[str, str] = {}

    def hidden(field: str) -> str:
        if not isinstance(field, Verbatim):
            return field
        marker = f"\0{len(verbatim)}\0"
        verbatim[marker] = field
        return Verbatim(marker)

    shell = _FUNCTION.sub(
        r"npu-sim \1", _OPTION.sub(_option, render(with_changed_fields(text, hidden)))
    )
    return re.sub("\0[0-9]+\0", lambda marker: verbatim.get(marker[0], marker[0]), shell)


def _option(match: re.Match[str]) -> str:
    name, value = match[1].replace("_", "-"), match[3] if match[2] is None else match[2]
    return f"--{name}" if value == "True" else f"--{name} {value}"


def print_text(
    *parts: "RenderableType", error: bool = False, wording: Callable[[str], str] = translated
) -> None:
    """Print an answer on standard output, or an error on standard error.

    Text is as wide as the terminal or ``COLUMNS``; in a pipe or a file lines are not wrapped.
    """
    from npu_sim.show.layout import UNLIMITED, WordedConsole, print_to, stack

    stream = sys.stderr if error else sys.stdout
    print_to(
        WordedConsole(
            wording,
            highlight=False,
            width=None if stream.isatty() or os.environ.get("COLUMNS") else UNLIMITED,
            stderr=error,
        ),
        stack(*parts),
    )


def print_json(form: str, data: Mapping[str, Any]) -> None:
    """Print a JSON document; ``form`` is its name in :mod:`npu_sim.files.writing`."""
    from npu_sim.files.writing import schema

    text = json.dumps({"schema": schema(form), **data}, indent=2, ensure_ascii=False)
    print(visible(text, lines=True))


def print_csv(records: Iterable[Mapping[str, Any]]) -> None:
    """Print records in JSON form as CSV, with a column for every field of nested records."""
    from npu_sim.plans.answers import columns_of
    from npu_sim.show.layout import csv_text

    columns = columns_of(records)
    print(visible(csv_text([*columns], zip(*columns.values(), strict=True)), lines=True), end="")


def print_answer(form: str, answer: Any, *, as_json: bool, csv: str = "") -> None:
    """Print an answer as a JSON document of a form, or as text.

    ``csv`` is the key of its records if they are printed as CSV instead.
    """
    if csv:
        print_csv(answer.as_dict()[csv])
        return
    if as_json:
        print_json(form, answer.as_dict())
        return
    from npu_sim.show import view_of

    print_text(view_of(answer), wording=lambda text: in_shell_form(text, translated))


def show_answer(form: str, answer: Any, options: Any, command: str, csv: str = "") -> None:
    """Write the report and the picture of an answer, as far as options name files, and print it.

    - ``command``: command that reproduces the report.
    - ``csv``: key of the records that ``--csv`` prints.
    """
    if options.report is not None:
        from npu_sim.show import document_of

        write_report(options.report, document_of(answer, command))
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
        from rich.console import Console
        from rich.progress import Progress

        with Progress(console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("", total=1.0)
            return work(report)
    except KeyboardInterrupt:
        stage, fraction = last
        if fraction:
            INTERRUPTION.report(
                say("interrupted: {stage}, {done} done", stage=stage, done=percent_text(fraction))
            )
        raise


def exit_unless_runs(plan: "Plan") -> None:
    """Exit with the code of a plan that overflows; called after everything is printed."""
    if plan.overflow is not None:
        sys.exit(REFUSED)


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


def command_on(profile: "Profile", **others: object) -> str:
    """Return the running command with its product, SoC and release written out.

    ``others`` are further options by name.
    """
    device = {"product": profile.name, "soc": profile.soc, "release": profile.release}
    options: dict[tuple[str, ...], object] = {
        ("--" + name.replace("_", "-"),): value for name, value in (device | others).items()
    }
    return reproducing_command(options)


def write_report(path: Path | None, document: "Document") -> None:
    """Write a report as one HTML file."""
    from npu_sim.files.writing import write_text
    from npu_sim.show.html import render

    if path is not None:
        write_text(path, render(document))


def write_figure(path: Path | None, answer: "Printed") -> None:
    """Write the picture of an answer that the name of the file states: ``cores.svg``."""
    if path is not None:
        answer.figure(path.stem.partition("-")[0]).save(path)


def write_files(
    outcome: "Plan | Result",
    profile: "Profile",
    options: Any,
    command: str,
    rows: "Sequence[VariableRows]" = (),
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
    from npu_sim.plans.model import Plan

    plan = outcome if isinstance(outcome, Plan) else outcome.plan
    shown: dict[str, Any] = {}
    if options.report is not None:
        from npu_sim.operators.timelines import work_over_time
        from npu_sim.show.pictures import order_strips
        from npu_sim.show.plans import plan_report, result_report

        work = work_over_time(plan)
        if isinstance(outcome, Plan):
            write_report(options.report, plan_report(plan, command, work))
        else:
            shown["order_strips"] = order_strips(outcome)
            write_report(options.report, result_report(outcome, command, rows, work))
    write_figure(options.figure, outcome)
    if options.trace is not None:
        from npu_sim.operators.timelines import timed_plan, timeline
        from npu_sim.questions.explain import with_changes
        from npu_sim.timelines.tracks import write_trace

        write_trace(options.trace, [timed_plan(plan, profile)])
        shown["timeline"] = with_changes(timeline(plan, profile), plan, profile).as_dict()
    return shown
