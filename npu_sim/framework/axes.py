"""Axes: the sizes, dtypes, modes and switches of an operator that can vary, by natural name.

Also the integer expressions over them: evaluated for one call, or turned into source for Numba.
"""

import ast
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from npu_sim.framework.target import LIMITS
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

DETERMINISTIC_AXIS = Switch("deterministic", "deterministic computation")
LIMITS_AXIS = Word(
    "limits",
    "documented: limits of the product documents; hardware: limits of the buffers",
    LIMITS,
    LIMITS[0],
)
COMMON_AXES: tuple[Axis, ...] = (LIMITS_AXIS, DETERMINISTIC_AXIS)
"""Axes every operator has, besides product and SoC."""


def plain_text(value: object) -> str:
    """Return a value as on the command line: ``true`` for True."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def distance(axis: Axis, now: Value, value: Value) -> float:
    """Return the relative distance of two values; infinite for names and switches."""
    return (
        abs(int(value) - int(now)) / max(abs(int(now)), 1) if isinstance(axis, Number) else math.inf
    )


_ALLOWED = (
    ast.Expression, ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub,
    ast.Compare, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq,
    ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod,
    ast.Name, ast.Load, ast.Constant, ast.Call,
)  # fmt: skip
_FUNCTIONS = {"min": min, "max": max}


class ExpressionError(ValueError):
    """The text is not an expression; the message lists what is allowed."""


@cache
def parse(text: str) -> ast.Expression:
    """Parse an expression of integers, names, arithmetic, comparisons, and/or/not, min and max.

    Raises ExpressionError for any other text.
    """
    try:
        tree = ast.parse(text, mode="eval")
    except SyntaxError as error:
        raise ExpressionError(
            Text("{text} is not an expression: {msg}", error, text=repr(text))
        ) from None
    for node in ast.walk(tree):
        if not isinstance(node, _ALLOWED) or not _is_number_or_function(node):
            raise ExpressionError(
                Text(
                    "{text}: {expression} is not allowed; allowed are {wanted}",
                    text=repr(text),
                    expression=repr(ast.unparse(node)),
                    wanted="integers, names, + - * // %, comparisons, and, or, not, min(), max()",
                )
            )
    return tree


def _is_number_or_function(node: ast.AST) -> bool:
    """Return whether a node, if a constant, is an integer, and if a call, of a known function."""
    if isinstance(node, ast.Constant):
        return type(node.value) is int
    return not isinstance(node, ast.Call) or getattr(node.func, "id", "") in _FUNCTIONS


@cache
def names(text: str) -> tuple[str, ...]:
    """Return the names in an expression, in order."""
    found = [
        node.id
        for node in ast.walk(parse(text))
        if isinstance(node, ast.Name) and node.id not in _FUNCTIONS
    ]
    return tuple(dict.fromkeys(found))


def evaluate(text: str, value_of: Callable[[str], Any]) -> Any:
    """Return the value of an expression; ``value_of`` gives that of a name."""
    return _function(text)(*map(value_of, names(text)))


@cache
def _function(text: str) -> Callable[..., Any]:
    """Return an expression as a function of its names."""
    function: Callable[..., Any] = eval(
        f"lambda {', '.join(names(text))}: {text}", {"__builtins__": {}, **_FUNCTIONS}
    )  # parsed above
    return function


def in_row(text: str, rules: tuple[str, ...] = ()) -> str:
    """Return an expression with names replaced by fields of ``rules``, if there, or ``row``."""
    owners = {name: "rules" if name in rules else "row" for name in names(text)}

    def qualified(word: re.Match[str]) -> str:
        return f"{owners[word[0]]}.{word[0]}" if word[0] in owners else word[0]

    return re.sub(r"\w+", qualified, ast.unparse(parse(text)))
