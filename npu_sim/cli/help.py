"""The help of commands, laid out as every answer is: no word is broken at any width, and in a pipe an option is one line."""

from collections.abc import Iterator
from typing import Any

from rich.console import RenderableType
from typer.core import TyperCommand, TyperGroup

from npu_sim.language import Verbatim, say, translated

ARGUMENTS, OPTIONS, COMMANDS = "Arguments", "Options", "Commands"
"""Headings of what is given by its place, of options, and of commands, unless they have another."""
OWN_TEXTS = {
    "help": "Show this message and end.",
    "install_completion": "Install completion for the current shell.",
    "show_completion": "Show completion for the current shell, to copy it or adapt the installation.",
}
"""Texts of the options that typer adds, by name."""


class _Helpful:
    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help."""
        _print_help(self, ctx)


class HelpfulCommand(_Helpful, TyperCommand):
    """A command with such help."""


class HelpfulGroup(_Helpful, TyperGroup):
    """A group of commands with such help."""


def _print_help(command: Any, ctx: Any) -> None:
    from npu_sim.cli.output import show
    from npu_sim.show.layout import Paragraph, lines_table

    usage = say(
        "Usage: {path} {rest}",
        path=Verbatim(ctx.command_path),
        rest=Verbatim(" ".join(command.collect_usage_pieces(ctx))),
    )
    parts: list[RenderableType] = [Paragraph(usage, "bold", hanging=2)]
    for text in _paragraphs(command.help):
        parts += ["", text]
    for heading, lines in _panels(command, ctx).items():
        parts += ["", Paragraph(heading, "bold"), lines_table(lines, indent=2, said=True)]
    for text in _paragraphs(command.epilog):
        parts += ["", text]
    show(*parts)


def _paragraphs(text: str | None) -> Iterator[str]:
    kind = Verbatim if isinstance(text, Verbatim) else str
    for paragraph in (text or "").split("\n\n"):
        if paragraph.strip():
            yield kind(" ".join(paragraph.split()))


def _panels(command: Any, ctx: Any) -> dict[str, list[tuple[str, str]]]:
    """Return names and texts of what can follow a command, by heading."""
    panels: dict[str, list[tuple[str, str]]] = {}
    for one in command.get_params(ctx):
        record = one.get_help_record(ctx)
        if record is not None:
            usual = OPTIONS if one.param_type_name == "option" else ARGUMENTS
            panels.setdefault(one.rich_help_panel or usual, []).extend(_lines(one, record[0]))
    for name in command.list_commands(ctx) if isinstance(command, TyperGroup) else ():
        one = command.get_command(ctx, name)
        panels.setdefault(one.rich_help_panel or COMMANDS, []).append(
            (name, translated(" ".join(_paragraphs(one.short_help or one.help))))
        )
    return panels


def _lines(option: Any, label: str) -> Iterator[tuple[str, str]]:
    """Go through the lines of an option: a switch that can also be switched off has two."""
    on, _, off = label.partition(" / ")
    text, value = next(_paragraphs(OWN_TEXTS.get(option.name, option.help)), ""), option.default
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
        yield off, translated("switches it off") if value else translated("the default")
