"""Checks of many calls on several products: common parts of ``preflight`` and ``model``."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from npu_sim.cli.options import Json, Products, Report, Socs, chosen_release
from npu_sim.cli.output import write_report
from npu_sim.cli.reproducing import reproducing_command
from npu_sim.cores import DEFAULT_PRODUCT, default_release
from npu_sim.questions.preflight import Matrix
from npu_sim.show.preflight import preflight_report

NOT_ACCEPTED = 1
"""Exit code if at least one call is not accepted, or a line is invalid."""


@dataclass(frozen=True, kw_only=True)
class CallFileOptions:
    """Options of the commands that check many calls on several products."""

    products: Products = None
    soc: Socs = None
    release: str | None = None
    releases: Annotated[bool, typer.Option(help="Every release of the product's software.")] = False
    report: Report = None
    json: Json = False

    @property
    def chosen_release(self) -> str | None:
        """``--release``, or ``all`` for ``--releases``; raises UsageError when both are given."""
        return chosen_release(self.release, self.releases)


def write_matrix_report(path: Path | None, matrix: Matrix, name: str) -> None:
    """Write the report of checked calls if a path is given; ``name`` is that of the calls."""
    reproducing = reproducing_command(
        {
            ("--products", "--product", "--socs", "--soc"): DEFAULT_PRODUCT,
            ("--release",): default_release(),
        }
    )
    write_report(path, lambda: preflight_report(matrix, name, reproducing))
