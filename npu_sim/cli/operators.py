"""Commands ``npu-sim ACTION OPERATOR --argument ...``, generated from the operator, and their help.

The command of an operator is generated when it is used, so that ``npu-sim --help`` does not load
the declarations.
"""

import inspect
from collections.abc import Iterator
from typing import Annotated, Any, get_args

import typer

from npu_sim.cli.help import ARGUMENTS_HEADING, NpuSimCommand, NpuSimGroup
from npu_sim.cli.options import COMMANDS, Handler, PerOperator, with_options
from npu_sim.framework.arguments import Attribute, Output, Tensor
from npu_sim.framework.operator import Operator
from npu_sim.language import Verbatim, say, translated
from npu_sim.operators.loading import OperatorLoadError, load_operator
from npu_sim.questions.varied_calls import ExampleCall, example_call
from npu_sim.registry import OperatorEntry, all_operators, called_operator, unknown_operator
from npu_sim.status import UsageError

OPERATORS = "Operators"
"""Heading of the subcommands of operators."""
OUTPUTS = "Outputs: what the inputs imply when left out"
"""Heading of the options that give the spec of an output tensor."""
MEASURED = "Measured outputs, at least one"
"""The same where outputs are files."""


def operator_group(name: str, handler: Handler) -> typer.Typer:
    """Return a group with one command per operator.

    - ``name``: of the command on the command line, with the group that it belongs to.
    """

    class OperatorGroup(NpuSimGroup):
        def list_commands(self, ctx: Any) -> list[str]:
            return [entry.name for entry in all_operators()]

        def get_command(self, ctx: Any, cmd_name: str) -> Any:
            entry = called_operator(cmd_name)
            if entry is None:
                raise unknown_operator(cmd_name)
            return operator_command(entry, name, handler)

        def summaries(self, ctx: Any) -> Iterator[tuple[str, str, str]]:
            """Yield the operators with their titles, and why one is not available."""
            for entry in all_operators():
                try:
                    load_operator(entry.name)
                except OperatorLoadError as error:
                    yield (
                        OPERATORS,
                        entry.name,
                        say("not available: {message}", message=error.message),
                    )
                else:
                    yield OPERATORS, entry.name, entry.title

    group = typer.Typer(
        cls=OperatorGroup,
        no_args_is_help=True,
        help=" ".join((inspect.getdoc(handler) or "").split()),
        subcommand_metavar="OPERATOR [ARGS]...",
    )
    group.callback()(lambda: None)  # a group needs one to carry its help text
    return group


def operator_command(entry: OperatorEntry, name: str, handler: Handler) -> Any:
    """Return the command of one operator: options for its arguments, then those of the handler.

    ``name`` as for :func:`operator_group`.
    """
    form = COMMANDS[handler].per_operator or PerOperator()
    panel = say("Options of {action}", action=Verbatim(name))
    handler = with_options(handler)
    options = [
        parameter
        for parameter in inspect.signature(handler).parameters.values()
        if parameter.kind is parameter.KEYWORD_ONLY
    ]
    for option in options:
        get_args(option.annotation)[1].rich_help_panel = panel
    declared = load_operator(entry.name)
    fields: dict[str, Tensor | Attribute] = {}
    if form.takes_arguments:
        taken = {parameter.name for parameter in options}
        named = {option_name(field): field for field in declared.arguments}
        fields = {name: field for name, field in named.items() if name not in taken}

    def command(**options: Any) -> None:
        arguments = {field.name: options.pop(name) for name, field in fields.items()}
        given = {name: value for name, value in arguments.items() if value is not None}
        handler(entry.name, *([given] if form.takes_arguments else []), **options)

    parameters = [
        *(
            _parameter(field, MEASURED if form.takes_files else OUTPUTS)
            for field in fields.values()
        ),
        *options,
    ]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    command.__doc__ = handler.__doc__
    single = typer.Typer(add_completion=False)
    single.command(name=entry.name, cls=_command_class(entry, name, form, panel))(command)
    return typer.main.get_command(single)


def _command_class(
    entry: OperatorEntry, name: str, form: PerOperator, panel: str
) -> type[NpuSimCommand]:
    """Return the class of an operator's command, whose examples are made when they are shown.

    ``panel``: heading of the options of the command, which --help is among.
    """

    class OperatorCommand(NpuSimCommand):
        allow_extra_args = form.takes_arguments

        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            super().parse_args(ctx, args)
            if ctx.args and not ctx.resilient_parsing:
                example = Verbatim(self.add_examples())
                raise _not_an_option(ctx, load_operator(entry.name), example)
            return list(ctx.args)

        def format_help(self, ctx: Any, formatter: Any) -> None:
            self.add_examples()
            super().format_help(ctx, formatter)

        def shell_complete(self, ctx: Any, incomplete: str) -> Any:
            self.add_examples()
            return super().shell_complete(ctx, incomplete)

        def add_examples(self) -> str:
            texts = [_add_examples(self, entry, name, form)] if form.takes_arguments else []
            texts += [translated(form.epilog(entry.name))] if form.epilog else []
            self.epilog = Verbatim("\n\n".join(texts)) if texts else None
            return texts[0] if texts else ""

        def get_help_option(self, ctx: Any) -> Any:
            option: Any = super().get_help_option(ctx)
            option.rich_help_panel = panel
            return option

    return OperatorCommand


