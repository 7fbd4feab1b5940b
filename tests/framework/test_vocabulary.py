"""The vocabularies that operators import: complete, used, and without what a plan does not load."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import npu_sim

PACKAGE = Path(npu_sim.__file__).parent
VOCABULARIES = (
    "npu_sim.framework.vocabulary",
    "npu_sim.timelines",
    "npu_sim.orders",
    "npu_sim.operators.shared.study",
)


def imported_from(module):
    """Names that operators, and the vocabulary of operators of one's own, import from a module."""
    files = [*PACKAGE.glob("operators/**/*.py"), PACKAGE / "declare.py"]
    nodes = (node for file in files for node in ast.walk(ast.parse(file.read_text("utf-8"))))
    return {
        alias.name
        for node in nodes
        if isinstance(node, ast.ImportFrom) and node.module == module
        for alias in node.names
    }


@pytest.mark.parametrize("name", VOCABULARIES)
def test_every_name_of_a_vocabulary_exists_and_is_used(name):
    module = importlib.import_module(name)
    taken = {
        word
        for word in module.__all__
        if getattr(getattr(module, word), "__module__", "") != name  # the others are its own
    }
    assert taken <= imported_from(name)


def test_the_vocabulary_of_plans_loads_no_kernels_timelines_or_studies():
    code = "import sys, npu_sim.framework.vocabulary; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    heavy = ("numba", "npu_sim.kernels", "npu_sim.timelines", "npu_sim.orders", "npu_sim.studies")
    assert not [name for name in loaded if name.startswith(heavy)]
