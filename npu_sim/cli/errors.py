"""Printing of refusals and usage errors, with options written as on the command line."""

from collections.abc import Iterable
from inspect import signature
from typing import Any

from npu_sim.cli.output import REFUSED, in_shell_form, print_json
from npu_sim.language import Text, Verbatim, translated, visible, with_changed_fields
from npu_sim.registry import find_operator, load_operator
from npu_sim.status import AclnnError, NpuSimError, UsageError, closest, refusal_text

USAGE = 64
"""Exit code of a usage error, from ``sysexits.h``."""

REPLACED = {
    "--calls": "npu-sim preflight FILE --timeline shows the times of a file of calls",
    "workspace": "npu-sim plan OPERATOR --workspace shows the workspace of a call",
}
"""Options and commands that are gone, and what shows the same."""


def refusal_in_shell_form(error: AclnnError) -> AclnnError:
    """Return a refusal with the options in its hint as on the command line."""
    return AclnnError(
        error.status, error.argument, error.message, in_shell_form(error.hint, translated)
    )


def report(error: Any, *, as_json: bool) -> int:
    """Print an error of npu_sim or of typer; return the exit code."""
    if not isinstance(error, NpuSimError):
        error = usage_error(error)
    return USAGE if error is None else report_error(error, as_json=as_json)


def report_error(error: NpuSimError, *, as_json: bool) -> int:
    """Print an error and return its exit code: JSON on stdout, or text on stderr."""
    data: dict[str, Any] = {
        **error.as_dict(),
        "message": in_shell_form(error.message),
        "hint": in_shell_form(error.hint),
    }
    if isinstance(error, AclnnError):
        if as_json:
            print_json("error", {"outcome": error.outcome, "error": data})
        else:
            text = with_changed_fields(error.as_text(), _one_line)
            _print(in_shell_form(text, lambda text: refusal_text(error, text)))
        return REFUSED
    if as_json:
        print_json("usage", {"outcome": error.outcome, **data})
    else:
        message, hint = (
            in_shell_form(with_changed_fields(text, _one_line), translated)
            for text in (error.message, error.hint)
        )
        _print("\n".join(line for line in (f"npu-sim: {message}", hint) if line))
    return USAGE


def _one_line(field: str) -> str:
    """Return a field with newlines escaped: names from files must not start a line of a log."""
    return Verbatim(visible(field)) if isinstance(field, Verbatim) else visible(field)


def _print(text: str) -> None:
    """Print an error without breaking words."""
    from npu_sim.cli.output import print_text
    from npu_sim.show.layout import Paragraph

    print_text(Paragraph(text, hanging=2, is_translated=True), error=True)


def _error_hint(error: Any) -> str:
    """Return the names of an error's option or argument; older versions of typer want a context."""
    hint = error.param.get_error_hint
    text: str = hint(error.ctx) if signature(hint).parameters else hint()
    return text


def _typer_text(error: Any) -> str:
    """Return the message of typer's error; what typer alone words stays English."""
    match type(error).__name__:
        case "NoSuchOption":
            name = Verbatim(error.option_name)
            own_name = _documented_option(error.option_name, error.ctx)
            near = own_name or closest(error.option_name, error.possibilities or ())
            return Text("No such option: {name}", name=name) + near
        case "MissingParameter":
            return Text("Missing argument {name}.", name=Verbatim(_error_hint(error)))
        case "BadParameter":
            name = Verbatim(_error_hint(error))
            return Text("Invalid value for {name}: {message}", error, name=name)
    return str(error.format_message())


def _documented_option(name: str, ctx: Any) -> str:
    """Return the hint at the option of an argument that has another name in the documents."""
    entry = find_operator(ctx.info_name) if ctx is not None and ctx.info_name else None
    arguments = load_operator(entry.name).arguments if entry else ()
    named = {argument.parameter: argument.name for argument in arguments}
    option = named.get(name.lstrip("-"), "").replace("_", "-")
    return closest(option, [f"--{option}"]) if option else ""


def usage_error(error: Any) -> UsageError | None:
    """Return typer's error as a usage error; None if typer has printed the help instead."""
    if type(error).__name__ == "NoArgsIsHelpError":
        return None
    option = str(getattr(error, "option_name", ""))
    name = getattr(getattr(error, "param", None), "name", None) or option.lstrip("-")
    return UsageError(name, _typer_text(error), _hint(option, error.ctx))


def _hint(name: str, ctx: Any) -> str:
    """Return what shows the same as an option or a command that is gone, or where help is."""
    where = f"{ctx.command_path if ctx is not None else 'npu-sim'} --help"
    return REPLACED.get(name) or Text("for help: {where}", where=where)


def unknown_command(name: str, known: Iterable[str], ctx: Any) -> UsageError:
    """Return the error of a command that is not among the known ones."""
    message = Text("No such command: {name}", name=repr(name)) + closest(name, known)
    return UsageError("", message, _hint(name, ctx))
