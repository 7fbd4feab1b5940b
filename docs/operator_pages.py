"""Generate the pages of operators and of releases' differences: ``python docs/operator_pages.py``.

A test checks that the pages are up to date, and runs their commands.
"""

import dataclasses
import inspect
import os
import re
import textwrap
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import npu_sim
from npu_sim.cores import (
    Profile,
    is_older,
    load_profile,
    release_names,
    release_table,
    shipped_products,
)
from npu_sim.framework.arguments import REQUIRED, Attribute, Output, Tensor
from npu_sim.framework.checks import Dtypes
from npu_sim.framework.inference import call_with
from npu_sim.framework.operator import OPEN_RULES, Operator
from npu_sim.language import grouped
from npu_sim.operators.loading import load_operator
from npu_sim.plans.model import Plan
from npu_sim.questions.varied_calls import operators_of
from npu_sim.registry import OPERATORS
from npu_sim.show.text import plan_command
from npu_sim.status import AclnnError, NotModelledError
from npu_sim.studies.caveats import caveats_of
from npu_sim.tiling.common import table as tiling_fields

WIDTH = "100"
"""Terminal width for the output of commands, also used by the tests of pages."""
PARAMETERS = {"blames": "argument"}
"""Titles of fields of checks, where they differ from the names."""
PAGES = Path(__file__).parent / "operators"


