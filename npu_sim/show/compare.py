"""Comparisons of products, and upgrades between releases, as text."""

from rich.console import RenderableType

from npu_sim.language import Text, joined, say, translated
from npu_sim.language.quantities import bytes_text
from npu_sim.questions.compare import OUTCOME, Compared, Comparison, Upgrade
from npu_sim.questions.explain import NearbyPlan
from npu_sim.releases import default_release
from npu_sim.show.layout import Column, Paragraph, Table, lines_table, stack
from npu_sim.show.text import Line, overflow_text, socs_text
from npu_sim.show.timelines import estimate_note, estimate_text

SHOWN_NEARBY = 3
COLUMNS = (
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
    several = any(row.releases != (default_release(),) for row in comparison.rows)
    columns = [column for column in COLUMNS if several or column.name != "release"]
    facts = [_cells(row) for row in comparison.rows]
    cells = [[row.get(column.name, "") for column in columns] for row in facts]
    styles = [_style(row) for row in comparison.rows]
    parts: list[RenderableType] = [Table(columns, cells, styles=styles)]
    for lines in (
        estimate_lines(comparison),
        _refusals(comparison),
        caveat_lines(comparison),
        source_lines(comparison),
    ):
        if lines:
            parts += ["", lines_table(lines)]
    for upgrade in comparison.upgrades:
        title = Paragraph(_upgrade_title(upgrade), "bold", is_line=True)
        parts += ["", title, lines_table(upgrade_lines(upgrade), indent=2)]
    nearby = [nearby_text(plan, products) for plan, products in comparison.nearby[:SHOWN_NEARBY]]
    return stack(*parts, "", *nearby) if nearby else stack(*parts)


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
    products: dict[str, set[str]] = {}
    for row in comparison.rows:
        products.setdefault(row.profile.soc, set()).add(row.profile.name)
    where: dict[tuple[str, str], dict[str, list[str]]] = {}
    for row in comparison.rows:
        soc = row.profile.soc
        if len(products[soc]) > 1:
            soc = f"{row.profile.name} {soc}"
        for kernel, estimate in row.estimates:
            text = Text("{kernel}: {estimate}", kernel=kernel, estimate=estimate_text(estimate))
            places = where.setdefault((text, estimate_note(estimate)), {})
            places.setdefault(soc, []).extend(row.releases)
    return [
        (joined((f"{soc}, {', '.join(releases)}" for soc, releases in places.items())), text, note)
        for (text, note), places in where.items()
    ]


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
    key = say(", key {tiling_key}", plan) if plan.tiling_key is not None else ""
    idle = say(", {idle_cores} idle", plan) if plan.idle_cores else ""
    buffer = ""
    if memory is not None:
        largest = max(memory.allocations, key=lambda allocation: allocation.bytes, default=None)
        share = f"{memory.name} {100 * memory.used_bytes / memory.capacity_bytes:.0f} %"
        buffer = Text("{share}, {name} {bytes}", largest, share=share) if largest else share
    workspace = Text(
        "{size}{value}",
        size=bytes_text(plan.workspace.total_bytes),
        value=" + unknown" if plan.workspace.unknown else "",
    )
    timed = [order.output for order in plan.order if not order.fixed]
    order = say("timing: {timed}", timed=", ".join(timed)) if timed else "fixed"
    return {
        **where,
        "outcome": plan.outcome,
        "path": Text("{path}{key}", plan, key=key),
        "cores": say("{block_dim} of {cores_available}{idle}", plan, idle=idle),
        "buffer": buffer,
        "workspace": workspace,
        "order": order,
        "caveats": ", ".join(caveat.code for caveat in plan.caveats),
    }


def _refusals(comparison: Comparison) -> list[tuple[str, str]]:
    """Return each refusal reason once, with its products."""
    where: dict[str, dict[str, None]] = {}
    for row in comparison.rows:
        reason = ""
        if row.refusal is not None:
            reason = row.refusal.message
        elif row.plan is not None:
            reason = overflow_text(row.plan)
        if reason:
            where.setdefault(reason, {})[row.profile.name] = None
    return [(", ".join(products), reason) for reason, products in where.items()]


def caveat_lines(comparison: Comparison) -> list[Line]:
    """Return the sentence of every caveat once, with the products that have it."""
    plans = [(row.profile.name, row.plan) for row in comparison.rows if row.plan is not None]
    where: dict[tuple[str, str], list[str]] = {}
    for product, plan in plans:
        for caveat in plan.caveats:
            where.setdefault((caveat.message, caveat.code), []).append(product)
    return [
        (", ".join(dict.fromkeys(products)), message, code)
        for (message, code), products in where.items()
    ]


def source_lines(comparison: Comparison) -> list[Line]:
    """Return where the rules of products come from, once per source."""
    where: dict[str, dict[str, None]] = {}
    for row in comparison.rows:
        source = row.profile.product.rules_source
        if source:
            where.setdefault(source, {})[row.profile.name] = None
    return [(", ".join(products), source, "") for source, products in where.items()]


def nearby_text(nearby: NearbyPlan, products: tuple[str, ...]) -> str:
    """Return a nearby plan as one sentence: ``col = 6080 selects split N on atlas_a2``."""
    where = say(" on {products}", products=", ".join(products)) if products else ""
    if nearby.refusal:
        return say("{change} is refused{where} (now {before}): {refusal}", nearby, where=where)
    return say("{change} selects {path}{where} (now {before})", nearby, where=where)
