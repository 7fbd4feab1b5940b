"""The command tree.

The module of a command is imported when the command is used, so that the command line starts
quickly: the help of npu-sim itself has the summaries of :data:`COMMANDS` and of the tools.
"""

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from npu_sim import __version__
from npu_sim.cli.help import NpuSimCommand, NpuSimGroup
from npu_sim.tool_packages import tools


class Listed(NamedTuple):
    """A command in the help of npu-sim."""

    heading: str
    """Heading of the help under which it is listed."""
    summary: str
    """Docstring of its handler in one line."""


HEADINGS = ("Start", "Compare", "Many calls", "Numbers", "Your device", "Failures", "Own operators")
"""Headings of the help, in order; commands of tools are the last ones under their heading."""
COMMANDS = {
    "demo": Listed(
        "Start", "Plan, compute and check an embedding gradient of a Zipf-distributed batch."
    ),
    "products": Listed(
        "Start", "List products, SoCs, cores, buffers, dtypes and supported operators."
    ),
    "plan": Listed(
        "Start", "Check a call and show path, cores, buffers, workspace and determinism."
    ),
    "explain": Listed(
        "Start",
        "Explain a plan: every condition with its numbers, the nearest change, buffers, limits, "
        "workspace and order.",
    ),
    "run": Listed(
        "Start",
        "Compute an operator in the product's accumulation order, on .npy files or on random data "
        "of the given shapes.",
    ),
    "diff": Listed(
        "Compare",
        "Compare one call across products, SoCs and releases: outcome, path, cores, buffer, "
        "workspace and order.",
    ),
    "limits": Listed(
        "Compare", "Find the documented and the hardware bounds of an argument on every product."
    ),
    "timeline": Listed(
        "Compare",
        "Show the lower bound of a call at the published rates, what limits it, and an estimate if "
        "one can be made; compare SoCs or sizes.",
    ),
    "model": Listed(
        "Many calls",
        "Show the calls of a step of training, or of inference, of a model: outcome, path, "
        "launches, workspace, lower bound and estimate of each and in total, and where products "
        "differ.",
    ),
    "record": Listed(
        "Many calls",
        "Run a training script and write down the calls it makes of the operators, forward and "
        "backward.",
    ),
    "preflight": Listed(
        "Many calls",
        "Check a file of calls on products, SoCs and releases: statuses, plans and peak "
        "workspace, without data.",
    ),
    "sweep": Listed(
        "Many calls",
        "Plan a grid or a random sample of calls: millions of shapes, dtypes, products and modes.",
    ),
    "verify": Listed(
        "Numbers",
        "Test whether a product can have produced measured outputs (.npy files under the names of "
        "the results) from the inputs, bit by bit. SoC, release and determinism are optional.",
    ),
    "emulate": Listed(
        "Numbers",
        "Run a training script with the product's arithmetic in its model's operators, forward and "
        "backward.",
    ),
    "study": Listed("Numbers", "Show what accumulation order, shapes and dtypes do to a result."),
    "caveats": Listed(
        "Numbers", "List the documented caveats, or run one and print what it shows."
    ),
    "new-operator": Listed(
        "Own operators", "Write a working operator with its tests, as a template to edit."
    ),
}
"""Commands of the core; each is the function ``<name>_command`` of its module in
``npu_sim.cli.commands``."""


class _Commands(NpuSimGroup):
    """The group of all commands: it imports the module of the one that is used."""

    def list_commands(self, ctx: Any) -> list[str]:
        return command_names()

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in self.commands and (cmd_name in COMMANDS or cmd_name in tools()):
            part = typer.Typer()
            _add(part, cmd_name)
            self.commands.update(typer.main.get_group(part).commands)
        return super().get_command(ctx, cmd_name)

    def summaries(self, ctx: Any) -> Iterator[tuple[str, str, str]]:
        """Yield heading, name and summary of every command, without making them."""
        return ((heading, *line) for heading, lines in headings().items() for line in lines)


def headings() -> dict[str, list[tuple[str, str]]]:
    """Return names and summaries of the commands by heading of the help, those of tools last."""
    found: dict[str, list[tuple[str, str]]] = {heading: [] for heading in HEADINGS}
    for name, core in COMMANDS.items():
        found[core.heading].append((name, core.summary))
    for name, tool in sorted(tools().items()):
        found[tool.heading].append((name, tool.summary))
    return found


def command_names() -> list[str]:
    """Return the commands in the order of the help."""
    return [name for lines in headings().values() for name, _ in lines]


def handler_of(name: str) -> Any:
    """Return the handler of a command; its module registers how typer makes the command of it."""
    python_name = name.replace("-", "_")
    if name in COMMANDS:
        module = import_module(f"npu_sim.cli.commands.{python_name}")
    else:
        module = import_module(f"{tools()[name].package}.command")
    return getattr(module, f"{python_name}_command")


def _add(part: typer.Typer, name: str) -> None:
    """Add a command to a group."""
    handler = handler_of(name)
    if isinstance(handler, typer.Typer):
        part.add_typer(handler, name=name)
        return
    from npu_sim.cli import options  # loaded by every command

    declared = options.COMMANDS[handler]
    if declared.per_operator is not None:
        from npu_sim.cli.operators import operator_group  # loaded by every command of operators

        part.add_typer(operator_group(name, handler), name=name)
        return
    part.command(
        name, cls=NpuSimCommand, epilog=declared.epilog, context_settings=declared.settings
    )(options.with_options(handler))


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
