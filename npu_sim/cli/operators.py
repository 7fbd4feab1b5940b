"""Commands ``npu-sim ACTION OPERATOR --argument ...``, generated from the operator, and their help.

The command of an operator is generated when it is used, so that ``npu-sim --help`` does not load
the declarations. What was typed becomes specs (:func:`typed_specs`) or arrays
(:func:`typed_arrays`). Help is printed by `npu_sim.show.layout` instead of typer's rich tables.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Annotated, Any, get_args

import typer
from rich.console import RenderableType
from typer.core import TyperCommand, TyperGroup

from npu_sim.cli.lazy import cores, files, framework, numbers, operators, questions, show
from npu_sim.cli.options import flattened, require_separate_files
from npu_sim.cli.output import print_text, unknown_command
from npu_sim.language import Text, Verbatim, joined, say, translated
from npu_sim.registry import OperatorEntry, all_operators, find_operator, unknown_operator
from npu_sim.status import UsageError

ARGUMENTS_HEADING, OPTIONS_HEADING, COMMANDS_HEADING = "Arguments", "Options", "Commands"
"""Default headings of positional arguments, options and commands."""
OPERATORS = "Operators"
"""Heading of the subcommands of operators."""
OWN_TEXTS = {
    "help": "Show this message and exit.",
    "install_completion": "Install completion for the current shell.",
    "show_completion": "Show completion for the current shell, to copy it or adapt the "
    "installation.",
}
"""Texts of the options that typer adds, by name."""


class _PlainHelp:
    """Mixin of commands whose help :func:`_print_help` prints."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help."""
        _print_help(self, ctx)


class NpuSimCommand(_PlainHelp, TyperCommand):
    """A command; it rejects options given twice, and outputs that are also inputs."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read what was typed; raise UsageError if one option has two values."""
        if not ctx.resilient_parsing:
            _, left, order = self.make_parser(ctx).parse_args(args=list(args))
            typed: list[Any] = [
                parameter for parameter in order if parameter.param_type_name == "option"
            ]
            for option in typed:
                if not option.is_flag and not option.multiple and typed.count(option) > 1:
                    raise UsageError(
                        option.name,
                        Text("{option} is given twice", option=" / ".join(option.opts)),
                        "leave one of the two out",
                    )
            self._require_no_value(
                [parameter for parameter in typed if parameter.is_flag], left, args
            )
        return super().parse_args(ctx, args)

    def _require_no_value(self, flags: list[Any], left: list[str], args: list[str]) -> None:
        """Raise UsageError for a value behind an option that takes none.

        ``left``: the typed values that belong to no option or argument.
        """
        known = {name for parameter in self.params for name in parameter.opts}
        for typed, value in pairwise(args):
            if value in left and any(typed in flag.opts for flag in flags):
                singular = typed.removesuffix("s")  # --release for --releases
                raise UsageError(
                    typed.lstrip("-"),
                    Text("{option} takes no value, got {value}", option=typed, value=value),
                    Text("{option} {value}", option=singular, value=value)
                    if singular in known - {typed}
                    else Text("leave it out"),
                )

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        require_separate_files(ctx)
        return super().invoke(ctx)


class NpuSimGroup(_PlainHelp, TyperGroup):
    """A group of commands."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command; raise UsageError for an unknown one."""
        found = super().get_command(ctx, cmd_name)
        if found is None:
            raise unknown_command(cmd_name, self.list_commands(ctx), ctx)
        return found

    def summaries(self, ctx: Any) -> Iterator[tuple[str, str, str]]:
        """Yield heading, name and summary of the subcommands."""
        for name in self.list_commands(ctx):
            subcommand: Any = self.get_command(ctx, name)
            yield COMMANDS_HEADING, name, subcommand.help


def _print_help(command: Any, ctx: Any) -> None:

    usage = say(
        "Usage: {path} {rest}",
        path=Verbatim(ctx.command_path),
        rest=Verbatim(" ".join(command.collect_usage_pieces(ctx))),
    )
    parts: list[RenderableType] = [show.layout.Paragraph(usage, "bold", hanging=2)]
    for text in _paragraphs(command.help):
        parts += ["", text]
    for heading, lines in _panels(command, ctx).items():
        parts += [
            "",
            show.layout.Paragraph(heading, "bold"),
            show.layout.lines_table(lines, indent=2, is_translated=True),
        ]
    for text in _paragraphs(command.epilog):
        parts += ["", text]
    print_text(*parts)


