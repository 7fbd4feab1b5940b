"""Help in the language that is spoken: texts of commands and options are translated once they are made."""

from typing import Any

from npu_sim.language import LANGUAGES, language, translated

_COMMAND_TEXTS = ("help", "epilog", "short_help", "rich_help_panel")
_OPTION_TEXTS = ("help", "rich_help_panel")


def in_language(command: Any) -> Any:
    """Return a command of typer with its help, and that of its options, in the language that is spoken."""
    if command is not None and language() != LANGUAGES[0]:
        _translate(command, _COMMAND_TEXTS)
        for option in command.params:
            _translate(option, _OPTION_TEXTS)
    return command


def _translate(one: Any, names: tuple[str, ...]) -> None:
    for name in names:
        text = getattr(one, name, None)
        if isinstance(text, str):
            setattr(one, name, "\n\n".join(translated(" ".join(part.split())) for part in text.split("\n\n")))
