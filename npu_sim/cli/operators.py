"""Commands ``npu-sim ACTION OPERATOR --argument ...``, generated from the operator's arguments.

The command of an operator is generated when it is used, so that ``npu-sim --help`` does not load
the declarations.
"""

import inspect
from collections.abc import Callable
from copy import copy
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from npu_sim.cli.help import ARGUMENTS, OPERATORS, HelpfulCommand, HelpfulGroup
from npu_sim.cli.options import flattened
from npu_sim.language import Verbatim, say, translated
from npu_sim.registry import (
    OperatorEntry,
    all_operators,
    find_operator,
    load_operator,
    unknown_operator,
)

if TYPE_CHECKING:
    from npu_sim.framework.arguments import Attribute, Tensor
    from npu_sim.questions.example_calls import ExampleCall

Handler = Callable[..., None]
"""Takes the operator's name, its typed arguments by name, and the options of the action."""
OUTPUTS = "Outputs: what the inputs imply when left out"
"""Heading of the options that give the spec of an output tensor."""


def add_action(
    app: typer.Typer,
    name: str,
    handler: Handler,
    *,
    panel: str | None = None,
    within: str = "",
    example: str = "",
    small: bool = False,
    notes: Callable[[], str] | None = None,
    epilog: Callable[[str], str] | None = None,
) -> None:
    """Add a group with one command per operator, each of which calls ``handler``.

    Parameters
    ----------
    panel
        Heading under which the help of ``app`` lists the group.
    within
        Name of ``app`` on the command line, if it is a group itself.
    example
        Text after the arguments in the example of an operator's help.
    small
        Whether examples are computed and therefore use small sizes.
    notes
        Function that returns the text below the example.
    epilog
        Function that returns the last lines of an operator's help. The commands then have only the
        options of the handler, which takes the operator's name and these options.
    """
    action = f"{within} {name}".strip()
    summary = " ".join((inspect.getdoc(handler) or "").split("\n\n", 1)[0].split())

    class OperatorGroup(HelpfulGroup):
        def list_commands(self, ctx: Any) -> list[str]:
            return [entry.name for entry in all_operators()]

        def get_command(self, ctx: Any, cmd_name: str) -> Any:
            entry = find_operator(cmd_name)
            if entry is None:
                raise unknown_operator(cmd_name)
            if epilog is not None:
                return operator_command(entry, action, handler, epilog=epilog(entry.name))
            texts = notes() if notes else ""
            return operator_command(
                entry,
                action,
                handler,
                takes_arguments=True,
                example=example,
                small=small,
                epilog=texts,
            )

    group = typer.Typer(
        cls=OperatorGroup,
        no_args_is_help=True,
        help=summary,
        subcommand_metavar="OPERATOR [ARGS]...",
    )
    group.callback()(_nothing)
    app.add_typer(group, name=name, help=summary, rich_help_panel=panel)


def _nothing() -> None:
    """Groups need a callback to carry their help text."""


def operator_command(
    entry: OperatorEntry,
    action: str,
    handler: Handler,
    *,
    takes_arguments: bool = False,
    example: str = "",
    small: bool = False,
    epilog: str = "",
) -> Any:
    """Return the command of one operator: options for its arguments, then those of the handler."""
    panel = say("Options of {action}", action=Verbatim(action))
    handler = flattened(handler)
    typed = [*inspect.signature(handler).parameters.values()][2 if takes_arguments else 1 :]
    own = [_in_panel(one, panel) for one in typed]
    parameters: list[inspect.Parameter] = []
    names: dict[str, str] = {}
    if takes_arguments:
        declared = load_operator(entry.name)
        taken = {parameter.name for parameter in own}
        listed = [field for field in declared.arguments if option_name(field) not in taken]
        names = {option_name(field): field.name for field in listed}
        parameters = [_parameter(field) for field in listed]

    def command(**options: Any) -> None:
        if not takes_arguments:
            handler(entry.name, **options)
            return
        arguments = {name: options.pop(option) for option, name in names.items()}
        handler(
            entry.name,
            {name: value for name, value in arguments.items() if value is not None},
            **options,
        )

    class OperatorCommand(HelpfulCommand):
        def format_help(self, ctx: Any, formatter: Any) -> None:
            if takes_arguments:
                self.epilog = _add_example(self, entry, action, example, small, epilog)
            super().format_help(ctx, formatter)

        def shell_complete(self, ctx: Any, incomplete: str) -> Any:
            if takes_arguments:
                _add_example(self, entry, action, example, small, epilog)
            return super().shell_complete(ctx, incomplete)

        def get_help_option(self, ctx: Any) -> Any:
            option: Any = super().get_help_option(ctx)
            option.rich_help_panel = panel
            return option

    parameters += own
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    command.__doc__ = handler.__doc__
    single = typer.Typer(add_completion=False)
    single.command(
        name=entry.name,
        cls=OperatorCommand,
        epilog=epilog,
        short_help=entry.title,
        rich_help_panel=OPERATORS,
    )(command)
    return typer.main.get_command(single)


