"""An invariance study as text and as a report."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from rich.console import RenderableType

from npu_sim.language import Text, grouped, joined, say, translated
from npu_sim.show import document_of, view_of
from npu_sim.show.forms.layout import Column, Document, Paragraph, Table, filled, lines_table, stack
from npu_sim.show.studies import study_headline, study_report
from npu_sim.show.text import Line
from npu_sim.studies.invariance import InvarianceRow, InvarianceStudy, RowsAlike, RowsStudy

EFFECTS = {
    (True, False): Text("other bits"),
    (False, False): Text("same bits"),
    (None, True): Text("not known"),
    (None, False): Text("not applicable"),
}
"""Effect of a change by ``changes`` and ``is_open``, in the order in which they are shown."""


def invariance_lines(study: InvarianceStudy) -> Iterator[Line]:
    """Yield the changes of each effect as lines, those of the same outputs and note as one."""
    noted = [(row, _note(row)) for row in study.rows]
    for key, effect in EFFECTS.items():
        of_effect = [(row, note) for row, note in noted if (row.changes, row.is_open) == key]
        outputs = grouped(((row.change, note), row.output) for row, note in of_effect)
        together = grouped(
            ((tuple(names), note), change) for (change, note), names in outputs.items()
        )
        for position, ((names, note), alike) in enumerate(together.items()):
            value = Text(
                "{outputs}: {changes}", outputs=", ".join(names), changes=joined(alike, ", ")
            )
            yield ("" if position else effect, value, note)


def _note(row: InvarianceRow) -> str:
    """Return where bits change first, or why a change is not applicable."""
    if row.first is None:
        return row.note
    return say(
        "first at [{index}]: {before:.9g} becomes {after:.9g}",
        index=", ".join(map(str, row.first)),
        before=row.before,
        after=row.after,
    )


def _changing(study: InvarianceStudy) -> str:
    """Return how many changes alter bits."""
    rows = [row for row in study.rows if row.changes is not None]
    return say(
        "{changed} of {count} changes alter bits",
        changed=sum(bool(row.changes) for row in rows),
        count=len(rows),
    )


def _rows_table(found: RowsStudy) -> Table:
    """Return the numbers of rows, and the elements with other bits by output."""

    def rows(count: RowsAlike) -> str:
        if count.last is not None:
            return say("{first} to {last}", first=count.first, last=count.last)
        return say("{first} and more", first=count.first) if count.first > 1 else say("any number")

    def template(count: RowsAlike) -> str:
        name = translated(count.template)
        return say("{name}: this call", name=name) if count.is_call else name

    def share(count: RowsAlike, output: str) -> str:
        part = count.different[output]
        return f"{max(100 * part, 0.1):.1f} %" if part else say("same")

    columns = [
        Column("rows of a call", rows, key=True),
        Column("computed by", template, wraps=True),
        *(
            Column(output, partial(share, output=output), right=True)
            for output in found.counts[0].different
        ),
    ]
    others = () if found.instead is None else (found.instead,)
    return Table(columns, [*found.counts, *others], is_translated=True)


def _rows_result(found: RowsStudy) -> str:
    """Return what the table says."""
    if found.differs:
        return found.advice
    if found.is_invariant:
        return say("A row has the same bits in calls of any number of rows.")
    return say("No bit of these rows depends on the number of rows; with other data some can.")


ROWS_TITLE = Text("Elements of the given rows with other bits in calls of other numbers of rows")


def _rows_blocks(study: InvarianceStudy) -> tuple[Table | Paragraph, ...]:
    """Return how the bits of a row depend on the number of rows of its call."""
    found = study.by_rows
    if found is None:
        return ()
    left_out = say("{count} more ranges lie between these.", count=found.left_out)
    more = (Paragraph(left_out),) if found.left_out else ()
    return _rows_table(found), *more, Paragraph(_rows_result(found))


@view_of.register
def invariance_view(study: InvarianceStudy) -> RenderableType:
    """Return an invariance study as a rich renderable."""
    headline, blocks = study_headline(study, _changing(study)), _rows_blocks(study)
    rows = ("", Paragraph(ROWS_TITLE, "bold"), *blocks) if blocks else ()
    lines = lines_table(invariance_lines(study))
    return stack(Paragraph(headline, "bold green"), *rows, "", lines)


@document_of.register
def invariance_document(study: InvarianceStudy) -> Document:
    """Return the report of an invariance study."""
    headline = study_headline(study, _changing(study))
    report = study_report(headline, invariance_lines(study), study.as_dict())
    rows = filled((ROWS_TITLE, _rows_blocks(study)))
    return replace(report, sections=(*rows, *report.sections))
