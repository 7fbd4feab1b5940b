"""An invariance study as text and as a report."""

from collections.abc import Iterator

from rich.console import RenderableType

from npu_sim.language import say
from npu_sim.show import document_of, view_of
from npu_sim.show.forms.layout import Document
from npu_sim.show.studies import headed_lines, study_headline, study_report
from npu_sim.show.text import Line
from npu_sim.studies.invariance import InvarianceStudy

EFFECTS = {
    None: "{change}: not applicable",
    True: "{change}: changes",
    False: "{change}: same bits",
}
"""Sentence of a change by whether it alters bits."""


def invariance_lines(study: InvarianceStudy) -> Iterator[Line]:
    """Yield an invariance study as lines."""
    for row in study.rows:
        yield (
            row.output,
            say(EFFECTS[row.changes], change=row.change),
            say(
                "first at [{index}]: {before:.9g} becomes {after:.9g}",
                index=", ".join(map(str, row.first)),
                before=row.before,
                after=row.after,
            )
            if row.first is not None
            else row.note,
        )


def _changing(study: InvarianceStudy) -> str:
    """Return how many changes alter bits."""
    rows = [row for row in study.rows if row.changes is not None]
    return say(
        "{changed} of {count} changes alter bits",
        changed=sum(bool(row.changes) for row in rows),
        count=len(rows),
    )


@view_of.register
def invariance_view(study: InvarianceStudy) -> RenderableType:
    """Return an invariance study as a rich renderable."""
    return headed_lines(study_headline(study, _changing(study)), invariance_lines(study))


@document_of.register
def invariance_document(study: InvarianceStudy) -> Document:
    """Return the report of an invariance study."""
    headline = study_headline(study, _changing(study))
    return study_report(headline, invariance_lines(study), study.as_dict())
