"""Reports of comparisons, limits and sweeps, from the results of those commands."""

from dataclasses import replace
from typing import Any

from npu_sim.language import say
from npu_sim.questions.compare import Comparison
from npu_sim.questions.limits import Bound as LimitBound
from npu_sim.questions.limits import LimitTable, ProductLimits
from npu_sim.registry import find_operator
from npu_sim.show.compare import estimate_lines, upgrade_lines
from npu_sim.show.limits import bound_text
from npu_sim.show.reports.document import Cell, Document, Figure, Picture, Table, table_report
from npu_sim.show.reports.figures import Curve, curve_figure
from npu_sim.show.reports.html import embedded
from npu_sim.show.reports.range_bars import range_bars
from npu_sim.show.reports.sweep_figures import sweep_figures
from npu_sim.show.text import overflow_text
from npu_sim.sweeps.summary import SweepSummary


def _title(operator: str) -> str:
    entry = find_operator(operator)
    assert entry is not None
    return entry.title


def diff_report(comparison: Comparison, call: str = "") -> Document:
    """Return the report of one call on several products and SoCs; ``call`` is the command that makes it again."""
    headings = (
        "product",
        "SoCs",
        "releases",
        "outcome",
        "path",
        "key",
        "cores",
        "idle",
        "memory",
        "used bytes",
        "of",
        "workspace bytes",
        "order",
        "caveats",
    )
    rows = tuple(_compared_row(row.as_dict()) for row in comparison.rows)
    running = [
        row.profile.name
        for row in comparison.rows
        if row.plan is not None and row.plan.overflow is None
    ]
    where = ", ".join(dict.fromkeys(running)) or "no product"
    sentence = say(
        "{title}: the call runs on {where}", title=_title(comparison.operator), where=where
    )
    refusals = tuple(
        (
            row.profile.name,
            ", ".join(row.socs),
            int(row.refusal.status),
            row.refusal.message,
            row.refusal.hint,
        )
        for row in comparison.rows
        if row.refusal is not None
    )
    tables = [Table(headings, rows, "Side by side")]
    beyond = tuple(
        (row.profile.name, ", ".join(row.socs), overflow_text(row.plan))
        for row in comparison.rows
        if row.plan and row.plan.overflow
    )
    if beyond:
        tables.append(Table(("product", "SoCs", "why"), beyond, "Overflows the Unified Buffer"))
    if refusals:
        tables.append(
            Table(("product", "SoCs", "status", "why", "what would be right"), refusals, "Refused")
        )
    estimates = tuple(estimate_lines(comparison))
    if estimates:
        tables.append(
            Table(
                ("SoC, release", "estimate", "of which, and what it rests on"),
                estimates,
                "Beyond the lower bounds",
            )
        )
    if comparison.nearby:
        changes = tuple(
            (
                one.axis.name,
                str(one.now),
                str(one.value),
                one.path or say("refused: {refusal}", refusal=one.refusal),
                one.decision,
                ", ".join(products),
            )
            for one, products in comparison.nearby
        )
        tables.append(
            Table(
                ("argument", "now", "from", "takes the path", "decision", "on"),
                changes,
                "Nearest changes of path",
            )
        )
    if comparison.upgrades:
        steps = tuple(
            (
                one.product,
                ", ".join(one.socs),
                say("{before} to {after}", before=one.before, after=one.after),
                *line,
            )
            for one in comparison.upgrades
            for line in upgrade_lines(one)
        )
        tables.append(
            Table(
                ("product", "SoCs", "upgrade", "fact", "change", "note"),
                steps,
                "What an upgrade changes",
            )
        )
    return replace(
        table_report(sentence, sentence, tables, call=call), outcome="good" if running else "bad"
    )


def diff_html(comparison: Comparison) -> str:
    """Return a comparison as notebooks show it."""
    return embedded(diff_report(comparison))


def _compared_row(row: dict[str, Any]) -> tuple[Cell, ...]:
    head = (row["product"], ", ".join(row["socs"]), ", ".join(row["releases"]))
    if row["outcome"] == "refused":
        return (*head, say("refused {row}", row=row["error"]["status"]), *[""] * 10)
    buffer = row["buffer"] or {"memory": "", "used_bytes": None, "capacity_bytes": None}
    order = ", ".join(f"{output}: {how}" for output, how in row["order"].items())
    unknown = ", ".join(row["workspace_unknown"])
    workspace: Cell = f"{row['workspace_bytes']} + {unknown}" if unknown else row["workspace_bytes"]
    sizes = (buffer["memory"], buffer["used_bytes"], buffer["capacity_bytes"], workspace)
    return (
        *head,
        row["outcome"],
        row["path"],
        row["tiling_key"],
        row["cores_used"],
        row["cores_idle"],
        *sizes,
        order,
        ", ".join(row["caveats"]),
    )


