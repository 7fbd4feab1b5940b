"""Files that ``--report`` and ``--trace`` write, and the command line that a report shows.

A report shows the command that reproduces it: the command as typed, with defaults written out, so
that the line gives the same report where other defaults hold.
"""

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from npu_sim.cores import Profile
    from npu_sim.framework.execution import Result
    from npu_sim.plans.answers import Printed
    from npu_sim.plans.model import Plan
    from npu_sim.show.reports.document import Document
    from npu_sim.studies.variable_rows import VariableRows


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
    from npu_sim.show.reports import render

    if path is not None:
        write_text(path, render(document))


def write_figure(path: Path | None, answer: "Printed") -> None:
    """Write the picture of an answer that the name of the file states: ``cores.svg``."""
    if path is not None:
        answer.figure(path.stem.partition("-")[0]).save(path)


def write_report_and_trace(
    outcome: "Plan | Result",
    profile: "Profile",
    report: Path | None,
    trace: Path | None,
    command: str,
    rows: "Sequence[VariableRows]" = (),
) -> dict[str, Any]:
    """Write the report and the trace of a plan or a run, as far as a path is given.

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
    if report is not None:
        from npu_sim.files.writing import write_text
        from npu_sim.operators.timelines import work_over_time
        from npu_sim.show.reports import order_strips, plan_report, render, result_report

        if not isinstance(outcome, Plan):
            shown["order_strips"] = order_strips(outcome)

        work = work_over_time(plan)
        document = (
            plan_report(outcome, command, work)
            if isinstance(outcome, Plan)
            else result_report(outcome, command, rows, work)
        )
        write_text(report, render(document))
    if trace is not None:
        from npu_sim.operators.timelines import timed_plan, timeline
        from npu_sim.questions.faster_calls import with_changes
        from npu_sim.timelines.trace import write_trace

        write_trace(trace, [timed_plan(plan, profile)])
        shown["timeline"] = with_changes(timeline(plan, profile), plan, profile).as_dict()
    return shown
