"""Timelines of one call on several products and SoCs, and for several values of one of its axes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from npu_sim.cores import Profile, load_profile
from npu_sim.framework.planning import fixed_call
from npu_sim.framework.target import Limits
from npu_sim.operators import plan
from npu_sim.operators.loading import load_operator
from npu_sim.operators.timelines import copies_us, timeline
from npu_sim.plans.answers import Printed
from npu_sim.plans.model import Plan
from npu_sim.questions.explain import with_changes
from npu_sim.questions.preflight import chosen_columns
from npu_sim.questions.varied_calls import items_of, one_spelling
from npu_sim.status import NO_PLAN, Unplanned, UsageError
from npu_sim.sweeps.space import axis_values
from npu_sim.timelines.model import Timeline, load_calibration

MOST_VARIED = 1000
"""Most calls that ``vary`` compares."""
Names = str | Sequence[str] | None
"""Names, also as one text separated by commas."""


class ComparedTimeline(NamedTuple):
    """One call of a comparison: its timeline and plan, or why there is none."""

    name: str
    """``as given``, or the value of the varied axis, such as ``dim=512``."""
    profile: Profile
    """Product, SoC and release."""
    found: Timeline | Unplanned
    """The timeline, or the refusal."""
    plan: Plan | None = None
    """The plan; None for a refused call."""
    copies_us: float | None = None
    """Lower bound of its copies alone in microseconds, where the bounds of a comparison cover
    different work: copies have a published rate on every product. Else None."""

    def as_dict(self) -> dict[str, Any]:
        """Return the row as plain data."""
        outcome: Any = self.plan or self.found
        return {
            "call": self.name,
            "product": self.profile.name,
            "soc": self.profile.soc,
            "release": self.profile.release,
            "outcome": outcome.outcome,
            "copies_us": self.copies_us,
            "timeline" if self.plan else "error": self.found.as_dict(),
        }


@dataclass(frozen=True, repr=False)
class TimelineComparison(Printed):
    """Timelines of one call on several devices, or of several sizes; at least one has a plan."""

    rows: tuple[ComparedTimeline, ...]
    """By value of the varied axis, then by device."""

    @property
    def timed(self) -> list[Any]:
        """Rows with a timeline."""
        return [row for row in self.rows if row.plan is not None]

    def as_dict(self) -> dict[str, Any]:
        """Return the comparison as plain data, the form ``--json`` prints."""
        return {"label": "lower bound", "timelines": [row.as_dict() for row in self.rows]}


@dataclass(frozen=True)
class ComparedDevices:
    """Products and SoCs to compare, as :func:`npu_sim.timeline` takes them."""

    product: str | Path | Profile | None
    soc: str | None
    release: str | None
    products: Names
    socs: Names

    def profiles(self) -> list[Profile]:
        """Return the one device that is named, or several where ``products`` or ``socs`` are.

        Raises UsageError for unknown names, and for a product or SoC that is given twice.
        """
        chosen = load_profile(self.product, self.soc, self.release)
        one_spelling("product", self.product, self.products)
        one_spelling("soc", self.soc, self.socs)
        if self.products is None and self.socs is None:
            return [chosen]
        listed = items_of(self.socs or "")
        named = chosen.product.socs if listed == ["all"] else listed
        products: Any = self.products
        if products is None:
            has_them = all(chosen.product.soc_named(name) for name in named)
            products = self.product or (chosen.name if has_them else None)
        return [column.profile for column in chosen_columns(products, self.socs, chosen.release)]


def compared_timelines(
    operator: str,
    arguments: Mapping[str, Any],
    devices: ComparedDevices,
    *,
    vary: str | None = None,
    calibration: str | Path | None = None,
    deterministic: bool = False,
    limits: Limits = "documented",
) -> TimelineComparison:
    """Return the timelines of a call; arguments as for :func:`npu_sim.timeline`.

    The timeline of a single row has the changes that would lower its bound.

    Raises
    ------
    UsageError
        For unknown names.
    AclnnError
        With the product's status when every call is refused.
    """
    profiles = devices.profiles()
    calls = list(_calls(operator, arguments, vary))
    measured = None if calibration is None else load_calibration(Path(calibration))
    rows = []
    for name, call in calls:
        for profile in profiles:
            if measured is not None:
                measured.require_device(profile)
            modes: dict[str, Any] = {"deterministic": deterministic, "limits": limits}
            try:
                made = plan(operator, product=profile, **modes, **call)
                rows.append(
                    ComparedTimeline(name, profile, timeline(made, profile, measured), made)
                )
            except NO_PLAN as error:
                rows.append(ComparedTimeline(name, profile, error))
    if all(row.plan is None for row in rows) and isinstance(rows[0].found, NO_PLAN):
        raise rows[0].found
    if len(rows) == 1:
        (row,) = rows
        assert row.plan is not None
        assert isinstance(row.found, Timeline)
        rows = [row._replace(found=with_changes(row.found, row.plan, row.profile))]
    coverages = {row.found.coverage for row in rows if isinstance(row.found, Timeline)}
    if len(coverages) > 1:
        rows = [
            row if row.plan is None else row._replace(copies_us=copies_us(row.plan, row.profile))
            for row in rows
        ]
    return TimelineComparison(tuple(rows))


def _calls(
    operator: str, specs: Mapping[str, Any], vary: str | None
) -> Iterator[tuple[str, Mapping[str, Any]]]:
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