def limits_report(table: LimitTable, call: str = "") -> Document:
    """Return the report of the legal values of an argument: a table, and the frontier as curves when a second one varies.

    ``call`` is the command that makes it again.
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
    sentence = say(
        "{title}: legal values of {value}",
        title=_title(table.operator),
        value=table.vary or "every size",
    ) + (say(" along {along}", along=table.along) if along else "")
    fixed = Table(
        ("name", "value"),
        tuple((name, value) for name, value in table.fixed.items()),
        "With",
        folded=True,
    )
    ranges = Table(
        (*size, "product", "SoCs", *along, "documented", "hardware"), rows, "Legal values"
    )
    reasons = tuple(dict.fromkeys(reason for row in table.rows for reason in _reasons(row)))
    why = [Table(("product", "limits", "status", "why"), reasons, "What binds")] if reasons else []
    drawn = _frontier_figure(table) if along else _range_picture(table)
    return table_report(
        sentence, sentence, [ranges, *why, fixed], [drawn] if drawn else [], call=call
    )


def _reasons(row: ProductLimits) -> list[tuple[str, str, int, str]]:
    bounds = (("documented", row.documented), ("hardware", row.hardware))
    return [
        (row.product, name, int(error.status), error.message)
        for name, bound in bounds
        for error in (bound.below, bound.above)
        if error is not None
    ]


def _frontier_figure(table: LimitTable) -> Figure | None:
    """Draw the largest legal value against the second argument: documented as lines, the hardware's dashed."""
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
                x, y = zip(*drawn, strict=True)
                curves.append(Curve(f"{product} ({socs}), {name}", x, y, dashed=name == "hardware"))
    log_x = all((row.at or 0) > 0 for row in table.rows)
    return (
        curve_figure(
            table.along, say("largest {vary}", vary=table.vary), curves, log_x=log_x, log_y=True
        )
        if curves
        else None
    )


def _range_picture(table: LimitTable) -> Picture | None:
    """Draw the ranges as bars on one axis from 0; a product that refuses the call keeps its place."""
    rows = []
    for row in table.rows:
        for name, bound in (("documented", row.documented), ("hardware", row.hardware)):
            label = ", ".join(filter(None, (row.size, row.product, *row.socs, name)))
            rows.append(
                (label, bound.ranges, bound.above is None, bound_text(bound), _refusal(bound))
            )
    if not any(ranges for _, ranges, *_ in rows):
        return None
    what = table.vary or "every size"
    return Picture(
        range_bars(rows, what),
        say("legal values of {what} from 0, to scale; an arrow: no end was found", what=what),
    )


def _refusal(bound: LimitBound) -> str:
    return bound.above.message if not bound.ranges and bound.above is not None else ""


def sweep_report(
    summary: SweepSummary, area: dict[str, Any], curves: dict[str, Any], call: str = ""
) -> Document:
    """Return the report of a sweep.

    Parameters
    ----------
    summary
        What the sweep counted.
    area
        Its map, from :func:`npu_sim.sweeps.maps.sweep_map`; the JSON of the call carries it too.
    curves
        A cut through the sweep, from :func:`npu_sim.show.reports.sweep_curves.sweep_curves`; in the JSON as well.
    call
        The command that makes it again.
    """
    data = summary.as_dict()
    sentence = say(
        "{title}: {data} calls planned", title=_title(data["sweep"]["operator"]), data=data["rows"]
    )
    tables = [
        Table((name, "calls"), tuple(counts.items()), name)
        for name, counts in data["counts"].items()
        if counts
    ]
    if "peak_workspace" in data:
        peak = data["peak_workspace"]
        tables.append(
            Table(
                ("what", "value"),
                (("kernel workspace, bytes", peak["bytes"]), *peak["call"].items()),
                "Largest workspace of a kernel",
            )
        )
    axes = tuple(
        (name, ", ".join(f"{key} {value}" for key, value in values.items()))
        for name, values in data["sweep"]["axes"].items()
    )
    tables.append(Table(("name", "values"), axes, "What varied", folded=True))
    return table_report(
        sentence, sentence, tables, sweep_figures(area, curves, data["counts"]), call=call
    )
