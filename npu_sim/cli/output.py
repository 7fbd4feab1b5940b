"""Answers of commands: text, JSON, CSV, reports, pictures, and the exit code of a call."""

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from npu_sim.cli.errors import REFUSED_EXIT_CODE
from npu_sim.cli.printing import print_json, print_text
from npu_sim.files.writing import write_text
from npu_sim.language import visible, with_arguments
from npu_sim.plans.answers import Printed, columns_of
from npu_sim.plans.model import Plan
from npu_sim.show import document_of, view_of
from npu_sim.show.forms.layout import Document, csv_text


def print_csv(records: Iterable[Mapping[str, Any]]) -> None:
    """Print records in JSON form as CSV, with a column for every field of nested records."""
    columns = columns_of(records)
    text = csv_text([*columns], zip(*columns.values(), strict=True))
    print(visible(text, lines=True), end="")


def print_answer(form: str, answer: Any, *, json: bool, csv: str = "") -> None:
    """Print an answer as a JSON document of a form, or as text.

    ``csv`` is the key of its records if they are printed as CSV instead.
    """
    if csv:
        print_csv(answer.as_dict()[csv])
    elif json:
        print_json(form, with_arguments(answer.as_dict()))
    else:
        view = view_of(answer)
        if view is None:
            raise TypeError(
                "no view_of in the module of npu_sim.show named like that of", type(answer)
            )
        print_text(view)


def write_document(path: Path | None, answer: Any, command: str) -> None:
    """Write the report of an answer as one HTML file if a path is given.

    ``command`` is the command that reproduces the report.
    """
    write_report(path, lambda: replace(document_of(answer), command=command))


def write_report(path: Path | None, document: Callable[[], Document]) -> None:
    """Write a report as one HTML file if a path is given; ``document`` makes it."""
    if path is not None:
        from npu_sim.show.forms.html import render  # loaded for a report only

        write_text(path, render(document()))


def write_figure(path: Path | None, answer: Printed) -> None:
    """Write the picture of an answer that the name of the file states: ``cores.svg``."""
    if path is not None:
        answer.figure(path.stem.partition("-")[0]).save(path)


def exit_unless_runs(plan: Plan) -> None:
    """Exit with the code of a plan that overflows; called after everything is printed."""
    if plan.overflow is not None:
        sys.exit(REFUSED_EXIT_CODE)
