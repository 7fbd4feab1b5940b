"""Declared arguments of an operator and the axes that can vary, and the arguments of one call.

Axes are the sizes, dtypes, modes and switches of an operator, by natural name; integer expressions
over them are evaluated for one call, or turned into source for Numba.
"""

import ast
import math
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, lru_cache
from operator import index
from types import NoneType
from typing import Any, ClassVar, Literal

import numpy as np

from npu_sim.framework.target import LIMITS
from npu_sim.language import Text, Verbatim
from npu_sim.numbers.arrays import Dtype, as_array
from npu_sim.numbers.formats import SHORT_NAMES, SpecText, TensorSpec, canonical_dtype
from npu_sim.plans.answers import ReadOnlyDict
from npu_sim.status import UsageError, shown, tip

CALL_OPTIONS: dict[str, Any] = {
    "product": None,
    "soc": None,
    "release": None,
    "deterministic": False,
    "core_order": "sequential",
    "seed": 0,
    "limits": "documented",
    "out": None,
}
"""Options of every operator and their defaults; :func:`npu_sim.run` describes them."""
REQUIRED = object()
"""Default of an attribute that a call must give."""
INT64_MAX = 2**63 - 1


def _keep_name(argument: "Tensor | Attribute | Number | Word | Switch") -> None:
    """Make the name of an argument the same in every language: people type it."""
    object.__setattr__(argument, "name", Verbatim(argument.name))


@dataclass(frozen=True)
class Tensor:
    """An input tensor.

    Attributes
    ----------
    name
        Name of the argument.
    shape
        Pattern of its axes, see :mod:`npu_sim.framework.patterns`; where attributes decide, a
        function of the arguments that returns the pattern.
    help
        What it is.
    dtype
        Axis that says its dtype, or the one dtype it can have.
    document
        Name of the parameter in the product document; the name in camel case when empty.
    optional
        Whether a call may leave it out.
    samples
        Axis along which samples lie, for what changes when a batch does, or a function of the
        arguments that returns it; None when it has none.
    addresses
        Whether its values are addresses for kernels, as indices and labels are. A run then uses a
        copy: other threads cannot change values between check and use.
    like
        The tensor whose dtype it has, or its dtype, where a plan leaves it out and no given tensor
        has its axis of dtypes.
    required_in_c
        Whether the C function requires it although it is optional here.
    """

    name: str
    shape: str | Callable[[Mapping[str, Any]], str]
    help: str
    dtype: str = ""
    document: str = ""
    optional: bool = False
    samples: int | Callable[[Mapping[str, Any]], int | None] | None = None
    addresses: bool = False
    like: str = ""
    required_in_c: bool = False
    default: ClassVar[None] = None
    """Value when a call leaves it out."""

    def __post_init__(self) -> None:
        _keep_name(self)

    @property
    def parameter(self) -> str:
        """Name of the parameter in the product document."""
        return self.document or camel_case(self.name)

    def pattern(self, arguments: Mapping[str, Any]) -> str:
        """Return the pattern of its axes, which attributes may decide."""
        return self.shape(arguments) if callable(self.shape) else self.shape

    def sample_axis(self, arguments: Mapping[str, Any]) -> int | None:
        """Return the axis along which samples lie, which attributes may decide."""
        return self.samples(arguments) if callable(self.samples) else self.samples


@dataclass(frozen=True)
class Output(Tensor):
    """An output: a spec left out follows from the inputs.

    Checks and ``Case.specs`` know it as the argument ``name`` (``out``); what is computed, order
    masks, caveats and the command line by its result, ``output`` (``y``).

    Attributes
    ----------
    result
        Name of the result and of the command line's option, where that is not the argument's.
    parts
        What one flag of its order mask stands for: ``row``, ``column`` or ``element``.
    given_with
        The optional input without which it is not written: its shape is then not checked, and the
        result is None.
    written_for
        A string attribute, and the values for which it is written: with others as without
        ``given_with``. In C the attribute is no parameter: it follows from null pointers.
    in_place
        The input whose memory the product writes: the C function has no parameter for the output,
        and a call may pass that input as its memory.
    """

    result: str = ""
    parts: Literal["row", "column", "element"] = "row"
    given_with: str = ""
    written_for: tuple[str, tuple[str, ...]] = ("", ())
    in_place: str = ""

    @property
    def output(self) -> str:
        """Name of the result."""
        return self.result or self.name

    def is_asked_for(self, arguments: Mapping[str, Any]) -> bool:
        """Return whether a call with these arguments writes it."""
        is_given = not self.given_with or arguments[self.given_with] is not None
        return is_given and self.is_chosen(arguments)

    def is_chosen(self, arguments: Mapping[str, Any]) -> bool:
        """Return whether the attribute of ``written_for`` has a value with which it is written."""
        attribute, words = self.written_for
        return not attribute or arguments[attribute] in words