def _not_an_option(ctx: Any, declared: Operator, example: str) -> UsageError:
    """Return the error of values without the names of their options; ``example`` is a hint."""
    needed = example_call(declared).needed
    values, options = Verbatim(" ".join(ctx.args)), {}
    for tensor in declared.tensors:
        name = option_name(tensor)
        if tensor.name in needed and ctx.params.get(name) is None:
            options[name] = f"--{name.replace('_', '-')}"
    if not options:
        return UsageError("", "{values} belongs to no option", example, values=values)
    written = zip(options.values(), ctx.args, strict=False)
    return UsageError(
        next(iter(options)),
        "{values}: name its option, {text}",
        example,
        values=values,
        text=Verbatim(" ".join(f"{flag} {value}" for flag, value in written)),
    )


def _add_examples(command: Any, entry: OperatorEntry, name: str, form: PerOperator) -> str:
    """Add an example of each argument to its help; return the example of the call.

    Only help, completion and errors need them: they take a fifth of the time of ``plan``.
    """
    declared = load_operator(entry.name)
    call = example_call(declared, small=form.computes)
    if form.takes_files:
        call = _with_files(declared, call)
    fields = {option_name(field): field for field in declared.arguments}
    for parameter in command.params:
        if parameter.name in fields and parameter.rich_help_panel in (
            OUTPUTS,
            MEASURED,
            ARGUMENTS_HEADING,
        ):
            parameter.help = argument_help(fields[parameter.name], call)
    return say(
        "Example: npu-sim {action} {name} {options}{example}",
        action=Verbatim(name),
        name=Verbatim(entry.name),
        options=Verbatim(call.options),
        example=Verbatim(f" {form.example}" if form.example else ""),
    )


def _with_files(declared: Any, call: ExampleCall) -> ExampleCall:
    """Return an example with .npy files for its tensors and for the first output."""
    files = {tensor.name: f"{option_name(tensor)}.npy" for tensor in declared.tensors}
    output = option_name(declared.outputs[0])
    return call._replace(
        values={**call.values, **files, output: f"{output}.npy"}, needed=(*call.needed, output)
    )


def option_name(argument: Any) -> str:
    """Return the option name of an argument; an output has the name of its result."""
    return str(argument.output if hasattr(argument, "output") else argument.name)


def _parameter(argument: Any, outputs: str) -> inspect.Parameter:
    """Return the command-line option of one argument; ``outputs`` is the heading of outputs."""
    name = option_name(argument)
    flag = "--" + name.replace("_", "-")
    is_tensor = hasattr(argument, "shape")
    words = () if is_tensor else argument.words
    is_text = is_tensor or issubclass(argument.kind, tuple) or words
    kind = str if is_text else argument.kind
    default = None if is_tensor or argument.required else argument.default
    if words and default is not None:
        default = str(default)
    option = typer.Option(
        f"{flag}/--no-{flag.removeprefix('--')}" if kind is bool else flag,
        help=argument.help,
        metavar="TENSOR" if is_tensor else "|".join(words) or None,
        rich_help_panel=outputs if hasattr(argument, "output") else ARGUMENTS_HEADING,
    )
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[kind if kind is bool else kind | None, option],
    )


def argument_help(argument: Tensor | Attribute, example: ExampleCall) -> str:
    """Return the help of an argument: its meaning, whether it is required, and an example."""
    if isinstance(argument, Output):
        return _with_example(argument.help, example.values.get(argument.name))
    needed = argument.name in example.needed
    text = say("required: {help}", help=argument.help) if needed else argument.help
    if isinstance(argument, Attribute):
        return _with_example(text, example.values[argument.name] if needed else None)
    if argument.name not in example.values:
        return argument.help
    shape = Verbatim(example.values[argument.name])
    if shape.endswith(".npy"):
        return _with_example(text, shape)
    if needed or argument.optional:
        return say("{text}; e.g. {shape}, or a .npy file", text=text, shape=shape)
    return say(
        "{text}; e.g. {shape}, or a .npy file; what the others imply when left out",
        text=text,
        shape=shape,
    )


def _with_example(text: str, value: str | None) -> str:
    return text if value is None else say("{text}; e.g. {value}", text=text, value=Verbatim(value))
