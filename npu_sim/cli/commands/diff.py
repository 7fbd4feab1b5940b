"""``npu-sim diff``."""

from dataclasses import dataclass
from typing import Annotated

import typer

from npu_sim.cli.arguments import Arguments, typed_specs
from npu_sim.cli.options import (
    Csv,
    Json,
    PerOperator,
    Products,
    Report,
    Socs,
    chosen_release,
    command,
)
from npu_sim.cli.output import print_answer, write_document
from npu_sim.cli.reproducing import DEVICE_OF_REPORT, reproducing_command
from npu_sim.cores import default_release
from npu_sim.framework.target import Limits
from npu_sim.questions.diff import diff


@dataclass(frozen=True, kw_only=True)
class DiffOptions:
    """Options of ``npu-sim diff``."""

    product: Products = None
    soc: Socs = None
    release: str | None = None
    releases: Annotated[bool, typer.Option(help="Every release, and what an upgrade changes.")] = (
        False
    )
    deterministic: bool = False
    limits: Limits = "documented"
    report: Report = None
    json: Json = False
    csv: Csv = False


@command(diff, PerOperator())
def diff_command(operator: str, arguments: Arguments, options: DiffOptions) -> None:
    """Compare one call across products, SoCs and releases: outcome, path, cores, buffer, workspace
    and order.
    """
    comparison = diff(
        operator,
        product=options.product,
        soc=options.soc,
        release=chosen_release(options.release, options.releases),
        deterministic=options.deterministic,
        limits=options.limits,
        **typed_specs(operator, arguments),
    )
    reproducing = reproducing_command(
        DEVICE_OF_REPORT | {("--release", "--releases"): default_release()}
    )
    write_document(options.report, comparison, reproducing)
    print_answer("diff", comparison, json=options.json, csv="rows" if options.csv else "")