def _add_example(
    command: Any, entry: OperatorEntry, action: str, example: str, small: bool, epilog: str
) -> str:
    """Add an example of each argument to its help; return the example of the call, and the epilog.

    Only help and completion need examples, which take a fifth of the time of a plan's command.
    """
    from npu_sim.questions.example_calls import example_call

    declared = load_operator(entry.name)
    call = example_call(declared, small=small)
    fields = {option_name(field): field for field in declared.arguments}
    for parameter in command.params:
        if parameter.name in fields and parameter.rich_help_panel in (OUTPUTS, ARGUMENTS):
            parameter.help = argument_help(fields[parameter.name], call)
    line = say(
        "Example: npu-sim {action} {name} {options}{example}",
        action=Verbatim(action),
        name=Verbatim(entry.name),
        options=Verbatim(call.options),
        example=Verbatim(f" {example}" if example else ""),
    )
    return Verbatim(f"{line}\n\n{translated(epilog)}") if epilog else line


def option_name(argument: Any) -> str:
    """Return the option name of an argument; an output has the name of its result."""
    return str(argument.output if hasattr(argument, "output") else argument.name)


def _in_panel(parameter: inspect.Parameter, panel: str) -> inspect.Parameter:
    """Return a copy of an option under a heading; several actions share options."""
    kind, option = get_args(parameter.annotation)
    listed = copy(option)
    listed.rich_help_panel = panel
    return parameter.replace(
        kind=inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[kind, listed]
    )


def _parameter(argument: Any) -> inspect.Parameter:
    """Return the command-line option of one argument."""
    name = option_name(argument)
    flag, default = "--" + name.replace("_", "-"), None
    text, panel = argument.help, OUTPUTS if hasattr(argument, "output") else ARGUMENTS
    if hasattr(argument, "shape"):
        annotation: Any = Annotated[
            str | None, typer.Option(flag, help=text, metavar="TENSOR", rich_help_panel=panel)
        ]
    elif argument.kind is bool:
        switch = f"{flag}/--no-{flag.removeprefix('--')}"
        default, annotation = (
            argument.default,
            Annotated[bool, typer.Option(switch, help=text, rich_help_panel=panel)],
        )
    else:
        default = None if argument.required else argument.default
        kind = str if issubclass(argument.kind, tuple) else argument.kind
        annotation = Annotated[kind | None, typer.Option(flag, help=text, rich_help_panel=panel)]
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )


def argument_help(argument: "Tensor | Attribute", example: "ExampleCall") -> str:
    """Return the help of an argument: its meaning, whether it is required, and an example."""
    from npu_sim.framework.arguments import Attribute, Output

    if isinstance(argument, Output):
        return _with_example(argument.help, example.values.get(argument.name))
    needed = argument.name in example.needed
    text = say("required: {help}", help=argument.help) if needed else argument.help
    if isinstance(argument, Attribute):
        return _with_example(text, example.values[argument.name] if needed else None)
    if argument.name not in example.values:
        return argument.help
    shape = Verbatim(example.values[argument.name])
    if needed or argument.optional:
        return say("{text}; e.g. {shape}, or a .npy file", text=text, shape=shape)
    return say(
        "{text}; e.g. {shape}, or a .npy file; what the others imply when left out",
        text=text,
        shape=shape,
    )


def _with_example(text: str, value: str | None) -> str:
    return text if value is None else say("{text}; e.g. {value}", text=text, value=Verbatim(value))
