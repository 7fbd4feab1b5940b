"""Caveats of the product documents as experiments: ``npu-sim caveats NAME``.

An experiment generates small data, runs the simulator, and returns the numbers that show the
effect. The experiments of an operator are ``CAVEATS`` in its module ``study``. Caveats without an
experiment are explained by the sentences with which plans and runs state them.
"""

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from string import Formatter
from typing import NamedTuple

from npu_sim.language import Text
from npu_sim.operators.shared.study import Experiment
from npu_sim.registry import OPERATORS
from npu_sim.status import UsageError, tip


def caveats_of(package: str) -> tuple[Experiment, ...]:
    """Return the experiments of an operator, given the name of its package."""
    home = f"{package}.study"
    if not package or find_spec(home) is None:
        return ()
    return getattr(import_module(home), "CAVEATS", ())


CAVEATS: tuple[Experiment, ...] = tuple(
    caveat for entry in OPERATORS for caveat in caveats_of(f"npu_sim.operators.{entry.name}")
)


class Statement(NamedTuple):
    """A sentence that plans or runs state, as it is written in the code that states it."""

    code: str
    """Code of the caveat; of a family of them with ``*`` for what differs."""
    argument: str
    """Argument that causes it; empty when none does, or when the call decides which."""
    message: Text
    """The sentence; ``<name>`` stands for a number of the call."""
    operator: str
    """Title of the operator; empty for a caveat of several."""

    def is_about(self, code: str) -> bool:
        """Return whether a code is that of the sentence."""
        start, star, end = self.code.partition("*")
        return code.startswith(start) and code.endswith(end) and (star == "*" or code == start)


@cache
def statements() -> tuple[Statement, ...]:
    """Return the sentences of all caveats that plans and runs can state."""
    homes = {
        **{f"npu_sim.operators.{entry.name}": entry.title for entry in OPERATORS},
        "npu_sim.operators.shared": "",
        "npu_sim.framework": "",
    }
    return tuple(
        Statement(code, argument, _with_names(template), title)
        for package, title in homes.items()
        for code, argument, template in _calls(package)
    )


def _calls(package: str) -> Iterator[tuple[str, str, str]]:
    """Yield code, argument and template of every call of ``caveat`` in the modules of a package.

    They are read from the sources, so that a caveat stands once, where a plan or run states it:
    most are stated for rare calls only, and planning would need one of each to list them.
    """
    for path in sorted(Path(str(files(package))).rglob("*.py")):
        module = ast.parse(path.read_text("utf-8"))
        names = dict(_constants(module))
        for node in ast.walk(module):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "caveat":
                code, argument, template = (_literal(part, names) for part in node.args[:3])
                yield code, argument, template


def _constants(module: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield the names that stand for a text in a module, and the texts."""
    for node in module.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            yield from ((ast.unparse(name), str(node.value.value)) for name in node.targets)


def _literal(node: ast.expr, names: Mapping[str, str]) -> str:
    """Return a text in the code, also by its name; ``*`` for what is not one."""
    if isinstance(node, ast.JoinedStr):
        return "".join(_literal(part, names) for part in node.values)
    if isinstance(node, ast.Name):
        return names.get(node.id, "*")
    return str(node.value) if isinstance(node, ast.Constant) else "*"


def _with_names(template: str) -> Text:
    fields = (field for _, field, _, _ in Formatter().parse(template) if field)
    return Text(template, **{field: f"<{field}>" for field in fields})


def statements_of(code: str) -> tuple[Statement, ...]:
    """Return the sentences with which plans and runs state a caveat; empty for an unknown code."""
    return tuple(statement for statement in statements() if statement.is_about(code))


def find_caveat(name: str) -> Experiment | None:
    """Return a caveat by its name, or by a code of plans and runs; None without an experiment.

    Raises UsageError for an unknown name.
    """
    found = next((caveat for caveat in CAVEATS if name in (caveat.name, *caveat.codes)), None)
    if found is not None or statements_of(name):
        return found
    codes = [statement.code for statement in statements()]
    names = [caveat.name for caveat in CAVEATS]
    raise UsageError(
        "name",
        "name = {name}: no such caveat",
        "{tip}experiments: {names}; codes of plans and runs as well",
        name=repr(name),
        names=", ".join(names),
        tip=tip(name, [*names, *codes]),
    )
