"""What one operator declares so that its calls can be varied: its axes, the call they make, and the planner of one row."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

from npu_sim.cores import Profile
from npu_sim.formats import canonical_dtype
from npu_sim.profile_file import closest
from npu_sim.registry import OPERATOR_NAMES, find_operator
from npu_sim.status import INVALID, AclnnError

Value = int | str | bool
Values = dict[str, Value]
"""Value of every axis of one call, by the axis' name."""

SEARCH_END = 1 << 40
"""Sizes are searched up to here (a tensor of as many bytes is beyond every product)."""


@dataclass(frozen=True)
class Number:
    """An axis of whole numbers: a size or a number attribute.

    Attributes
    ----------
    name
        Natural name, for instance ``dim``.
    help
        What it is, with the argument it belongs to.
    default
        Value when nothing else is said.
    low, high
        Range within which values make sense; limits are searched within it.
    unit
        What one step is called ("one more column").
    aliases
        Other names, such as the vendor's.
    """

    name: str
    help: str
    default: int
    low: int = 0
    high: int = SEARCH_END
    unit: str = ""
    aliases: tuple[str, ...] = ()

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

    def _error(self, value: Any) -> AclnnError:
        return AclnnError(
            INVALID, self.name, f"{self.name} = {value!r} is not a whole number in range", f"{self.low} <= {self.name} <= {self.high}"
        )


@dataclass(frozen=True)
class Word:
    """An axis of words: a dtype or a mode; the code of a word is its position."""

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
            raise AclnnError(INVALID, self.name, f"{self.name} = {value!r} is not one of its values", f"values: {', '.join(self.words)}")
        return self.words.index(word)

    def value(self, code: int) -> Value:
        """Return the word of a code."""
        return self.words[int(code)]


@dataclass(frozen=True)
class Switch:
    """An axis that is off or on; its codes are 0 and 1."""

    name: str
    help: str
    default: bool = False
    aliases: tuple[str, ...] = ()

    def code(self, value: Any) -> int:
        """Return 0 or 1."""
        text = str(value).lower()
        if text in ("true", "1", "yes", "on"):
            return 1
        if text in ("false", "0", "no", "off"):
            return 0
        raise AclnnError(INVALID, self.name, f"{self.name} = {value!r} is not a switch", "true or false")

    def value(self, code: int) -> Value:
        """Return the state of a code."""
        return bool(code)


Axis = Number | Word | Switch

DETERMINISTIC = Switch("deterministic", "deterministic computation")
LIMITS = Word(
    "limits", "documented: what the product documents state; hardware: what really fits", ("documented", "hardware"), "documented"
)
COMMON_AXES: tuple[Axis, ...] = (LIMITS, DETERMINISTIC)
"""Axes every operator has, besides product and SoC."""


class Column(NamedTuple):
    """One column of a sweep's records.

    Attributes
    ----------
    path
        Where the value is in the record that a row's planner returns, for instance ``tiling.block_dim``.
    bound
        Largest magnitude it can have, given the largest of every axis and of every field of the devices (and the set
        ``npu_archs``); a column that is always 0 is left out of the sweep. None for fp32 values.
    help
        What it is.
    words
        Meaning of its codes, when it is a code.
    """

    path: str
    bound: Callable[[Any], int] | None
    help: str
    words: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Name of the column."""
        return self.path.removeprefix("tiling.").replace(".", "_")


@dataclass(frozen=True)
class Declaration:
    """What an operator declares in its module of this package.

    Attributes
    ----------
    operator
        Name of the operator.
    axes
        What can vary, slowest first; :data:`COMMON_AXES` come on top.
    call
        Makes the arguments of :func:`npu_sim.plan` from the value of every axis.
    read
        Reads axis values from given ``Arguments`` of the operator, as far as they are given.
    row
        NamedTuple of the codes of all axes, the operator's first, then :data:`COMMON_AXES`.
    rules
        Whole numbers of a profile that the contract needs besides the device: documented limits, supported dtypes.
    plan_row
        ``plan_row(row, device, rules) -> record``: contract and planner in whole numbers only, so that Numba compiles it.
    columns
        The record, column by column.
    left_out
        Paths of the record that are no columns, because an axis or another column says the same.
    inline
        Whether the compiled planner is one function without calls: faster, but it takes long to compile a large one.
    """

    operator: str
    axes: tuple[Axis, ...]
    call: Callable[[Values], dict[str, Any]]
    read: Callable[[Any], Values]
    row: type[Any]
    rules: Callable[[Profile], Any]
    plan_row: Callable[[Any, Any, Any], Any]
    columns: tuple[Column, ...]
    left_out: tuple[str, ...] = field(default=())
    inline: bool = True

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel to other processes by name: every process has the same operators."""
        return find_declaration, (self.operator,)

    @property
    def all_axes(self) -> tuple[Axis, ...]:
        """The operator's axes, then the common ones."""
        return self.axes + COMMON_AXES

    def axis(self, name: str) -> Axis:
        """Return the axis of a name or alias.

        Raises
        ------
        AclnnError
            161002 when there is none.
        """
        wanted = name.replace("-", "_").lower()
        for axis in self.all_axes:
            if wanted in (known.lower() for known in (axis.name, *axis.aliases)):
                return axis
        names = [axis.name for axis in self.all_axes]
        raise AclnnError(
            INVALID, name, f"{self.operator} has nothing called {name!r} to vary", f"one of: {', '.join(names)}{closest(wanted, names)}"
        )

    def defaults(self) -> Values:
        """Return the default value of every axis of the operator."""
        return {axis.name: axis.default for axis in self.axes}

    def plan_arguments(self, values: Mapping[str, Value]) -> dict[str, Any]:
        """Return all keyword arguments of :func:`npu_sim.plan` but the profile."""
        own = {axis.name: values[axis.name] for axis in self.axes}
        return {"deterministic": values["deterministic"], "limits": values["limits"], **self.call(own)}


@cache
def find_declaration(operator: str) -> Declaration:
    """Return the declaration of an operator.

    Raises
    ------
    AclnnError
        161002 when there is no such operator.
    """
    entry = find_operator(operator)
    if entry is None:
        hint = f"operators: {', '.join(OPERATOR_NAMES)}{closest(operator, OPERATOR_NAMES)}"
        raise AclnnError(INVALID, "operator", f"operator = {operator!r}: no such operator", hint)
    declaration: Declaration = import_module(f"npu_sim.sweeps.{entry.name}").DECLARATION
    return declaration
