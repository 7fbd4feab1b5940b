"""The house as a whole: no circles of files, arrows by name go down too, files that can be read at one sitting.

`lint-imports` checks the arrows between rooms that are imports (pyproject.toml, ``[tool.importlinter]``).
"""

import ast
import re
import tomllib
from pathlib import Path

import npu_sim
from npu_sim.registry import OPERATORS

PACKAGE = Path(npu_sim.__file__).parent
PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"
FILES = {".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__"): path for path in PACKAGE.rglob("*.py")}
MODULES = {name: path for name, path in FILES.items() if path.name != "__init__.py"}
TREES = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in FILES.items()}

MOST_LINES = 300
MOST_IN_THE_ROOT = 9

UPWARDS = {
    ("npu_sim.plans.printing", "show"): "the one hook by which an answer is printed",
    ("npu_sim.registry", "operators"): "the place of the declarations, and the entry point group of the same name",
}
"""Modules that name a room above their own in a text, and why."""

SPEAKS_OF_OPERATORS = {
    "npu_sim.registry": "the list of operators",
    "npu_sim.cli.demo": "the demonstration of one operator",
    "npu_sim.cli.preflight": "an example in the help",
}
"""Modules of no operator that name one, and why."""


def imported(name):
    """Modules that a module imports, inside functions and for type checkers too: a reader has to follow them all."""
    found = set()
    package = name.rpartition(".")[0]
    for node in ast.walk(TREES[name]):
        if isinstance(node, ast.Import):
            found.update(one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *filter(None, [node.module])])
            found.update({base, *(f"{base}.{one.name}" for one in node.names)})
    return found & MODULES.keys() - {name}


def circles():
    """Groups of modules each of which leads to all others."""
    reached = {name: imported(name) for name in MODULES}
    for middle in reached:
        for name in reached:
            if middle in reached[name]:
                reached[name] = reached[name] | reached[middle]
    return {tuple(sorted(other for other in reached[name] if name in reached[other])) for name in reached if name in reached[name]}


def test_no_circles_of_files():
    assert circles() == set()


def test_files_can_be_read_at_one_sitting():
    lengths = {name: len(path.read_text(encoding="utf-8").splitlines()) for name, path in FILES.items()}
    assert {name for name, lines in lengths.items() if lines > MOST_LINES} == set()


def test_the_root_holds_little():
    assert len(list(PACKAGE.glob("*.py"))) <= MOST_IN_THE_ROOT


def levels():
    """The level of every room, 0 at the top, as the contract in pyproject.toml has them."""
    contract = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"][0]
    return {room.strip(): level for level, line in enumerate(contract["layers"]) for room in re.split("[|:]", line)}


def rooms_named_in_texts(name):
    """Rooms in texts that are the name of a module, or its beginning: what a module may load by name."""
    texts = (node.value for node in ast.walk(TREES[name]) if isinstance(node, ast.Constant) and isinstance(node.value, str))
    return {text.split(".")[1] for text in texts if re.fullmatch(r"npu_sim(\.\w+)+\.?", text)}


def test_arrows_by_name_go_down_too():
    level = levels()
    found = {
        (name, named)
        for name in FILES.keys() - {"npu_sim"}
        for named in rooms_named_in_texts(name)
        if named in level and level[named] < level[name.split(".")[1]]
    }
    assert found == UPWARDS.keys()


def texts_outside_docstrings(tree):
    """Strings and names in code."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            node.value = ast.Constant(0)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.Name | ast.Attribute):
            yield node.id if isinstance(node, ast.Name) else node.attr


def test_no_generic_module_asks_for_an_operator_by_name():
    words = {word for entry in OPERATORS for word in (entry.name, entry.title, *entry.kernels)}
    own = {entry.name.removesuffix("_grad").removesuffix("_backward") for entry in OPERATORS}
    generic = {name: path for name, path in FILES.items() if not any(one in name.rpartition(".")[2] for one in own)}
    trees = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in generic.items()}
    speaking = {name for name, tree in trees.items() if any(word in text for text in texts_outside_docstrings(tree) for word in words)}
    assert speaking == SPEAKS_OF_OPERATORS.keys()
