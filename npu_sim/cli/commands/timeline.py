"""``npu-sim timeline``."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from npu_sim.cli.arguments import Arguments, typed_specs
from npu_sim.cli.options import Figure, Json, PerOperator, Report, Trace, command
from npu_sim.cli.output import exit_unless_runs, write_figure, write_report
from npu_sim.cli.printing import print_json, print_text
from npu_sim.cli.reproducing import command_on, reproducing_command
from npu_sim.cores import Profile, load_profile
from npu_sim.framework.planning import fixed_call
from npu_sim.framework.target import Limits
from npu_sim.functions import timeline
from npu_sim.operators import plan
from npu_sim.operators.loading import load_operator
from npu_sim.operators.timelines import timed_plan, tracks
from npu_sim.operators.timelines import timeline as timeline_of
from npu_sim.plans.model import Plan
from npu_sim.questions.explain import with_changes
from npu_sim.questions.preflight import chosen_columns
from npu_sim.show.text import overflow_text
from npu_sim.show.timeline_report import MOST_DRAWN, timeline_report
from npu_sim.show.timelines import timeline_view, timelines_view
from npu_sim.status import NO_PLAN, Unplanned, UsageError
from npu_sim.sweeps.space import axis_values
from npu_sim.timelines.model import Timeline, load_calibration
from npu_sim.timelines.tracks import EVENTS_OF_A_PIPE, write_trace

MOST_VARIED = 1000
"""Most calls that ``--vary`` compares."""


class Compared(NamedTuple):
    """One call of a comparison: its timeline and plan, or why there is none."""

    name: str
    profile: Profile
    found: Timeline | Unplanned
    plan: Plan | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the row as plain data."""
        outcome: Any = self.plan or self.found
        return {
            "call": self.name,
            "product": self.profile.name,
            "soc": self.profile.soc,
            "release": self.profile.release,
            "outcome": outcome.outcome,
            "timeline" if self.plan else "error": self.found.as_dict(),
        }


@command(timeline, PerOperator(example="--socs all"))
def timeline_command(
    operator: str,
    arguments: Arguments,
    *,
    product: str | None = None,
    soc: str | None = None,
    release: str | None = None,
    deterministic: bool = False,
    limits: Limits = "documented",
    products: Annotated[
        str | None, typer.Option(help="Products to compare: all, or names joined by commas.")
    ] = None,
    socs: Annotated[
        str | None,
        typer.Option(help="SoCs to compare: all of the product, or names joined by commas."),
    ] = None,
    vary: Annotated[
        str | None,
        typer.Option(help="Sizes to compare, such as dim=256,512,513 or dim=256..4096:*2."),
    ] = None,
    calibration: Path | None = None,
    trace: Trace = None,
    report: Report = None,
    figure: Figure = None,
    json: Json = False,
) -> None:
    """Show the lower bound of a call at the published rates, what limits it, and an estimate if one
    can be made; compare SoCs or sizes.
    """
    specs = typed_specs(operator, arguments)
    chosen = load_profile(product, soc, release)
    calls = list(_calls(operator, specs, vary))
    measured = None if calibration is None else load_calibration(calibration)
    _require_once("product", product, products)
    _require_once("soc", soc, socs)
    rows = []
    for name, call in calls:
        for profile in _profiles(chosen, product, products, socs):
            if measured is not None:
                measured.require_device(profile)
            modes: dict[str, Any] = {"deterministic": deterministic, "limits": limits}
            try:
                made = plan(operator, product=profile, **modes, **call)
                rows.append(Compared(name, profile, timeline_of(made, profile, measured), made))
            except NO_PLAN as error:
                rows.append(Compared(name, profile, error))
    timed: list[Any] = [row for row in rows if row.plan]
    if not timed and isinstance(rows[0].found, NO_PLAN):
        raise rows[0].found
    if len(rows) == 1:
        ((name, profile, bound, made),) = timed
        changed = with_changes(bound, made, profile)
        rows = timed = [Compared(name, profile, changed, made)]
    if trace is not None:
        write_trace(trace, [timed_plan(row.plan, row.profile) for row in timed])
    if report is not None:
        device: dict[tuple[str, ...], object] = {
            ("--product",): chosen.name,
            ("--release",): chosen.release,
        }
        _write_report(
            report, timed, command_on(chosen) if socs is None else reproducing_command(device)
        )
    if figure is not None:
        if len(timed) != 1:
            raise UsageError(
                "figure",
                "figure = {figure}: a picture shows one call on one SoC",
                "--report shows several",
                figure=figure,
            )
        write_figure(figure, timed[0].found)
    if json:
        print_json(
            "timeline", {"label": "lower bound", "timelines": [row.as_dict() for row in rows]}
        )
    elif len(rows) == 1:
        overflow = overflow_text(made)
        if overflow:
            print_text(overflow, "")
        print_text(timeline_view(changed))
    else:
        print_text(timelines_view([(row.name, row.profile.soc, row.found) for row in rows]))
    if len(rows) == 1:
        exit_unless_runs(made)


def _require_once(name: str, one: str | None, several: str | None) -> None:
    """Raise UsageError if one product or SoC and several are given."""
    if one is not None and several is not None:
        raise UsageError(
            f"{name}s",
            "{option} is given twice",
            "leave one of the two out",
            option=f"--{name}s / --{name}",
        )


def _profiles(
    chosen: Profile, product: str | None, products: str | None, socs: str | None
) -> list[Profile]:
    """Return the devices that options name: the chosen one, or several products and SoCs."""
    if products is None and socs is None:
        return [chosen]
    named = chosen.product.socs if socs == "all" else (socs or "").split(",")
    if products is None and all(chosen.product.soc_named(name.strip()) for name in named):
        products = product or chosen.name
    return [column.profile for column in chosen_columns(products, socs, chosen.release)]


def _calls(operator: str, specs: Arguments, vary: str | None) -> Iterator[tuple[str, Arguments]]:
    """Yield (name, arguments) of every call: one, or one for every value that an axis takes."""
    if vary is None:
        yield "as given", specs
        return

    name, _, listed = vary.partition("=")
    declared = load_operator(operator)
    axis = declared.axis(name.strip())
    if axis not in declared.axes or not listed:
        raise UsageError(
            "vary",
            "vary = {vary} is not of the form name=values",
            "write AXIS=VALUE,VALUE or AXIS=FIRST..LAST:+STEP with one of: {names}",
            vary=repr(vary),
            names=", ".join(axis.name for axis in declared.axes),
        )
    values = axis_values(axis, axis.name, listed)
    if len(values.codes) > MOST_VARIED:
        raise UsageError(
            "vary",
            "vary = {vary}: {count} values",
            "at most {most} values",
            vary=repr(vary),
            count=len(values.codes),
            most=MOST_VARIED,
        )
    call = fixed_call(declared, specs)
    for code in values.codes:
        value = axis.value(code)
        yield f"{axis.name}={value}", call.arguments({axis.name: value})


def _write_report(path: Path, timed: Sequence[Any], reproducing: str) -> None:
    """Write the report of rows of a comparison that have a plan."""
    drawn = timed[:MOST_DRAWN]
    events = EVENTS_OF_A_PIPE // len(drawn)
    works = [tracks(row.plan, row.profile, row.found, events) for row in drawn]
    named = [(row.name, row.found) for row in timed]
    write_report(path, lambda: timeline_report(named, works, reproducing))
