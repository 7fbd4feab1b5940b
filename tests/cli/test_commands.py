"""Commands: one module each, loaded when it is used; their texts and defaults agree."""

import inspect
import subprocess
import sys
from pathlib import Path

import pytest
import typer

import npu_sim.cli.commands
from npu_sim.cli.app import COMMANDS, command_names, handler_of
from npu_sim.cli.options import COMMANDS as HANDLERS

FOLDER = Path(npu_sim.cli.commands.__file__).parent
HEAVY = {"numba", "numpy", "pydantic", "jinja2", "yaml"}
OTHERWISE = {
    ("sweep", "grid"),  # required in Python; without it a sweep is one call
    ("sweep", "overwrite"),  # programs replace what they swept before, people ask for it
}
"""Options with another default than their function."""
LOADED = """
import sys
import npu_sim.cli
sys.argv = ["npu-sim", *sys.argv[1:]]
try:
    npu_sim.cli.main()
except SystemExit:
    print(*sys.modules, file=sys.stderr)
"""


def loaded_by(*arguments):
    """Modules that a command loads."""
    command = [sys.executable, "-c", LOADED, *arguments]
    process = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(process.stderr.split())


def commands_in(modules):
    prefix = "npu_sim.cli.commands."
    return {name.removeprefix(prefix) for name in modules if name.startswith(prefix)}


def test_every_command_is_a_module_of_its_name():
    modules = {path.stem for path in FOLDER.glob("*.py")} - {"__init__"}
    assert modules == {name.replace("-", "_") for name in COMMANDS}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_summary_in_the_help_is_the_docstring_of_the_command(name):
    handler = handler_of(name)
    text = handler.info.help if isinstance(handler, typer.Typer) else inspect.getdoc(handler)
    assert COMMANDS[name].summary == " ".join(text.split())


def test_the_help_of_npu_sim_loads_no_command_and_nothing_heavy():
    modules = loaded_by("--help")
    assert not commands_in(modules)
    assert not HEAVY & modules


@pytest.mark.parametrize("name", ["plan", "diff"])
def test_a_command_loads_its_own_module_and_no_other(name):
    call = ["--x", "64x512:bf16", "--gamma", "512:bf16"]
    modules = loaded_by(name, "rms_norm", *call)
    assert commands_in(modules) == {name}
    assert not {"numba", "jinja2"} & modules


def handlers():
    for name in command_names():
        handler_of(name)
    return [handler for handler, declared in HANDLERS.items() if declared.function is not None]


@pytest.mark.parametrize("handler", handlers(), ids=lambda handler: handler.__name__)
def test_an_option_has_the_default_of_its_function(handler):
    stated = inspect.signature(HANDLERS[handler].function).parameters
    name = handler.__name__.removesuffix("_command")
    for option in inspect.signature(handler).parameters.values():
        if option.kind is option.KEYWORD_ONLY and option.name in stated:
            same = option.default == stated[option.name].default
            assert same != ((name, option.name) in OTHERWISE), option.name
