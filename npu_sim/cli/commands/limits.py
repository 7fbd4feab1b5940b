"""``npu-sim limits``."""

import inspect
from dataclasses import dataclass
from typing import Annotated

import typer

from npu_sim.cli.arguments import Arguments, named_values, typed_specs
from npu_sim.cli.options import Csv, Figure, Json, PerOperator, Products, Report, Socs, command
from npu_sim.cli.output import print_answer, write_document, write_figure
from npu_sim.cli.reproducing import DEVICE_OF_REPORT, reproducing_command
from npu_sim.cores import default_release
from npu_sim.questions.limits import limits


@dataclass(frozen=True, kw_only=True)
class LimitsOptions:
    """Options of ``npu-sim limits``."""

    vary: list[str] | None = None
    set: Annotated[
        list[str] | None,
        typer.Option(
            help="A size, dtype or switch by its natural name, such as rows=4096; repeatable."
        ),
    ] = None
    product: Products = None
    soc: Socs = None
    release: str | None = None
    deterministic: bool = False
    report: Report = None
    figure: Figure = None
    json: Json = False
    csv: Csv = False


@command(limits, PerOperator())
def limits_command(operator: str, arguments: Arguments, options: LimitsOptions) -> None:
    """Find the documented and the hardware bounds of an argument on every product."""
    natural = named_values("set", options.set or (), inspect.signature(limits).parameters)
    table = limits(
        operator,
        vary=options.vary,
        product=options.product,
        soc=options.soc,
        release=options.release,
        deterministic=options.deterministic,
        **{**typed_specs(operator, arguments), **natural},
    )
    reproducing = reproducing_command(DEVICE_OF_REPORT | {("--release",): default_release()})
    write_document(options.report, table, reproducing)
    write_figure(options.figure, table)
    print_answer("limits", table, json=options.json, csv="rows" if options.csv else "")
