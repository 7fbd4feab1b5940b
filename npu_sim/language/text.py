"""Texts that keep their template and fields, for rendering in the language in use.

A :class:`Text` is the finished English sentence: JSON, comparisons and logs see a plain ``str``.
Front ends pass it to :func:`translated`, which looks its template up in a gettext catalogue; their
own sentences are ``say(...)``, translated at once. Sizes, times and counts have functions of their
own. The language is chosen for a block, by NPU_SIM_LANG, or by the locale, in this order.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from pathlib import PurePath
from types import MappingProxyType
from typing import Any, TypeVar

LANGUAGES = ("en", "zh")
"""English, in which the code is written, and the languages that have a catalogue."""
VARIABLE = "NPU_SIM_LANG"
_LOCALE = ("LC_ALL", "LC_MESSAGES", "LANG")
_chosen: ContextVar[str | None] = ContextVar("language", default=None)


def language() -> str:
    """Return the language in use, one of `LANGUAGES`."""
    return _chosen.get() or language_of(os.environ)


def language_of(environment: Mapping[str, str]) -> str:
    """Return the language of an environment: ``NPU_SIM_LANG``, or the first locale variable set.

    It is English when there is no catalogue for that language.
    """
    locale = next((environment[name] for name in (VARIABLE, *_LOCALE) if environment.get(name)), "")
    name = locale.replace("-", "_").split("_")[0].split(".")[0].lower()
    return name if name in LANGUAGES else LANGUAGES[0]


@contextmanager
def using_language(name: str) -> Iterator[None]:
    """Use a language in a block, in this thread alone.

    Raises
    ------
    ValueError
        When there is no catalogue for it.
    """
    if name not in LANGUAGES:
        raise ValueError(f"language = {name!r}: one of {', '.join(LANGUAGES)}")
    token = _chosen.set(name)
    try:
        yield
    finally:
        _chosen.reset(token)


PUNCTUATION = ("; ", ", ", ": ")
"""Templates of these and fields alone need no translation."""
_DIGITS = "0123456789., "
"""Characters of numbers and lists of them, which need no translation."""
_FIELD = re.compile(r"\{\w+[^{}]*\}")
_BRACKETED = re.compile(r"\{(\w+)\} \(\{(\w+)\}\)")
_CHINESE = re.compile("[\u4e00-\u9fff]")
_KEPT = (str, int, float)
"""Types of fields that a Text stores unchanged; others are converted to str."""
GROUPED = 10_000_000
"""Integers from here on are shown with separators."""
POWERS = MappingProxyType(
    {
        (1 << power) + step: f"2^{power}{name}"
        for power in (31, 32, 63, 64)
        for step, name in ((-1, "-1"), (0, ""), (1, "+1"))
    }
)
"""Limits of integer types, shown as a power too."""


def count_text(number: int) -> str:
    """Return an integer for people: ``4096``, ``16,778,752``, ``4,294,967,295 (2^32-1)``."""
    if -GROUPED < number < GROUPED:
        return str(number)
    power = POWERS.get(number)
    return f"{number:,} ({power})" if power else f"{number:,}"


class _Count(int):
    """An integer of a sentence; without a format it is shown by :func:`count_text`."""

    __slots__ = ()

    def __format__(self, spec: str) -> str:
        return int.__format__(self, spec) if spec else count_text(self)


class Verbatim(str):
    """Text that is the same in every language: a command, a name, or a rendered sentence."""

    __slots__ = ()


class Argument(Verbatim):
    """An argument in a sentence, with its value or alone: ``limits="hardware"``, ``budget``.

    Front ends show it in their own form, see :func:`using_arguments`.
    """

    __slots__ = ("name", "value")

    name: str
    value: str | bool | None

    def __new__(cls, name: str, value: str | bool | None = None) -> "Argument":
        """Return the argument as Python has it."""
        given = f'="{value}"' if isinstance(value, str) else f"={value}"
        made = super().__new__(cls, name if value is None else name + given)
        made.name, made.value = name, value
        return made

    def __getnewargs__(self) -> tuple[str, str | bool | None]:  # type: ignore[override]
        """Support pickling and copying."""
        return self.name, self.value

    @property
    def option(self) -> str:
        """The argument on the command line: ``--limits hardware``, ``--resume``, ``--budget``."""
        flag = f"--{self.name.replace('_', '-')}"
        return flag if self.value in (True, None) else f"{flag} {self.value}"


_form: ContextVar[Callable[[Argument], str]] = ContextVar("form", default=str)


@contextmanager
def using_arguments(form: Callable[[Argument], str]) -> Iterator[None]:
    """Show arguments in rendered texts in the form of a front end in a block, in this thread."""
    token = _form.set(form)
    try:
        yield
    finally:
        _form.reset(token)


class Text(str):
    """A sentence in English with its template and fields.

    - ``template``: the sentence with named fields, as for ``str.format``. Without fields it is used
      as it is.
    - ``fields``: values of the fields. Texts are rendered in turn; other strings are looked up as a
      template without fields and stay as they are when the catalogue does not have them.
    """

    __slots__ = ("fields", "template")

    template: str
    fields: Mapping[str, Any]

    def __new__(cls, template: str, /, **fields: Any) -> "Text":
        """Return the sentence, formatted once."""
        for name, value in fields.items():
            if not isinstance(value, _KEPT):
                fields[name] = _text_of(value)
        made = super().__new__(cls, template.format_map(fields) if fields else template)
        made.template, made.fields = template, fields
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        """Support pickling and copying with template and fields."""
        return _restored, (type(self), str(self), self.template, self.fields)

    def __add__(self, other: str) -> "Text":
        """Return both one after the other, each rendered on its own."""
        return joined((self, other), "")

    def __radd__(self, other: str) -> "Text":
        """Return both one after the other, each rendered on its own."""
        return joined((other, self), "")

    def rendered(self, lookup: Callable[[str], str | None]) -> str | None:
        """Return the sentence in another language, or None when a part of it has no translation."""
        target = lookup(self.template)
        if target is None:
            return None
        return _filled(target, self.fields, lookup)


class Joined(Text):
    """Parts of a list or a sentence, one after the other; the separator is its template."""

    __slots__ = ()

    def rendered(self, lookup: Callable[[str], str | None]) -> str | None:
        """Return the parts in another language, or None when one of them has no translation."""
        parts = [_rendered(part, lookup) for part in self.fields["parts"]]
        if None in parts:
            return None
        separator = lookup(self.template) if self.template.strip() else self.template
        return (self.template if separator is None else separator).join(map(str, parts))


def _text_of(value: Any) -> str:
    """Return the text of another object; errors keep the Text that they were raised with."""
    if hasattr(value, "as_text"):
        text: str = value.as_text()
        return text
    if isinstance(value, PurePath):
        return Verbatim(value)
    if isinstance(value, Exception) and len(value.args) == 1 and isinstance(value.args[0], Text):
        return value.args[0]
    return str(value)


def _restored(kind: type[Text], sentence: str, template: str, fields: Mapping[str, Any]) -> Text:
    """Return a Text whose sentence is already formatted."""
    made = str.__new__(kind, sentence)
    made.template, made.fields = template, fields
    return made


def joined(parts: Iterable[str], separator: str = "; ") -> Text:
    """Return the parts joined by a separator, each rendered on its own."""
    kept = tuple(parts)
    return _restored(Joined, separator.join(kept), separator, {"parts": kept})


Key = TypeVar("Key")
Item = TypeVar("Item")


def grouped(pairs: Iterable[tuple[Key, Item]]) -> dict[Key, list[Item]]:
    """Return the items of each key, so that a sentence on several of them is printed once."""
    groups: dict[Key, list[Item]] = {}
    for key, item in pairs:
        groups.setdefault(key, []).append(item)
    return groups


def with_changed_fields(text: str, change: Callable[[str], str], *, numbers: bool = False) -> str:
    """Return a text with every field changed that is a string; with ``numbers`` these as well.

    A string without a template is changed itself.
    """

    def changed(value: Any) -> Any:
        if numbers and type(value) in (int, float):
            return change(str(value))
        is_text = isinstance(value, str)
        return with_changed_fields(value, change, numbers=numbers) if is_text else value

    if isinstance(text, Joined):
        return joined([changed(part) for part in text.fields["parts"]], text.template)
    if isinstance(text, Text):
        fields = {name: changed(value) for name, value in text.fields.items()}
        return Text(text.template, **fields)
    return change(text)


def with_arguments(data: Any) -> Any:
    """Return a text, or data with texts, with arguments in the form of the front end in use."""
    if isinstance(data, str):
        form = _form.get()
        return with_changed_fields(
            data, lambda field: Verbatim(form(field)) if isinstance(field, Argument) else field
        )
    if isinstance(data, Mapping):
        return {name: with_arguments(value) for name, value in data.items()}
    if isinstance(data, list | tuple):
        return [with_arguments(value) for value in data]
    return data


def _filled(template: str, fields: Mapping[str, Any], lookup: Any) -> str | None:
    """Return a translated template with its fields; ``{name!s}`` in it takes a field as it is."""
    if not fields:
        return template
    shown = {name: _rendered(value, lookup) for name, value in fields.items()}
    if None in shown.values():
        return None
    for name, value in fields.items():
        if f"{{{name}!s}}" in template:
            shown[name] = str(value)

    def full_width(match: re.Match[str]) -> str:
        # Brackets within Chinese text are full-width characters.
        before, inside = (str(shown[name]) for name in match.groups())
        is_chinese = _CHINESE.match(before[-1:]) and _CHINESE.match(inside)
        return match[0].replace(" (", "（").replace(")", "）") if is_chinese else match[0]

    if lookup is not str:
        template = _BRACKETED.sub(full_width, template)
    readable = {
        name: _Count(value) if type(value) is int and not -GROUPED < value < GROUPED else value
        for name, value in shown.items()
    }
    return template.format_map(readable)


def _rendered(value: Any, lookup: Callable[[str], str | None]) -> Any:
    """Return a field in another language; None when it is a Text without a translation."""
    if isinstance(value, Text):
        return value.rendered(lookup)
    if isinstance(value, Argument):
        return _form.get()(value)
    if not isinstance(value, str) or isinstance(value, Verbatim) or not value.strip(_DIGITS):
        return value
    target = lookup(value)
    return value if target is None else target


@lru_cache
def catalogue(name: str) -> Callable[[str], str | None]:
    """Return the lookup of a language: the translation of a template, or None."""
    if name == LANGUAGES[0]:
        return str
    from gettext import GNUTranslations
    from importlib import resources

    with resources.files("npu_sim.language").joinpath(f"{name}.mo").open("rb") as file:
        entries: dict[str, str] = GNUTranslations(file)._catalog  # type: ignore[attr-defined]
    entries[""] = ""  # the header of the file

    def lookup(template: str) -> str | None:
        target = entries.get(template)
        if target is None and not any(map(str.isalpha, _FIELD.sub("", template))):
            for mark in PUNCTUATION:
                template = template.replace(mark, entries.get(mark, mark))
            return template
        return target

    return lookup


def translated(text: str) -> str:
    """Return a text in the language in use.

    A plain ``str`` is looked up as a template without fields. What has no translation is returned
    in English as a whole. Large integers have separators, unlike in ``str(text)``.
    """
    if not text:
        return text
    target = _rendered(text, catalogue(language()))
    return str(_rendered(text, catalogue(LANGUAGES[0])) if target is None else target)


def say(template: str, /, **fields: object) -> str:
    """Return a sentence of a front end in the language in use, from the arguments of a `Text`."""
    return Verbatim(translated(Text(template, **fields)))


_CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Control characters of terminals (C0, DEL and C1) and of the direction of text, but newline."""


