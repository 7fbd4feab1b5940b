"""The command tree.

A command's module is imported when the command is used, and imports its dependencies when it runs,
so that the command line starts quickly.
"""

from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from npu_sim import __version__
from npu_sim.cli.help import NpuSimCommand, NpuSimGroup
from npu_sim.cli.operators import Action, add_action
from npu_sim.cli.options import flattened

HEADINGS = {
    "Start": ("demo", "products", "plan", "explain", "run", "explore"),
    "Compare": ("diff", "limits", "timeline", "workspace"),
    "Many calls": ("model", "record", "preflight", "sweep", "profile"),
    "Numbers": ("verify", "study", "caveats"),
    "Failures": ("diagnose", "dump"),
    "Own operators": ("new-operator",),
}
"""Commands by heading of the help. ``npu_sim.cli.commands.NAME`` defines ``NAME_command``, with
underscores in place of hyphens."""
HEADING = {name: heading for heading, names in HEADINGS.items() for name in names}
ACTIONS: dict[str, dict[str, Any]] = {
    **{name: {} for name in ("plan", "explain", "diff", "limits", "workspace")},
    "run": {"computes": True},
    "verify": {"computes": True, "takes_files": True},
    "sweep": {"takes_arguments": False},
    "timeline": {"example": "--socs all"},
}
"""Commands with a subcommand per operator, and the fields of its :class:`Action`."""


class _Commands(NpuSimGroup):
    def list_commands(self, ctx: Any) -> list[str]:
        return [*HEADING]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        # For an unknown name all commands are loaded, to suggest the nearest one.
        for name in (cmd_name,) if cmd_name in HEADING else HEADING:
            if name not in self.commands:
                part = typer.Typer()
                _add(part, name)
                self.commands.update(typer.main.get_group(part).commands)
        return super().get_command(ctx, cmd_name)


def _add(part: typer.Typer, name: str) -> None:
    plain, panel = name.replace("-", "_"), HEADING[name]
    module = import_module(f"npu_sim.cli.commands.{plain}")
    if name == "study":
        part.add_typer(module.study_app, name=name, rich_help_panel=panel)
    elif name in ACTIONS:
        handler, epilog = getattr(module, f"{name}_command"), getattr(module, "epilog", None)
        whole = getattr(module, "WITHOUT_OPERATOR", None)
        action = Action(name, handler, epilog=epilog, without_operator=whole, **ACTIONS[name])
        add_action(part, action, panel=panel)
    else:
        texts, settings = getattr(module, "EPILOG", None), getattr(module, "SETTINGS", None)
        command = flattened(getattr(module, f"{plain}_command"))
        part.command(
            name, cls=NpuSimCommand, epilog=texts, context_settings=settings, rich_help_panel=panel
        )(command)


app = typer.Typer(
    name="npu-sim",
    help=(
        "Simulate Ascend NPU operators: limits, tiling, workspace, and bit-exact accumulation "
        "order."
    ),
    epilog="Start with npu-sim demo; npu-sim plan OPERATOR --help lists the arguments of an "
    "operator with an example. Exit codes: 0 success; 2 the product refuses the call; 64 "
    "usage error; 1 preflight, timeline --calls and model: at least one call is not accepted, or a "
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
