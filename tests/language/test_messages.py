"""A message has one form: the template, and each of its fields by name."""

import ast
from collections import Counter
from pathlib import Path
from string import Formatter

import pytest

ROOT = Path(__file__).parents[2]
TEXTS = {"Text": 0, "say": 0}
ERRORS = {"UsageError": 1, "AclnnError": 2, "NotModelledError": 1, "OperatorLoadError": 1}
"""Position of the first template among the arguments."""
MADE_IN_PLACE = {"Text", "say", "joined", "str", "repr", "format"}
"""Calls that make a sentence of their own."""
FILES = [
    path
    for path in sorted((ROOT / "npu_sim").rglob("*.py"))
    if path.name != "run_on_device.py" and path.parent.name != "language"
]


def callee(node):
    match node:
        case ast.Call(ast.Name(name)) | ast.Call(ast.Attribute(_, name)):
            return name
    return ""


def literals(node):
    """Return the literals of a template, of which a condition may choose one; None otherwise."""
    match node:
        case ast.Constant(str(text)):
            return [text]
        case ast.IfExp(_, first, second):
            parts = literals(first), literals(second)
            return None if None in parts else parts[0] + parts[1]
    return None


def fields_of(template):
    return {
        name.split(".")[0].split("[")[0] for _, name, _, _ in Formatter().parse(template) if name
    }


def templates_of(call):
    name = callee(call)
    return call.args[TEXTS[name] :] if name in TEXTS else call.args[ERRORS[name] :]


def problems(tree):
    """Yield the line and what is wrong with a message there."""
    calls = [node for node in ast.walk(tree) if callee(node) in TEXTS | ERRORS]
    for call in calls:
        templates, given = templates_of(call), {keyword.arg for keyword in call.keywords}
        if callee(call) in TEXTS and len(templates) != 1:
            yield call.lineno, "fields of an object, not by name"
        if callee(call) in ERRORS:
            for template in templates:
                parts = (template.body, template.orelse) if type(template) is ast.IfExp else ()
                for part in parts or (template,):
                    if type(part) in (ast.JoinedStr, ast.BinOp) or callee(part) in MADE_IN_PLACE:
                        yield call.lineno, "a text made in place, not a template"
        texts = [literals(template) for template in templates]
        if None in texts or None in given or not given:
            continue
        wanted = set().union(*(fields_of(text) for found in texts for text in found))
        if wanted != given:
            yield call.lineno, f"fields {sorted(wanted ^ given)} of the template or given alone"
    yield from named_for_one_error(tree)


def named_for_one_error(tree):
    """Yield texts that have a name only for the error that takes them."""
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        names = [node for node in ast.walk(function) if isinstance(node, ast.Name)]
        uses = Counter(node.id for node in names if isinstance(node.ctx, ast.Load))
        made = {
            node.targets[0].id: node.lineno
            for node in ast.walk(function)
            if isinstance(node, ast.Assign)
            and callee(node.value) == "Text"
            and isinstance(node.targets[0], ast.Name)
        }
        for node in ast.walk(function):
            if callee(node) in ERRORS:
                for template in templates_of(node):
                    if isinstance(template, ast.Name) and uses[template.id] == 1:
                        line = made.get(template.id)
                        if line is not None:
                            yield line, "a text with a name for one error, not a template"


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ('Text("{a} of {b}", a=1, b=2)', 0),
        ('Text("{a} of {b}", plan, a=1)', 1),
        ('Text("{a} of {b}", a=1)', 1),
        ('UsageError("x", "{a}", "give {b}", a=1, b=2)', 0),
        ('UsageError("x", "{a}" if a else "none", hint, a=1)', 0),
        ('UsageError("x", Text("{a}", a=1), "hint")', 1),
        ('UsageError("x", f"{a} is not b", "hint")', 1),
        ('UsageError("x", "no " + name, "hint")', 1),
        ('UsageError("x", "{a}", "hint", a=1, b=2)', 1),
        ('def f():\n    text = Text("{a}", a=1)\n    raise UsageError("x", text, "hint")', 1),
    ],
)
def test_the_problems_of_code_are_found(code, found):
    assert len(list(problems(ast.parse(code)))) == found


def test_every_message_has_one_form():
    found = [
        f"{path.relative_to(ROOT)}:{line}: {problem}"
        for path in FILES
        for line, problem in problems(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert found == []