def _paragraphs(text: str | None) -> Iterator[str]:
    kind = Verbatim if isinstance(text, Verbatim) else str
    for paragraph in (text or "").split("\n\n"):
        if paragraph.strip():
            yield kind(" ".join(paragraph.split()))


def _panels(command: Any, ctx: Any) -> dict[str, list[tuple[str, str]]]:
    """Return names and texts of a command's arguments, options and subcommands, by heading."""
    panels: dict[str, list[tuple[str, str]]] = {}
    for parameter in command.get_params(ctx):
        record = parameter.get_help_record(ctx)
        if record is not None:
            default = (
                OPTIONS_HEADING if parameter.param_type_name == "option" else ARGUMENTS_HEADING
            )
            heading = parameter.rich_help_panel or default
            panels.setdefault(heading, []).extend(_option_lines(parameter, record[0]))
    for heading, name, text in command.summaries(ctx) if isinstance(command, NpuSimGroup) else ():
        panels.setdefault(heading, []).append((name, translated(" ".join(_paragraphs(text)))))
    return panels


def _option_lines(option: Any, label: str) -> Iterator[tuple[str, str]]:
    """Yield the lines of an option; a switch with an off form has two."""
    on, _, off = label.partition(" / ")
    text, value = next(_paragraphs(OWN_TEXTS.get(option.name, option.help)), ""), option.default
    if option.name == "release":
        *older, newest = cores.release_names()
        text = say(
            "{text} Releases: {names}.",
            text=text,
            names=say("{older} or {newest}", older=joined(older, ", "), newest=newest),
        )
    if option.show_default and isinstance(value, int | str) and not isinstance(value, bool):
        yield (
            on,
            say(
                "{text} [default: {default}]",
                text=text,
                default=Verbatim(f"{option.opts[0]}={value}"),
            ),
        )
    else:
        yield on, translated(text)
    if off:
        yield off, translated("off (the default)" if value is False else "off")


Handler = Callable[..., None]
"""Takes the operator's name, its typed arguments by name, and the options of the action."""
OUTPUTS = "Outputs: what the inputs imply when left out"
"""Heading of the options that give the spec of an output tensor."""
MEASURED = "Measured outputs, at least one"
"""The same where outputs are files."""


@dataclass(frozen=True)
class Action:
    """A command with one subcommand per operator, such as ``plan``."""

    name: str
    """Name on the command line, with the group that it belongs to."""
    handler: Handler
    """Function that runs it; see :data:`Handler`."""
    takes_arguments: bool = True
    """Whether the subcommands have an option for each argument of the operator. Without them the
    handler takes the operator's name and its own options."""
    example: str = ""
    """Text after the arguments in the example of an operator's help."""
    computes: bool = False
    """Whether the command computes its example, which then has small sizes."""
    takes_files: bool = False
    """Whether tensors, outputs too, are files and not shapes."""
    epilog: Callable[[str], str] | None = None
    """Function that returns the last lines of an operator's help; it takes the operator's name."""


def add_action(app: typer.Typer, action: Action, *, within: str = "") -> None:
    """Add a group with one command per operator.

    - ``within``: name of ``app`` on the command line, if it is a group itself.
    """
    summary = " ".join((inspect.getdoc(action.handler) or "").split("\n\n", 1)[0].split())
    named = replace(action, name=f"{within} {action.name}".strip())

    class OperatorGroup(NpuSimGroup):
        def list_commands(self, ctx: Any) -> list[str]:
            return [entry.name for entry in all_operators()]

        def get_command(self, ctx: Any, cmd_name: str) -> Any:
            entry = find_operator(cmd_name)
            if entry is None:
                raise unknown_operator(cmd_name)
            return operator_command(entry, named)

        def summaries(self, ctx: Any) -> Iterator[tuple[str, str, str]]:
            """Yield the operators with their titles, and why one is not available."""
            for entry in all_operators():
                try:
                    operators.loading.load_operator(entry.name)
                except operators.loading.OperatorLoadError as error:
                    yield OPERATORS, entry.name, say("not available: {message}", error)
                else:
                    yield OPERATORS, entry.name, entry.title

    group = typer.Typer(
        cls=OperatorGroup,
        no_args_is_help=True,
        help=summary,
        subcommand_metavar="OPERATOR [ARGS]...",
    )
    group.callback()(lambda: None)  # a group needs one to carry its help text
    app.add_typer(group, name=action.name, help=summary)


