"""Data model of a documented caveat."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Numbers = dict[str, Any]


@dataclass(frozen=True)
class Caveat:
    """One documented caveat.

    Attributes
    ----------
    name, title
        Name, and the documented statement.
    source
        Product document.
    experiment
        Function that returns the numbers that show the effect.
    explain
        Function that returns the meaning of the numbers as lines of text.
    codes
        Codes of the caveats of plans and runs whose effect it shows.
    """

    name: str
    title: str
    source: str
    experiment: Callable[[], Numbers]
    explain: Callable[[Numbers], list[str]]
    codes: tuple[str, ...] = ()


def different(a: np.ndarray, b: np.ndarray) -> int:
    """Return the number of elements that differ."""
    return int(np.count_nonzero(a != b))
