"""Operators are laid out alike: each has the same modules, and each hook stands in its module."""

import ast
import importlib
from pathlib import Path

import pytest

import npu_sim
from npu_sim.framework import describing, operator
from npu_sim.framework.operator import Hook
from npu_sim.operators.loading import load_operator
from npu_sim.registry import OPERATOR_NAMES

PACKAGE = Path(npu_sim.__file__).parent
MODULES = {"__init__", "declaration", "plan", "compute", "timeline", "study"}
HOOKS = [
    value
    for module in (operator, describing)
    for value in vars(module).values()
    if isinstance(value, Hook)
]
FAMILIES = [(name, family) for name in OPERATOR_NAMES for family in load_operator(name).families]
PLACES = {hook.attribute or hook.name: hook.module for hook in HOOKS} | {"CAVEATS": "study"}
"""Module of every name that other packages look up in the package of an operator."""


def names_defined(path):
    """Names that the statements of a module define, without those that it imports."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            yield node.name
        elif isinstance(node, ast.Assign):
            targets = [name for target in node.targets for name in ast.walk(target)]
            yield from (target.id for target in targets if isinstance(target, ast.Name))


@pytest.mark.parametrize("name", OPERATOR_NAMES)
def test_an_operator_has_these_modules(name):
    folder = PACKAGE / "operators" / name
    assert {path.stem for path in folder.glob("*.py")} == MODULES
    packages = {path.parent.name for path in folder.glob("*/__init__.py")}
    assert packages == set(load_operator(name).families)


@pytest.mark.parametrize(("name", "family"), FAMILIES)
def test_a_family_has_modules_of_the_same_names(name, family):
    found = {path.stem for path in (PACKAGE / "operators" / name / family).glob("*.py")}
    assert {"__init__"} <= found <= MODULES


@pytest.mark.parametrize(("name", "family"), [*((name, "") for name in OPERATOR_NAMES), *FAMILIES])
def test_every_hook_stands_in_its_module(name, family):
    for path in (PACKAGE / "operators" / name / family).glob("*.py"):
        hooks = PLACES.keys() & set(names_defined(path))
        assert {PLACES[hook] for hook in hooks} <= {path.stem}


@pytest.mark.parametrize(("name", "family"), FAMILIES)
def test_a_family_has_the_hooks_that_its_modules_define(name, family):
    declared = load_operator(name).on_family(family)
    for hook in HOOKS:
        path = PACKAGE / "operators" / name / family / f"{hook.module}.py"
        attribute = hook.attribute or hook.name
        if path.exists() and attribute in names_defined(path):
            module = importlib.import_module(f"npu_sim.operators.{name}.{family}.{hook.module}")
            assert operator.find_hook(declared, hook) is getattr(module, attribute)
        if hook.name in declared.absent:
            assert operator.find_hook(declared, hook) is None


@pytest.mark.parametrize("name", OPERATOR_NAMES)
def test_a_declaration_of_the_package_gives_no_hooks(name):
    declared = load_operator(name)
    assert [hook.name for hook in HOOKS if getattr(declared, hook.name) is not None] == []


@pytest.mark.parametrize("name", OPERATOR_NAMES)
def test_an_operator_imports_no_other(name):
    """What several share has a name of its own in ``operators/shared``."""
    others = set(OPERATOR_NAMES) - {name}
    for path in (PACKAGE / "operators" / name).rglob("*.py"):
        nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        imports = [
            f"{node.module}.{alias.name}"
            for node in nodes
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        ]
        assert not others & {
            imported.split(".")[2]
            for imported in imports
            if imported.startswith("npu_sim.operators.")
        }


@pytest.mark.parametrize("path", sorted((PACKAGE / "operators" / "shared").glob("*/*.py")))
def test_what_operators_share_has_modules_of_the_same_names(path):
    assert path.stem in MODULES
