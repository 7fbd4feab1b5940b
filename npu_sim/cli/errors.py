"""Printing of refusals and usage errors, with options written as on the command line."""

import re
from collections.abc import Callable
from typing import Any

from npu_sim.cli.output import REFUSED, print_json
from npu_sim.language import Text, Verbatim, joined, translated, visible, with_changed_fields
from npu_sim.status import AclnnError, NpuSimError, UsageError, closest, refusal_text

USAGE = 64
"""Exit code of a usage error, from ``sysexits.h``."""

_OPTION = re.compile(
    r"(?<![A-Za-z0-9_])(products?|soc|release|limits|deterministic|core_order|seed|resume|engine|vary|set|out)"
    r"=(?:\"([^\"]*)\"|([A-Za-z0-9_.]+))"
)
TYPER_TEXTS = (
    Text("No such command {name}."),
    Text("No such command {name}. Did you mean {others}?"),
    Text("No such option: {name}"),
    Text("Option {name} requires an argument."),
    Text("Option {name} does not take a value."),
    Text("Missing argument {name}."),
    Text("Got unexpected extra argument(s) ({words})"),
    Text("Invalid value for {name}: {message}"),
    Text("{value} is not a valid integer."),
    Text("{value} is not a valid integer range."),
    Text("{value} is not in the range {bounds}."),
    Text("Input should be a valid integer, unable to parse string as an integer"),
    Text("Input should be greater than or equal to {least}"),
    Text("Input should be less than or equal to {most}"),
)
"""Messages of typer, which arrive as finished sentences; others stay English."""

_FUNCTION = re.compile(r"(?<![A-Za-z0-9_])npu_sim\.([a-z]+)(?![A-Za-z0-9_])")


def in_shell_form(text: str, render: Callable[[str], str] = str) -> str:
    """Return a rendered message with options and functions in command-line form.

    ``limits="hardware"`` becomes ``--limits hardware``. Fields that are :class:`Verbatim`, such as
    paths, stay unchanged.
    """
    verbatim: dict[str, str] = {}

    def hidden(field: str) -> str:
        if not isinstance(field, Verbatim):
            return field
        marker = f"\0{len(verbatim)}\0"
        verbatim[marker] = field
        return Verbatim(marker)

    rendered = render(with_changed_fields(text, hidden))
    shell = _FUNCTION.sub(r"npu-sim \1", _OPTION.sub(_option, rendered))
    return re.sub("\0[0-9]+\0", lambda marker: verbatim.get(marker[0], marker[0]), shell)


def _option(match: re.Match[str]) -> str:
    name, value = match[1].replace("_", "-"), match[3] if match[2] is None else match[2]
    return f"--{name}" if value == "True" else f"--{name} {value}"


def refusal_in_shell_form(error: AclnnError) -> AclnnError:
    """Return a refusal with the options in its hint as on the command line."""
    hint = in_shell_form(error.hint, translated)
    return AclnnError(error.status, error.argument, error.message, hint)


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


def _typer_text(message: str, reason: Any = None) -> str:
    """Return a message of typer as a Text.

    ``reason`` is the part that this package wrote: ``-1 is not a seed`` in ``Invalid value for
    '--seed': -1 is not a seed``.
    """
    for template in TYPER_TEXTS:
        pattern = re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>.+?)", re.escape(template))
        match = re.fullmatch(pattern, message, re.DOTALL)
        if match:
            fields: dict[str, str] = {
                name: Verbatim(value) for name, value in match.groupdict().items()
            }
            if "message" in fields:
                known = isinstance(reason, Text)
                fields["message"] = reason if known else _typer_text(match["message"])
            return Text(template, **fields)
    return reason if isinstance(reason, Text) else message


def usage_error(error: Any) -> UsageError | None:
    """Return typer's error as a usage error; None if typer has printed the help instead."""
    if type(error).__name__ == "NoArgsIsHelpError":
        return None
    similar = getattr(error, "possibilities", None)  # options similar to a misspelt one
    message = str(error.message if similar else error.format_message()).strip()
    name = getattr(getattr(error, "param", None), "name", None) or str(
        getattr(error, "option_name", "")
    ).lstrip("-")
    where = f"{error.ctx.command_path} --help" if error.ctx is not None else "npu-sim --help"
    near = closest(error.option_name, similar) if similar else ""
    text = _typer_text(message, getattr(error, "message", None))
    return UsageError(name, joined((text, near), ""), Text("for help: {where}", where=where))
