"""Reports of comparisons, limits and sweeps, from the results of those commands."""

from dataclasses import replace
from typing import Any

from npu_sim.questions.compare import Comparison
from npu_sim.questions.limits import LimitTable, ProductLimits
from npu_sim.registry import find_operator
from npu_sim.show.compare import estimate_lines, upgrade_lines
from npu_sim.show.limits import bound_text
from npu_sim.show.reports.document import Cell, Document, Figure, Table, table_report
from npu_sim.show.reports.figures import Bound, Curve, curve_figure
from npu_sim.show.reports.html import embedded
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
    running = [row.profile.name for row in comparison.rows if row.plan is not None and row.plan.overflow is None]
    where = ", ".join(dict.fromkeys(running)) or "no product"
    sentence = f"{_title(comparison.operator)}: the call runs on {where}"
    refusals = tuple(
        (row.profile.name, ", ".join(row.socs), int(row.refusal.status), row.refusal.message, row.refusal.hint)
        for row in comparison.rows
        if row.refusal is not None
    )
    tables = [Table(headings, rows, "Side by side")]
    beyond = tuple(
        (row.profile.name, ", ".join(row.socs), overflow_text(row.plan)) for row in comparison.rows if row.plan and row.plan.overflow
    )
    if beyond:
        tables.append(Table(("product", "SoCs", "why"), beyond, "Overflows the Unified Buffer"))
    if refusals:
        tables.append(Table(("product", "SoCs", "status", "why", "what would be right"), refusals, "Refused"))
    estimates = tuple(line for row in comparison.rows for line in estimate_lines(row))
    if estimates:
        tables.append(Table(("SoC, release", "estimate", "of which, and what it rests on"), estimates, "Beyond the lower bounds"))
    if comparison.nearby:
        changes = tuple(
            (one.axis.name, str(one.now), str(one.value), one.path or f"refused: {one.refusal}", one.decision, ", ".join(products))
            for one, products in comparison.nearby
        )
        tables.append(Table(("argument", "now", "from", "takes the path", "decision", "on"), changes, "Nearest changes of path"))
    if comparison.upgrades:
        steps = tuple(
            (one.product, ", ".join(one.socs), f"{one.before} to {one.after}", *line)
            for one in comparison.upgrades
            for line in upgrade_lines(one)
        )
        tables.append(Table(("product", "SoCs", "upgrade", "fact", "change", "note"), steps, "What an upgrade changes"))
    return replace(table_report(sentence, sentence, tables, call=call), outcome="good" if running else "bad")


def diff_html(comparison: Comparison) -> str:
    """Return a comparison as notebooks show it."""
    return embedded(diff_report(comparison))


def _compared_row(row: dict[str, Any]) -> tuple[Cell, ...]:
    head = (row["product"], ", ".join(row["socs"]), ", ".join(row["releases"]))
    if row["outcome"] == "refused":
        return (*head, f"refused {row['error']['status']}", *[""] * 10)
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
    sentence = f"{_title(table.operator)}: legal values of {table.vary or 'every size'}" + (f" along {table.along}" if along else "")
    fixed = Table(("name", "value"), tuple((name, value) for name, value in table.fixed.items()), "With", folded=True)
    ranges = Table((*size, "product", "SoCs", *along, "documented", "hardware"), rows, "Legal values")
    reasons = tuple(dict.fromkeys(reason for row in table.rows for reason in _reasons(row)))
    why = [Table(("product", "limits", "status", "why"), reasons, "What binds")] if reasons else []
    figure = _frontier_figure(table) if along else _range_figure(table)
    return table_report(sentence, sentence, [ranges, *why, fixed], [figure] if figure.data else [], call=call)


def _reasons(row: ProductLimits) -> list[tuple[str, str, int, str]]:
    bounds = (("documented", row.documented), ("hardware", row.hardware))
    return [
        (row.product, name, int(error.status), error.message)
        for name, bound in bounds
        for error in (bound.below, bound.above)
        if error is not None
    ]


def _frontier_figure(table: LimitTable) -> Figure:
    """Draw the largest legal value against the second argument: documented as lines, the hardware's dashed."""
    groups: dict[tuple[str, str], list[ProductLimits]] = {}
    for row in table.rows:
        groups.setdefault((row.product, ", ".join(row.socs)), []).append(row)
    curves = []
    for (product, socs), rows in groups.items():
        for name in ("documented", "hardware"):
            points = [(row.at, getattr(row, name).largest) for row in rows]
            drawn = [(at, largest) for at, largest in points if at is not None and largest is not None]
            if drawn:
                curves.append(
                    Curve(f"{product} ({socs}), {name}", [at for at, _ in drawn], [y for _, y in drawn], dashed=name == "hardware")
                )
    return curve_figure(table.along, f"largest {table.vary}", curves, log_x=True, log_y=True)


