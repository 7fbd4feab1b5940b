"""Reports of comparisons and of limits."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from markupsafe import Markup

from npu_sim.language import Text, joined, say, translated
from npu_sim.plans.model import Plan
from npu_sim.questions.compare import Compared, Comparison
from npu_sim.questions.limits import LimitTable, ProductLimits
from npu_sim.registry import find_operator
from npu_sim.show.compare import estimate_lines, upgrade_lines
from npu_sim.show.layout import Cell, Table
from npu_sim.show.limits import bound_text
from npu_sim.show.reports.curves import Axis, Curve, curve_figure
from npu_sim.show.reports.document import Document, Figure, Picture, table_report
from npu_sim.show.reports.svg import WIDTH, bar, caption, element, picture
from npu_sim.show.text import overflow_text
from npu_sim.status import AclnnError, NotModelledError, Unplanned


def operator_title(operator: str) -> str:
    """Return the title of an operator."""
    entry = find_operator(operator)
    assert entry is not None
    return entry.title


def diff_report(comparison: Comparison, call: str = "") -> Document:
    """Return the report of one call on several products and SoCs.

    ``call`` is the command that reproduces it.
    """
    runs_on = dict.fromkeys(
        row.profile.name for row, plan in _planned(comparison) if plan.overflow is None
    )
    where = ", ".join(runs_on) or "no product"
    title = operator_title(comparison.operator)
    sentence = say("{title}: the call runs on {where}", title=title, where=where)
    tables = (
        _compared_table(comparison),
        _overflow_table(comparison),
        _refusal_table(comparison),
        Table(
            ("SoC, release", "estimate", "evidence"), tuple(estimate_lines(comparison)), "Estimates"
        ),
        _changes_table(comparison),
        _upgrade_table(comparison),
    )
    report = table_report(sentence, sentence, tables, call=call)
    return replace(report, outcome="good" if runs_on else "bad")


def _planned(comparison: Comparison) -> list[tuple[Compared, Plan]]:
    return [(row, row.plan) for row in comparison.rows if row.plan is not None]


def _compared_table(comparison: Comparison) -> Table:
    headings = (
        *("product", "SoCs", "releases", "outcome", "path", "key", "cores", "idle"),
        *("memory", "used bytes", "of", "workspace bytes", "order", "caveats"),
    )
    rows = tuple(_compared_row(row.as_dict()) for row in comparison.rows)
    return Table(headings, rows, "Side by side")


def _overflow_table(comparison: Comparison) -> Table:
    rows = tuple(
        (row.profile.name, ", ".join(row.socs), overflow_text(plan))
        for row, plan in _planned(comparison)
        if plan.overflow
    )
    return Table(("product", "SoCs", "why"), rows, "Overflows the Unified Buffer")


def _refusal_table(comparison: Comparison) -> Table:
    rows = tuple(
        (
            row.profile.name,
            ", ".join(row.socs),
            _status(row.refusal),
            row.refusal.message,
            row.refusal.hint,
        )
        for row in comparison.rows
        if row.refusal is not None
    )
    return Table(("product", "SoCs", "status", "why", "what would be right"), rows, "Refused")


def _changes_table(comparison: Comparison) -> Table:
    rows = tuple(
        (
            change.axis.name,
            str(change.now),
            str(change.value),
            change.path or say("refused: {refusal}", change),
            change.decision,
            ", ".join(products),
        )
        for change, products in comparison.nearby
    )
    headings = ("argument", "now", "from", "takes the path", "decision", "on")
    return Table(headings, rows, "Nearest changes of path")


def _upgrade_table(comparison: Comparison) -> Table:
    rows = tuple(
        (upgrade.product, ", ".join(upgrade.socs), say("{before} to {after}", upgrade), *line)
        for upgrade in comparison.upgrades
        for line in upgrade_lines(upgrade)
    )
    headings = ("product", "SoCs", "upgrade", "fact", "change", "note")
    return Table(headings, rows, "Changes by an upgrade")


def _compared_row(row: dict[str, Any]) -> tuple[Cell, ...]:
    head = (row["product"], ", ".join(row["socs"]), ", ".join(row["releases"]))
    if row["outcome"] == AclnnError.outcome:
        return (*head, say("refused {row}", row=row["error"]["status"]), *[""] * 10)
    if row["outcome"] == NotModelledError.outcome:
        return (*head, say(NotModelledError.label), *[""] * 10)
    buffer = row["buffer"] or {"memory": "", "used_bytes": None, "capacity_bytes": None}
    orders = (Text("{output}: {how}", output=name, how=how) for name, how in row["order"].items())
    order = joined(orders, ", ")
    unknown = joined(row["workspace_unknown"], ", ")
    workspace: Cell = f"{row['workspace_bytes']} + {unknown}" if unknown else row["workspace_bytes"]
    sizes = (buffer["memory"], buffer["used_bytes"], buffer["capacity_bytes"], workspace)
    facts = (row[name] for name in ("outcome", "path", "tiling_key", "cores_used", "cores_idle"))
    return (*head, *facts, *sizes, order, ", ".join(row["caveats"]))


def limits_report(table: LimitTable, call: str = "") -> Document:
    """Return the report of legal values: a table, and curves along a second argument.

    ``call`` is the command that reproduces it.
    """
    size, along = () if table.vary else ("size",), (table.along,) if table.along else ()
    rows = tuple(
        (
            *((row.size,) if size else ()),
            row.product,
            ", ".join(row.socs),
            *((row.at,) if along else ()),
            bound_text(row.documented),
            bound_text(row.hardware),
        )
        for row in table.rows
    )
    title, axis = operator_title(table.operator), translated(table.vary or "each size")
    sentence = say("{title}: legal values of {axis}", title=title, axis=axis)
    sentence += say(" along {along}", table) if along else ""
    headings = (*size, "product", "SoCs", *along, "documented", "hardware")
    tables = [Table(headings, rows, "Legal values")]
    reasons = tuple(dict.fromkeys(reason for row in table.rows for reason in _reasons(row)))
    if reasons:
        columns = ("product", "limits", "status", "why")
        tables.append(Table(columns, reasons, "Limits of each size"))
    tables.append(Table(("name", "value"), tuple(table.fixed.items()), "With", folded=True))
    drawn = _frontier_figure(table) if along else range_picture(table)
    return table_report(sentence, sentence, tables, [drawn] if drawn else [], call=call)


def _reasons(row: ProductLimits) -> list[tuple[str, str, Cell, str]]:
    bounds = (("documented", row.documented), ("hardware", row.hardware))
    return [
        (row.product, name, _status(error), error.message)
        for name, bound in bounds
        for error in (bound.below, bound.above)
        if error is not None
    ]


def _status(error: Unplanned) -> Cell:
    """Return the status of a refusal; that the operator is not modelled for such a product."""
    return say(error.label) if isinstance(error, NotModelledError) else int(error.status)


def _frontier_figure(table: LimitTable) -> Figure | None:
    """Draw the largest legal value against the second argument; hardware limits are dashed."""
    groups: dict[tuple[str, str], list[ProductLimits]] = {}
    for row in table.rows:
        groups.setdefault((row.product, ", ".join(row.socs)), []).append(row)
    curves = []
    for (product, socs), rows in groups.items():
        for name in ("documented", "hardware"):
            points = [(row.at, getattr(row, name).largest) for row in rows]
            drawn = [
                (at, largest) for at, largest in points if at is not None and largest is not None
            ]
            if drawn:
                places, values = zip(*drawn, strict=True)
                title = f"{product} ({socs}), {translated(name)}"
                curves.append(Curve(title, places, values, dashed=name == "hardware"))
    x = Axis(table.along, is_log=all((row.at or 0) > 0 for row in table.rows))
    y = Axis(say("largest {vary}", table), is_log=True)
    return curve_figure(x, y, curves) if curves else None


def range_picture(table: LimitTable) -> Picture | None:
    """Draw the ranges as bars on one axis from 0; refused products have an empty row."""
    rows = []
    for row in table.rows:
        for name, bound in (("documented", row.documented), ("hardware", row.hardware)):
            label = ", ".join(filter(None, (row.size, row.product, *row.socs, name)))
            why = bound.above.message if not bound.ranges and bound.above is not None else ""
            rows.append((label, bound.ranges, bound.above is None, bound_text(bound), why))
    if not any(ranges for _, ranges, *_ in rows):
        return None
    what = translated(table.vary or "each size")
    note = say("legal values of {what} from 0, to scale; an arrow: no end was found", what=what)
    return Picture(range_bars(rows, what), note)


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
    for value in (0, longest):
        parts.append(caption(str(value), y + 14, value * scale, "end" if value else "start"))
    label = say("legal values of {name}, to scale from 0 to {longest}", name=name, longest=longest)
    return picture(y + 22, parts, label)


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
