"""Numbers that planners take for granted."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Assumed:
    """A number that an operator's planner takes for granted instead of asking the chip.

    Attributes
    ----------
    key
        Key of a profile that says it of the chip.
    value
        What the planner counts with, on every SoC.
    source
        Where that is stated.
    if_asked
        ``if_asked(case)`` says what the planner would do if it asked the chip, in words; a model of ours. None where nobody knows.
    """

    key: str
    value: int
    source: str
    if_asked: Callable[[Any], str] | None = None
