"""Legal values as text, report and picture."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from markupsafe import Markup
from rich.console import RenderableType

from npu_sim.framework.arguments import SEARCH_END
from npu_sim.language import Text, Verbatim, count_text, grouped, joined, say, translated
from npu_sim.questions.limits import Bound, LimitTable, ProductLimits, Refusal
from npu_sim.show import document_of, pictures_of, view_of
from npu_sim.show.forms.curves import Axis, curve, curve_chart
from npu_sim.show.forms.layout import (
    NAME_AND_VALUE,
    Column,
    Document,
    Drawing,
    Paragraph,
    Picture,
    Table,
    after_gap,
    filled,
    lines_table,
    stack,
)
from npu_sim.show.forms.svg import WIDTH, Pictures, bar, caption, element, picture
from npu_sim.show.text import operator_title, socs_text
from npu_sim.status import ACLNN_SUCCESS, AclnnError, NotModelledError

SHOWN_RANGES = 3


@view_of.register
def limits_view(table: LimitTable) -> RenderableType:
    """Return limits as a rich renderable."""
    fixed = joined(
        (
            Text("{name} {value}", name=Verbatim(name), value=_shown(value))
            for name, value in table.fixed.items()
        ),
        ", ",
    )
    title = say(
        "{title}: legal values of {axis}{along}",
        title=operator_title(table.operator),
        axis=table.vary or "each size, the other sizes unchanged",
        along=say(" along {along}", along=table.along) if table.along else "",
    )
    return stack(
        Paragraph(title, "bold", is_line=True),
        lines_table([("with", fixed)]),
        *after_gap(_ranges(table)),
        *after_gap(lines_table(_notes(table))),
    )


def _shown(value: Any) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


def _ranges(table: LimitTable, listed: Callable[[Sequence[str]], str] = socs_text) -> Table:
    """Return the legal values as a table; ``listed`` returns the SoCs of a row as text."""
    merged = _merged_rows(table)
    devices = [(row.product, row.socs) for row in merged]
    repeated = {  # a frontier names a device once
        id(row)
        for row, device, before in zip(merged, devices, [None, *devices], strict=False)
        if table.along and device == before
    }

    def product(row: ProductLimits) -> str:
        return "" if id(row) in repeated else Verbatim(row.product)

    def socs(row: ProductLimits) -> str:
        return "" if id(row) in repeated else listed(row.socs)

    columns = [Column("product", product, key=True), Column("SoC", socs, key=True, wraps=True)]
    if not table.vary:
        columns.insert(0, Column("size", lambda row: Verbatim(row.size), key=True))
    if table.along:
        columns.append(Column(table.along, lambda row: str(row.at), right=True))
    columns += [
        Column("documented", lambda row: bound_text(row.documented)),
        Column("hardware", lambda row: bound_text(row.hardware)),
    ]
    return Table(columns, merged)


def _merged_rows(table: LimitTable) -> list[ProductLimits]:
    """Join the SoCs of a product that have equal bounds, except along a frontier."""
    if table.along:
        return list(table.rows)
    return [
        replace(rows[0], socs=tuple(soc for row in rows for soc in row.socs))
        for rows in grouped(
            ((row.size, row.product, row.documented.ranges, row.hardware.ranges), row)
            for row in table.rows
        ).values()
    ]


def bound_text(bound: Bound) -> str:
    """Return legal values as text, for instance ``1 .. 8609``, ``any`` or ``1 and more``."""
    if not bound.ranges:
        if isinstance(bound.above, NotModelledError):
            return bound.above.label
        overflows = isinstance(bound.above, AclnnError) and bound.above.status == ACLNN_SUCCESS
        return "overflows" if overflows else "refused"
    if len(bound.ranges) > SHOWN_RANGES:
        (first, last), (_, largest) = bound.ranges[0], bound.ranges[-1]
        return say(
            "{first} .. {last}, {more} up to {largest}"
            if bound.above
            else "{first} .. {last}, {more} and on",
            first=first,
            last=last,
            more=say("{ranges} shorter ranges", ranges=len(bound.ranges) - 1),
            largest=largest,
        )
    pieces = [
        count_text(first) if first == last else f"{count_text(first)} .. {count_text(last)}"
        for first, last in bound.ranges
    ]
    if bound.above is None:
        pieces[-1] = (
            "any"
            if bound.below is None and len(pieces) == 1
            else say("{ranges} and more", ranges=bound.ranges[-1][0])
        )
    return ", ".join(pieces)


def reason_text(error: Refusal) -> str:
    """Return why a value is not legal: the status, if the product refuses it, and the message."""
    return (
        error.message
        if not error.status
        else say("{status} {message}", status=int(error.status), message=error.message)
    )


def _notes(table: LimitTable) -> list[tuple[str, str]]:
    """Return what refuses values, where the search ended, and where the rules come from."""
    return [*_constraints(table), *_search_end(table), *_sources(table)]


def _search_end(table: LimitTable) -> Iterator[tuple[str, str]]:
    """Yield where the search ended if it met no refusal up to there."""
    bounds = (bound for row in table.rows for bound in (row.documented, row.hardware))
    ends = {bound.ranges[-1][1] for bound in bounds if bound.ranges and bound.above is None}
    if SEARCH_END in ends:
        yield (
            Text("any, and more"),
            say(
                "nothing is refused up to {end}, where the search ends", end=count_text(SEARCH_END)
            ),
        )


def _sources(table: LimitTable) -> list[tuple[str, str]]:
    """Return where the rules of products come from."""
    sources = {row.product: row.rules_source for row in table.rows if row.rules_source}
    return [
        (say("rules of {product}", product=product), source) for product, source in sources.items()
    ]


def _constraints(table: LimitTable) -> list[tuple[str, str]]:
    """Return the constraint at each end, once per product: its SoCs differ only in numbers."""
    reasons: dict[tuple[str, str], tuple[str, str]] = {}
    for row in table.rows:
        for name, bound in (("documented", row.documented), ("hardware", row.hardware)):
            for end, error in (("below", bound.below), ("above", bound.above)):
                if error is not None:
                    where = joined(
                        (*map(Verbatim, filter(None, (row.size, row.product))), name), ", "
                    )
                    reasons.setdefault((where, end), (where, reason_text(error)))
    first_of_text = {text: where for where, text in reversed(reasons.values())}
    return [(where, text) for text, where in reversed(first_of_text.items())]


@document_of.register
def limits_report(table: LimitTable, command: str = "") -> Document:
    """Return the report of legal values: a table, and curves along a second argument.

    ``command`` is the command that reproduces it.
    """
    title, axis = operator_title(table.operator), translated(table.vary or "each size")
    sentence = say("{title}: legal values of {axis}", title=title, axis=axis)
    sentence += say(" along {along}", along=table.along) if table.along else ""
    drawn = _frontier_chart(table) if table.along else range_picture(table)
    sections = filled(
        ("Pictures", [drawn] if drawn else []),
        ("Legal values", [_ranges(table, ", ".join)]),
        ("Limits of each size", [lines_table(_notes(table))]),
        ("With", [Table(NAME_AND_VALUE, tuple(table.fixed.items()), folded=True)]),
    )
    return Document(sentence, sentence, sections, command)


def _frontier_chart(table: LimitTable) -> Drawing | None:
    """Draw the largest legal value against the second argument; hardware limits are dashed."""
    groups = grouped(((row.product, ", ".join(row.socs)), row) for row in table.rows)
    curves = []
    for (product, socs), rows in groups.items():
        for name in ("documented", "hardware"):
            points = ((row.at, getattr(row, name).largest) for row in rows)
            drawn = [point for point in points if None not in point]
            if drawn:
                places, values = zip(*drawn, strict=True)
                title = f"{product} ({socs}), {translated(name)}"
                curves.append(curve(title, places, values, dashed=name == "hardware"))
    x = Axis(table.along, is_log=all((row.at or 0) > 0 for row in table.rows))
    return (
        curve_chart(x, Axis(say("largest {vary}", vary=table.vary), is_log=True), curves)
        if curves
        else None
    )


def range_picture(table: LimitTable) -> Picture | None:
    """Draw the ranges as bars on one axis from 0; refused products have an empty row."""
    rows = [
        (
            ", ".join(filter(None, (row.size, row.product, *row.socs, name))),
            bound.ranges,
            bound.above is None,
            bound_text(bound),
            bound.above.message if not bound.ranges and bound.above is not None else "",
        )
        for row in table.rows
        for name, bound in (("documented", row.documented), ("hardware", row.hardware))
    ]
    if not any(ranges for _, ranges, *_ in rows):
        return None
    what = translated(table.vary or "each size")
    return Picture(
        range_bars(rows, what),
        say("legal values of {what} from 0, to scale; an arrow: no end was found", what=what),
    )


ROW = 44
BAR = 16
MOST_RANGES = 64
"""Maximum number of ranges drawn per row."""
ARROW = 26
"""Space to the right of the axis, for ranges without an end."""
RangeRow = tuple[str, Sequence[tuple[int, int]], bool, str, str]
"""Name, ranges, whether the last one is open, the ranges as text, and why there are none."""


def range_bars(rows: Sequence[RangeRow], name: str) -> Markup:
    """Draw ranges, one bar per row; ``name`` is that of the varied argument."""
    longest = max((_reach(ranges, is_open) for _, ranges, is_open, *_ in rows if ranges), default=1)
    scale = (WIDTH - ARROW) / longest
    parts = [element("title", text=say("legal values of {name}", name=name)), HATCHES]
    for position, row in enumerate(rows):
        parts += _row(row, position * ROW, scale)
    y = len(rows) * ROW
    parts += [caption("0", y + 14), caption(str(longest), y + 14, longest * scale, "end")]
    return picture(
        y + 22,
        parts,
        say("legal values of {name}, to scale from 0 to {longest}", name=name, longest=longest),
    )


HATCHES = element(
    "pattern",
    children=(
        element("rect", width=7, height=7, class_="hatch-ground"),
        element("line", x1=0, x2=0, y1=0, y2=7, class_="hatch"),
    ),
    id="range-refused",
    width=7,
    height=7,
    patternUnits="userSpaceOnUse",
    patternTransform="rotate(45)",
)


def _reach(ranges: Sequence[tuple[int, int]], is_open: bool) -> int:
    """Return the length of the axis for ranges; an open one gets its start again."""
    first, last = ranges[-1]
    return max(2 * first, 1) if is_open else max(last, 1)


def _row(row: RangeRow, y: float, scale: float) -> list[Markup]:
    label, ranges, is_open, words, reason = row
    parts = [caption(Text("{label}: {words}", label=label, words=words), y + 14)]
    if not ranges:
        title, style = say("refused: {reason}", reason=reason), {"fill": "url(#range-refused)"}
        return [*parts, bar(0, y + 20, WIDTH - ARROW, "no", title, height=BAR, **style)]
    colour = "c0" if label.endswith("hardware") else "c1"
    for position, (first, last) in enumerate(ranges[-MOST_RANGES:]):
        endless = is_open and position == len(ranges[-MOST_RANGES:]) - 1
        start, stop = first * scale, WIDTH - ARROW if endless else last * scale
        text = (
            say("{label}: {first} and more", label=label, first=first)
            if endless
            else Text("{label}: {first}..{last}", label=label, first=first, last=last)
        )
        ends: dict[str, Any] = {} if endless else {"data_first": first, "data_last": last}
        parts.append(bar(start, y + 20, max(stop - start, 0.5), colour, text, height=BAR, **ends))
        if endless:
            points = (
                f"{WIDTH - ARROW},{y + 16} {WIDTH - 4},{y + 20 + BAR / 2} "
                f"{WIDTH - ARROW},{y + 24 + BAR}"
            )
            parts.append(element("polygon", text, points=points, class_=colour))
    return parts


@pictures_of.register
def limits_pictures(table: LimitTable) -> Pictures:
    """Return the picture of legal values."""
    drawn = None if table.along else range_picture(table)
    return {} if drawn is None else {"limits": lambda: drawn.markup}
