"""Comparisons of one call over products, SoCs and releases, as text, report and picture."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from rich.console import RenderableType

from npu_sim.cores import Profile, default_release
from npu_sim.language import Text, bytes_text, grouped, joined, say, translated, with_changed_fields
from npu_sim.plans.model import Plan
from npu_sim.questions.diff import OUTCOME, Compared, Comparison, Upgrade
from npu_sim.questions.explain import NearbyPlan
from npu_sim.show import document_of, view_of
from npu_sim.show.forms.layout import (
    Cell,
    Column,
    Document,
    Table,
    after_gap,
    filled,
    lines_table,
    part,
    stack,
)
from npu_sim.show.text import Line, operator_title, overflow_text, socs_text, used_percent
from npu_sim.show.times import estimate_note, estimate_text
from npu_sim.status import AclnnError, NotModelledError

SHOWN_NEARBY = 3


@view_of.register
def comparison_view(comparison: Comparison) -> RenderableType:
    """Return a comparison as a rich renderable."""
    comparison = _with_merged_socs(comparison)
    several = any(row.releases != (default_release(),) for row in comparison.rows)
    columns = [column for column in COMPARED_COLUMNS if several or column.name != "release"]
    tables = [
        *(after_gap(lines_table(lines)) for lines in _facts(comparison).values()),
        *(after_gap(lines_table(lines, indent=2), title) for title, lines in _upgrades(comparison)),
    ]
    changes = grouped((nearby_text(change), (change, names)) for change, names in comparison.nearby)
    nearby = [
        nearby_text(alike[0][0], [name for _, names in alike for name in names])
        for alike in [*changes.values()][:SHOWN_NEARBY]
    ]
    if nearby:
        nearby.insert(0, "")
    return stack(
        Table(columns, comparison.rows, styles=[_style(row) for row in comparison.rows]),
        *(part for parts in tables for part in parts),
        *nearby,
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


@view_of.register
def upgrade_view(upgrade: Upgrade) -> RenderableType:
    """Return an upgrade from one release to another as a rich renderable."""
    return stack(_upgrade_title(upgrade), lines_table(upgrade_lines(upgrade)))


def _upgrade_title(upgrade: Upgrade) -> str:
    return say(
        "from {before} to {after} on {product} ({socs})",
        before=upgrade.before,
        after=upgrade.after,
        product=upgrade.product,
        socs=socs_text(upgrade.socs),
    )


def upgrade_lines(upgrade: Upgrade) -> list[Line]:
    """Return the changes of an upgrade as labelled lines."""
    lines: list[Line] = [
        (change.fact, Text("{before} -> {after}", before=change.before, after=change.after), "")
        for change in upgrade.changes
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


def _planned_cell(cell: Callable[[Plan], str]) -> Callable[[Compared], str]:
    """Return the function that shows the plan of a row; empty without one."""
    return lambda row: "" if row.plan is None else cell(row.plan)


def _outcome(row: Compared) -> str:
    if row.plan is not None:
        return row.plan.outcome
    assert row.refusal is not None
    return translated(row.refusal.label)


def _path(plan: Plan) -> str:
    key = plan.tiling_key
    shown = say(", key {tiling_key}", tiling_key=str(key)) if key is not None else ""
    return Text("{path}{key}", path=plan.path, key=shown)


def _cores(plan: Plan) -> str:
    return say(
        "{block_dim} of {cores_available}{idle}",
        block_dim=plan.block_dim,
        cores_available=plan.cores_available,
        idle=say(", {idle_cores} idle", idle_cores=plan.idle_cores) if plan.idle_cores else "",
    )


def _buffer(row: Compared) -> str:
    memory = None if row.plan is None else row.largest_memory
    if memory is None:
        return ""
    largest = max(memory.allocations, key=lambda allocation: allocation.bytes, default=None)
    share = f"{memory.name} {used_percent(memory)} %"
    if largest is None:
        return share
    return Text("{share}, {name} {bytes}", share=share, name=largest.name, bytes=largest.bytes)


def _workspace(plan: Plan) -> str:
    return Text(
        "{size}{value}",
        size=bytes_text(plan.workspace.total_bytes),
        value=" + unknown" if plan.workspace.unknown else "",
    )


def _order(plan: Plan) -> str:
    timed = [order.output for order in plan.order if order.state == "timing"]
    raced = [order.output for order in plan.order if order.race]
    orders = (
        say("timing: {timed}", timed=", ".join(timed)) if timed else "",
        say("race: {raced}", raced=", ".join(raced)) if raced else "",
    )
    return joined(filter(None, orders), "; ") or "fixed"


def _caveats(plan: Plan) -> str:
    return ", ".join(caveat.code for caveat in plan.caveats)


COMPARED_COLUMNS = (
    Column("product", lambda row: row.profile.name, key=True),
    Column("SoC", lambda row: socs_text(row.socs), key=True),
    Column("release", lambda row: ", ".join(row.releases), key=True),
    Column("outcome", _outcome, plain=True),
    Column("path", _planned_cell(_path), plain=True),
    Column("cores", _planned_cell(_cores)),
    Column("buffer", _buffer, plain=True),
    Column("workspace", _planned_cell(_workspace)),
    Column("order", _planned_cell(_order), plain=True),
    Column("caveats", _planned_cell(_caveats)),
)
"""Columns of the text; the report has numbers of their own."""


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
        return say(
            "{change} is refused{where} (now {before}): {refusal}",
            change=nearby.change,
            where=where,
            before=nearby.before,
            refusal=nearby.refusal,
        )
    return say(
        "{change} selects {path}{where} (now {before})",
        change=nearby.change,
        path=nearby.path,
        where=where,
        before=nearby.before,
    )


@document_of.register
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
        (
            "What would be right",
            [Table((Column("product", part(0)), Column("what would be right", part(1))), [*hints])],
        ),
        ("Nearest changes of path", [_changes_table(comparison)]),
        *((name, [lines_table(lines)]) for name, lines in _upgrades(comparison)),
    )
    return Document(sentence, sentence, sections, command, "good" if runs_on else "bad")


def _planned(comparison: Comparison) -> list[tuple[Compared, Plan]]:
    return [(row, row.plan) for row in comparison.rows if row.plan is not None]


NO_BUFFER: dict[str, Cell] = {"memory": "", "used_bytes": None, "capacity_bytes": None}


def _compared_table(comparison: Comparison) -> Table:
    """Return the rows of a comparison in JSON form, with raw numbers."""

    def of_plan(name: str) -> Callable[[dict[str, Any]], Cell]:
        return lambda row: row.get(name, "")

    def of_buffer(name: str) -> Callable[[dict[str, Any]], Cell]:
        return lambda row: (row["buffer"] or NO_BUFFER)[name] if "buffer" in row else ""

    columns = (
        Column("product", lambda row: row["product"]),
        Column("SoCs", lambda row: ", ".join(row["socs"])),
        Column("releases", lambda row: ", ".join(row["releases"])),
        Column("outcome", _outcome_of_report),
        Column("path", of_plan("path")),
        Column("key", of_plan("tiling_key")),
        Column("cores", of_plan("cores_used")),
        Column("idle", of_plan("cores_idle")),
        Column("memory", of_buffer("memory")),
        Column("used bytes", of_buffer("used_bytes")),
        Column("of", of_buffer("capacity_bytes")),
        Column("workspace bytes", _workspace_of_report),
        Column("order", _order_of_report),
        Column("caveats", lambda row: ", ".join(row.get("caveats", ()))),
    )
    return Table(columns, [row.as_dict() for row in comparison.rows])


def _outcome_of_report(row: dict[str, Any]) -> Cell:
    if row["outcome"] == AclnnError.outcome:
        return say("refused {row}", row=row["error"]["status"])
    if row["outcome"] == NotModelledError.outcome:
        return say(NotModelledError.label)
    return str(row["outcome"])


def _workspace_of_report(row: dict[str, Any]) -> Cell:
    size: Cell = row.get("workspace_bytes", "")
    unknown = joined(row.get("workspace_unknown", ()), ", ")
    return f"{size} + {unknown}" if unknown else size


def _order_of_report(row: dict[str, Any]) -> str:
    found = row.get("order", {}).items()
    return joined((Text("{output}: {how}", output=name, how=how) for name, how in found), ", ")


def _changes_table(comparison: Comparison) -> Table:
    columns = (
        Column("argument", lambda found: found[0].axis.name),
        Column("now", lambda found: str(found[0].now)),
        Column("from", lambda found: str(found[0].value)),
        Column(
            "takes the path",
            lambda found: found[0].path or say("refused: {refusal}", refusal=found[0].refusal),
        ),
        Column("decision", lambda found: found[0].decision),
        Column("on", lambda found: ", ".join(found[1])),
    )
    return Table(columns, comparison.nearby)
