"""Keep the gettext catalogue of Chinese texts in step with the code.

``python ci/catalogue.py`` reports what is missing; ``--write`` updates ``zh.po`` with Babel.
Translations are written into ``zh.po`` by hand; ``ci/build_catalogue.py`` compiles them.

Extraction takes what is marked as text: the templates of ``Text``, ``say``, errors and caveats, the
arguments of declarations that people read (``TEXTS``), docstrings of commands and of the parameters
that are their options. A marked text without a translation fails the test. Other literals, such as
labels of lines, are entries when ``zh.po`` has them: a new one is marked by ``Text``. An f-string
that reads like a sentence is an error, because it has no template to look up.
"""

import argparse
import ast
import re
import string
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from babel.messages.catalog import Catalog
from babel.messages.pofile import read_po, write_po

from npu_sim.language.text import PUNCTUATION

ROOT = Path(__file__).resolve().parents[1]
LANGUAGE = ROOT / "npu_sim/language"
FOR_DEVICES = ROOT / "npu_sim/tools/device_kit/run_on_device.py"
"""Runs on a device without npu_sim, in English."""
TEMPLATES = ("Text", "say")
"""Functions whose first argument is a text whatever it looks like."""
TEXTS: dict[str, tuple[int | str, ...]] = {
    "AclnnError": (2, 3),
    "Allocation": ("note",),
    "Argument": ("help",),
    "Assumed": (2,),
    "Attribute": (2,),
    "Axis": (0,),
    "Cause": (0, 2),
    "Chart": (1,),
    "Column": (0,),
    "Condition": (0, 1, 3, 4),
    "Description": ("path_reason", "kernel", "cores_note"),
    "Drawing": (2,),
    "Experiment": (1, 2),
    "Field": (0,),
    "Hook": (2,),
    "Launch": ("note",),
    "Listed": (0, 1),
    "MalformedLineError": (0,),
    "NotModelledError": (1, 2),
    "Number": (1, "unit"),
    "Operator": ("summary", "empty"),
    "OperatorLoadError": (1, 2),
    "Option": ("help",),
    "Output": (2,),
    "OutputOrder": ("reason",),
    "Paragraph": (0,),
    "Part": (1, "help"),
    "Picture": (1,),
    "Program": (1, 2),
    "Refusal": (1,),
    "Section": (0,),
    "Step": (0, 1, 5),
    "Switch": (1,),
    "Tensor": (2,),
    "Tool": ("heading", "summary"),
    "Typer": ("help", "epilog"),
    "UsageError": (1, 2),
    "Word": (1,),
    "WorkspacePart": ("name", "note"),
    "caveat": (2,),
    "not_recognised": (0, 1),
    "translated": (0,),
    "vector_plan": ("path", "path_reason", "per_core", "notes"),
}
"""Positions and names of other arguments that people read, by the name of the callee."""
SEPARATORS = (*PUNCTUATION, " and ", " or ", "; or ")
"""Separators of `npu_sim.language.joined`."""
DATE = datetime(2026, 1, 1, tzinfo=UTC)
"""Date in the header: a catalogue depends on its texts alone."""
WORD = re.compile(r"[A-Za-z][a-z]+")

THREE_WORDS = re.compile(r"(?<![\w.{])[a-z]{2,} [a-z]{2,} [a-z]{2,}(?![\w.(}])")
"""What an f-string holds that is prose, not code."""
PATTERN = re.compile(r"\(\?|\\[bdsw(\[.]|\[[^\]]*\][*+?{]")
"""What only regular expressions contain; nobody reads them."""
CODE = re.compile(rf"^    |{PATTERN.pattern}")
"""What only regular expressions and generated code contain."""


def is_sentence(text: str) -> bool:
    """Return whether a literal reads like a sentence: two words, or one beside a field."""
    if PATTERN.search(text):
        return False
    plain = re.sub(r"\{[^{}]*\}", "#", text)
    return len(WORD.findall(plain)) >= (1 if "#" in plain else 2) and " " in plain.strip()


def has_letters(template: str) -> bool:
    """Return whether a template has text of its own."""
    return any(letter.isalpha() for literal, *_ in parsed(template) for letter in literal)


def parsed(template: str) -> list[tuple[str, str | None, str | None, str | None]]:
    """Return the parts of a template; one that is not a format string is a literal."""
    try:
        return list(string.Formatter().parse(template))
    except ValueError:
        return [(template, None, None, None)]


def f_string(node: ast.JoinedStr) -> str:
    """Return an f-string, its expressions left out."""
    return "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)