def operator_command(entry: OperatorEntry, action: Action) -> Any:
    """Return the command of one operator: options for its arguments, then those of the handler."""
    panel = say("Options of {action}", action=Verbatim(action.name))
    handler = flattened(action.handler)
    # The operator's name comes first, then its arguments as a dict.
    options = [*inspect.signature(handler).parameters.values()][1 + action.takes_arguments :]
    for option in options:
        get_args(option.annotation)[1].rich_help_panel = panel
    declared = operators.loading.load_operator(entry.name)
    fields: dict[str, framework.arguments.Tensor | framework.arguments.Attribute] = {}
    if action.takes_arguments:
        taken = {parameter.name for parameter in options}
        named = {option_name(field): field for field in declared.arguments}
        fields = {name: field for name, field in named.items() if name not in taken}

    def command(**options: Any) -> None:
        arguments = {field.name: options.pop(name) for name, field in fields.items()}
        given = {name: value for name, value in arguments.items() if value is not None}
        handler(entry.name, *([given] if action.takes_arguments else []), **options)

    class OperatorCommand(NpuSimCommand):
        allow_extra_args = action.takes_arguments

        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            super().parse_args(ctx, args)
            if ctx.args and not ctx.resilient_parsing:
                raise _not_an_option(ctx, declared, Verbatim(self.add_examples()))
            return list(ctx.args)

        def format_help(self, ctx: Any, formatter: Any) -> None:
            self.add_examples()
            super().format_help(ctx, formatter)

        def shell_complete(self, ctx: Any, incomplete: str) -> Any:
            self.add_examples()
            return super().shell_complete(ctx, incomplete)

        def add_examples(self) -> str:
            texts = [_add_examples(self, entry, action)] if action.takes_arguments else []
            texts += [translated(action.epilog(entry.name))] if action.epilog else []
            self.epilog = Verbatim("\n\n".join(texts)) if texts else None
            return texts[0] if texts else ""

        def get_help_option(self, ctx: Any) -> Any:
            option: Any = super().get_help_option(ctx)
            option.rich_help_panel = panel
            return option

    parameters = [
        *(
            _parameter(field, MEASURED if action.takes_files else OUTPUTS)
            for field in fields.values()
        ),
        *options,
    ]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    command.__doc__ = handler.__doc__
    single = typer.Typer(add_completion=False)
    single.command(name=entry.name, cls=OperatorCommand)(command)
    return typer.main.get_command(single)


def _not_an_option(ctx: Any, declared: "framework.operator.Operator", example: str) -> UsageError:
    """Return the error of values without the names of their options; ``example`` is a hint."""
    needed = questions.varied_calls.example_call(declared).needed
    values, options = Verbatim(" ".join(ctx.args)), {}
    for tensor in declared.tensors:
        name = option_name(tensor)
        if tensor.name in needed and ctx.params.get(name) is None:
            options[name] = f"--{name.replace('_', '-')}"
    if not options:
        return UsageError("", Text("{values} belongs to no option", values=values), example)
    written = zip(options.values(), ctx.args, strict=False)
    message = Text(
        "{values}: name its option, {text}",
        values=values,
        text=Verbatim(" ".join(f"{flag} {value}" for flag, value in written)),
    )
    return UsageError(next(iter(options)), message, example)


