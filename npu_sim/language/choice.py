"""Which language is spoken: a page's own choice, NPU_SIM_LANG, the locale, in this order."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

LANGUAGES = ("en", "zh")
"""English, in which the code is written, and the languages that have a catalogue."""
VARIABLE = "NPU_SIM_LANG"
_LOCALE = ("LC_ALL", "LC_MESSAGES", "LANG")
_chosen: ContextVar[str | None] = ContextVar("language", default=None)


def language() -> str:
    """Return the language to speak here and now, one of `LANGUAGES`."""
    return _chosen.get() or language_of(os.environ)


def language_of(environment: Mapping[str, str]) -> str:
    """Return what an environment asks for: ``NPU_SIM_LANG``, or else the first of the locale's variables that is set.

    Languages without a catalogue are answered in English.
    """
    wanted = next((environment[name] for name in (VARIABLE, *_LOCALE) if environment.get(name)), "")
    name = wanted.replace("-", "_").split("_")[0].split(".")[0].lower()
    return name if name in LANGUAGES else LANGUAGES[0]


@contextmanager
def speaking(name: str) -> Iterator[None]:
    """Speak a language in a block, in this thread alone.

    Raises
    ------
    ValueError
        When there is no such language.
    """
    if name not in LANGUAGES:
        raise ValueError(f"language = {name!r}: one of {', '.join(LANGUAGES)}")
    token = _chosen.set(name)
    try:
        yield
    finally:
        _chosen.reset(token)