def marked(call: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    """Yield the arguments of a call that are marked as text, with their kinds."""
    match call.func:
        case ast.Name(name) | ast.Attribute(_, name):
            is_template = name in TEMPLATES
            for position, argument in enumerate(call.args):
                if is_template or position in TEXTS.get(name, ()):
                    yield "template" if is_template else "text", argument
            for keyword in call.keywords:
                if is_template or keyword.arg in TEXTS.get(name, ()):
                    yield "text", keyword.value


def literals(node: ast.expr) -> Iterator[ast.Constant]:
    """Yield the strings that an expression is made of: alternatives, elements and values."""
    match node:
        case ast.Constant(str()):
            yield node
        case ast.IfExp(_, first, second) | ast.BinOp(first, ast.Add(), second):
            yield from (*literals(first), *literals(second))
        case ast.BoolOp(_, parts) | ast.Tuple(parts) | ast.List(parts) | ast.Dict(_, parts):
            for part in parts:
                yield from literals(part)
        case ast.Starred(part):
            yield from literals(part)


def found_in(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the texts of a file with their kinds: template, text, other literal or f-string."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    seen = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(returns=ast.Constant(None)) if node.name.endswith("_command"):
                yield "template", " ".join((ast.get_docstring(node) or "").split())
            case ast.Call():
                for kind, argument in marked(node):
                    for literal in literals(argument):
                        seen.add(id(literal))
                        yield kind, literal.value
            case ast.Assert(_, ast.JoinedStr() as message):  # for developers
                seen.add(id(message))
            case ast.JoinedStr(values) if id(node) not in seen:
                seen |= {id(value) for value in values}
                yield "f-string", f_string(node)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in seen:
            yield "literal", node.value


def known() -> Catalog:
    """Return the catalogue as it is."""
    with (LANGUAGE / "zh.po").open("rb") as file:
        return read_po(file, locale="zh_CN", domain="npu_sim")


def helps() -> Iterator[str]:
    """Yield the help of every option of a command, that of docstrings too."""
    from npu_sim.cli.app import command_names, handler_of
    from npu_sim.cli.options import COMMANDS, option_helps

    for name in command_names():
        handler_of(name)  # registers itself
    for handler in COMMANDS:
        yield from filter(str.strip, option_helps(handler))


def extracted() -> tuple[dict[str, set[str]], list[str]]:
    """Return the texts of the code by file, and f-strings that should be texts."""
    entries = known()
    texts: dict[str, set[str]] = {separator: {"separator"} for separator in SEPARATORS}
    mistakes = []
    for path in sorted({*(ROOT / "npu_sim").rglob("*.py")} - {FOR_DEVICES}):
        name = path.relative_to(ROOT).as_posix()
        for kind, text in found_in(path):
            if kind == "f-string":
                if THREE_WORDS.search(text) and not CODE.search(text):
                    mistakes.append(f"{name}: an f-string, not a Text: {text!r}")
            elif (
                (kind == "template" and has_letters(text))
                or (kind == "text" and is_sentence(text))
                or (text and text in entries)
            ):
                texts.setdefault(text, set()).add(name)
    for text in helps():
        texts.setdefault(text, set()).add("npu_sim/cli")
    for path in sorted((ROOT / "configs").glob("*_*.yaml")):
        for text in texts_of(yaml.safe_load(path.read_text(encoding="utf-8")), entries):
            texts.setdefault(text, set()).add(path.relative_to(ROOT).as_posix())
    releases = yaml.safe_load((ROOT / "configs/releases.yaml").read_text(encoding="utf-8"))
    for text in texts_of_releases(releases):
        texts.setdefault(text, set()).add("configs/releases.yaml")
    return texts, mistakes


def texts_of_releases(table: dict[str, Any]) -> Iterator[str]:
    """Yield what people read of the releases: assumptions, and bits that differ."""
    for assumptions in table["assumed"].values():
        yield from assumptions.values()
    for switches in table["switches"].values():
        yield from (switch["bits"] for switch in switches.values() if "bits" in switch)


def texts_of(product: dict[str, Any], entries: Catalog) -> Iterator[str]:
    """Yield what people read of a product file; a title where the catalogue has it."""
    if product["title"] in entries:
        yield product["title"]
    yield from product.get("not_modelled", {}).values()
    shown = (
        (product, "rules_source"),
        *((chip, "clock_doubt") for chip in product["socs"].values()),
    )
    yield from (facts[key] for facts, key in shown if key in (facts or {}))


def fields(template: str) -> set[str]:
    """Return the names of the fields of a template."""
    return {name for _, name, _, _ in parsed(template) if name is not None}


def problems() -> list[str]:
    """Return what is wrong with the catalogue, a line each."""
    texts, found = extracted()
    entries = {str(message.id): str(message.string) for message in known() if message.id}
    found += [
        f"not translated: {text!r} ({', '.join(sorted(files))})"
        for text, files in texts.items()
        if not entries.get(text)
    ]
    found += [f"no longer in the code: {text!r}" for text in entries if text not in texts]
    found += [
        f"fields that the template does not have: {text!r}: {target!r}"
        for text, target in entries.items()
        if not fields(target) <= fields(text)
    ]
    return found


def write() -> None:
    """Update the catalogue from the code. Its order does not depend on where texts stand."""
    old = known()
    new = Catalog(locale="zh_CN", project="npu_sim", creation_date=DATE, fuzzy=False)
    new.revision_date = DATE
    texts, _ = extracted()
    for text in sorted(texts):
        entry = old.get(text)
        new.add(text, entry.string if entry else "")
    with (LANGUAGE / "zh.po").open("wb") as file:
        write_po(file, new, width=100, omit_header=False)


def main() -> int:
    """Report what is wrong, after writing when ``--write`` is given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="update zh.po")
    if parser.parse_args().write:
        write()
    found = problems()
    print("\n".join(found) or "every text is translated")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
