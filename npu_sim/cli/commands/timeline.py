"""``npu-sim timeline``."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from npu_sim.cli.arguments import Arguments, typed_specs
from npu_sim.cli.options import CallOptions, Figure, Json, PerOperator, Report, Trace, command
from npu_sim.cli.output import exit_unless_runs, print_answer, write_figure, write_report
from npu_sim.cli.printing import print_text
from npu_sim.cli.reproducing import command_on, reproducing_command
from npu_sim.functions import timeline
from npu_sim.operators.timelines import timed_plan, tracks
from npu_sim.show.text import overflow_text
from npu_sim.show.timeline_report import MOST_DRAWN, timeline_report
from npu_sim.status import UsageError
from npu_sim.sweeps.timelines import ComparedDevices, compared_timelines
from npu_sim.timelines.tracks import EVENTS_OF_A_PIPE, write_trace


@dataclass(frozen=True, kw_only=True)
class TimelineOptions(CallOptions):
    """Options of ``npu-sim timeline``."""

    products: Annotated[
        str | None, typer.Option(help="Products to compare: all, or names joined by commas.")
    ] = None
    socs: Annotated[
        str | None,
        typer.Option(help="SoCs to compare: all of the product, or names joined by commas."),
    ] = None
    vary: Annotated[
        str | None,
        typer.Option(help="Sizes to compare, such as dim=256,512,513 or dim=256..4096:*2."),
    ] = None
    calibration: Path | None = None
    trace: Trace = None
    report: Report = None
    figure: Figure = None
    json: Json = False


@command(timeline, PerOperator(example="--socs all"))
def timeline_command(operator: str, arguments: Arguments, options: TimelineOptions) -> None:
    """Show the lower bound of a call at the published rates, what limits it, and an estimate if one
    can be made; compare SoCs or sizes.
    """
    compared = compared_timelines(
        operator,
        typed_specs(operator, arguments),
        ComparedDevices(
            options.product, options.soc, options.release, options.products, options.socs
        ),
        vary=options.vary,
        calibration=options.calibration,
        deterministic=options.deterministic,
        limits=options.limits,
    )
    rows, timed = compared.rows, compared.timed
    if options.trace is not None:
        write_trace(options.trace, [timed_plan(row.plan, row.profile) for row in timed])
    if options.report is not None:
        chosen = options.profile()
        device: dict[tuple[str, ...], object] = {
            ("--product",): chosen.name,
            ("--release",): chosen.release,
        }
        _write_report(
            options.report,
            timed,
            command_on(chosen) if options.socs is None else reproducing_command(device),
        )
    if options.figure is not None:
        if len(timed) != 1:
            raise UsageError(
                "figure",
                "figure = {figure}: a picture shows one call on one SoC",
                "--report shows several",
                figure=options.figure,
            )
        write_figure(options.figure, timed[0].found)
    overflow = overflow_text(timed[0].plan) if len(rows) == 1 else ""
    if overflow and not options.json:
        print_text(overflow, "")
    print_answer("timeline", compared, json=options.json)
    if len(rows) == 1:
        exit_unless_runs(timed[0].plan)


def _write_report(path: Path, timed: Sequence[Any], reproducing: str) -> None:
    """Write the report of rows of a comparison that have a plan."""
    drawn = timed[:MOST_DRAWN]
    events = EVENTS_OF_A_PIPE // len(drawn)
    works = [tracks(row.plan, row.profile, row.found, events) for row in drawn]
    named = [(row.name, row.found, row.copies_us) for row in timed]
    write_report(path, lambda: timeline_report(named, works, reproducing))
