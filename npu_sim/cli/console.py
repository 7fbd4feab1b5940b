"""Printing plans and results to the terminal."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console

from npu_sim.operators.contract.results import Result
from npu_sim.plans.model import Plan
from npu_sim.show.text import OUTCOME_STYLES, change_lines, lines_table, plan_headline, plan_lines, result_lines

if TYPE_CHECKING:
    from npu_sim.studies.open_rows import OpenRows


def print_plan(plan: Plan) -> None:
    """Print a plan."""
    console = Console(highlight=False)
    console.print(plan_headline(plan), style=OUTCOME_STYLES[plan.outcome])
    console.print()
    console.print(lines_table(plan_lines(plan) + change_lines(plan)))


def print_result(result: Result) -> None:
    """Print the plan that was carried out and what came of it."""
    print_plan(result.plan)
    Console(highlight=False).print(lines_table(result_lines(result)))


def print_rows(rows: "Sequence[OpenRows]") -> None:
    """Print the worst of the rows that can differ between runs."""
    from npu_sim.show.open_rows import rows_view

    Console(highlight=False).print(rows_view(rows))
