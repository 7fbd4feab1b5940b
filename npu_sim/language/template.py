"""A sentence with holes: what the catalogue holds, and how a sentence that was filled in is recognised again."""

import re
import string
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property


class Verbatim(str):
    """Text that stays as it is: what people type, such as a command or an argument, or what is said in their language already."""

    __slots__ = ()


@dataclass(frozen=True)
class Template:
    """A text such as ``{name} needs {bytes} bytes``.

    Attributes
    ----------
    text
        The text; literal braces are doubled.
    """

    text: str

    @cached_property
    def parts(self) -> tuple[tuple[str, str | None], ...]:
        """Literal texts, each with the hole that follows it."""
        return tuple((literal, hole) for literal, hole, _, _ in string.Formatter().parse(self.text))

    @cached_property
    def holes(self) -> tuple[str, ...]:
        """The holes, in their order."""
        return tuple(hole for _, hole in self.parts if hole is not None)

    @cached_property
    def formats(self) -> dict[str, str]:
        """The format of what stands in every hole, such as ``.1f``."""
        return {
            hole: form or ""
            for _, hole, form, _ in string.Formatter().parse(self.text)
            if hole is not None
        }

    @cached_property
    def names(self) -> frozenset[str]:
        """The holes of a translation in which names stand, the same in every language: those written as ``{hole!s}``."""
        return frozenset(
            hole
            for _, hole, _, kept in string.Formatter().parse(self.text)
            if hole is not None and kept == "s"
        )

    @cached_property
    def plain(self) -> str:
        """The text without the formats of its holes: what the catalogue knows it by."""
        return "".join(
            _escaped(literal) + ("" if hole is None else f"{{{hole}}}")
            for literal, hole in self.parts
        )

    @cached_property
    def letters(self) -> int:
        """Letters outside the holes: how much a text says that it is this one."""
        return sum(letter.isalpha() for literal, _ in self.parts for letter in literal)

    @cached_property
    def longest(self) -> str:
        """The longest literal text: a filled-in sentence contains it."""
        return max((literal for literal, _ in self.parts), key=len)

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        pieces = [
            re.escape(literal) + (_content(literal, place) if hole is not None else "")
            for place, (literal, hole) in enumerate(self.parts)
        ]
        return re.compile("".join(pieces), re.DOTALL)

    def contents(self, text: str) -> dict[str, str] | None:
        """Return what stands in the holes of a filled-in sentence, or None when it is another sentence."""
        found = self._pattern.fullmatch(text)
        return dict(zip(self.holes, found.groups(), strict=True)) if found else None

    def filled(self, contents: dict[str, str], change: Callable[[str], str]) -> str:
        """Return the sentence with what stood in another's holes of the same names, each changed first unless names stand there."""
        changed = {
            hole: contents[hole] if hole in self.names else change(contents[hole])
            for hole in self.holes
        }
        return "".join(
            literal + ("" if hole is None else changed[hole]) for literal, hole in self.parts
        )


def _content(before: str, place: int) -> str:
    """Return the pattern of a hole: what follows a blank or begins a text is there, an ending of a word or a sentence may be missing."""
    return "(.+?)" if before.endswith(" ") or (place == 0 and not before) else "(.*?)"


def _escaped(literal: str) -> str:
    return literal.replace("{", "{{").replace("}", "}}")
