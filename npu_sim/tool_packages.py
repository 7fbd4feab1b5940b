"""Tools that stand on the core: the packages of the folder ``tools``, found by listing it.

The core names none of them and works without the folder. The ``__init__`` of such a package
declares what it adds, as ``TOOL``; its command is the module ``command``, and the views of its
answers are the module ``view``.
"""

from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import NamedTuple


class Tool(NamedTuple):
    """What a package of tools adds: a command, and functions among the public names of npu_sim."""

    package: str
    """Name of the package."""
    command: str
    """Name on the command line; ``<command>_command`` of the module ``command`` runs it."""
    heading: str
    """Heading of the help under which the command is listed."""
    summary: str
    """Text of the command in the help: the docstring of the function that runs it."""
    functions: dict[str, str]
    """Modules of the package by the public functions that they define."""


@cache
def tools() -> dict[str, Tool]:
    """Return the tools that are there, by their commands."""
    folder = Path(__file__).parent / "tools"
    names = sorted(module.name for module in iter_modules([str(folder)]))
    found: list[Tool] = [import_module(f"npu_sim.tools.{name}").TOOL for name in names]
    return {tool.command: tool for tool in found}


@cache
def public_names() -> dict[str, str]:
    """Return the public functions of tools, with their modules."""
    return {
        name: f"{tool.package}.{module}"
        for tool in tools().values()
        for name, module in tool.functions.items()
    }
