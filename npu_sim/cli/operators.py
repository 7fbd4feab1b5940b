"""Commands of the form ``npu-sim ACTION OPERATOR --argument ...``: one command for every operator, made from its arguments.

The command of an operator is made when it is asked for, so that ``npu-sim --help`` does not load the contracts.
"""

import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from npu_sim.registry import all_operators, find_operator, load_operator, unknown_operator

Handler = Callable[..., None]
"""Takes the operator's name, its arguments by name as typed, and the options of the action."""


def add_action(
    app: typer.Typer, name: str, handler: Handler, *, takes_arguments: bool = True, epilog: Callable[[str], str] | None = None
) -> None:
    """Add a group of commands, one for every operator, that call ``handler``.

    Without ``takes_arguments`` the commands have only the options of the handler, which then takes the operator's name and them.
    ``epilog`` gives the last lines of an operator's help.
    """
    summary = (inspect.getdoc(handler) or "").split("\n", 1)[0]

    class OperatorGroup(TyperGroup):
        @property
        def help(self) -> str:  # only when it is shown: those of installed packages have to be looked for
            return f"{summary} Operators: {', '.join(entry.name for entry in all_operators())}."

        @help.setter
        def help(self, text: str | None) -> None:
            """Click sets it; the text above is made when it is asked for."""

        def list_commands(self, ctx: Any) -> list[str]:
            return [entry.name for entry in all_operators()]

        def get_command(self, ctx: Any, cmd_name: str) -> Any:
            entry = find_operator(cmd_name)
            if entry is None:
                raise unknown_operator(cmd_name)
            return operator_command(entry.name, handler, takes_arguments, epilog(entry.name) if epilog is not None else None)

    group = typer.Typer(cls=OperatorGroup, no_args_is_help=True)
    group.callback()(_nothing)
    app.add_typer(group, name=name)


def _nothing() -> None:
    """Groups need a callback to carry their help text."""


def operator_command(operator: str, handler: Handler, takes_arguments: bool = True, epilog: str | None = None) -> Any:
    """Return the command of one operator: its arguments as options, then those of the handler."""
    own = list(inspect.signature(handler, eval_str=True).parameters.values())[2 if takes_arguments else 1 :]
    taken = {one.name for one in own}
    # An action that writes files has its own --out: there the output's spec is what the inputs imply.
    fields = [one for one in load_operator(operator).arguments if takes_arguments and one.name not in taken]
    names = [one.name for one in fields]

    def command(**options: Any) -> None:
        if not takes_arguments:
            handler(operator, **options)
            return
        arguments = {name: options.pop(name) for name in names}
        handler(operator, {name: value for name, value in arguments.items() if value is not None}, **options)

    parameters = [_parameter(one) for one in fields] + [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in own]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    command.__doc__ = handler.__doc__
    single = typer.Typer(add_completion=False)
    single.command(name=operator, epilog=epilog)(command)
    return typer.main.get_command(single)


def _parameter(one: Any) -> inspect.Parameter:
    """Make the command-line option of one argument."""
    flag, default = "--" + one.name.replace("_", "-"), None
    if hasattr(one, "shape"):
        annotation: Any = Annotated[str | None, typer.Option(flag, help=f"{one.help}; e.g. 4096x512:bf16, or a .npy file")]
    elif one.kind is bool:
        default, annotation = one.default, Annotated[bool, typer.Option(f"{flag}/--no-{flag.removeprefix('--')}", help=one.help)]
    else:
        default = None if one.required else one.default
        annotation = Annotated[(str if issubclass(one.kind, tuple) else one.kind) | None, typer.Option(flag, help=one.help)]
    return inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