def visible(text: str, *, lines: bool = False) -> str:
    """Return a text with control characters escaped, as in JSON; ``lines`` keeps its newlines.

    Names in untrusted files could otherwise control a terminal, or start a line of a log.
    """
    shown = _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
    return shown if lines else shown.replace("\n", "\\n")


TEXT_KEYS = frozenset({"caption", "path", "reason", "says", "text", "title", "why"})
"""Keys of pictures' data under which texts stand; scripts look names up under the other keys."""


def translated_data(data: Any, key: str = "") -> Any:
    """Return the data of a picture with its texts in the language in use; other strings stay."""
    if language() == LANGUAGES[0]:
        return data
    if isinstance(data, str):
        is_text = isinstance(data, Text) or key in TEXT_KEYS
        return translated(data) if is_text else data
    if isinstance(data, Mapping):
        return {name: translated_data(value, str(name)) for name, value in data.items()}
    if isinstance(data, list | tuple):
        return [translated_data(value, key) for value in data]
    return data


# Sizes, times and fractions as people read them; JSON has the raw numbers.

UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"))
"""Units of sizes that are shown rounded; smaller sizes are exact bytes."""


def bytes_text(size: int) -> str:
    """Return a size: ``131456 bytes``, ``16.0 MiB (16,778,752)``."""
    for unit, name in UNITS:
        if abs(size) >= unit:
            return f"{size / unit:.1f} {name} ({size:,})"
    return say("{size} bytes", size=size)


