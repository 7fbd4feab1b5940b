"""``npu-sim timeline``: how fast a call could run at best, at the published rates."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from npu_sim.cli.operators import typed_specs
from npu_sim.cli.options import Option, Options, command
from npu_sim.cli.output import (
    command_on,
    exit_unless_runs,
    print_json,
    print_text,
    reproducing_command,
    write_figure,
    write_report,
)
from npu_sim.language import Text
from npu_sim.status import NO_PLAN, Unplanned, UsageError

if TYPE_CHECKING:
    from npu_sim.cores import Profile
    from npu_sim.plans.model import Plan
    from npu_sim.timelines.estimates import Calibration
    from npu_sim.timelines.model import Timeline


class Row(NamedTuple):
    """One call of a comparison: its timeline, or why there is none."""

    name: str
    profile: "Profile"
    plan: "Plan | None" = None
    timeline: "Timeline | None" = None
    error: Unplanned | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the row as plain data."""
        head = {
            "call": self.name,
            "product": self.profile.name,
            "soc": self.profile.soc,
            "release": self.profile.release,
        }
        if self.error is not None:
            return {**head, "outcome": self.error.outcome, "error": self.error.as_dict()}
        return {
            **head,
            "outcome": self.plan.outcome if self.plan else "refused",
            "timeline": self.timeline.as_dict() if self.timeline else None,
        }


@command(
    "npu_sim.functions:timeline",
    "product soc release deterministic limits products socs vary calibration trace report figure "
    "json",
    products=Option("Products to compare: all, or names joined by commas.", str | None),
    socs=Option("SoCs to compare: all of the product, or names joined by commas.", str | None),
    vary=Option("Sizes to compare, such as dim=256,512,513.", str | None),
    calibration=Option(kind=Path | None),
)
def timeline_command(operator: str, arguments: dict[str, Any], options: Options) -> None:
    """Show the lower bound of a call at the published rates, what limits it, and an estimate if one
    can be made; compare SoCs or sizes.
    """
    specs = typed_specs(operator, arguments)
    calls = list(_calls(operator, specs, options.vary))
    chosen = options.profile()
    profiles = _profiles(chosen, options.products, options.socs)
    keywords = {"deterministic": options.deterministic, "limits": options.limits}
    measured = None
    if options.calibration is not None:
        from npu_sim.timelines.estimates import load_calibration

        measured = load_calibration(options.calibration)
    rows = [
        _row(operator, name, {**keywords, **call}, profile, measured)
        for name, call in calls
        for profile in profiles
    ]
    if all(row.error for row in rows) and rows[0].error:
        raise rows[0].error
    rows = [_with_changes(row) for row in rows] if len(rows) == 1 else rows
    if options.trace is not None:
        from npu_sim.operators.timelines import timed_plan
        from npu_sim.timelines.tracks import write_trace

        write_trace(options.trace, [timed_plan(row.plan, row.profile) for row in rows if row.plan])
    if options.report is not None:
        _write_report(options, chosen, rows)
    if options.figure is not None:
        drawn = [row.timeline for row in rows if row.timeline]
        if len(drawn) != 1:
            message = Text("figure = {figure}: a picture shows one call on one SoC", options)
            raise UsageError("figure", message, "--report shows several")
        write_figure(options.figure, drawn[0])
    if options.json:
        print_json(
            "timeline", {"label": "lower bound", "timelines": [row.as_dict() for row in rows]}
        )
    else:
        _print(rows)
    if len(rows) == 1 and rows[0].plan:
        exit_unless_runs(rows[0].plan)


def _write_report(options: Options, chosen: "Profile", rows: list[Row]) -> None:
    from npu_sim.operators.timelines import tracks
    from npu_sim.show.reports.plans import MOST_DRAWN, timeline_report
    from npu_sim.timelines.tracks import EVENTS_OF_A_PIPE

    reproducing = command_on(chosen)
    if options.socs is not None:
        device: dict[tuple[str, ...], object] = {
            ("--product",): chosen.name,
            ("--release",): chosen.release,
        }
        reproducing = reproducing_command(device)
    planned = [
        (row.name, row.plan, row.profile, row.timeline) for row in rows if row.plan and row.timeline
    ]
    drawn = planned[:MOST_DRAWN]
    works = [
        tracks(plan, profile, bound, EVENTS_OF_A_PIPE // len(drawn))
        for _, plan, profile, bound in drawn
    ]
    bounds = [(name, bound) for name, _, _, bound in planned]
    write_report(options.report, timeline_report(bounds, works, reproducing))


def _calls(
    operator: str, specs: dict[str, Any], vary: str | None
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (name, arguments) of every call: one, or one for every value that an axis takes."""
    if vary is None:
        yield "as given", specs
        return
    from npu_sim.framework.planning import fixed_call
    from npu_sim.registry import load_operator

    name, _, listed = vary.partition("=")
    declared = load_operator(operator)
    axis = declared.axis(name.strip())
    if axis not in declared.axes or not listed:
        message = Text("vary = {vary} is not of the form name=values", vary=repr(vary))
        names = ", ".join(axis.name for axis in declared.axes)
        hint = Text("write AXIS=VALUE,VALUE with one of: {names}", names=names)
        raise UsageError("vary", message, hint)
    call = fixed_call(declared, specs)
    for text in listed.split(","):
        value = axis.value(axis.code(text.strip()))
        yield f"{axis.name}={value}", call.arguments({axis.name: value})


def _profiles(chosen: "Profile", products: str | None, socs: str | None) -> "list[Profile]":
    from npu_sim.cores import load_profile

    if products is not None:
        from npu_sim.questions.preflight import chosen_columns

        columns = chosen_columns(products, socs, chosen.release)
        return [column.profile for column in columns]
    if socs is None:
        return [chosen]
    if socs == "all":
        return [chosen.with_soc(name) for name in chosen.product.socs]
    names = [name.strip() for name in socs.split(",")]
    return [
        load_profile(chosen if chosen.product.soc_named(name) else None, name, chosen.release)
        for name in names
    ]


def _row(
    operator: str,
    name: str,
    call: dict[str, Any],
    profile: "Profile",
    calibration: "Calibration | None",
) -> Row:
    from npu_sim.operators import plan
    from npu_sim.operators.timelines import timeline

    if calibration is not None:
        calibration.require_device(profile)
    try:
        made = plan(operator, product=profile, **call)
    except NO_PLAN as error:
        return Row(name, profile, error=error)
    return Row(name, profile, made, timeline(made, profile, calibration))


def _with_changes(row: Row) -> Row:
    """Add what would make a call faster."""
    from npu_sim.questions.explain import with_changes

    if row.plan is None or row.timeline is None:
        return row
    return row._replace(timeline=with_changes(row.timeline, row.plan, row.profile))


def _print(rows: list[Row]) -> None:
    from npu_sim.show.text import overflow_text
    from npu_sim.show.timelines import timeline_view, timelines_view

    if len(rows) == 1 and rows[0].plan and rows[0].timeline:
        overflow = [overflow_text(rows[0].plan), ""] if rows[0].plan.overflow else []
        print_text(*overflow, timeline_view(rows[0].timeline))
        return
    compared = [(row.name, row.profile.soc, row.timeline or row.error) for row in rows]
    print_text(
        timelines_view([(name, soc, found) for name, soc, found in compared if found is not None])
    )
