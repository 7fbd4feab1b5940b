"""The command tree. Handlers import what they need when they run, so that help is quick."""

from pathlib import Path
from typing import Annotated

import typer

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

app = typer.Typer(
    name="npu-sim",
    help="Simulate Ascend NPU operators: limits, tiling, workspace, and bit-exact accumulation order.",
    epilog="Exit code 0: success; 2: the product refuses the call; 64: a mistake of yours; 1: preflight has calls that are not accepted.",
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


add_action(app, "plan", plan_command)
add_action(app, "run", run_command)
add_action(app, "timeline", timeline_command)
add_action(app, "workspace", workspace_command)
add_action(app, "explain", explain_command)
add_action(app, "diff", diff_command)
add_action(app, "limits", limits_command)
add_action(app, "sweep", sweep_command, takes_arguments=False, epilog=sweep_epilog)
app.command("preflight", epilog=PREFLIGHT_EPILOG)(preflight_command)
app.command("record", epilog=RECORD_EPILOG, context_settings=RECORD_SETTINGS)(record_command)
app.command("profile")(profile_command)
app.add_typer(study_app, name="study")
app.command("caveats")(caveats_command)
app.command("demo")(demo_command)
app.command("products")(products_command)
app.command("explore")(explore_command)
