"""Write the page of every operator from its declaration: ``python docs/operator_pages.py``.

A test compares the pages with what this writes, and runs their commands.
"""

import dataclasses
import inspect
import os
import textwrap
from collections.abc import Iterable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import npu_sim
from npu_sim.cores import Profile, load_profile, shipped_products
from npu_sim.framework.arguments import REQUIRED, Attribute, Output, Tensor
from npu_sim.framework.operator import Operator
from npu_sim.plans.model import Plan
from npu_sim.registry import OPERATORS, load_operator
from npu_sim.releases import release_table
from npu_sim.show.reports.commands import plan_command
from npu_sim.status import AclnnError
from npu_sim.studies import caveats
from npu_sim.tiling.fields import table as tiling_fields

WIDTH = "100"
"""Columns of what commands print, as tests of pages have them."""
PAGES = Path(__file__).parent / "operators"


def table(headings: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> str:
    """Return a table in Markdown; nothing when it has no rows."""
    body = [[str(cell).replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows]
    lines = [headings, ["---"] * len(headings), *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n" if body else ""


def section(title: str, *parts: str) -> str:
    """Return a section, or nothing when all its parts are empty."""
    filled = [part.strip() for part in parts if part.strip()]
    return f"## {title}\n\n" + "\n\n".join(filled) + "\n" if filled else ""


def code(text: object) -> str:
    """Return a text as code; nothing for nothing."""
    return f"`{text}`" if text not in ("", None) else ""


def argument_rows(operator: Operator) -> Iterable[tuple[object, ...]]:
    """Yield a row for every argument, in the order of the call."""
    for one in operator.arguments:
        if isinstance(one, Attribute):
            needed = "required" if one.default is REQUIRED else f"default `{one.default}`"
            yield code(one.name), one.kind.__name__, needed, one.help
        else:
            assert isinstance(one, Tensor)
            kind = "output" if isinstance(one, Output) else "tensor"
            shape = one.shape if isinstance(one.shape, str) else "by its arguments"
            yield code(one.name), kind, "optional" if one.optional else f"`{shape}`", one.help


def check_rows(operator: Operator) -> Iterable[tuple[object, ...]]:
    """Yield a row for every check, in the product's order."""
    for place, check in enumerate(operator.checks, 1):
        described = check if inspect.isfunction(check) else type(check)
        text = (
            (inspect.getdoc(described) or "").split("\n\n")[0].replace("``", "`").replace("\n", " ")
        )
        names = (
            [field.name for field in dataclasses.fields(check)]
            if dataclasses.is_dataclass(check)
            else []
        )
        facts = {
            name: getattr(check, name)
            for name in names
            if name not in ("status", "words", "documented")
        }
        shown = {
            name: value
            for name, value in facts.items()
            if isinstance(value, str | int | tuple) and value not in ("", ())
        }
        yield place, text, "; ".join(f"{name} `{value}`" for name, value in shown.items())


def default_plan(operator: Operator) -> Plan:
    """Return the plan of the default call on the first product that has the operator."""
    call = operator.call(operator.defaults())
    return npu_sim.plan(operator.name, product=first_product(operator), **call)


def first_product(operator: Operator) -> str:
    """Return Atlas A2 when it has the operator, or else the first product that does."""
    having = [name for name in shipped_products() if operator.supported_by(load_profile(name))]
    return "atlas_a2" if "atlas_a2" in having else having[0]


def product_rows(operator: Operator) -> Iterable[tuple[object, ...]]:
    """Yield every product with what it takes."""
    for name in shipped_products():
        profile: Profile = load_profile(name)
        if operator.supported_by(profile):
            limits = ", ".join(
                f"{limit} {value}"
                for limit, value in profile.documented_limits(operator.name).items()
            )
            yield code(name), profile.product.title, limits


def release_rows(operator: Operator) -> Iterable[tuple[object, ...]]:
    """Yield the switches of the releases with their values."""
    table_of = release_table()
    for name, switch in table_of.switches.get(operator.name, {}).items():
        yield (
            code(name),
            switch.help,
            *(table_of.values(release, operator.name)[name] for release in table_of.releases),
        )


def page(operator: Operator) -> str:
    """Return the page of an operator."""
    plan = default_plan(operator)
    releases = tuple(release_table().releases)
    shown = textwrap.dedent(str(plan))
    parts = [
        f"# {operator.title}\n\n{operator.summary}\n\n"
        "<!-- Written by docs/operator_pages.py from the operator's declaration. -->\n",
        section("Products", table(("product", "", "documented limits"), product_rows(operator))),
        section(
            "Arguments",
            table(("argument", "kind", "", "what it is"), argument_rows(operator)),
            AXES,
        ),
        section(
            "Contract",
            "Checked in this order; the first that fails answers.",
            table(("", "check", "of"), check_rows(operator)),
        ),
        section(
            "A call",
            f"```sh\n{plan_command(plan, first_product(operator))}\n```",
            f"```text\n{shown}\n```",
        ),
        section(
            "Paths",
            "What decides, for this call:",
            table(("decision", "condition", "here"), decision_rows(plan)),
        ),
        section("Buffers", table(("memory", "buffer", "bytes"), buffer_rows(plan))),
        section("Order", table(("output", "order", "why"), order_rows(plan))),
        section("Tiling", table(("field", "vendor's name", "what it is"), field_rows(operator))),
        section("Releases", table(("switch", "what it says", *releases), release_rows(operator))),
        section("Caveats", table(("npu-sim caveats", "what happens"), caveat_rows(operator))),
        section(
            "How sure it is",
            f"Evidence of this call: **{plan.evidence.value}**. [What that means](../how_sure.md).",
        ),
    ]
    return "\n".join(part for part in parts if part)


AXES = (
    "`name*` stands for any number of axes, `name+` for at least one, "
    "`1name` for axes of size 1, `?` for one that may be missing."
)


def decision_rows(plan: Plan) -> Iterable[tuple[object, ...]]:
    """Yield the conditions that the planner asked."""
    for one in plan.decisions:
        yield one.name, code(one.condition), f"{'yes' if one.outcome else 'no'}: {one.effect}"


def buffer_rows(plan: Plan) -> Iterable[tuple[object, ...]]:
    """Yield every buffer of a core."""
    for memory in plan.memories:
        for one in memory.allocations:
            yield f"{memory.name}{f', {memory.phase}' if memory.phase else ''}", one.name, one.bytes


def order_rows(plan: Plan) -> Iterable[tuple[object, ...]]:
    """Yield what is known of the order of every output."""
    for one in plan.order:
        yield code(one.output), "fixed" if one.fixed else "depends on timing", one.reason


def field_rows(operator: Operator) -> Iterable[tuple[object, ...]]:
    """Yield the fields of the tiling."""
    for one in tiling_fields(operator.tiling):
        yield code(one.name), code(one.field.vendor), one.field.help


def caveat_rows(operator: Operator) -> Iterable[tuple[object, ...]]:
    """Yield the documented caveats."""
    for one in (
        import_module(f"{caveats.__name__}.{operator.name}").CAVEATS
        if find_spec(f"{caveats.__name__}.{operator.name}")
        else ()
    ):
        yield code(one.name), one.title


def main() -> None:
    """Write every page."""
    os.environ["COLUMNS"] = WIDTH
    PAGES.mkdir(exist_ok=True)
    for entry in OPERATORS:
        operator = load_operator(entry.name)
        try:
            (PAGES / f"{operator.name}.md").write_text(page(operator), encoding="utf-8")
        except AclnnError as error:
            raise SystemExit(f"{operator.name}: {error}") from error


if __name__ == "__main__":
    main()
