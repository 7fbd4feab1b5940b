"""Errors of npu_sim and of typer: JSON on standard output, or text on standard error.

Errors show options as they are typed.
"""

from collections.abc import Iterable
from inspect import signature
from typing import Any

from npu_sim.cli.printing import discard_output, print_json, print_text
from npu_sim.language import (
    Argument,
    Text,
    Verbatim,
    translated,
    visible,
    with_arguments,
    with_changed_fields,
)
from npu_sim.registry import find_operator
from npu_sim.show.forms.layout import Paragraph
from npu_sim.status import AclnnError, NpuSimError, UsageError, closest, refusal_text, shown

REFUSED_EXIT_CODE = 2
"""Exit code of a call that does not run: the product refuses it, or its buffers overflow."""
USAGE = 64
"""Exit code of a usage error, from ``sysexits.h``."""


def report(error: Any, *, as_json: bool) -> int:
    """Print an error of npu_sim or of typer: JSON on stdout, or text on stderr.

    Returns the exit code, also where the reader of a pipe has closed it.
    """
    if not isinstance(error, NpuSimError):
        error = usage_error(error)
    if error is not None:
        try:
            _report(error, as_json)
        except BrokenPipeError:
            discard_output()
    return REFUSED_EXIT_CODE if isinstance(error, AclnnError) else USAGE


def _report(error: NpuSimError, as_json: bool) -> None:
    data = with_arguments(error.as_dict())
    if isinstance(error, AclnnError):
        if as_json:
            print_json("error", {"outcome": error.outcome, "error": data})
        else:
            text = with_changed_fields(error.as_text(), _one_line)
            _print(refusal_text(error, text))
    elif as_json:
        print_json("usage", {"outcome": error.outcome, **data})
    else:
        message, hint = (
            translated(with_changed_fields(text, _one_line)) for text in (error.message, error.hint)
        )
        _print("\n".join(line for line in (f"npu-sim: {message}", hint) if line))


def _one_line(field: str) -> str:
    """Return a field with newlines escaped: names from files must not start a line of a log."""
    if isinstance(field, Argument):
        return field
    return Verbatim(visible(field)) if isinstance(field, Verbatim) else visible(field)


def _print(text: str) -> None:
    """Print an error; its lines end at blanks."""
    print_text(Paragraph(text, hanging=2, is_translated=True), error=True)


def _error_hint(error: Any) -> str:
    """Return the names of an error's option or argument; older versions of typer want a context."""
    hint = error.param.get_error_hint
    text: str = hint(error.ctx) if signature(hint).parameters else hint()
    return text


def _typer_text(error: Any) -> str:
    """Return the message of typer's error; sentences that typer alone has stay English."""
    match type(error).__name__:
        case "NoSuchOption":
            name = Verbatim(error.option_name)
            own_name = _documented_option(error.option_name, error.ctx)
            near = own_name or closest(error.option_name, error.possibilities or ())
            if "--grid" in _options_of(error.ctx) and own_name:
                near = Text("; give sizes and dtypes with {grid}", grid=Verbatim("--grid"))
            return Text("No such option: {name}", name=name) + near
        case "MissingParameter":
            return Text("Missing argument {name}.", name=Verbatim(_error_hint(error)))
        case "BadParameter":
            name = Verbatim(_error_hint(error))
            message = _unreadable_number(error) or error.message
            return Text("Invalid value for {name}: {message}", name=name, message=message)
    return str(error.format_message())


def _unreadable_number(error: Any) -> str:
    """Return a sentence that names the value which is not a number; pydantic's does not name it.

    Empty for other errors.
    """
    errors = getattr(error.__cause__, "errors", None)  # importing pydantic takes time
    if errors is None:
        return ""
    first = errors()[0]
    value = shown(first["input"])
    if first["type"] == "int_parsing":
        return Text("{value} is not an integer; write all its digits", value=value)
    if first["type"] == "float_parsing":
        return Text("{value} is not a number", value=value)
    return ""


def _options_of(ctx: Any) -> set[str]:
    """Return the flags of the command that was typed."""
    parameters = ctx.command.params if ctx is not None else ()
    return {flag for parameter in parameters for flag in parameter.opts}


def _documented_option(name: str, ctx: Any) -> str:
    """Return the hint at the option of an argument that has another name in the documents."""
    entry = find_operator(ctx.info_name) if ctx is not None and ctx.info_name else None
    if entry is None:
        return ""
    from npu_sim.operators.loading import load_operator  # loaded by every command of an operator

    arguments = load_operator(entry.name).arguments
    named = {argument.parameter: argument.name for argument in arguments}
    option = named.get(name.lstrip("-"), "").replace("_", "-")
    return closest(option, [f"--{option}"]) if option else ""


def usage_error(error: Any) -> UsageError | None:
    """Return typer's error as a usage error; None if typer has printed the help instead."""
    if type(error).__name__ == "NoArgsIsHelpError":
        return None
    option = str(getattr(error, "option_name", ""))
    name = getattr(getattr(error, "param", None), "name", None) or option.lstrip("-")
    return UsageError(name, _typer_text(error), _help_hint(error.ctx))


def unknown_command(name: str, known: Iterable[str], ctx: Any) -> UsageError:
    """Return the error of a command that is not among the known ones."""
    return UsageError(
        "",
        "No such command: {name}{near}",
        _help_hint(ctx),
        name=repr(name),
        near=closest(name, known),
    )


def _help_hint(ctx: Any) -> str:
    """Return where the help of a command is."""
    where = f"{ctx.command_path if ctx is not None else 'npu-sim'} --help"
    return Text("for help: {where}", where=where)
