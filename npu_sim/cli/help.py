"""Commands and groups of commands whose help is printed as npu_sim prints answers.

:mod:`npu_sim.show.forms.layout` prints it instead of typer's rich tables.
"""

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from rich.console import RenderableType
from typer.core import TyperCommand, TyperGroup

from npu_sim.cli.errors import unknown_command
from npu_sim.cli.output_files import require_separate_files
from npu_sim.cli.printing import print_text
from npu_sim.language import Verbatim, joined, say, translated
from npu_sim.show.forms.layout import Paragraph, lines_table
from npu_sim.status import UsageError

ARGUMENTS_HEADING, OPTIONS_HEADING, COMMANDS_HEADING = "Arguments", "Options", "Commands"
"""Default headings of positional arguments, options and commands."""
OWN_TEXTS = {
    "help": "Show this message and exit.",
    "install_completion": "Install completion for the current shell.",
    "show_completion": "Show completion for the current shell, to copy it or adapt the "
    "installation.",
}
"""Texts of the options that typer adds, by name."""


class _PlainHelp:
    """Mixin of commands whose help :func:`_print_help` prints, for ``--help`` and ``-h``."""

    def make_context(self, info_name: Any, args: Any, parent: Any = None, **extra: Any) -> Any:
        """Return the context of what was typed."""
        extra.setdefault("help_option_names", ["--help", "-h"])
        made: Any = super().make_context(info_name, args, parent, **extra)  # type: ignore[misc]
        return made

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
                        "{option} is given twice",
                        "leave one of the two out",
                        option=" / ".join(option.opts),
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
                    "{option} takes no value, got {value}",
                    "{singular} {value}" if singular in known - {typed} else "leave it out",
                    option=typed,
                    value=Verbatim(value),
                    singular=singular,
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
    parts: list[RenderableType] = [Paragraph(usage, "bold", hanging=2)]
    for text in _paragraphs(command.help):
        parts += ["", text]
    for heading, lines in _panels(command, ctx).items():
        parts += ["", Paragraph(heading, "bold"), lines_table(lines, indent=2, is_translated=True)]
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
    # Typer writes <list[str]> for a repeatable option and <int range> for a bounded number.
    on, _, off = re.sub(r"<(?:list\[)?(\w+)(?:\]| range)>", r"<\1>", label).partition(" / ")
    text, value = next(_paragraphs(OWN_TEXTS.get(option.name, option.help)), ""), option.default
    if option.name == "release":
        from npu_sim.cores import (  # loaded by every command with a release
            default_release,
            release_names,
        )

        *older, newest = release_names()
        # verify and profile take no default: they try every release, or identify it.
        text = say(
            "{text} Releases: {names}; default {release}."
            if "the default" in text
            else "{text} Releases: {names}.",
            text=text,
            release=default_release(),
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
