"""The command tree. A command is loaded when it is asked for, and its handler imports what it needs when it runs: starting is quick."""

from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from npu_sim import __version__
from npu_sim.cli.operators import add_action

ACTIONS = ("plan", "run", "timeline", "workspace", "explain", "diff", "limits", "sweep")
"""Commands with one of their own for every operator."""
COMMANDS = ("preflight", "record", "profile", "caveats", "demo", "products", "explore", *ACTIONS, "study")
"""In the order of the help; the handler of each is ``NAME_command`` of the module of its name."""


class _Commands(TyperGroup):
    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        # A name that is none is compared with those of all commands.
        for name in (cmd_name,) if cmd_name in COMMANDS else COMMANDS:
            if name not in self.commands:
                part = typer.Typer()
                _add(part, name)
                self.commands.update(typer.main.get_group(part).commands)
        return super().get_command(ctx, cmd_name)


def _add(part: typer.Typer, name: str) -> None:
    module = import_module(f"npu_sim.cli.{name}")
    if name == "study":
        part.add_typer(module.study_app, name=name)
    elif name == "sweep":
        add_action(part, name, module.sweep_command, takes_arguments=False, epilog=module.sweep_epilog)
    elif name in ACTIONS:
        add_action(part, name, getattr(module, f"{name}_command"))
    else:
        texts, settings = getattr(module, "EPILOG", None), getattr(module, "SETTINGS", None)
        part.command(name, epilog=texts, context_settings=settings)(getattr(module, f"{name}_command"))


app = typer.Typer(
    name="npu-sim",
    help="Simulate Ascend NPU operators: limits, tiling, workspace, and bit-exact accumulation order.",
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
        list[Path] | None, typer.Option("--operators", help="Python file that declares operators of your own; they join the others.")
    ] = None,
    version: Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and end.")] = False,
) -> None:
    """Register operators of one's own before any command asks for them."""
    if operators:
        from npu_sim.operators.contract.registration import register_file

        for path in operators:
            register_file(path)
