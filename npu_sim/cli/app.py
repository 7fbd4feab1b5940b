"""The command tree. Handlers import what they need when they run, so that help is quick."""

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from npu_sim import __version__
from npu_sim.cli.caveats import caveats_command
from npu_sim.cli.demo import demo_command
from npu_sim.cli.diff import diff_command
from npu_sim.cli.explain import explain_command
from npu_sim.cli.explore import explore_command
from npu_sim.cli.limits import limits_command
from npu_sim.cli.operators import add_action
from npu_sim.cli.plan import plan_command
from npu_sim.cli.preflight import EPILOG as PREFLIGHT_EPILOG
from npu_sim.cli.preflight import preflight_command
from npu_sim.cli.products import products_command
from npu_sim.cli.profile import profile_command
from npu_sim.cli.record import EPILOG as RECORD_EPILOG
from npu_sim.cli.record import SETTINGS as RECORD_SETTINGS
from npu_sim.cli.record import record_command
from npu_sim.cli.run import run_command
from npu_sim.cli.study import study_app
from npu_sim.cli.sweep import sweep_command, sweep_epilog
from npu_sim.cli.timeline import timeline_command
from npu_sim.cli.workspace import workspace_command

HEADINGS = {
    "Start": ("demo", "products", "plan", "explain", "run", "explore"),
    "Compare": ("diff", "limits", "timeline", "workspace"),
    "Many calls": ("sweep", "preflight", "record", "profile"),
    "Numbers": ("study", "caveats"),
}
"""The commands as the help lists them."""
HEADING = {name: heading for heading, names in HEADINGS.items() for name in names}


class Commands(TyperGroup):
    """The commands in the order of the help; typer itself puts groups behind plain commands."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands."""
        return [*HEADING]


app = typer.Typer(
    name="npu-sim",
    cls=Commands,
    help="Simulate Ascend NPU operators: limits, tiling, workspace, and bit-exact accumulation order.",
    epilog="Begin with npu-sim demo; npu-sim plan OPERATOR --help has the arguments of an operator and an example. Exit code 0: success; "
    "2: the product refuses the call; 64: a mistake of yours; 1: preflight has calls that are not accepted.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
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


for name, handler in (("demo", demo_command), ("products", products_command), ("explore", explore_command), ("caveats", caveats_command)):
    app.command(name, rich_help_panel=HEADING[name])(handler)
add_action(app, "plan", plan_command, panel=HEADING["plan"])
add_action(app, "explain", explain_command, panel=HEADING["explain"])
add_action(app, "run", run_command, panel=HEADING["run"], small=True)
add_action(app, "diff", diff_command, panel=HEADING["diff"])
add_action(app, "limits", limits_command, panel=HEADING["limits"])
add_action(app, "timeline", timeline_command, panel=HEADING["timeline"], example="--socs all")
add_action(app, "workspace", workspace_command, panel=HEADING["workspace"])
add_action(app, "sweep", sweep_command, panel=HEADING["sweep"], epilog=sweep_epilog)
app.command("preflight", epilog=PREFLIGHT_EPILOG, rich_help_panel=HEADING["preflight"])(preflight_command)
app.command("record", epilog=RECORD_EPILOG, context_settings=RECORD_SETTINGS, rich_help_panel=HEADING["record"])(record_command)
app.command("profile", rich_help_panel=HEADING["profile"])(profile_command)
app.add_typer(study_app, name="study", rich_help_panel=HEADING["study"])
