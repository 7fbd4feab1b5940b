"""Axes: the sizes, dtypes, modes and switches of an operator that can vary, by natural name."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from npu_sim.language import Text
from npu_sim.numbers.formats import SHORT_NAMES, TensorSpec, canonical_dtype
from npu_sim.status import UsageError, closest, shown

Value = int | str | bool
Values = dict[str, Value]
"""Value of every axis of one call, by the axis' name."""

FLOAT_DTYPES = ("float32", "float16", "bfloat16")
"""Values of the axes of floating-point dtypes; codes are positions."""
FLOAT32 = FLOAT_DTYPES.index("float32")
DOCUMENTED = 0
"""Code of ``limits = documented``."""
NOT_DOCUMENTED = -1
"""Value of a limit that the product does not document."""
SEARCH_END = 1 << 40
"""Sizes are searched up to here (a tensor of as many bytes is beyond every product)."""


@dataclass(frozen=True)
class Number:
    """An axis of integers: a size or a number attribute.

    Attributes
    ----------
    name
        Natural name, for instance ``dim``.
    help
        What it is, with the argument it belongs to.
    default
        Value of the axis when it is not given.
    low, high
        Range within which values make sense; limits are searched within it.
    unit
        Noun of one step, as in "one more column".
    aliases
        Other names, such as the vendor's.
    read
        Expression over other sizes that gives it in a call where no tensor has such an axis.
    """

    name: str
    help: str
    default: int
    low: int = 0
    high: int = SEARCH_END
    unit: str = ""
    aliases: tuple[str, ...] = ()
    read: str = ""

    def code(self, value: Any) -> int:
        """Return the value as the planners take it; the value itself."""
        if isinstance(value, str):
            try:
                value = int(value)
            except ValueError:
                raise self._error(value) from None
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise self._error(value)
        number = value.__index__()
        if not self.low <= number <= self.high:
            raise self._error(value)
        return int(number)

    def value(self, code: int) -> Value:
        """Return the value of a code."""
        return int(code)

    def _error(self, value: Any) -> UsageError:
        return UsageError(
            self.name,
            Text("{name} = {value} is not an integer in {low}..{high}", self, value=shown(value)),
            f"{self.low} <= {self.name} <= {self.high}",
        )


@dataclass(frozen=True)
class Word:
    """An axis of names: a dtype or a mode; the code of a name is its position in ``words``."""

    name: str
    help: str
    words: tuple[str, ...]
    default: str
    aliases: tuple[str, ...] = ()

    def code(self, value: Any) -> int:
        """Return the position of a word; dtypes may be given by any of their names."""
        word = value
        if word not in self.words:
            try:
                word = canonical_dtype(value)
            except (ValueError, TypeError):
                word = str(value).lower()
        if word not in self.words:
            names = (
                *self.words,
                *(SHORT_NAMES[word] for word in self.words if word in SHORT_NAMES),
            )
            raise UsageError(
                self.name,
                Text("{name} = {value} is not one of its values", self, value=shown(value)),
                Text(
                    "values: {words}{hint}", words=", ".join(self.words), hint=closest(value, names)
                ),
            )
        return self.words.index(word)

    def value(self, code: int) -> Value:
        """Return the word of a code."""
        return self.words[int(code)]


@dataclass(frozen=True)
class Switch:
    """A switch, or whether an optional ``tensor`` is given; its codes are 0 and 1."""

    name: str
    help: str
    default: bool = False
    aliases: tuple[str, ...] = ()
    tensor: str = ""

    def code(self, value: Any) -> int:
        """Return 0 or 1."""
        text = str(value).lower()
        if text in ("true", "1", "yes", "on"):
            return 1
        if text in ("false", "0", "no", "off"):
            return 0
        raise UsageError(
            self.name,
            Text("{name} must be True or False, got {value}", self, value=shown(value)),
            "true or false",
        )

    def value(self, code: int) -> Value:
        """Return the state of a code."""
        return bool(code)


@dataclass(frozen=True)
class Derived:
    """An integer that planners need and that is not an axis.

    Attributes
    ----------
    name
        Its name.
    swept
        Value when only sizes are given: an expression over axes, such as ``"tokens * num_topk"``.
    read
        Value in a given call, from the specs of its tensors. Where None, the value is that of the
        axis of this name in a pattern, or ``swept``.
    """

    name: str
    swept: str
    read: Callable[[Mapping[str, TensorSpec]], int] | None = None


Axis = Number | Word | Switch

DETERMINISTIC = Switch("deterministic", "deterministic computation")
LIMITS = Word(
    "limits",
    "documented: limits of the product documents; hardware: limits of the buffers",
    ("documented", "hardware"),
    "documented",
)
COMMON_AXES: tuple[Axis, ...] = (LIMITS, DETERMINISTIC)
"""Axes every operator has, besides product and SoC."""


def distance(axis: Axis, now: Value, value: Value) -> float:
    """Return the relative distance of two values; infinite for names and switches."""
    return (
        abs(int(value) - int(now)) / max(abs(int(now)), 1) if isinstance(axis, Number) else math.inf
    )
