"""Output of commands: text as wide as the terminal, JSON, progress, exit code of a plan."""

import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from npu_sim.cli.interruption import INTERRUPTION
from npu_sim.language import say, translated, visible
from npu_sim.language.quantities import percent_text

if TYPE_CHECKING:
    from rich.console import RenderableType

    from npu_sim.plans.model import Plan

REFUSED = 2
"""Exit code of a call that does not run: the product refuses it, or its buffers overflow."""


def print_text(*parts: "RenderableType", error: bool = False) -> None:
    """Print an answer on standard output, or an error on standard error.

    Text is as wide as the terminal or ``COLUMNS``; in a pipe or a file lines are not wrapped.
    """
    from rich.console import Console

    from npu_sim.show.layout import UNLIMITED, print_to, stack

    stream = sys.stderr if error else sys.stdout
    width = None if stream.isatty() or os.environ.get("COLUMNS") else UNLIMITED
    print_to(Console(highlight=False, width=width, stderr=error), stack(*parts))


def print_json(form: str, data: Mapping[str, Any]) -> None:
    """Print a JSON document; ``form`` is its name in :mod:`npu_sim.files.schemas`."""
    from npu_sim.files.schemas import schema

    text = json.dumps({"schema": schema(form), **data}, indent=2, ensure_ascii=False)
    print(visible(text, lines=True))


def print_csv(records: Iterable[Mapping[str, Any]]) -> None:
    """Print records in JSON form as CSV, with a column for every field of nested records."""
    from npu_sim.plans.tables import columns_of
    from npu_sim.show.csv_rows import csv_text

    columns = columns_of(records)
    rows = zip(*columns.values(), strict=True)
    print(visible(csv_text([*columns], rows), lines=True), end="")


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

    print_text(view_of(answer))


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
            done = percent_text(fraction)
            INTERRUPTION.report(say("interrupted: {stage}, {done} done", stage=stage, done=done))
        raise


def exit_unless_runs(plan: "Plan") -> None:
    """Exit with the code of a plan that overflows; called after everything is printed."""
    if plan.overflow is not None:
        sys.exit(REFUSED)