def short_bytes_text(size: int) -> str:
    """Return a size for a narrow cell: ``131456 B``, ``16.0 MiB``."""
    return next((f"{size / unit:.1f} {name}" for unit, name in UNITS if size >= unit), f"{size} B")


THREE_DIGITS = ((100, ".0f"), (10, ".1f"), (1, ".2f"))
"""Forms of numbers of three significant digits, by the smallest number."""


def time_text(microseconds: float) -> str:
    """Return a time with three significant digits: ``4.14 ns``, ``94.9 us``, ``1.23 ms``."""
    value, unit = float(f"{microseconds:.3g}"), "us"
    if 0 < value < 0.1:
        value, unit = 1000 * value, "ns"
    elif value >= 1e6:
        value, unit = value / 1e6, "s"
    elif value >= 1000:
        value, unit = value / 1000, "ms"
    form = next((form for least, form in THREE_DIGITS if value >= least), ".3g")
    return f"{value:{form}} {unit}"


def ulp_text(error: float) -> str:
    """Return an error for a sentence: ``0.515 ulp``, ``171 ulp``, ``4,913 ulp``."""
    return f"{error:,.0f} ulp" if error >= 1000 else f"{error:.3g} ulp"


def calls_text(count: int, distinct: int | None = None) -> str:
    """Return a number of calls: ``1 call``, ``67 calls``, ``67 calls, 3 of them distinct``."""
    if count == 1:
        return say("1 call")
    if distinct is None:
        return say("{count} calls", count=count)
    return say("{count} calls, {distinct} of them distinct", count=count, distinct=distinct)


def percent_text(fraction: float) -> str:
    """Return a fraction as a percentage: ``32.1 %``."""
    return f"{100 * fraction:.1f} %"
