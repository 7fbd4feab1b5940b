"""Help in the language that is spoken: texts of commands and options, and the words that typer itself puts between them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from typer.core import TyperCommand, TyperGroup

from npu_sim.language import LANGUAGES, Verbatim, language, say, translated

_COMMAND_TEXTS = ("help", "epilog", "short_help", "rich_help_panel")
_OPTION_TEXTS = ("help", "rich_help_panel")
_TYPER_WORDS = {
    "ARGUMENTS_PANEL_TITLE": "Arguments",
    "OPTIONS_PANEL_TITLE": "Options",
    "DEFAULT_STRING": "[default: {}]",
    "REQUIRED_LONG_STRING": "[required]",
}
"""What typer keeps as constants of its module for help."""
_TYPER_OPTIONS = (
    "Show this message and exit.",
    "Install completion for the current shell.",
    "Show completion for the current shell, to copy it or customize the installation.",
)
"""The help of the options that typer adds; the catalogue knows them by this."""


class _InLanguage:
    """What typer's commands and groups say themselves."""

    def get_help_option(self: Any, ctx: Any) -> Any:
        return _said(super().get_help_option(ctx), _OPTION_TEXTS)  # type: ignore[misc]

    def format_usage(self: Any, ctx: Any, formatter: Any) -> None:
        formatter.write_usage(ctx.command_path, " ".join(self.collect_usage_pieces(ctx)), f"{say('Usage:')} ")

    def format_help(self: Any, ctx: Any, formatter: Any) -> None:
        with _typer_words():
            super().format_help(ctx, formatter)  # type: ignore[misc]


class Command(_InLanguage, TyperCommand):
    """A command whose help is in the language that is spoken."""


class Group(_InLanguage, TyperGroup):
    """A group of commands whose help, and theirs, is in the language that is spoken."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command with its texts translated."""
        return in_language(super().get_command(ctx, cmd_name))


def in_language(command: Any) -> Any:
    """Return a command of typer with its help, and that of its options, in the language that is spoken."""
    if command is not None:
        for option in _said(command, _COMMAND_TEXTS).params:
            _said(option, _OPTION_TEXTS)
    return command


def _said(one: Any, names: tuple[str, ...]) -> Any:
    if language() != LANGUAGES[0]:
        for name in names:
            text = getattr(one, name, None)
            if isinstance(text, str) and not isinstance(text, Verbatim):
                setattr(one, name, Verbatim("\n\n".join(translated(" ".join(part.split())) for part in text.split("\n\n"))))
    return one


@contextmanager
def _typer_words() -> Iterator[None]:
    """Let typer say its own words in the language that is spoken, and cut no text off that has no blanks."""
    if language() == LANGUAGES[0]:
        yield
        return
    from typer import rich_utils

    ours: dict[str, Any] = {**{name: translated(word) for name, word in _TYPER_WORDS.items()}, "Columns": _wrapped}
    typers = {name: getattr(rich_utils, name) for name in ours}
    try:
        vars(rich_utils).update(ours)
        yield
    finally:
        vars(rich_utils).update(typers)


def _wrapped(texts: list[Any]) -> Any:
    """Return texts one after the other, whose lines end where those of the language may."""
    from npu_sim.show.layout import Paragraph

    return Paragraph(Verbatim(" ".join(text.plain for text in texts)))
