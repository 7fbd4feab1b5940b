"""Keep the catalogue of Chinese texts in step with the code: ``python ci/catalogue.py`` reports, ``--write`` adds and removes entries.

A text of the code is a string literal of two words or more that is no docstring; f-strings become templates with named holes. Single words
(labels of lines, headings of tables) are kept when the code holds them as a literal. Texts that nobody is shown stand in ``NOT_SHOWN``.
"""

import argparse
import ast
import itertools
import re
import string
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import polib

from npu_sim.language.template import Template

ROOT = Path(__file__).resolve().parents[1]
CATALOGUE = ROOT / "npu_sim/language/zh.po"
NOT_SHOWN = ROOT / "ci/not_shown.txt"
WORD = re.compile(r"[A-Za-z][a-z]+")


def base_name(expression: ast.expr) -> str:
    """Return what a hole is called: the name in its expression that says most."""
    match expression:
        case ast.Name(name) | ast.Attribute(_, name):
            return name.strip("_")
        case ast.Call(ast.Attribute(_, "join"), [argument, *_]) | ast.Call(
            ast.Name("shown" | "escape" | "len" | "str" | "sorted" | "tuple"), [argument, *_]
        ):
            return base_name(argument)
        case ast.Call(function):
            return base_name(function)
        case (
            ast.Subscript(value)
            | ast.Starred(value)
            | ast.IfExp(_, value)
            | ast.GeneratorExp(value)
            | ast.ListComp(value)
        ):
            return base_name(value)
        case ast.BinOp(left, _, right):
            return base_name(right if isinstance(left, ast.Constant) else left)
    return "value"


def hole_name(expression: ast.expr, taken: set[str]) -> str:
    """Return a name for a hole that no other hole of its text has."""
    name = base_name(expression)
    free = next(
        one
        for one in itertools.chain([name], (f"{name}{number}" for number in itertools.count(2)))
        if one not in taken
    )
    taken.add(free)
    return free


def template(node: ast.JoinedStr) -> str:
    """Return an f-string with named holes."""
    taken: set[str] = set()
    text = ""
    for value in node.values:
        if isinstance(value, ast.Constant):
            text += escaped(str(value.value))
        else:
            assert isinstance(value, ast.FormattedValue)
            text += "{" + hole_name(value.value, taken) + "}"
    return text


def escaped(text: str) -> str:
    """Return a text without holes as a template."""
    return text.replace("{", "{{").replace("}", "}}")


def found_literals(path: Path) -> Iterator[str]:
    """Yield the string literals of a file but its docstrings, as templates."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    passed = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.FunctionDef)
            and node.name.endswith("_command")
            and ast.get_docstring(node)
        ):
            yield escaped(
                " ".join((ast.get_docstring(node) or "").split())
            )  # the help of a command
    for node in ast.walk(tree):
        match node:
            case ast.Call(ast.Name("say" | "Template"), [ast.Constant(str(text)), *_]):
                passed.add(id(node.args[0]))
                yield Template(text).plain
        if isinstance(node, ast.JoinedStr):
            passed |= {id(value) for value in node.values}
            yield template(node)
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in passed
        ):
            yield escaped(node.value)


@cache
def literals(path: Path) -> tuple[str, ...]:
    """Return what :func:`found_literals` finds; a file is read once."""
    return tuple(found_literals(path))


def sentences(text: str) -> bool:
    """Return whether a literal reads like words: two at least, or one beside a hole."""
    plain = re.sub(r"\{[^{}]*\}", "#", text.replace("{{", "").replace("}}", ""))
    return len(WORD.findall(plain)) >= (1 if "#" in plain else 2) and " " in plain.strip()


def not_shown() -> set[str]:
    """Return the texts that nobody is shown."""
    return set(NOT_SHOWN.read_text(encoding="utf-8").splitlines())


def shown_texts() -> dict[str, set[str]]:
    """Return every text of the code that people may read, with the files it stands in."""
    hidden = not_shown()
    found: dict[str, set[str]] = {}
    for path in sorted((ROOT / "npu_sim").rglob("*.py")):
        for text in map(one_line, literals(path)):
            if sentences(text) and text not in hidden:
                found.setdefault(text, set()).add(path.relative_to(ROOT).as_posix())
    return found


def one_line(text: str) -> str:
    """Return a text as one line of a list: no blanks around it, line ends written out."""
    return text.strip(" ").replace("\n", "\\n")


def words() -> set[str]:
    """Return every literal of the code, and the titles of products."""
    titles = re.compile("^title: (.*)$", re.M)
    return {
        *(one_line(text) for path in (ROOT / "npu_sim").rglob("*.py") for text in literals(path)),
        *(
            titles.findall(path.read_text(encoding="utf-8"))[0]
            for path in (ROOT / "configs").glob("atlas_*.yaml")
        ),
    }


def holes(text: str) -> set[str]:
    """Return the names of the holes of a template."""
    return {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}


def faults() -> list[str]:
    """Return what is wrong with the catalogue, a line each: texts without a translation, without a text, or with other holes."""
    entries = {one_line(entry.msgid): entry for entry in polib.pofile(str(CATALOGUE))}
    texts, known = shown_texts(), words()
    missing = [
        f"not translated: {text!r} ({', '.join(sorted(files))})"
        for text, files in texts.items()
        if text not in entries or not entries[text].msgstr
    ]
    stale = [
        f"no longer in the code: {text!r}"
        for text in entries
        if text not in texts and text not in known
    ]
    stale += [
        f"no longer in the code, but in {NOT_SHOWN.name}: {text!r}"
        for text in not_shown()
        if text not in known
    ]
    wrong = [
        f"holes that the text does not have: {entry.msgid!r}: {entry.msgstr!r}"
        for entry in entries.values()
        if not holes(entry.msgstr) <= holes(entry.msgid)
    ]
    return missing + stale + wrong


def write() -> None:
    """Add texts without an entry, remove entries without a text, and say in which file each stands."""
    old = (
        {one_line(entry.msgid): entry.msgstr for entry in polib.pofile(str(CATALOGUE))}
        if CATALOGUE.exists()
        else {}
    )
    texts, known = shown_texts(), words()
    catalogue = polib.POFile(wrapwidth=140)
    catalogue.metadata = {
        "Language": "zh_CN",
        "Content-Type": "text/plain; charset=UTF-8",
        "Content-Transfer-Encoding": "8bit",
    }
    ordered = sorted(texts, key=lambda text: (min(texts[text]), text)) + sorted(
        text for text in old if text not in texts and text in known
    )
    for text in ordered:
        comment = min(texts[text]) if text in texts else "word"
        catalogue.append(
            polib.POEntry(
                msgid=text.replace("\\n", "\n"), msgstr=old.get(text, ""), comment=comment
            )
        )
    catalogue.save(str(CATALOGUE))


def main() -> int:
    """Report faults, after writing when asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--write",
        action="store_true",
        help="add and remove entries; translations are written by hand",
    )
    if parser.parse_args().write:
        write()
    found = faults()
    print("\n".join(found) or "every text is translated")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