def table(headings: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> str:
    """Return a table in Markdown, or an empty string when it has no rows.

    References to specification pages, which are not in the repository, are left out.
    """
    texts = [[re.sub(r" \(page[^)]*\)", "", str(cell)) for cell in row] for row in rows]
    body = [[text.replace("|", "\\|").replace("\n", " ") for text in row] for row in texts]
    lines = [headings, ["---"] * len(headings), *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n" if body else ""


def section(title: str, *parts: str) -> str:
    """Return a section, or an empty string when all its parts are empty."""
    filled = [part.strip() for part in parts if part.strip()]
    return f"## {title}\n\n" + "\n\n".join(filled) + "\n" if filled else ""


def code(text: object) -> str:
    """Return a text as inline code; an empty string for an empty text or None."""
    return f"`{text}`" if text not in ("", None) else ""


def wrapped(command: str) -> str:
    """Return a shell command, broken before options into lines of at most ``WIDTH`` columns."""
    lines = [""]
    for part in command.replace(" --", "\n--").split("\n"):
        if lines[-1] and len(f"{lines[-1]} {part} \\") > int(WIDTH):
            lines.append("   ")
        lines[-1] = f"{lines[-1]} {part}" if lines[-1] else part
    return " \\\n".join(lines)


def argument_rows(operator: Operator) -> Iterable[tuple[object, ...]]:
    """Yield a row for every argument, in the order of the call."""
    for argument in operator.arguments:
        name = code(argument.name)
        if isinstance(argument, Attribute):
            required = argument.default is REQUIRED
            default = "required" if required else f"default `{argument.default}`"
            yield name, argument.kind.__name__, default, argument.help
        else:
            assert isinstance(argument, Tensor)
            kind = "output" if isinstance(argument, Output) else "tensor"
            pattern = argument.shape if isinstance(argument.shape, str) else "by its arguments"
            shape = "optional" if argument.optional else code(pattern)
            result = argument.output if isinstance(argument, Output) else argument.name
            other = f"; in results {code(result)}" if result != argument.name else ""
            yield name, kind, shape, f"{argument.help}{other}"


def check_rows(operator: Operator) -> Iterable[tuple[object, ...]]:
    """Yield a row for every check, in the order in which they run.

    Allowed dtypes that depend on the product are those of the first product.
    """
    profile = load_profile(product_of(operator))
    for place, check in enumerate(operator.checks, 1):
        function = check.func if isinstance(check, partial) else check
        documented = function if inspect.isfunction(function) else type(function)
        summary = (inspect.getdoc(documented) or "").split("\n\n")[0]
        fields = dataclasses.fields(check) if dataclasses.is_dataclass(check) else ()
        values = {field.name: getattr(check, field.name) for field in fields}
        if isinstance(check, partial) and "status" in check.keywords:
            values["status"] = check.keywords["status"]
        if isinstance(check, Dtypes) and callable(check.allowed):
            values["allowed"] = tuple(check.allowed(profile))
        elif isinstance(check, Dtypes) and not check.allowed:
            values["allowed"] = operator.dtypes_of(check.tensors.split()[0])
        shown = [
            f"{PARAMETERS.get(name, name)} `{', '.join(value) if type(value) is tuple else value}`"
            for name, value in values.items()
            if name not in ("status", "words", "documented")
            and isinstance(value, str | int | tuple)
            and value not in ("", ())
        ]
        if "status" in values:
            summary = f"{summary.rstrip('.')}: {int(values['status'])}."
        yield place, summary.replace("``", "`").replace("\n", " "), "; ".join(shown)


def default_plan(operator: Operator) -> Plan:
    """Return the plan of the default call on the first product that a declaration serves."""
    call = call_with(operator, operator.defaults())
    return npu_sim.plan(operator.name, product=product_of(operator), **call)


def product_of(operator: Operator) -> str:
    """Return Atlas A2 if the declaration serves it, else the first product that it serves."""
    names = [name for name in shipped_products() if declaration_on(operator, name) is operator]
    return "atlas_a2" if "atlas_a2" in names else names[0]


def declaration_on(operator: Operator, product: str) -> Operator | None:
    """Return the declaration that serves a product; None without one."""
    profile = load_profile(product)
    try:
        return operator.on(profile) if operator.supported_by(profile) else None
    except NotModelledError:
        return None


def other_declarations(operator: Operator) -> Iterable[Operator]:
    """Yield the declarations for other architectures than that of the page."""
    for declared in dict.fromkeys(declaration_on(operator, name) for name in shipped_products()):
        if declared is not None and declared is not operator:
            yield declared


def product_rows(operator: Operator) -> Iterable[tuple[object, ...]]:
    """Yield a row for every product that supports the operator, with its documented limits.

    A product on which it is not modelled, or not at the default release, has the reason instead.
    """
    for name in shipped_products():
        profile: Profile = load_profile(name)
        product = profile.product
        if operator.name in product.not_modelled or operator.supported_by(profile):
            stated = profile.documented_limits(operator.name).items()
            limits = ", ".join(f"{limit} {value}" for limit, value in stated)
            yield code(name), product.title, not_modelled_reason(operator, profile) or limits


def not_modelled_reason(operator: Operator, profile: Profile) -> str:
    """Return why an operator is not modelled on a product at the default release, or nothing."""
    product = profile.product
    if operator.name in product.not_modelled:
        return f"not modelled: {product.not_modelled[operator.name]}"
    if profile.family in operator.families_not_modelled:
        return "not modelled yet"
    if is_older(profile.release, product.oldest_release):
        return f"modelled from release {product.oldest_release} on"
    return ""


def release_rows(operator: Operator) -> Iterable[tuple[object, ...]]:
    """Yield a row for every switch and the products on which its values differ by release.

    A product has no value at releases before the first that is known for it.
    """
    releases = release_table()
    profiles = [load_profile(name) for name in shipped_products()]
    for name, switch in releases.switches.get(operator.name, {}).items():
        values = (
            (tuple(values_on(profile, operator, name)), profile.name)
            for profile in profiles
            if operator.name in operators_of(profile)[0]
        )
        for row, products in grouped(values).items():
            if len({value for value in row if value != "-"}) > 1:
                help = f"{switch.help}; bits: {switch.bits}" if switch.bits else switch.help
                yield code(name), help, ", ".join(map(code, products)), *row


def values_on(profile: Profile, operator: Operator, switch: str) -> Iterable[object]:
    """Yield the value of a switch at every release of a product."""
    for release in release_names():
        known = not is_older(release, profile.product.oldest_release)
        at = profile.with_release(release)
        yield at.release_switches(operator.name)[switch] if known else "-"


RELEASE_HEADINGS = ("switch", "what differs", "products", *release_names())
RELEASES = Path(__file__).parent / "release_table.md"


def release_page() -> str:
    """Return the page of all differences between releases."""
    known = (
        (
            code(name),
            *(
                "-" if is_older(one, load_profile(name).product.oldest_release) else "yes"
                for one in release_names()
            ),
        )
        for name in shipped_products()
    )
    operators = [load_operator(entry.name) for entry in OPERATORS]
    parts = [
        "# What differs between releases\n\n"
        "Every fact of an operator that depends on the release, on the products where it does, "
        "with its value at each release; behind `bits`, what of a result can differ. A dash: the "
        "rules of that release are not known for the product. Operators without a section are "
        "alike at all releases. [Releases](releases.md) says what each stands for, and `npu-sim "
        "diff OPERATOR ... --releases` what an upgrade changes in one call.\n\n"
        "<!-- Written by docs/operator_pages.py from configs/releases.yaml. -->\n",
        section("Products", table(("product", *release_names()), known)),
        *(section(one.title, table(RELEASE_HEADINGS, release_rows(one))) for one in operators),
    ]
    return "\n".join(part for part in parts if part)


def page(operator: Operator) -> str:
    """Return the page of an operator."""
    plan = default_plan(operator)
    parts = [
        f"# {operator.title}\n\n{operator.summary}\n\n"
        "<!-- Written by docs/operator_pages.py from the operator's declaration. -->\n",
        section("Products", table(("product", "", "documented limits"), product_rows(operator))),
        section(
            "Arguments",
            table(("argument", "kind", "", "description"), argument_rows(operator)),
            AXES,
        ),
        section(
            "Contract",
            "The checks run in this order; the first that fails determines the status. Dtypes are "
            f"those of `{product_of(operator)}`.",
            table(("", "check", "parameters"), check_rows(operator)),
        ),
        *call_sections(operator, plan),
        section("Releases", table(RELEASE_HEADINGS, release_rows(operator))),
        section("Caveats", table(("caveat", "summary"), caveat_rows(operator))),
        section(
            "Evidence",
            f"Evidence of this call: **{plan.evidence.value}** ([definition](../how_sure.md))."
            + open_rules(operator),
        ),
        *(other_part(operator, declared) for declared in other_declarations(operator)),
    ]
    return "\n".join(part for part in parts if part)


def open_rules(operator: Operator) -> str:
    """Return a link to the unpublished parts of the arithmetic, if there are any."""
    if not operator.has_hook(OPEN_RULES):
        return ""
    page = "../jobs/accuracy_alarm.md#what-is-not-decided"
    return f" Parts of its arithmetic that are not published: [what is not decided]({page})."


def call_sections(operator: Operator, plan: Plan) -> tuple[str, ...]:
    """Return the sections about the default call."""
    shown = textwrap.dedent(str(plan))
    return (
        section(
            "A call",
            f"```sh\n{wrapped(plan_command(plan, product_of(operator)))}\n```",
            f"```text\n{shown}\n```",
        ),
        section(
            "Paths",
            "The conditions that select the path, with their outcome for this call:",
            table(("decision", "condition", "outcome"), decision_rows(plan)),
        ),
        section("Buffers", table(("memory", "buffer", "bytes"), buffer_rows(plan))),
        section("Order", table(("output", "order", "reason"), order_rows(plan))),
        section("Tiling", table(("field", "vendor's name", "description"), field_rows(operator))),
    )


def other_part(operator: Operator, declared: Operator) -> str:
    """Return the part of the page about another architecture; its sections are one level lower."""
    plan = default_plan(declared)
    contract = (
        section(
            "Contract",
            f"Dtypes are those of `{product_of(declared)}`.",
            table(("", "check", "parameters"), check_rows(declared)),
        )
        if declared.checks != operator.checks
        else section("Contract", "As above; dtypes are those of the product.")
    )
    evidence = section(
        "Evidence",
        f"Evidence of this call: **{plan.evidence.value}** ([definition](../how_sure.md)); "
        f"{plan.rules_source}.",
    )
    parts = (contract, *call_sections(declared, plan), evidence)
    sections = "\n".join(part for part in parts if part)
    return f"## {plan.product_title}\n\n" + re.sub("^## ", "### ", sections, flags=re.M)


AXES = (
    "In shapes, `name*` is any number of axes, `name+` one or more, and `name~` as many elements "
    "in any shape. `1name` is an axis of size 1 for every axis of `name`; `1name?` allows fewer."
)


def decision_rows(plan: Plan) -> Iterable[tuple[object, ...]]:
    """Yield a row for every condition that the planner tested."""
    for decision in plan.decisions:
        outcome = f"{'yes' if decision.outcome else 'no'}: {decision.effect}"
        yield decision.name, code(decision.condition), outcome


def buffer_rows(plan: Plan) -> Iterable[tuple[object, ...]]:
    """Yield a row for every buffer of a core."""
    for memory in plan.memories:
        title = f"{memory.name}, {memory.phase}" if memory.phase else memory.name
        for allocation in memory.allocations:
            yield title, allocation.name, allocation.bytes


def order_rows(plan: Plan) -> Iterable[tuple[object, ...]]:
    """Yield a row for the accumulation order of every output."""
    for order in plan.order:
        yield code(order.output), "fixed" if order.fixed else "depends on timing", order.reason


def field_rows(operator: Operator) -> Iterable[tuple[object, ...]]:
    """Yield a row for every field of the tiling."""
    for entry in tiling_fields(operator.tiling):
        yield code(entry.name), code(entry.field.vendor), entry.field.help


def caveat_rows(operator: Operator) -> Iterable[tuple[object, ...]]:
    """Yield a row for every documented caveat."""
    for caveat in caveats_of(operator.package):
        yield code(caveat.name), caveat.title


def main() -> None:
    """Write every page."""
    os.environ["COLUMNS"] = WIDTH
    RELEASES.write_text(release_page(), encoding="utf-8")
    PAGES.mkdir(exist_ok=True)
    for entry in OPERATORS:
        operator = load_operator(entry.name)
        try:
            (PAGES / f"{operator.name}.md").write_text(page(operator), encoding="utf-8")
        except AclnnError as error:
            raise SystemExit(f"{operator.name}: {error}") from error


if __name__ == "__main__":
    main()
