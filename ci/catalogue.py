"""Keep the gettext catalogue of Chinese texts in step with the code.

``python ci/catalogue.py`` reports what is missing; ``--write`` updates ``zh.po`` with Babel.
Translations are written into ``zh.po`` by hand; ``ci/build_catalogue.py`` compiles them.

Extraction takes the templates of ``Text``, ``say`` and errors, docstrings of commands and of the
parameters that are their options, and every other string literal that reads like a sentence, unless
``ci/not_shown.txt`` lists it: a new message without a translation fails the test. Single words are
entries when ``zh.po`` has them. An f-string that reads like a sentence is an error, because it has
no template to look up.
"""

import argparse
import ast
import re
import string
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from babel.messages.catalog import Catalog
from babel.messages.pofile import read_po, write_po

from npu_sim.language.text import PUNCTUATION

ROOT = Path(__file__).resolve().parents[1]
LANGUAGE = ROOT / "npu_sim/language"
NOT_SHOWN = ROOT / "ci/not_shown.txt"
FOR_DEVICES = ROOT / "npu_sim/tools/device_kit/run_on_device.py"
"""Runs on a device without npu_sim, in English."""
KEYWORDS = ("Text", "say")
SEPARATORS = (*PUNCTUATION, " and ", " or ", "; or ")
"""Separators of `npu_sim.language.joined`."""
DATE = datetime(2026, 1, 1, tzinfo=UTC)
"""Date in the header: a catalogue depends on its texts alone."""
WORD = re.compile(r"[A-Za-z][a-z]+")

THREE_WORDS = re.compile(r"(?<![\w.{])[a-z]{2,} [a-z]{2,} [a-z]{2,}(?![\w.(}])")
"""What an f-string holds that is prose, not code."""
PATTERN = re.compile(r"\(\?|\\[bdsw(\[.]|\[[^\]]*\][*+?{]")
"""What only regular expressions contain; nobody reads them."""


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


def found_in(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the texts of a file with their kinds: template, literal or f-string."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    seen = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(returns=ast.Constant(None)) if node.name.endswith("_command"):
                yield "template", " ".join((ast.get_docstring(node) or "").split())
            case ast.Call(ast.Name("AclnnError" | "UsageError"), texts, fields) if fields:
                for argument in texts:
                    match argument:
                        case ast.Constant(str(template)) if "{" in template:
                            seen.add(id(argument))
                            yield "template", template
            case ast.Call(ast.Name(name), [ast.Constant(str(template)) as argument, *_]):
                if name in KEYWORDS:
                    seen.add(id(argument))
                    yield "template", template
            case ast.JoinedStr(values):
                seen |= {id(value) for value in values}
                yield "f-string", f_string(node)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in seen:
            yield "literal", node.value


def one_line(text: str) -> str:
    """Return a text as one line of a list."""
    return text.strip(" ").replace("\n", "\\n")


def not_shown() -> set[str]:
    """Return the literals that read like sentences and are shown to nobody."""
    return set(NOT_SHOWN.read_text(encoding="utf-8").splitlines())


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


def extracted() -> tuple[dict[str, set[str]], list[str], set[str]]:
    """Return the texts of the code by file, f-strings that should be texts, and all literals."""
    hidden, entries = not_shown(), known()
    texts: dict[str, set[str]] = {separator: {"separator"} for separator in SEPARATORS}
    mistakes, literals = [], set()
    for path in sorted({*(ROOT / "npu_sim").rglob("*.py")} - {FOR_DEVICES}):
        name = path.relative_to(ROOT).as_posix()
        for kind, text in found_in(path):
            literals.add(one_line(text))
            if kind == "f-string":
                is_prose = THREE_WORDS.search(text) and not PATTERN.search(text)
                if is_prose and one_line(text) not in hidden:
                    mistakes.append(f"{name}: an f-string, not a Text: {text!r}")
            elif (kind == "template" and has_letters(text)) or (
                one_line(text) not in hidden and text and (is_sentence(text) or text in entries)
            ):
                texts.setdefault(text, set()).add(name)
    for text in helps():
        texts.setdefault(text, set()).add("npu_sim/cli")
    shown = re.compile("^(title|rules_source|    clock_doubt): (.*?)(?:  +#.*)?$", re.M)
    for path in sorted((ROOT / "configs").glob("*_*.yaml")):
        for key, text in shown.findall(path.read_text(encoding="utf-8")):
            if key != "title" or text in entries:
                texts.setdefault(text, set()).add(path.relative_to(ROOT).as_posix())
    return texts, mistakes, literals


def fields(template: str) -> set[str]:
    """Return the names of the fields of a template."""
    return {name for _, name, _, _ in parsed(template) if name is not None}


def problems() -> list[str]:
    """Return what is wrong with the catalogue, a line each."""
    texts, found, literals = extracted()
    entries = {str(message.id): str(message.string) for message in known() if message.id}
    found += [
        f"not translated: {text!r} ({', '.join(sorted(files))})"
        for text, files in texts.items()
        if not entries.get(text)
    ]
    found += [f"no longer in the code: {text!r}" for text in entries if text not in texts]
    found += [
        f"no longer in the code, but in {NOT_SHOWN.name}: {text!r}"
        for text in not_shown()
        if text not in literals
    ]
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
    texts, _, _ = extracted()
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
