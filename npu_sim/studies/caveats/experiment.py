"""What a documented caveat is: an experiment, and what its numbers show."""

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
        How it is called, and what it says.
    source
        Where it is documented.
    experiment
        Returns the numbers that show it.
    explain
        Says in words what the numbers show.
    """

    name: str
    title: str
    source: str
    experiment: Callable[[], Numbers]
    explain: Callable[[Numbers], list[str]]


def different(a: np.ndarray, b: np.ndarray) -> int:
    """Return how many elements differ."""
    return int(np.count_nonzero(a != b))
