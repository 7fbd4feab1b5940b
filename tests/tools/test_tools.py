"""Every tool is declared as it is: its command, its text in the help, and its functions."""

from importlib import import_module
from importlib.util import find_spec
from inspect import getdoc

import pytest

import npu_sim
from npu_sim.cli.app import COMMANDS, HEADINGS, headings
from npu_sim.tool_packages import public_names, tools

TOOLS = sorted(tools().values())


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.command)
def test_the_text_in_the_help_is_the_docstring_of_the_command(tool):
    handler = getattr(import_module(f"{tool.package}.command"), f"{tool.command}_command")
    assert tool.summary == " ".join(getdoc(handler).split())
    assert tool.heading in HEADINGS


@pytest.mark.parametrize("name", public_names())
def test_a_public_function_of_a_tool_is_defined_in_its_module(name):
    assert getattr(npu_sim, name).__module__ == public_names()[name]


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.command)
def test_the_views_of_a_tool_stand_in_its_package(tool):
    """The explorer prints no answer."""
    assert (find_spec(f"{tool.package}.view") is None) == (tool.command == "explore")


def test_commands_of_tools_follow_those_of_the_core_under_their_headings():
    listed = {heading: [name for name, _ in lines] for heading, lines in headings().items()}
    core = {
        heading: [name for name in names if name in COMMANDS] for heading, names in listed.items()
    }
    added = {heading: tuple(names[len(core[heading]) :]) for heading, names in listed.items()}
    assert {heading: names for heading, names in added.items() if names} == {
        "Start": ("explore",),
        "Many calls": ("profile",),
        "Your device": ("kit",),
        "Failures": ("diagnose", "dump"),
    }
