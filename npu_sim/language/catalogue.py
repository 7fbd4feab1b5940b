"""Translation of what is shown.

What shows texts says them with `say`, template and contents apart. Texts of the rooms below were
filled in where the facts are, in English: `translated` recognises such a sentence by its template
(the f-string of the code, which the catalogue holds) and translates what stands in its holes in
turn; then it tries the parts of what was joined. What is in no catalogue, such as names of tensors,
stays as it is.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from importlib import resources
from types import MappingProxyType
from typing import Any

from npu_sim.language.choice import LANGUAGES, language
from npu_sim.language.template import Template, Verbatim

CHINESE = re.compile("[\u3000-\u303f\u4e00-\u9fff\uff00-\uffef]")
"""What has been translated already has one of these."""
FEWEST_LETTERS = 4
"""Letters that a sentence with holes needs to be recognised; what has fewer is only said."""
SURE_LETTERS = 7
"""Letters with which it is more likely than a list of parts."""
LISTS = MappingProxyType({"\n": "\n", "; ": "；", " -> ": " -> ", ", ": "，"})
"""What joins the parts of a list, widest first, and what joins them in Chinese."""
PAIRS = MappingProxyType({": ": "：", " or ": " 或 ", " and ": " 和 ", " = ": " = "})
"""What joins two parts."""
CHINESE_JOINTS = re.compile("([，；：（）。])")
JOINTS = re.compile("([,;:] | -> )")
"""What joins parts of a text that is translated in part."""
NAME = re.compile(r"[A-Za-z_][\w-]*")
"""What may be the name of an argument, a size or an experiment."""
VALUE = re.compile(rf"{NAME.pattern} = \S+")
"""A name and its value."""
_ALTERNATIVE = re.compile(r"[\w-]+( \(\w+\))?")
NEUTRAL = MappingProxyType(
    {", ": re.compile(".+ = .+"), " or ": _ALTERNATIVE, " and ": _ALTERNATIVE}
)
"""Parts of lists that may need no translation: values, and alternatives, each a name or a value
with its name."""
LONG_LETTERS = 24
"""Letters of a sentence in whose holes lists may stand."""
BESIDE = (
    (re.compile(r"([\d.,]+) (.+) of ([\d.,x ]+)(.*)"), "{} {}，各 {}{}"),
    (re.compile(r"(.+) \((.*)\)", re.DOTALL), "{}（{}）"),
    (re.compile(r"([\d.,]+) (.+)"), "{} {}"),
    (re.compile(r"(.+?) ([\d.,x]+(?: [KMG]iB| us| %)?)"), "{} {}"),
)
"""Parts that stand beside each other without a separator: a remark in brackets, a number and what
it counts."""


class Catalogue:
    """The translations into one language.

    Parameters
    ----------
    entries
        Texts of the code, with named holes, and their translations, with the same holes.
    """

    def __init__(self, entries: Iterable[tuple[str, str]]) -> None:
        given = list(entries)
        given += [
            (source[2:], target[1:]) for source, target in given if source.startswith((", ", "; "))
        ]
        pairs = [(Template(source), Template(target)) for source, target in given]
        self._whole = {
            source.text.replace("{{", "{").replace("}}", "}"): target.filled({}, str)
            for source, target in pairs
            if not source.holes
        }
        open_ones = [
            (source, target)
            for source, target in pairs
            if source.holes and source.letters >= FEWEST_LETTERS
        ]
        self.sentences = sorted(open_ones, key=lambda pair: -pair[0].letters)
        self._templates = {source.text: target for source, target in pairs}
        self._most_parts = {
            separator: 1 + max(text.count(separator) for text in ["", *self._whole])
            for separator in (*LISTS, *PAIRS)
        }
        self._known = lru_cache(maxsize=4096)(self._found)

    def translated(self, text: str) -> str:
        """Return a text in this language, as far as it is known."""
        return self._known(text)

    def said(self, template: Template, contents: dict[str, str]) -> str:
        """Return a sentence of the catalogue with its contents, both in this language."""
        changed = {
            name: content if isinstance(content, Verbatim) else self.translated(content)
            for name, content in contents.items()
        }
        target = self._templates.get(template.plain.strip(" "), template)
        return target.filled({**changed, **{name: contents[name] for name in target.names}}, str)

    def _found(self, text: str) -> str:
        core = text.strip(" ")
        if CHINESE.search(core):
            return self._mixed(core)
        if not re.search("[A-Za-z]", core):
            return text
        answer = self._whole.get(core)
        if answer is None:
            answer = self._counted(core)
        if answer is None:
            answer = self._sentence(core, SURE_LETTERS)
        if answer is None:
            answer = self._joined(core, LISTS)
        if answer is None:
            answer = self._after_name(core)
        if answer is None:
            answer = self._sentence(core, FEWEST_LETTERS)
        if answer is None:
            answer = self._joined(core, PAIRS)
        if answer is None:
            answer = self._beside(core)
        return text if answer is None else answer

    def _mixed(self, text: str) -> str:
        """Return a text of which some parts are in this language already."""
        for joints in (CHINESE_JOINTS, JOINTS):
            parts = joints.split(text)
            if len(parts) > 1:
                said = [part if joints.fullmatch(part) else self.translated(part) for part in parts]
                beside = [
                    CHINESE.search("".join(said[max(place - 1, 0) : place + 2]))
                    for place in range(len(said))
                ]
                return "".join(
                    (LISTS.get(part) or PAIRS.get(part) or part) if near and place % 2 else part
                    for place, (part, near) in enumerate(zip(said, beside, strict=True))
                )
        return text

    def _counted(self, text: str) -> str | None:
        word, _, number = text.rpartition(" ")
        if word in self._whole and number.isdigit():
            return f"{self._whole[word]} {number}"
        if word.removesuffix(" in") in self._whole and word.endswith(
            " in"
        ):  # what is computed in which format
            return f"{self._whole[word.removesuffix(' in')]}，{number}"
        name, _, value = text.partition(" = ")
        if VALUE.fullmatch(text):
            return f"{name} = {self.translated(value)}"
        label, _, meaning = text.partition(": ")
        if meaning in self._whole and NAME.fullmatch(label):  # a name and what it is
            return f"{label}：{self._whole[meaning]}"
        return None

    def _sentence(self, text: str, letters: int) -> str | None:
        for source, target in self.sentences:
            if source.letters < letters:
                return None
            contents = (
                source.contents(text) if source.longest in text else None
            )  # most sentences are told apart so
            if (
                contents is not None
                and text not in contents.values()
                and (source.letters >= LONG_LETTERS or self._fits(contents))
            ):
                return target.filled(contents, self.translated)
        return None

    def _fits(self, contents: Mapping[str, str]) -> bool:
        """Whether no list stands in a hole, other than one of names, or one that is a sentence."""
        separators = (*LISTS, ": ")
        texts = [
            content for content in contents.values() if not self._are_names(content.split(", "))
        ]
        lists = [
            content
            for content in texts
            if any(len(split_outside_brackets(content, one)) > 1 for one in separators)
        ]
        return all(
            content in self._whole or self._sentence(content, LONG_LETTERS) is not None
            for content in lists
        )

    def _are_names(self, parts: Sequence[str]) -> bool:
        """Whether the parts of a list are names, among which may be words."""
        return (
            len(parts) > 1
            and all(NAME.fullmatch(part.strip("'")) for part in parts)
            and not all(part in self._whole for part in parts)
        )

    def _joined(self, text: str, separators: Mapping[str, str]) -> str | None:
        for separator, joint in separators.items():
            parts = self._known_together(split_outside_brackets(text, separator), separator)
            if separator == ", " and self._are_names(parts):
                return text
            changed = self._all(parts)
            if (
                changed is None
                and len(parts) > 1
                and separator in NEUTRAL
                and all(map(NEUTRAL[separator].fullmatch, parts))
            ):
                changed = parts
            if changed is not None:
                return joint.join(changed)
        return None

    def _known_together(self, parts: list[str], separator: str) -> list[str]:
        """Join parts again that the catalogue knows as one text."""
        found: list[str] = []
        while parts:
            most = min(len(parts), self._most_parts[separator])
            count = next(
                (
                    count
                    for count in range(most, 1, -1)
                    if separator.join(parts[:count]) in self._whole
                ),
                1,
            )
            found.append(separator.join(parts[:count]))
            parts = parts[count:]
        return found

    def _after_name(self, text: str) -> str | None:
        """Return what follows a name or a number in this language."""
        name, _, words = text.partition(" ")
        meant = self._whole.get(words) or self._sentence(words, SURE_LETTERS)
        return (
            f"{name} {meant}" if meant is not None and not name.endswith((":", ",", ";")) else None
        )

    def _beside(self, text: str) -> str | None:
        for pattern, together in BESIDE:
            found = pattern.fullmatch(text)
            changed = self._all(found.groups()) if found else None
            if changed is not None:
                return together.format(*changed)
        return None

    def _all(self, parts: Sequence[str]) -> list[str] | None:
        """Return the parts of a text in this language; None when none of them is known."""
        changed = [self.translated(part) for part in parts] if len(parts) > 1 else list(parts)
        return None if changed == list(parts) else changed


def split_outside_brackets(text: str, separator: str) -> list[str]:
    """Return the parts of a text between separators that do not stand in brackets."""
    parts: list[str] = []
    open_brackets = 0
    for piece in text.split(separator):
        if open_brackets > 0:
            parts[-1] += separator + piece
        else:
            parts.append(piece)
            open_brackets = 0
        open_brackets += piece.count("(") - piece.count(")")
    return parts


@lru_cache
def catalogue(name: str) -> Catalogue:
    """Return the catalogue of a language."""
    import polib

    folder = resources.files("npu_sim.language")
    entries = polib.pofile(folder.joinpath(f"{name}.po").read_text(encoding="utf-8"))
    return Catalogue((entry.msgid, entry.msgstr) for entry in entries if entry.msgstr)


def translated(text: str) -> str:
    """Return a text in the language that is spoken; what is verbatim, or in no catalogue, stays as it is."""
    spoken = language()
    return (
        text
        if spoken == LANGUAGES[0] or isinstance(text, Verbatim)
        else catalogue(spoken).translated(text)
    )


def say(template: str, /, **contents: object) -> str:
    """Return a sentence in the language that is spoken.

    Parameters
    ----------
    template
        The sentence, with named holes and their formats, as for `str.format`.
    contents
        What stands in the holes; texts are translated too, unless they are :class:`Verbatim`.
    """
    spoken = language()
    if spoken == LANGUAGES[0]:
        return template.format(**contents)
    asked = Template(template)
    kept = {name for name, content in contents.items() if isinstance(content, Verbatim)}
    filled = {name: format(contents[name], form) for name, form in asked.formats.items()}
    return Verbatim(
        catalogue(spoken).said(
            asked, {name: Verbatim(text) if name in kept else text for name, text in filled.items()}
        )
    )


def joined(parts: Iterable[str], separator: str = "; ") -> str:
    """Return the parts of a list, one of those of `LISTS`, joined as the language that is spoken does; each is said already."""
    return Verbatim((separator if language() == LANGUAGES[0] else LISTS[separator]).join(parts))


TEXT_KEYS = frozenset({"caption", "path", "reason", "says", "text", "title", "why"})
"""What data for pictures call their texts; names under other keys are what scripts look for."""


def translated_data(data: Any, key: str = "") -> Any:
    """Return data for a picture with its texts in the language that is spoken; names stay."""
    if language() == LANGUAGES[0]:
        return data
    if isinstance(data, str):
        return translated(data) if key in TEXT_KEYS else data
    if isinstance(data, Mapping):
        return {name: translated_data(value, str(name)) for name, value in data.items()}
    return (
        [translated_data(value, key) for value in data] if isinstance(data, list | tuple) else data
    )
