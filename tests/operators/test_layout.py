"""Operators are laid out alike: each has the same modules, and each hook stands in its module."""

import ast
import importlib
from pathlib import Path

import pytest

import npu_sim
from npu_sim.framework import describing, operator
from npu_sim.framework.operator import Hook
from npu_sim.registry import OPERATOR_NAMES

PACKAGE = Path(npu_sim.__file__).parent
MODULES = {"__init__", "declaration", "plan", "compute", "timeline", "study"}
HOOKS = [
    value
    for module in (operator, describing)
    for value in vars(module).values()
    if isinstance(value, Hook)
]
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
    found = {path.stem for path in (PACKAGE / "operators" / name).glob("*.py")}
    assert found - {"ascend_950"} == MODULES


@pytest.mark.parametrize("name", OPERATOR_NAMES)
def test_every_hook_stands_in_its_module(name):
    for module in MODULES:
        defined = set(names_defined(PACKAGE / "operators" / name / f"{module}.py"))
        assert {PLACES[hook] for hook in defined & PLACES.keys()} <= {module}


@pytest.mark.parametrize("name", OPERATOR_NAMES)
def test_a_declaration_of_the_package_gives_no_hooks(name):
    declared = importlib.import_module(f"npu_sim.operators.{name}.declaration").OPERATOR
    assert [hook.name for hook in HOOKS if getattr(declared, hook.name) is not None] == []