class IntArray(tuple[int, ...]):
    """Integers, also from text with commas; the value of an ``aclIntArray`` attribute."""

    def __new__(cls, numbers: "str | Iterable[Any]") -> "IntArray":
        """Raise TypeError or ValueError for anything else."""
        found = (
            (int(text) for text in numbers.split(","))
            if isinstance(numbers, str)
            else map(index, numbers)
        )
        return super().__new__(cls, found)


@dataclass(frozen=True)
class Attribute:
    """An argument that is not a tensor.

    Attributes
    ----------
    name, help, document
        As for a tensor.
    kind
        ``int``, ``float``, ``bool``, ``str`` or :class:`IntArray`.
    default
        Value when a call leaves it out; :data:`REQUIRED` when it may not. None stands for a null
        pointer in C.
    low, high
        Legal range of an integer, both ends included.
    words
        Names of the values of an integer from 0 on, as other programs have them.
    """

    name: str
    kind: type
    help: str
    default: Any = REQUIRED
    document: str = ""
    low: int = -INT64_MAX - 1
    high: int = INT64_MAX
    words: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _keep_name(self)

    @property
    def parameter(self) -> str:
        """Name of the parameter in the product document."""
        return self.document or camel_case(self.name)

    @property
    def required(self) -> bool:
        """Whether a call must give it."""
        return self.default is REQUIRED

    @property
    def optional(self) -> bool:
        """Whether it may be None."""
        return self.default is None


Argument = Tensor | Attribute


def camel_case(name: str) -> str:
    """Return ``gradLoss`` for ``grad_loss``."""
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


class Arguments(ReadOnlyDict):
    """The arguments of one call, also as attributes.

    Tensors are specs (None when left out); attributes are as they were given.
    """

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def given(self, names: Iterable[str]) -> dict[str, Any]:
        """Return those of some arguments that are not None, by name."""
        return {name: value for name in names if (value := self[name]) is not None}

    def as_dict(self) -> dict[str, Any]:
        """Return the arguments as plain data: tensors as ``SpecText``, attributes as they are."""
        return {
            name: SpecText(value) if isinstance(value, TensorSpec) else value
            for name, value in self.items()
            if value is not None
        }


Signature = tuple[tuple[str, ...], tuple[Any, ...], tuple[type, ...], str]
"""Names, values and types of all arguments, and the floats as text, as 0.0 equals -0.0."""
_PLAIN = frozenset({TensorSpec, NoneType, bool, int, float, str})


def cache_key(arguments: Arguments) -> Signature | None:
    """Return the arguments as a cache key; None when a value is mutable or of an unknown type."""
    values = tuple(arguments.values())
    kinds = tuple(map(type, values))
    if not _PLAIN.issuperset(kinds):
        return None
    floats = [value for value in values if type(value) is float] if float in kinds else ""
    return tuple(arguments), values, kinds, str(floats)


def require_known(known: Mapping[str, Argument], names: Iterable[str]) -> None:
    """Check that every name is that of an argument.

    Raises UsageError for the first one that is not; the hint knows the product documents' names.
    """
    for name in names:
        if name not in known:
            documented = {argument.parameter: name for name, argument in known.items()}
            raise UsageError(
                name,
                "{name}: no such argument",
                "{tip}arguments: {known}",
                name=name,
                known=", ".join(known),
                tip=tip(documented.get(name, name), (*known, *CALL_OPTIONS)),
            )


def build_arguments(known: Mapping[str, Argument], values: Mapping[str, Any]) -> Arguments:
    """Build arguments from tensors as specs, as text ``"4096x512:bf16"`` or as arrays.

    Raises UsageError for an unknown argument, a tensor that is none, and an argument that is
    missing.
    """
    require_known(known, values)
    built: dict[str, Any] = {}
    for name, argument in known.items():
        if name not in values:
            if argument.default is REQUIRED:
                raise UsageError(name, "{name} is missing", argument.help, name=name)
            built[name] = argument.default
        elif isinstance(argument, Tensor):
            built[name] = spec_of(argument, values[name])
        else:
            built[name] = plain_value(argument, values[name])
    return Arguments(built)


