"""Files of calls that are checked on several products: what ``preflight`` and ``model`` share."""

from pathlib import Path
from typing import Annotated

import typer

from npu_sim.cli.output import write_report
from npu_sim.cli.reproducing import reproducing_command
from npu_sim.cores import DEFAULT_PRODUCT, default_release
from npu_sim.questions.preflight import Matrix
from npu_sim.show.preflight import preflight_report

NOT_ACCEPTED = 1
"""Exit code if at least one call is not accepted, or a line is invalid."""
CallReleases = Annotated[bool, typer.Option(help="Every release of the product's software.")]


def write_matrix_report(path: Path | None, matrix: Matrix, name: str) -> None:
    """Write the report of checked calls if a path is given; ``name`` is that of the calls."""
    reproducing = reproducing_command(
        {
            ("--products", "--product", "--socs", "--soc"): DEFAULT_PRODUCT,
            ("--release",): default_release(),
        }
    )
    write_report(path, lambda: preflight_report(matrix, name, reproducing))
