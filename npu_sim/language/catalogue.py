"""Translation of what is shown.

What shows texts says them with `say`, template and contents apart. Texts of the rooms below were filled in where the facts are, in English:
`translated` recognises such a sentence by its template (the f-string of the code, which the catalogue holds) and translates what stands in
its holes in turn; then it tries the parts of what was joined. What is in no catalogue, such as names of tensors, stays as it is.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from importlib import resources
from types import MappingProxyType

from npu_sim.language.choice import LANGUAGES, language
from npu_sim.language.template import Template

CHINESE = re.compile("[\u4e00-\u9fff]")
"""What has been translated already has one of these."""
SURE_LETTERS = 6
"""Letters that make a sentence with holes more likely than a list of parts."""
SEPARATORS = MappingProxyType({"\n": "\n", "; ": "；", ", ": "，", ": ": "：", " or ": " 或 ", " = ": " = "})
"""What joins parts of a text, widest first, and what joins them in Chinese."""
BESIDE = (
    (re.compile(r"(.+) \((.*)\)", re.DOTALL), "{}（{}）"),
    (re.compile(r"([\d.,]+) (.+)"), "{} {}"),
    (re.compile(r"(.+) ([\d.,x]+)"), "{} {}"),
)
"""Parts that stand beside each other without a separator: a remark in brackets, a number and what it counts."""


class Catalogue:
    """The translations into one language.

    Parameters
    ----------
    entries
        Texts of the code, with named holes, and their translations, with the same holes.
    """

    def __init__(self, entries: Iterable[tuple[str, str]]) -> None:
        pairs = [(Template(source), Template(target)) for source, target in entries]
        self._whole = {source.text.replace("{{", "{").replace("}}", "}"): target.filled({}, str) for source, target in pairs if not source.holes}
        self._open = sorted((pair for pair in pairs if pair[0].holes), key=lambda pair: -pair[0].letters)
        self._templates = {source.text: target for source, target in pairs}
        self._known = lru_cache(maxsize=4096)(self._found)

    def translated(self, text: str) -> str:
        """Return a text in this language, as far as it is known."""
        return self._known(text)

    def said(self, template: str, contents: dict[str, str]) -> str:
        """Return a sentence of the catalogue with its contents, both in this language."""
        changed = {name: self.translated(content) for name, content in contents.items()}
        target = self._templates.get(template)
        return (target or Template(template)).filled(changed, str)

    def _found(self, text: str) -> str:
        core = text.strip(" ")
        if not re.search("[A-Za-z]", core) or CHINESE.search(core):
            return text
        answer = self._whole.get(text) or self._whole.get(core)
        if answer is None:
            answer = self._sentence(core, SURE_LETTERS)
        if answer is None:
            answer = self._joined(core)
        if answer is None:
            answer = self._sentence(core, 1)
        return text if answer is None else answer

    def _sentence(self, text: str, letters: int) -> str | None:
        for source, target in self._open:
            if source.letters < letters:
                return None
            contents = source.contents(text)
            if contents is not None and text not in contents.values():
                return target.filled(contents, self.translated)
        return None

    def _joined(self, text: str) -> str | None:
        for separator, joint in SEPARATORS.items():
            parts = text.split(separator)
            if len(parts) > 1:
                changed = [self.translated(part) for part in parts]
                if changed != parts:
                    return joint.join(changed)
        for pattern, together in BESIDE:
            found = pattern.fullmatch(text)
            if found:
                changed = [self.translated(part) for part in found.groups()]
                if changed != list(found.groups()):
                    return together.format(*changed)
        return None


@lru_cache
def catalogue(name: str) -> Catalogue:
    """Return the catalogue of a language."""
    import polib

    folder = resources.files("npu_sim.language")
    entries = polib.pofile(folder.joinpath(f"{name}.po").read_text(encoding="utf-8"))
    return Catalogue((entry.msgid, entry.msgstr) for entry in entries if entry.msgstr)


def translated(text: str) -> str:
    """Return a text in the language that is spoken; what no catalogue holds stays English."""
    spoken = language()
    return text if spoken == LANGUAGES[0] else catalogue(spoken).translated(text)


def say(template: str, /, **contents: object) -> str:
    """Return a sentence in the language that is spoken.

    Parameters
    ----------
    template
        The sentence, with named holes and their formats, as for `str.format`.
    contents
        What stands in the holes; texts are translated too.
    """
    spoken = language()
    if spoken == LANGUAGES[0]:
        return template.format(**contents)
    parts = Template(template).formats
    return catalogue(spoken).said(template, {name: format(contents[name], form) for name, form in parts.items()})