def _add_examples(command: Any, entry: OperatorEntry, action: Action) -> str:
    """Add an example of each argument to its help; return the example of the call.

    Only help, completion and errors need them: they take a fifth of the time of ``plan``.
    """
    declared = operators.loading.load_operator(entry.name)
    call = questions.varied_calls.example_call(declared, small=action.computes)
    if action.takes_files:
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
        action=Verbatim(action.name),
        name=Verbatim(entry.name),
        options=Verbatim(call.options),
        example=Verbatim(f" {action.example}" if action.example else ""),
    )


def _with_files(
    declared: Any, call: "questions.varied_calls.ExampleCall"
) -> "questions.varied_calls.ExampleCall":
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
    kind = str if is_tensor or issubclass(argument.kind, tuple) else argument.kind
    default = None if is_tensor or argument.required else argument.default
    option = typer.Option(
        f"{flag}/--no-{flag.removeprefix('--')}" if kind is bool else flag,
        help=argument.help,
        metavar="TENSOR" if is_tensor else None,
        rich_help_panel=outputs if hasattr(argument, "output") else ARGUMENTS_HEADING,
    )
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[kind if kind is bool else kind | None, option],
    )


def argument_help(
    argument: "framework.arguments.Tensor | framework.arguments.Attribute",
    example: "questions.varied_calls.ExampleCall",
) -> str:
    """Return the help of an argument: its meaning, whether it is required, and an example."""
    if isinstance(argument, framework.arguments.Output):
        return _with_example(argument.help, example.values.get(argument.name))
    needed = argument.name in example.needed
    text = say("required: {help}", argument) if needed else argument.help
    if isinstance(argument, framework.arguments.Attribute):
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


def named_values(option: str, texts: Iterable[str], reserved: Iterable[str]) -> dict[str, str]:
    """Read options of the form ``name=value``; a hyphen in a name is read as an underscore.

    - ``option``: name of the option.
    - ``reserved``: names of the command's other options and arguments.

    Raises UsageError when one has another form, or its name is reserved or given twice.
    """
    named: dict[str, str] = {}
    for text in texts:
        name, _, value = (part.strip() for part in text.partition("="))
        if not name or not value:
            message = Text("{text} is not of the form name=value", text=repr(text))
            raise UsageError(option, message, "write name=value, such as rows=4096")
        name = name.replace("-", "_")
        if name in named:
            raise UsageError(
                option,
                Text(
                    "{name} is given twice, as {first} and as {second}",
                    name=name,
                    first=named[name],
                    second=value,
                ),
                "give each name once; several values of a grid are written as 1,2 or 1..8",
            )
        named[name] = value
    for name in sorted(named.keys() & set(reserved)):
        message = Text("{name} is not set by --{option}", name=name, option=option)
        raise UsageError(option, message, "the command has an option or argument of this name")
    return named


def typed_specs(operator: str, typed: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments with tensor files replaced by their specs; shapes stay text."""
    tensors = operators.loading.load_operator(operator).tensor_names
    return {
        name: numbers.formats.TensorSpec.of(_read(name, value))
        if name in tensors and files.tensors.names_tensor_file(value)
        else value
        for name, value in typed.items()
    }


def typed_arrays(
    operator: str,
    typed: dict[str, Any],
    profile: "cores.Profile",
    limits: "framework.target.Limits" = "documented",
    seed: int = 0,
) -> dict[str, Any]:
    """Return the arguments with arrays for tensors: read from files, or generated from shapes.

    Data is generated only for a call that is not refused.

    Raises UsageError when a file cannot be read; AclnnError with the product's status when the call
    is refused.
    """
    return operators.shared.generate.with_data(
        operators.loading.load_operator(operator),
        typed,
        framework.target.Target(profile, order=framework.target.Order(seed=seed), limits=limits),
    )


def read_arrays(operator: str, typed: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments with arrays for tensors, outputs under the names of the results.

    Raises UsageError when a tensor is not a file, or a file cannot be read.
    """
    declared = operators.loading.load_operator(operator)
    results = {output.name: output.output for output in declared.outputs}
    return {
        results.get(name, name): _read(results.get(name, name), value)
        if name in declared.tensor_names
        else value
        for name, value in typed.items()
    }


def _read(name: str, text: str) -> Any:

    return files.tensors.read_tensor(name, text)
