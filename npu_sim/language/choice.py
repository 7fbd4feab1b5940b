"""The language in use: chosen for a block, by NPU_SIM_LANG, or by the locale, in this order."""

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
    """Return the language in use, one of `LANGUAGES`."""
    return _chosen.get() or language_of(os.environ)


def language_of(environment: Mapping[str, str]) -> str:
    """Return the language of an environment: ``NPU_SIM_LANG``, or the first locale variable set.

    It is English when there is no catalogue for that language.
    """
    names = (VARIABLE, *_LOCALE)
    locale = next((environment[name] for name in names if environment.get(name)), "")
    name = locale.replace("-", "_").split("_")[0].split(".")[0].lower()
    return name if name in LANGUAGES else LANGUAGES[0]


@contextmanager
def speaking(name: str) -> Iterator[None]:
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
