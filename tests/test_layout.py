"""What stands where: planners, kernels, PyTorch functions and their tests bear operators' names.

docs/architecture.md, "Names of modules", states the rules.
"""

from functools import cache
from pathlib import Path

import pytest

import npu_sim
from npu_sim.registry import ASCEND_950, OPERATORS
from tests.test_architecture import FILES, parsed

PACKAGE = Path(npu_sim.__file__).parent
TESTS = Path(__file__).parent
NAMES = {entry.name for entry in OPERATORS}
ON_950 = {entry.name for entry in OPERATORS if entry.kernels_on(ASCEND_950)}
FORWARD = {name: name.removesuffix("_grad") for name in NAMES}
GRADIENTS = {name for name, forward in FORWARD.items() if name != forward and forward in NAMES}


def modules_of(folder):
    """The names of the modules and packages in a folder."""
    found = {path.stem for path in (PACKAGE / folder).glob("*.py")}
    found |= {path.parent.name for path in (PACKAGE / folder).glob("*/__init__.py")}
    return found - {"__init__"}


def test_every_operator_has_a_planner_of_its_name():
    assert modules_of("tiling") == NAMES | {"common", "ascend_950"}
    assert modules_of("tiling/ascend_950") == ON_950


def test_kernels_bear_the_name_of_an_operator_or_are_shared():
    assert modules_of("kernels") <= NAMES | {"ascend_950", "engine", "shared", "vectors"}
    assert modules_of("kernels/ascend_950") <= ON_950


def test_a_forward_operator_and_its_gradient_are_one_module_of_pytorch():
    assert modules_of("torch/operators") == NAMES - GRADIENTS


@cache
def users_of(module):
    """The operators and the packages of no operator whose modules import a kernel."""
    users = set()
    for name in FILES:
        parts = name.split(".")[1:]
        if any(one == module or one.startswith(f"{module}.") for one in parsed(name)[0]):
            users.add(next((part for part in parts if part in NAMES), ".".join(parts[:-1])))
    return users


@pytest.mark.parametrize("name", sorted(modules_of("kernels") & NAMES))
def test_only_an_operator_uses_the_kernels_of_its_name(name):
    assert users_of(f"npu_sim.kernels.{name}") == {name}


@pytest.mark.parametrize("layer", ["kernels", "operators", "tiling", "torch"])
def test_tests_bear_the_names_of_what_they_test(layer):
    tests = {path.stem.removeprefix("test_") for path in (TESTS / layer).glob("test_*.py")}
    first_words = {name.partition("_")[0] for name in NAMES}
    misnamed = {
        test
        for test in tests
        if test.partition("_")[0] in first_words and not any(map(test.startswith, NAMES))
    }
    assert misnamed == set()


@pytest.mark.parametrize("layer", ["kernels", "operators", "tiling"])
def test_modules_of_operators_have_tests_of_their_names(layer):
    tests = {path.stem for path in (TESTS / layer).glob("test_*.py")}
    for name in modules_of(layer) & NAMES:
        assert tests & {f"test_{name}", f"test_{FORWARD[name]}"}, name
