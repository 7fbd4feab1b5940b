"""How refusals and mistakes are printed, in the words of the shell."""

import re
from typing import Any

import typer

from npu_sim.cli.output import REFUSED, print_json
from npu_sim.language import Template, translated
from npu_sim.status import AclnnError, NpuSimError, UsageError, closest, refusal_text

USAGE = 64
"""Exit code of a mistake of the caller, as ``sysexits.h`` has it."""

CommandError: Any = typer.BadParameter.__base__
"""What typer raises for words that it cannot read; it keeps the class of all of them to itself."""

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
"""Mistakes in typer's words, as the catalogue has to know them."""

_FUNCTION = re.compile(r"(?<![A-Za-z0-9_])npu_sim\.([a-z]+)(?![A-Za-z0-9_])")


def in_shell_words(text: str) -> str:
    """Turn options and functions, which messages write as Python does (``limits="hardware"``), into those of the command line."""
    return _FUNCTION.sub(r"npu-sim \1", _OPTION.sub(_option, text))


def _option(found: re.Match[str]) -> str:
    name, value = found[1].replace("_", "-"), found[2] if found[2] is not None else found[3]
    return f"--{name}" if value == "True" else f"--{name} {value}"


def report_error(error: NpuSimError, *, as_json: bool) -> int:
    """Print an error, JSON on standard output or text on standard error; return the exit code that goes with it."""
    words: dict[str, Any] = {
        **error.as_dict(),
        "message": in_shell_words(error.message),
        "hint": in_shell_words(error.hint),
    }
    if isinstance(error, AclnnError):
        if as_json:
            print_json("error", {"outcome": "refused", "error": words})
        else:
            _print(in_shell_words(refusal_text(error)))
        return REFUSED
    if as_json:
        print_json("usage", {"outcome": "usage", **words})
    else:
        message, hint = (
            in_shell_words(translated(error.message)),
            in_shell_words(translated(error.hint)),
        )
        _print("\n".join(line for line in (f"npu-sim: {message}", hint) if line))
    return USAGE


def _print(text: str) -> None:
    """Print an error, without breaking a word, whatever the text holds."""
    from npu_sim.cli.output import show
    from npu_sim.show.layout import Paragraph

    show(Paragraph(text, hanging=2, said=True), error=True)


def usage_error(error: Any) -> UsageError | None:
    """Return what typer could not read as a mistake like any other; None when it has shown the help instead."""
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
