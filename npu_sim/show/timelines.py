"""Timelines as text: the bound, the binding resource, and what the bound leaves out."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from rich.console import Group

from npu_sim.language import Text, grouped, joined, say
from npu_sim.show import document_of, pictures_of, view_of
from npu_sim.show.forms.layout import Column, Paragraph, Table, after_gap, lines_table, stack
from npu_sim.show.text import socs_text
from npu_sim.show.times import (
    NOT_MEASURED,
    bound_cell,
    busy_text,
    caution_lines,
    copies_cell,
    coverage_lines,
    estimate_cell,
    evidence_of_estimates,
    largest_text,
    least_text,
    lowest_text,
    timeline_lines,
)
from npu_sim.status import Unplanned
from npu_sim.sweeps.timelines import TimelineComparison
from npu_sim.timelines.model import Timeline


class Row(NamedTuple):
    """A timeline of a comparison, or why there is none."""

    call: str
    soc: str
    found: Timeline | Unplanned
    copies_us: float | None


def _timed(cell: Callable[[Timeline], str]) -> Callable[[Row], str]:
    """Return the function that shows the timeline of a row; empty without one."""
    return lambda row: cell(row.found) if isinstance(row.found, Timeline) else ""


def _bound(row: Row) -> str:
    if not isinstance(row.found, Timeline):
        return say(row.found.label)
    return bound_cell(row.found.bound_us, row.found.coverage)


def _busy(timeline: Timeline) -> str:
    return busy_text(timeline, lambda share: f"{100 * share:.0f}%", " ")


COLUMNS = (
    Column("call", lambda row: row.call, key=True, wraps=True),
    Column("SoC", lambda row: row.soc, key=True),
    Column("MHz", _timed(lambda timeline: f"{timeline.clock_mhz:g}"), right=True),
    Column("lower bound", _bound, right=True),
    Column("copies alone", lambda row: copies_cell(row.copies_us), right=True),
    Column("estimate", _timed(estimate_cell)),
    Column("largest launch", _timed(largest_text)),
    Column("busy share of the kernel", _timed(_busy)),
    Column("imbalance", _timed(lambda timeline: f"{timeline.imbalance:.3f}"), right=True),
)


def _merged(rows: Iterable[Row]) -> list[Row]:
    """Join the rows of SoCs whose cells are equal."""
    alike = grouped(
        ((row.call, *(column.cell(row) for column in COLUMNS if column.name != "SoC")), row)
        for row in rows
    )
    return [same[0]._replace(soc=socs_text([row.soc for row in same])) for same in alike.values()]


@view_of.register
def timeline_view(timeline: Timeline) -> Group:
    """Return one timeline as a rich renderable."""
    headline = least_text(timeline)
    streamed = dict.fromkeys(launch.kernel for launch in timeline.launches if not launch.planned)
    if streamed:
        headline = Text(
            "{headline}; only the bytes of {kernels} are counted",
            headline=headline,
            kernels=joined(streamed, ", "),
        )
    return stack(Paragraph(headline, "bold green"), "", lines_table(timeline_lines(timeline)))


@document_of.register
def _timeline_document(timeline: Timeline) -> Any:
    from npu_sim.show.timeline_report import single_timeline_report  # reports load pictures

    return single_timeline_report(timeline)


@pictures_of.register
def _timeline_pictures(timeline: Timeline) -> Any:
    return pictures_of(timeline.plan)


@view_of.register
def comparison_view(comparison: TimelineComparison) -> Group:
    """Return timelines side by side as a rich renderable; one timeline in full.

    SoCs with equal rows are joined; refusals follow, each reason once.
    """
    if len(comparison.rows) == 1:
        return timeline_view(comparison.timed[0].found)
    compared = [Row(row.name, row.profile.soc, row.found, row.copies_us) for row in comparison.rows]
    shown = [row.found for row in compared if isinstance(row.found, Timeline)]
    reasons = grouped(
        (row.found.message, f"{row.call}, {row.soc}")
        for row in compared
        if not isinstance(row.found, Timeline)
    )
    sources = dict.fromkeys(timeline.rules_source for timeline in shown if timeline.rules_source)
    cautions = dict.fromkeys(line for timeline in shown for line in caution_lines(timeline))
    remarks = (
        NOT_MEASURED,
        *coverage_lines(timeline.coverage for timeline in shown),
        *filter(None, [evidence_of_estimates(shown)]),
        *(say("rules: {source}", source=source) for source in sources),
        *(
            Text("{label}: {value} ({note})", label=label, value=value, note=note)
            for label, value, note in cautions
        ),
    )
    return stack(
        Paragraph(lowest_text(shown, [row.copies_us for row in comparison.timed]), "bold green"),
        "",
        Table(COLUMNS, _merged(compared)),
        *after_gap(
            lines_table(
                ("refused", reason, joined(dict.fromkeys(where)))
                for reason, where in reasons.items()
            )
        ),
        "",
        *(Paragraph(remark, "dim") for remark in remarks),
    )
