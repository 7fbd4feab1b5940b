"""Printing of refusals and usage errors, with options written as on the command line."""

import re
from typing import Any

import typer

from npu_sim.cli.output import REFUSED, print_json
from npu_sim.language import Template, translated
from npu_sim.status import AclnnError, NpuSimError, UsageError, closest, refusal_text

USAGE = 64
"""Exit code of a usage error, from ``sysexits.h``."""

CommandError: Any = typer.BadParameter.__base__
"""Base class of typer's errors for arguments it cannot parse; typer does not export it."""

_OPTION = re.compile(
    r"(?<![A-Za-z0-9_])(products?|soc|release|limits|deterministic|core_order|seed|resume|engine|vary|set|out)"
    r"=(?:\"([^\"]*)\"|([A-Za-z0-9_.]+))"
)
TYPER_SAYS = (
    Template("No such command {name}."),
    Template("No such command {name}. Did you mean {others}?"),
    Template("No such option: {name}"),
    Template("Option {name} requires an argument."),
    Template("Option {name} does not take a value."),
    Template("Missing argument {name}."),
    Template("Got unexpected extra argument(s) ({words})"),
    Template("Invalid value for {name}: {message}"),
    Template("{value} is not a valid integer."),
    Template("{value} is not a valid integer range."),
    Template("{value} is not in the range {bounds}."),
    Template("Input should be a valid integer, unable to parse string as an integer"),
    Template("Input should be greater than or equal to {least}"),
    Template("Input should be less than or equal to {most}"),
)
"""Templates of typer's messages, for their translation."""

_FUNCTION = re.compile(r"(?<![A-Za-z0-9_])npu_sim\.([a-z]+)(?![A-Za-z0-9_])")


def in_shell_form(text: str) -> str:
    """Return a message with options (``limits="hardware"``) and functions in command-line form."""
    return _FUNCTION.sub(r"npu-sim \1", _OPTION.sub(_option, text))


def _option(match: re.Match[str]) -> str:
    name, value = match[1].replace("_", "-"), match[3] if match[2] is None else match[2]
    return f"--{name}" if value == "True" else f"--{name} {value}"


def report_error(error: NpuSimError, *, as_json: bool) -> int:
    """Print an error and return its exit code: JSON on stdout, or text on stderr."""
    data: dict[str, Any] = {
        **error.as_dict(),
        "message": in_shell_form(error.message),
        "hint": in_shell_form(error.hint),
    }
    if isinstance(error, AclnnError):
        if as_json:
            print_json("error", {"outcome": "refused", "error": data})
        else:
            _print(in_shell_form(refusal_text(error)))
        return REFUSED
    if as_json:
        print_json("usage", {"outcome": "usage", **data})
    else:
        message, hint = (
            in_shell_form(translated(error.message)),
            in_shell_form(translated(error.hint)),
        )
        _print("\n".join(line for line in (f"npu-sim: {message}", hint) if line))
    return USAGE


def _print(text: str) -> None:
    """Print an error without breaking words."""
    from npu_sim.cli.output import show
    from npu_sim.show.layout import Paragraph

    show(Paragraph(text, hanging=2, said=True), error=True)


def usage_error(error: Any) -> UsageError | None:
    """Return typer's error as a usage error; None if typer has printed the help instead."""
    if type(error).__name__ == "NoArgsIsHelpError":
        return None
    known = getattr(error, "possibilities", None)
    message = str(error.message if known else error.format_message()).strip()
    name = getattr(getattr(error, "param", None), "name", None) or str(
        getattr(error, "option_name", "")
    ).lstrip("-")
    where = f"{error.ctx.command_path} --help" if error.ctx is not None else "npu-sim --help"
    near = closest(error.option_name, known) if known else ""
    return UsageError(name, f"{message}{near}", f"for help: {where}")
