"""Limits as text: legal ranges side by side, then the binding constraints."""

from dataclasses import replace
from typing import Any

from rich.console import RenderableType

from npu_sim.language import Text, Verbatim, count_text, joined, say
from npu_sim.questions.limits import Bound, LimitTable, ProductLimits
from npu_sim.registry import find_operator
from npu_sim.show.layout import Column, Paragraph, Table, lines_table, stack
from npu_sim.show.text import socs_text
from npu_sim.status import SUCCESS, NotModelledError, Unplanned

SHOWN_RANGES = 3


def limits_view(table: LimitTable) -> RenderableType:
    """Return limits as a rich renderable."""
    entry = find_operator(table.operator)
    assert entry is not None
    along = say(" along {along}", table) if table.along else ""
    values = (
        Text("{name} {value}", name=Verbatim(name), value=_shown(value))
        for name, value in table.fixed.items()
    )
    fixed = joined(values, ", ")
    axis = table.vary or "each size, the other sizes unchanged"
    title = say("{title}: legal values of {axis}{along}", entry, axis=axis, along=along)
    head = Paragraph(title, "bold", is_line=True)
    parts: list[RenderableType] = [head, lines_table([("with", fixed)]), "", _ranges(table)]
    reasons = _reasons(table) + _sources(table)
    return stack(*parts, "", lines_table(reasons)) if reasons else stack(*parts)


def _shown(value: Any) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


def _ranges(table: LimitTable) -> Table:
    along = [Column(table.along, right=True)] if table.along else []
    size = [Column("size", key=True)] if not table.vary else []
    columns = [
        *size,
        Column("product", key=True),
        Column("SoC", key=True, wraps=True),
        *along,
        Column("documented"),
        Column("hardware"),
    ]
    rows = []
    before: tuple[str, tuple[str, ...]] | None = None
    for row in _rows(table):
        repeated = table.along and before == (row.product, row.socs)
        before = (row.product, row.socs)
        where = ["", ""]
        if not repeated:
            sizes = [Verbatim(row.size)] if size else []
            where = [*sizes, Verbatim(row.product), socs_text(row.socs)]
        at = [str(row.at)] if table.along else []
        rows.append([*where, *at, bound_text(row.documented), bound_text(row.hardware)])
    return Table(columns, rows)


def _rows(table: LimitTable) -> list[ProductLimits]:
    """Join the SoCs of a product that have equal bounds, except along a frontier."""
    if table.along:
        return list(table.rows)
    merged: list[ProductLimits] = []
    for row in table.rows:
        for position, other in enumerate(merged):
            same = (other.size, other.product, other.documented.ranges, other.hardware.ranges)
            if same == (row.size, row.product, row.documented.ranges, row.hardware.ranges):
                merged[position] = replace(other, socs=other.socs + row.socs)
                break
        else:
            merged.append(row)
    return merged


def bound_text(bound: Bound) -> str:
    """Return legal values as text, for instance ``1 .. 8609``, ``any`` or ``1 and more``."""
    if not bound.ranges:
        if isinstance(bound.above, NotModelledError):
            return bound.above.label
        return (
            "overflows" if bound.above is not None and bound.above.status == SUCCESS else "refused"
        )
    if len(bound.ranges) > SHOWN_RANGES:
        (first, last), (_, largest) = bound.ranges[0], bound.ranges[-1]
        more = say("{ranges} shorter ranges", ranges=len(bound.ranges) - 1)
        if bound.above:
            return say(
                "{first} .. {last}, {more} up to {largest}",
                first=first,
                last=last,
                more=more,
                largest=largest,
            )
        return say("{first} .. {last}, {more} and on", first=first, last=last, more=more)
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


def reason_text(error: Unplanned) -> str:
    """Return why a value is not legal: the status, if the product refuses it, and the message."""
    if not error.status:
        return error.message
    return say("{status} {message}", error, status=int(error.status))


def _sources(table: LimitTable) -> list[tuple[str, str]]:
    """Return where the rules of products come from."""
    sources = {row.product: row.rules_source for row in table.rows if row.rules_source}
    return [
        (say("rules of {product}", product=product), source) for product, source in sources.items()
    ]


def _reasons(table: LimitTable) -> list[tuple[str, str]]:
    """Return the constraint at each end, once per product: its SoCs differ only in numbers."""
    reasons: dict[tuple[str, str], tuple[str, str]] = {}
    for row in table.rows:
        for name, bound in (("documented", row.documented), ("hardware", row.hardware)):
            for end, error in (("below", bound.below), ("above", bound.above)):
                if error is not None:
                    names = filter(None, (row.size, row.product))
                    where = joined((*map(Verbatim, names), name), ", ")
                    reasons.setdefault((where, end), (where, reason_text(error)))
    first_of_text = {text: where for where, text in reversed(reasons.values())}
    return [(where, text) for text, where in reversed(first_of_text.items())]