def plain_value(attribute: Attribute, value: Any) -> Any:
    """Return the value of an attribute as a Python type; NumPy scalars are converted.

    For a text attribute, any other value becomes its text, which a check of the contract refuses.

    Raises UsageError for a string that names no value of the attribute.
    """
    plain = value.item() if isinstance(value, np.generic) else value
    if attribute.words and isinstance(plain, str):
        return _number_of_word(attribute, plain)
    return shown(plain) if attribute.kind is str and not isinstance(plain, str) else plain


def _number_of_word(attribute: Attribute, text: str) -> int:
    if text in attribute.words:
        return attribute.words.index(text)
    try:
        return int(text)
    except ValueError:
        raise UsageError(
            attribute.name,
            "{name} = {text} is not known",
            "{tip}one of: {words}, or its number",
            name=attribute.name,
            text=shown(text),
            words=", ".join(attribute.words),
            tip=tip(text, attribute.words),
        ) from None


def tensor_of(name: str, value: Any) -> np.ndarray:
    """Return the values of a tensor; see :func:`npu_sim.numbers.arrays.as_array`.

    Raises UsageError for what is not an array of a known dtype.
    """
    if type(value) is np.ndarray and _needs_no_conversion(value.dtype):
        return value
    try:
        array = as_array(value)
        canonical_dtype(array.dtype)
    except (ValueError, TypeError, OverflowError) as error:
        raise UsageError(name, "{name}: {error}", "give an array", name=name, error=error) from None
    return array


@lru_cache(maxsize=64)
def _needs_no_conversion(dtype: Dtype) -> bool:
    """Return whether kernels read arrays of a dtype as they are."""
    try:
        canonical_dtype(dtype)
    except ValueError:
        return False
    return dtype.isnative


def spec_of(tensor: Tensor, value: Any) -> TensorSpec | None:
    """Return the spec of a tensor given as one, as text or as an array.

    Raises UsageError for what is not a tensor.
    """
    if value is None or isinstance(value, TensorSpec):
        return value
    try:
        return TensorSpec.parse(value) if isinstance(value, str) else TensorSpec.of(value)
    except (ValueError, TypeError, OverflowError) as error:
        raise UsageError(
            tensor.name,
            "{name}: {error}",
            (
                ""
                if isinstance(value, str)
                else "give an array, a TensorSpec, or a text such as '4096x512:bf16'"
            ),
            name=tensor.name,
            error=error,
        ) from None


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

    def __post_init__(self) -> None:
        _keep_name(self)

    def code(self, value: Any) -> int:
        """Return the value as the planners take it; the value itself."""
        if isinstance(value, str):
            try:
                value = int(value)
            except ValueError:
                raise self._error("{name} = {value} is not an integer", value) from None
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise self._error("{name} = {value} is not an integer", value)
        number = value.__index__()
        if not self.low <= number <= self.high:
            raise self._error("{name} = {value} is out of range", value)
        return int(number)

    def value(self, code: int) -> Value:
        """Return the value of a code."""
        return int(code)

    def _error(self, message: str, value: Any) -> UsageError:
        return UsageError(
            self.name,
            message,
            "{low} <= {name} <= {high}",
            name=self.name,
            value=shown(value),
            low=self.low,
            high=self.high,
        )


@dataclass(frozen=True)
class Word:
    """An axis of names: a dtype or a mode; the code of a name is its position in ``words``."""

    name: str
    help: str
    words: tuple[str, ...]
    default: str
    aliases: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _keep_name(self)

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
                "{name} = {value} is not one of its values",
                "{tip}values: {words}",
                name=self.name,
                value=shown(value),
                words=", ".join(self.words),
                tip=tip(value, names),
            )
        return self.words.index(word)

    def value(self, code: int) -> Value:
        """Return the word of a code."""
        return self.words[int(code)]


@dataclass(frozen=True)
class Switch:
    """A switch, or whether an optional ``tensor`` is given; its codes are 0 and 1.

    ``is_on`` says which numbers of the attribute of its name are on, where that is no ``bool``.
    """

    name: str
    help: str
    default: bool = False
    aliases: tuple[str, ...] = ()
    tensor: str = ""
    is_on: Callable[[Any], bool] = bool

    def __post_init__(self) -> None:
        _keep_name(self)

    def code(self, value: Any) -> int:
        """Return 0 or 1."""
        text = str(value).lower()
        if text in ("true", "1", "yes", "on"):
            return 1
        if text in ("false", "0", "no", "off"):
            return 0
        if self.is_on is not bool:
            with suppress(ValueError, TypeError):
                return int(self.is_on(float(value)))
        raise UsageError(
            self.name,
            "{name} must be True or False, got {value}",
            "true or false",
            name=self.name,
            value=shown(value),
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
            Text("{text} is not an expression: {msg}", text=repr(text), msg=error.msg)
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
