"""Products, comparisons of calls on them, and legal values, as text, report and picture."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from markupsafe import Markup
from rich.console import Group, RenderableType

from npu_sim.cores import Profile, default_release
from npu_sim.language import (
    Text,
    Verbatim,
    bytes_text,
    count_text,
    grouped,
    joined,
    say,
    translated,
    with_changed_fields,
)
from npu_sim.operators.loading import load_operator
from npu_sim.plans.model import Plan
from npu_sim.questions.compare import OUTCOME, Compared, Comparison, Upgrade
from npu_sim.questions.explain import NearbyPlan
from npu_sim.questions.limits import Bound, LimitTable, ProductLimits
from npu_sim.questions.varied_calls import operators_of
from npu_sim.show.curves import Axis, curve, curve_chart
from npu_sim.show.layout import (
    Cell,
    Chart,
    Column,
    Document,
    Paragraph,
    Picture,
    Table,
    after_gap,
    filled,
    lines_table,
    stack,
)
from npu_sim.show.svg import WIDTH, Pictures, bar, caption, element, picture
from npu_sim.show.text import Line, overflow_text, socs_text, used_percent
from npu_sim.show.timelines import estimate_note, estimate_text
from npu_sim.status import ACLNN_SUCCESS, AclnnError, NotModelledError, Unplanned

SHOWN_NEARBY = 3
COMPARED_COLUMNS = (
    Column("product", key=True),
    Column("SoC", key=True),
    Column("release", key=True),
    Column("outcome", plain=True),
    Column("path", plain=True),
    Column("cores"),
    Column("buffer", plain=True),
    Column("workspace"),
    Column("order", plain=True),
    Column("caveats"),
)


def comparison_view(comparison: Comparison) -> RenderableType:
    """Return a comparison as a rich renderable."""
    comparison = _with_merged_socs(comparison)
    several = any(row.releases != (default_release(),) for row in comparison.rows)
    columns = [column for column in COMPARED_COLUMNS if several or column.name != "release"]
    cells = [
        [cells.get(column.name, "") for column in columns] for cells in map(_cells, comparison.rows)
    ]
    tables = [
        *(after_gap(lines_table(lines)) for lines in _facts(comparison).values()),
        *(after_gap(lines_table(lines, indent=2), title) for title, lines in _upgrades(comparison)),
    ]
    changes = grouped((nearby_text(change), (change, names)) for change, names in comparison.nearby)
    nearby = [
        nearby_text(alike[0][0], [name for _, names in alike for name in names])
        for alike in [*changes.values()][:SHOWN_NEARBY]
    ]
    return stack(
        Table(columns, cells, styles=[_style(row) for row in comparison.rows]),
        *(part for parts in tables for part in parts),
        *(["", *nearby] if nearby else []),
    )


def _with_merged_socs(comparison: Comparison) -> Comparison:
    """Return the comparison with one row for SoCs whose answers differ in the name alone."""
    alike = grouped((_answer(row), row) for row in comparison.rows)
    rows = (
        replace(rows[0], socs=tuple(soc for row in rows for soc in row.socs))
        for rows in alike.values()
    )
    return replace(comparison, rows=tuple(rows))


def _answer(row: Compared) -> str:
    """Return what a row answers, without the name of its SoC and the estimates at its clock."""
    messages = [caveat.message for caveat in row.plan.caveats] if row.plan else []
    answer = {**row.as_dict(), "socs": (), "estimates": (), "messages": messages}
    return str(answer).replace(row.profile.soc, "")


CAVEATS = "Caveats"


def _facts(comparison: Comparison) -> dict[str, Sequence[Sequence[str]]]:
    """Return the facts of text and report as labelled lines, by their titles."""
    return {
        "Estimates": estimate_lines(comparison),
        "Overflows the Unified Buffer": _once(
            (row, overflow_text(plan)) for row, plan in _planned(comparison) if plan.overflow
        ),
        "Refused": _once(
            (row, row.refusal.message) for row in comparison.rows if row.refusal is not None
        ),
        CAVEATS: caveat_lines(comparison),
        "Rules": source_lines(comparison),
    }


def _upgrades(comparison: Comparison) -> list[tuple[str, list[Line]]]:
    """Return the changes of every upgrade as labelled lines, with its title."""
    return [(_upgrade_title(upgrade), upgrade_lines(upgrade)) for upgrade in comparison.upgrades]


def _style(row: Compared) -> str:
    if row.plan is None:
        return "dim"
    return "red" if row.plan.overflow else ""


def upgrade_view(upgrade: Upgrade) -> RenderableType:
    """Return an upgrade from one release to another as a rich renderable."""
    return stack(_upgrade_title(upgrade), lines_table(upgrade_lines(upgrade)))


def _upgrade_title(upgrade: Upgrade) -> str:
    return say(
        "from {before} to {after} on {product} ({socs})", upgrade, socs=socs_text(upgrade.socs)
    )


def upgrade_lines(upgrade: Upgrade) -> list[Line]:
    """Return the changes of an upgrade as labelled lines."""
    lines: list[Line] = [
        (change.fact, Text("{before} -> {after}", change), "") for change in upgrade.changes
    ]
    if any(change.fact == OUTCOME for change in upgrade.changes):
        return lines
    effect = "can differ" if upgrade.bits else "no bit of the result changes"
    return [*lines, ("bits", effect, joined(upgrade.bits))]


def estimate_lines(comparison: Comparison) -> list[Line]:
    """Return the estimates as labelled lines, equal ones once.

    Estimates use the clock of the first SoC of each row and the releases of that row.
    """
    products = grouped((row.profile.soc, row.profile.name) for row in comparison.rows)
    where = grouped(
        (
            (
                Text("{kernel}: {estimate}", kernel=kernel, estimate=estimate_text(estimate)),
                estimate_note(estimate),
            ),
            (_soc_name(row.profile, products[row.profile.soc]), release),
        )
        for row in comparison.rows
        for kernel, estimate in row.estimates
        for release in row.releases
    )
    return [
        (
            joined(f"{soc}, {', '.join(releases)}" for soc, releases in grouped(places).items()),
            text,
            note,
        )
        for (text, note), places in where.items()
    ]


def _soc_name(profile: Profile, products: Sequence[str]) -> str:
    """Return the name of a SoC, with its product if several products have it."""
    return f"{profile.name} {profile.soc}" if len(set(products)) > 1 else profile.soc


def _cells(row: Compared) -> dict[str, str]:
    where = {
        "product": row.profile.name,
        "SoC": socs_text(row.socs),
        "release": ", ".join(row.releases),
    }
    if row.plan is None:
        assert row.refusal is not None
        return {**where, "outcome": translated(row.refusal.label)}
    plan, memory = row.plan, row.largest_memory
    buffer = ""
    if memory is not None:
        largest = max(memory.allocations, key=lambda allocation: allocation.bytes, default=None)
        share = f"{memory.name} {used_percent(memory)} %"
        buffer = Text("{share}, {name} {bytes}", largest, share=share) if largest else share
    timed = [order.output for order in plan.order if not order.fixed]
    order = say("timing: {timed}", timed=", ".join(timed)) if timed else "fixed"
    return {
        **where,
        "outcome": plan.outcome,
        "path": Text(
            "{path}{key}",
            plan,
            key=say(", key {tiling_key}", plan) if plan.tiling_key is not None else "",
        ),
        "cores": say(
            "{block_dim} of {cores_available}{idle}",
            plan,
            idle=say(", {idle_cores} idle", plan) if plan.idle_cores else "",
        ),
        "buffer": buffer,
        "workspace": Text(
            "{size}{value}",
            size=bytes_text(plan.workspace.total_bytes),
            value=" + unknown" if plan.workspace.unknown else "",
        ),
        "order": order,
        "caveats": ", ".join(caveat.code for caveat in plan.caveats),
    }


def caveat_lines(comparison: Comparison) -> list[Line]:
    """Return the sentence of every caveat once, with the products that have it."""
    caveats = grouped(
        (caveat.code, (row, caveat.message))
        for row, plan in _planned(comparison)
        for caveat in plan.caveats
    )
    return [(*line, code) for code, found in caveats.items() for line in _once(found)]


def _once(found: Iterable[tuple[Compared, str]]) -> list[tuple[str, str]]:
    """Return each sentence once, with its products.

    Sentences that differ in the name of the SoC alone are one, with all SoCs of the product.
    """
    alike = grouped(
        ((row.profile.name, text.replace(row.profile.soc, "")), (row, text)) for row, text in found
    )
    merged = grouped((_of_all_socs(same), product) for (product, _), same in alike.items())
    return [(", ".join(products), text) for text, products in merged.items()]


def _of_all_socs(same: Sequence[tuple[Compared, str]]) -> str:
    """Return the first of sentences that differ in the SoC alone, with the SoCs of all of them."""
    row, text = same[0]
    socs = socs_text([soc for other, _ in same for soc in other.socs])
    return with_changed_fields(
        text, lambda field: type(field)(field.replace(row.profile.soc, socs))
    )


def source_lines(comparison: Comparison) -> list[Line]:
    """Return where the rules of products come from, once per source."""
    where = grouped((row.profile.product.rules_source, row.profile.name) for row in comparison.rows)
    return [
        (", ".join(dict.fromkeys(products)), source, "")
        for source, products in where.items()
        if source
    ]


def nearby_text(nearby: NearbyPlan, products: Sequence[str] = ()) -> str:
    """Return a nearby plan as one sentence: ``col = 6080 selects split N on atlas_a2``."""
    where = say(" on {products}", products=", ".join(products)) if products else ""
    if nearby.refusal:
        return say("{change} is refused{where} (now {before}): {refusal}", nearby, where=where)
    return say("{change} selects {path}{where} (now {before})", nearby, where=where)


SHOWN_RANGES = 3


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
        along=say(" along {along}", table) if table.along else "",
    )
    return stack(
        Paragraph(title, "bold", is_line=True),
        lines_table([("with", fixed)]),
        *after_gap(_ranges(table)),
        *after_gap(lines_table(_constraints(table) + _sources(table))),
    )


def _shown(value: Any) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


def _ranges(table: LimitTable, listed: Callable[[Sequence[str]], str] = socs_text) -> Table:
    """Return the legal values as a table; ``listed`` returns the SoCs of a row as text."""
    size = [Column("size", key=True)] if not table.vary else []
    columns = [
        *size,
        Column("product", key=True),
        Column("SoC", key=True, wraps=True),
        *([Column(table.along, right=True)] if table.along else []),
        Column("documented"),
        Column("hardware"),
    ]
    merged = _merged_rows(table)
    rows = [
        [
            *([Verbatim(row.size)] if size else []),
            *(  # a frontier names a device once
                ("", "")
                if table.along
                and before
                and (before.product, before.socs) == (row.product, row.socs)
                else (Verbatim(row.product), listed(row.socs))
            ),
            *([str(row.at)] if table.along else []),
            bound_text(row.documented),
            bound_text(row.hardware),
        ]
        for before, row in zip((None, *merged), merged, strict=False)
    ]
    return Table(columns, rows)


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
        overflows = bound.above is not None and bound.above.status == ACLNN_SUCCESS
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


def reason_text(error: Unplanned) -> str:
    """Return why a value is not legal: the status, if the product refuses it, and the message."""
    return (
        error.message
        if not error.status
        else say("{status} {message}", error, status=int(error.status))
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


KIB = 1024
SOC_COLUMNS = (
    Column("SoC", key=True),
    *(
        Column(name, right=True)
        for name in ("vector", "cube", "UB KiB", "L1 KiB", "L0C KiB", "L2 MiB", "HBM GiB", "MHz")
    ),
)


def products_view(profiles: Sequence[Profile]) -> Group:
    """Return products as a rich renderable."""
    parts: list[RenderableType] = []
    for profile in profiles:
        product = profile.product
        modelled, others = operators_of(profile)
        overflow = "saturates: no inf, no nan" if profile.saturates else "inf and nan kept"
        parts += [
            Paragraph(
                f"{product.name}: {product.title} ({product.title_zh})", "bold", is_line=True
            ),
            Table(
                SOC_COLUMNS,
                [
                    _soc_row(profile.with_soc(name), default=name == product.default_soc)
                    for name in product.socs
                ],
            ),
            lines_table(
                [
                    ("dtypes", joined((Verbatim(", ".join(product.dtypes)), overflow))),
                    ("operators", ", ".join(modelled)),
                    *([("not modelled", ", ".join(others))] if others else []),
                    *([("rules", product.rules_source)] if product.rules_source else []),
                ]
            ),
            "",
        ]
    return stack(
        *parts,
        Paragraph(
            "vector, cube: cores a vector or cube operator is spread over; * the default SoC; ? "
            "not published",
            "dim",
        ),
    )


def _soc_row(profile: Profile, default: bool) -> list[str]:
    chip = profile.chip
    return [
        profile.soc + (" *" if default else ""),
        str(chip.vector_cores),
        str(chip.cube_cores),
        f"{chip.ub_bytes / KIB:g}",
        f"{chip.l1_bytes / KIB:g}",
        f"{chip.l0c_bytes / KIB:g}",
        f"{chip.l2_bytes / KIB**2:g}",
        f"{chip.memory_bytes / KIB**3:.0f}" if chip.memory_bytes is not None else "?",
        f"{chip.cube_clock_mhz:g}",
    ]


def operator_title(operator: str) -> str:
    """Return the title of an operator."""
    return str(load_operator(operator).title)


def diff_report(comparison: Comparison, command: str = "") -> Document:
    """Return the report of one call on several products and SoCs.

    ``command`` is the command that reproduces it.
    """
    runs_on = dict.fromkeys(
        row.profile.name for row, plan in _planned(comparison) if plan.overflow is None
    )
    sentence = say(
        "{title}: the call runs on {where}",
        title=operator_title(comparison.operator),
        where=", ".join(runs_on) or "no product",
    )
    hints = dict.fromkeys(
        (row.profile.name, row.refusal.hint)
        for row in comparison.rows
        if row.refusal is not None and row.refusal.hint
    )
    sections = filled(
        ("Side by side", [_compared_table(comparison)]),
        *(
            (name, [lines_table(lines)])
            for name, lines in _facts(comparison).items()
            if name != CAVEATS  # their sentences have numbers that the JSON has not
        ),
        ("What would be right", [Table(("product", "what would be right"), tuple(hints))]),
        ("Nearest changes of path", [_changes_table(comparison)]),
        *((name, [lines_table(lines)]) for name, lines in _upgrades(comparison)),
    )
    return Document(sentence, sentence, sections, command, "good" if runs_on else "bad")


def _planned(comparison: Comparison) -> list[tuple[Compared, Plan]]:
    return [(row, row.plan) for row in comparison.rows if row.plan is not None]


def _compared_table(comparison: Comparison) -> Table:
    return Table(
        (
            *("product", "SoCs", "releases", "outcome", "path", "key", "cores", "idle"),
            *("memory", "used bytes", "of", "workspace bytes", "order", "caveats"),
        ),
        [_compared_row(row.as_dict()) for row in comparison.rows],
    )


def _changes_table(comparison: Comparison) -> Table:
    return Table(
        ("argument", "now", "from", "takes the path", "decision", "on"),
        tuple(
            (
                change.axis.name,
                str(change.now),
                str(change.value),
                change.path or say("refused: {refusal}", change),
                change.decision,
                ", ".join(products),
            )
            for change, products in comparison.nearby
        ),
    )


def _compared_row(row: dict[str, Any]) -> tuple[Cell, ...]:
    head = (row["product"], ", ".join(row["socs"]), ", ".join(row["releases"]))
    if row["outcome"] == AclnnError.outcome:
        return (*head, say("refused {row}", row=row["error"]["status"]))
    if row["outcome"] == NotModelledError.outcome:
        return (*head, say(NotModelledError.label))
    buffer = row["buffer"] or {"memory": "", "used_bytes": None, "capacity_bytes": None}
    order = joined(
        (Text("{output}: {how}", output=name, how=how) for name, how in row["order"].items()), ", "
    )
    unknown = joined(row["workspace_unknown"], ", ")
    workspace: Cell = f"{row['workspace_bytes']} + {unknown}" if unknown else row["workspace_bytes"]
    sizes = (buffer["memory"], buffer["used_bytes"], buffer["capacity_bytes"], workspace)
    facts = (row[name] for name in ("outcome", "path", "tiling_key", "cores_used", "cores_idle"))
    return (*head, *facts, *sizes, order, ", ".join(row["caveats"]))


def limits_report(table: LimitTable, command: str = "") -> Document:
    """Return the report of legal values: a table, and curves along a second argument.

    ``command`` is the command that reproduces it.
    """
    title, axis = operator_title(table.operator), translated(table.vary or "each size")
    sentence = say("{title}: legal values of {axis}", title=title, axis=axis)
    sentence += say(" along {along}", table) if table.along else ""
    drawn = _frontier_chart(table) if table.along else range_picture(table)
    sections = filled(
        ("Pictures", [drawn] if drawn else []),
        ("Legal values", [_ranges(table, ", ".join)]),
        ("Limits of each size", [lines_table(_constraints(table) + _sources(table))]),
        ("With", [Table(("name", "value"), tuple(table.fixed.items()), folded=True)]),
    )
    return Document(sentence, sentence, sections, command)


def _frontier_chart(table: LimitTable) -> Chart | None:
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
        curve_chart(x, Axis(say("largest {vary}", table), is_log=True), curves) if curves else None
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


def limits_pictures(table: LimitTable) -> Pictures:
    """Return the picture of legal values."""
    drawn = None if table.along else range_picture(table)
    return {} if drawn is None else {"limits": lambda: drawn.markup}
