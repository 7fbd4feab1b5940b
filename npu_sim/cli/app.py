"""The command tree.

A command's module is imported when the command is used, and its dependencies when it runs (see
:mod:`npu_sim.cli.lazy`), so that the command line starts quickly.
"""

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from npu_sim import __version__
from npu_sim.cli.operators import Action, NpuSimCommand, NpuSimGroup, add_action
from npu_sim.cli.options import flattened
from npu_sim.tool_packages import tools

HEADINGS: dict[str, tuple[str, ...]] = {
    "Start": ("demo", "products", "plan", "explain", "run"),
    "Compare": ("diff", "limits", "timeline"),
    "Many calls": ("model", "record", "preflight", "sweep"),
    "Numbers": ("verify", "study", "caveats"),
    "Your device": (),
    "Failures": (),
    "Own operators": ("new-operator",),
}
"""Commands by heading of the help; those of tools follow under their heading."""
MODULES = {
    **dict.fromkeys(("plan", "explain", "run", "diff", "limits", "timeline", "verify"), "calls"),
    **dict.fromkeys(("products", "new-operator"), "demo"),
    **dict.fromkeys(("model", "record"), "preflight"),
    "caveats": "study",
}
"""Modules of ``npu_sim.cli.commands`` that define ``NAME_command``, with underscores in place of
hyphens; the others have the name of their command."""
STUDIES = "Show what accumulation order, shapes and dtypes do to a result."
COMMANDS = {name for names in HEADINGS.values() for name in names}
"""Commands of the core."""
ACTIONS: dict[str, dict[str, Any]] = {
    **{name: {} for name in ("plan", "explain", "diff", "limits")},
    "run": {"computes": True},
    "verify": {"computes": True, "takes_files": True},
    "sweep": {"takes_arguments": False},
    "timeline": {"example": "--socs all"},
}
"""Commands with a subcommand per operator, and the fields of its :class:`Action`."""


class _Commands(NpuSimGroup):
    def list_commands(self, ctx: Any) -> list[str]:
        return command_names()

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in self.commands and (cmd_name in COMMANDS or cmd_name in tools()):
            part = typer.Typer()
            _add(part, cmd_name)
            self.commands.update(typer.main.get_group(part).commands)
        return super().get_command(ctx, cmd_name)

    def summaries(self, ctx: Any) -> Iterator[tuple[str, str, Any]]:
        """Return heading, name and summary of every command, without making them."""
        return (
            (heading, name, _summary(name))
            for heading, names in headings().items()
            for name in names
        )


def headings() -> dict[str, tuple[str, ...]]:
    """Return the commands by heading of the help, those of tools last."""
    found = dict(HEADINGS)
    for name, tool in sorted(tools().items()):
        found[tool.heading] = (*found.get(tool.heading, ()), name)
    return found


def command_names() -> list[str]:
    """Return the commands in the order of the help."""
    return [name for names in headings().values() for name in names]


def command_module(name: str) -> Any:
    """Return the module of a command."""
    if name in COMMANDS:
        return import_module(f"npu_sim.cli.commands.{MODULES.get(name, name)}")
    return import_module(f"{tools()[name].package}.command")


def _summary(name: str) -> str | None:
    if name in COMMANDS:
        return STUDIES if name == "study" else _handler(name).__doc__
    return tools()[name].summary


def _handler(name: str) -> Any:
    """Return the function of a command."""
    return getattr(command_module(name), f"{name.replace('-', '_')}_command")


def _add(part: typer.Typer, name: str) -> None:
    module = command_module(name)
    if name == "study":
        part.add_typer(module.study_app, name=name, help=STUDIES)
    elif name in ACTIONS:
        add_action(
            part,
            Action(name, _handler(name), epilog=getattr(module, "epilog", None), **ACTIONS[name]),
        )
    else:
        texts, settings = (getattr(module, more, {}) for more in ("EPILOGS", "SETTINGS"))
        part.command(
            name, cls=NpuSimCommand, epilog=texts.get(name), context_settings=settings.get(name)
        )(flattened(_handler(name)))


app = typer.Typer(
    name="npu-sim",
    help=(
        "Simulate Ascend NPU operators: limits, tiling, workspace, and bit-exact accumulation "
        "order."
    ),
    epilog="Start with npu-sim demo; npu-sim plan OPERATOR --help lists the arguments of an "
    "operator with an example. Exit codes: 0 success; 2 the product refuses the call; 64 "
    "usage error; 1 preflight and model: at least one call is not accepted, or a "
    "line is invalid, and sweep --check: a plan differs; 130 interrupted.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    cls=_Commands,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"npu_sim {__version__}")
        raise typer.Exit


@app.callback()
def common(
    operators: Annotated[
        list[Path] | None,
        typer.Option(
            "--operators",
            help="Python file that declares operators of your own; they join the others.",
        ),
    ] = None,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and end."
        ),
    ] = False,
) -> None:
    """Register the user's operators before a command needs them."""
    if operators:
        from npu_sim.framework.registration import register_file

        for path in operators:
            register_file(path)