def _range_figure(table: LimitTable) -> Figure:
    """Draw the ranges as bars on a logarithmic axis; what has no end goes on to the right."""
    ends = [bound.largest for row in table.rows for bound in (row.documented, row.hardware) if bound.largest]
    if not ends:
        return Figure((), {})
    edge = 4 * max(ends)
    data: list[dict[str, Any]] = []
    for name, width in (("hardware", 18), ("documented", 8)):
        for row in table.rows:
            bound = getattr(row, name)
            size = f"{row.size}, " if row.size else ""
            label = f"{size}{row.product}<br>{', '.join(row.socs[:2])}{' ...' if len(row.socs) > 2 else ''}"
            for first, last in bound.ranges[:8]:
                stop = last if bound.largest is not None else edge
                data.append(
                    {
                        "type": "scatter",
                        "mode": "lines",
                        "x": [max(first, 1), stop],
                        "y": [label, label],
                        "line": {"width": width, "color": "#8aa4c0" if name == "hardware" else "#c2600a"},
                        "name": name,
                        "legendgroup": name,
                        "showlegend": not any(one["name"] == name for one in data),
                        "hovertext": f"{name}: {bound_text(bound)}",
                        "hoverinfo": "text",
                    }
                )
    layout = {"xaxis": {"title": {"text": table.vary or "value"}, "type": "log"}, "yaxis": {"automargin": True}}
    return Figure(tuple(data), layout, "thick: what really fits; thin: what the documents allow")


def sweep_report(summary: SweepSummary, curves: dict[str, Any], call: str = "") -> Document:
    """Return the report of a sweep.

    Parameters
    ----------
    summary
        What the sweep counted.
    curves
        A cut through the sweep, from :func:`npu_sim.show.reports.sweep_curves.sweep_curves`; the JSON of the call carries it too.
    call
        The command that makes it again.
    """
    data = summary.as_dict()
    sentence = f"{_title(data['sweep']['operator'])}: {data['rows']} calls planned"
    figures = [_bar_figure(name, counts) for name, counts in data["counts"].items() if counts]
    figures = _cut_figures(curves) + figures
    tables = [Table((name, "calls"), tuple(counts.items()), name) for name, counts in data["counts"].items() if counts]
    if "peak_workspace" in data:
        peak = data["peak_workspace"]
        tables.append(
            Table(("what", "value"), (("kernel workspace, bytes", peak["bytes"]), *peak["call"].items()), "Largest workspace of a kernel")
        )
    axes = tuple((name, ", ".join(f"{key} {value}" for key, value in values.items())) for name, values in data["sweep"]["axes"].items())
    tables.append(Table(("name", "values"), axes, "What varied", folded=True))
    return table_report(sentence, sentence, tables, figures, call=call)


def _bar_figure(name: str, counts: dict[str, int]) -> Figure:
    shown = sorted(counts.items(), key=lambda item: -item[1])[:40]
    bars = {"type": "bar", "x": [str(value) for value, _ in shown], "y": [count for _, count in shown], "name": "calls"}
    layout = {"xaxis": {"title": {"text": name}, "type": "category"}, "yaxis": {"title": {"text": "calls"}}}
    return Figure((bars,), layout)


CUT_VALUES = {"used_bytes": "fullest on-chip memory, bytes", "workspace_bytes": "workspace, bytes", "cores": "cores that work"}


def _cut_figures(curves: dict[str, Any]) -> list[Figure]:
    if not curves.get("series"):
        return []
    figures = []
    for key, title in CUT_VALUES.items():
        lines = [Curve(f"{one['product']}, {one['soc']}", one["x"], one[key]) for one in curves["series"] if one["x"]]
        limits = [Bound(f"{name} limit", curves[name]) for name in ("documented", "hardware") if curves[name] is not None]
        if key == "used_bytes":
            capacities = {one["capacity_bytes"] for one in curves["series"] if one["capacity_bytes"]}
            limits += [Bound("capacity", capacity, "y") for capacity in sorted(capacities)]
        caption = "a cut through the sweep with " + ", ".join(f"{name} {value}" for name, value in curves["with"].items())
        if lines:
            figures.append(curve_figure(curves["axis"], title, lines, limits, log_x=curves["logarithmic"], caption=caption))
    return figures
