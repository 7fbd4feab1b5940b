"""How calls of an operator stand in dumps of accuracy tools: types of the hook ``in_dumps``.

The tools wrap Python functions. A kernel that autograd calls has no entry of its own: it is rebuilt
from the entries of the function that it belongs to.

Source: specification page ``msprobe_dump``, sections "Names", "Backward entries" and "Rebuilding
our calls".
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf, isfinite, prod, sqrt
from typing import Any, NamedTuple

from npu_sim.framework.vocabulary import Shape, Text

UNIT = 2.0**-24
"""Relative error of an fp32 operation."""
Values = Mapping[str, Any]
"""Arguments or results by name; :class:`DumpedTensor` in place of tensors."""
FoundCall = tuple[Values, Values]
"""Arguments and measured results of a call."""


@dataclass(frozen=True)
class DumpedTensor:
    """A tensor in a dump.

    Attributes
    ----------
    dtype, shape
        Canonical dtype, or the tool's name of another one; empty and ``()`` if not recorded.
    statistics
        ``Max``, ``Min``, ``Mean`` and ``Norm``, as far as they are numbers. Max and Min are exact.
        Mean and Norm were computed in the tensor's own dtype.
    """

    dtype: str
    shape: Shape
    statistics: Mapping[str, float] = field(default_factory=dict)

    @property
    def extremes(self) -> tuple[float, float] | None:
        """Min and Max; None if they are not recorded."""
        if not {"Max", "Min"} <= self.statistics.keys():
            return None
        return self.statistics["Min"], self.statistics["Max"]

    @property
    def largest(self) -> float:
        """Largest absolute value; infinite if it is not recorded or not finite."""
        largest = max(map(abs, self.extremes or (float("inf"),)))
        return largest if isfinite(largest) else float("inf")

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def root_mean_square(self) -> float:
        """Root mean square of the elements; 0 if their norm is not recorded or not finite."""
        norm = self.statistics.get("Norm", 0.0)
        return norm / sqrt(self.size) if self.size and isfinite(norm) else 0.0


class Spread(NamedTuple):
    """How far two orders of an fp32 sum are apart, as far as statistics show it."""

    bound: float
    """Upper bound for all values with these statistics."""
    terms: int
    """Maximum number of terms."""
    term: float
    """Root mean square of the terms; 0 if it is not known."""

    def typical(self, largest: float) -> float:
        """Return a typical difference; ``largest`` is the largest absolute value of the sums.

        Partial sums are about as large as the largest sum, and roundings add up like random ones.
        A sum of n random terms grows to about sqrt(n) times their size, which bounds n.
        """
        roundings = sqrt(self.terms)
        if self.term:
            roundings = min(roundings, max(largest / self.term, 1.0))
        return UNIT * roundings * largest


@dataclass(frozen=True)
class Function:
    """A Python function or module that accuracy tools wrap.

    Attributes
    ----------
    names
        Its names in a dump; with the prefix, e.g. ``Functional.embedding``, where another function
        has the same name. ``Module.<class>`` for modules.
    arguments
        Names of its positional arguments. The parameters of a module have their own names.
    gradients
        Its differentiable arguments, in the order of the derivative formula.
    """

    names: tuple[str, ...]
    arguments: tuple[str, ...]
    gradients: tuple[str, ...] = ()


@dataclass(frozen=True)
class WrappedCall:
    """One call of a wrapped function.

    Attributes
    ----------
    name
        Name of the forward entry.
    arguments
        The arguments that were given, by name.
    outputs
        What it returned.
    output_gradients
        Gradients of the outputs; None without a backward entry.
    gradients
        Gradients of the arguments that have one, by name.
    """

    name: str
    arguments: Values
    outputs: tuple[Any, ...]
    output_gradients: tuple[Any, ...] | None
    gradients: Values

    def pick(self, *names: str, **defaults: Any) -> dict[str, Any]:
        """Return arguments by name; those with a default may be missing or None."""
        picked = {name: self.arguments.get(name) for name in names}
        for name, default in defaults.items():
            value = self.arguments.get(name)
            picked[name] = default if value is None else value
        return picked

    def integer(self, name: str) -> int | None:
        """Return an argument that is an integer or missing; raises ValueError for another."""
        value = self.arguments.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            raise ValueError(Text("{name} is not an integer", name=name))
        return value

    def tensor(self, name: str) -> DumpedTensor:
        """Return an argument that is a tensor with axes; raises ValueError for another."""
        value = self.arguments.get(name)
        if not isinstance(value, DumpedTensor) or not value.shape:
            raise ValueError(Text("{name} is not a tensor with axes", name=name))
        return value

    def output(self, place: int) -> Any:
        """Return an output; None if there are fewer."""
        return self.outputs[place] if place < len(self.outputs) else None

    def output_gradient(self, place: int = 0) -> Any:
        """Return the gradient of an output; None if there is none."""
        gradients = self.output_gradients or ()
        return gradients[place] if place < len(gradients) else None


@dataclass(frozen=True)
class InDumps:
    """The calls of an operator in dumps, and what can be checked of their statistics.

    Attributes
    ----------
    functions
        Functions whose calls contain a call of the operator.
    call
        ``call(wrapped)`` returns the arguments of :func:`npu_sim.run` and the results, None in
        place of those that the dump does not have; or None where the operator was not called.
        Raises ValueError when arguments cannot be those of the function.
    index_ranges
        ``index_ranges(arguments)`` returns, by name of a tensor of indices, the number of legal
        values and further legal values.
    contradictions
        ``contradictions(arguments, results)`` yields statistics that the product cannot have
        written. Every tensor has Max and Min.
    spread
        ``spread(arguments)`` returns, by result whose order of additions may depend on timing, how
        far two orders are apart; see :func:`spread_of_sums`.
    """

    functions: tuple[Function, ...]
    call: Callable[[WrappedCall], FoundCall | None]
    index_ranges: Callable[[Values], Mapping[str, tuple[int, tuple[int, ...]]]] = lambda _: {}
    contradictions: Callable[[Values, Values], Iterator[str]] = lambda _, __: iter(())
    spread: Callable[[Values], Mapping[str, Spread]] = lambda _: {}


def rows_of_last_axis(name: str, arguments: Values) -> Mapping[str, tuple[int, tuple[int, ...]]]:
    """Return the range of indices that number their own elements; -1 marks dropped ones."""
    tensor = arguments.get(name)
    return {name: (tensor.size, ())} if isinstance(tensor, DumpedTensor) else {}


def spread_of_sums(terms: int, largest: float, term: float) -> Spread:
    """Return how far two orders of an fp32 sum are apart.

    Each order is within (terms - 1)*u of the exact sum, relative to the sum of absolute values
    (N. Higham, Accuracy and Stability of Numerical Algorithms, section 4.2).

    - ``terms``: number of terms; ``largest``: bound of their absolute values.
    - ``term``: root mean square of the terms; 0 if it is not known.
    """
    error = terms * UNIT
    bound = 2 * error / (1 - error) * terms * largest if error < 0.5 else inf
    return Spread(bound, terms, term)
