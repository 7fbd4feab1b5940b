"""Data flow of a PyTorch program: what is known about the contents of its tensors.

A kernel's reader derives the facts of its results from those of its arguments. A view that only
changes the shape of a tensor has the facts of the tensor. A formula that kernels compute one
after the other is described by rules over its terms: see :class:`Formula`.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary, WeakSet, ref

import torch
from torch import Tensor

from npu_sim.language import Text
from npu_sim.numbers.arrays import Shape

COPIES = frozenset({"_to_copy", "to", "clone", "lift_fresh"})
"""Kernels whose result has the contents of their argument, apart from rounding."""
POWERS: Mapping[float | None, str] = {2: "square", 0.5: "sqrt", -0.5: "rsqrt"}
"""Powers that have a name, by exponent."""
ONE_OPERAND = frozenset({"copy", "reciprocal", "scale"})
"""Operations whose second argument, if they have one, is a number."""


@dataclass(eq=False)
class Step:
    """One kernel that ran in a forward pass.

    Attributes
    ----------
    name
        Name of the kernel, as it is counted.
    node
        Number of its autograd node; None if it has none.
    accounted
        Whether a recorded call accounts for the kernel.
    """

    name: str
    node: int | None
    accounted: bool = False


DETACH = Step("aten::detach", None, accounted=True)
"""Step of a formula that reads a tensor with its gradient in one place and without in another."""
KEPT = 128
"""Number of tensors that formulas keep at most: a formula's kernels run close together."""
CHANGED = Text("an input is changed in place before the last kernel of the formula")
TOO_LONG_AGO = Text("its first kernel ran too long before its last")
DETACHED = Text(
    "a part of the formula is detached, has a hook or is an autograd.Function: its gradient is "
    "another one"
)


class NotReplacedError(Exception):
    """The reason why PyTorch's result of a formula stays."""


class Kept:
    """A tensor that a formula begins with, as long as its contents do not change."""

    def __init__(self, tensor: Tensor) -> None:
        self._tensor: Tensor | None = tensor
        self._version = _version(tensor)
        self._reason: str = CHANGED
        self.requires_grad = tensor.requires_grad

    def forget(self, reason: str) -> None:
        """Let go of the tensor."""
        self._tensor, self._reason = None, reason

    def value(self) -> Tensor:
        """Return the tensor; raise NotReplacedError if it is gone or its contents have changed."""
        if self._tensor is None or _version(self._tensor) != self._version:
            raise NotReplacedError(self._reason)
        return self._tensor


def _version(tensor: Tensor) -> int:
    """Return how often a tensor was changed in place; tensors of inference mode do not count."""
    return 0 if tensor.is_inference() else tensor._version


Axes = tuple[tuple[int, int], ...]
"""Size and stride of axes that cannot be joined to fewer."""
Order = tuple[int, Axes]
"""First element of a storage that a tensor reads, and its axes.

Equal for views that only change a tensor's shape.
"""


def joined_axes(shape: Shape, strides: Shape) -> Axes:
    """Return the axes of a tensor, those joined that one axis could be in their place."""
    axes: list[tuple[int, int]] = []
    for size, stride in zip(shape, strides, strict=True):
        if size == 1:
            continue
        if axes and axes[-1][1] == size * stride:
            axes[-1] = (axes[-1][0] * size, stride)
        else:
            axes.append((size, stride))
    return tuple(axes)


def _order(tensor: Tensor) -> Order:
    return int(tensor.storage_offset()), joined_axes(tensor.shape, tensor.stride())


@dataclass(eq=False)
class _Storage:
    """Facts about a storage."""

    number: int
    order: Order | None = None
    """Order of the tensor that the facts are about."""
    parameter: Tensor | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    kept: WeakSet[Kept] = field(default_factory=WeakSet)
    """Tensors of this storage that formulas keep."""


class Flow:
    """Facts about the contents of tensors, by the file that derived them."""

    def __init__(self) -> None:
        # PyTorch has one object for a storage, as long as that lives.
        self._storages: WeakKeyDictionary[torch.UntypedStorage, _Storage] = WeakKeyDictionary()
        self._numbers = count()
        self._recent: deque[ref[Kept]] = deque()

    def _storage(self, tensor: Tensor) -> _Storage:
        storage = tensor.untyped_storage()
        known = self._storages.get(storage)
        if known is None:
            known = self._storages[storage] = _Storage(next(self._numbers))
        return known

    def number(self, tensor: Tensor) -> int:
        """Return a number of the contents of a tensor's storage, equal for all views."""
        return self._storage(tensor).number

    def identity(self, tensor: Tensor) -> tuple[int, Order]:
        """Return a key of a tensor's contents, equal for views that only change its shape."""
        return self.number(tensor), _order(tensor)

    def keep(self, tensor: Tensor) -> Kept:
        """Keep a tensor that a kernel reads."""
        kept = Kept(tensor)
        self._storage(tensor).kept.add(kept)
        self._recent.append(ref(kept))
        # Otherwise x = x * y in a loop without gradients would keep every x.
        oldest = self._recent.popleft()() if len(self._recent) > KEPT else None
        if oldest is not None:
            oldest.forget(TOO_LONG_AGO)
        return kept

    def fact(self, topic: str, tensor: Tensor) -> Any:
        """Return the fact of a file about a tensor; None if there is none.

        A view that takes a part, or other elements after one another, is another tensor; so is one
        that a gradient ends at, and not at what it was computed from.
        """
        known = self._storages.get(tensor.untyped_storage())
        is_end = tensor.requires_grad and tensor.is_leaf
        if known is None or known.order != _order(tensor) or is_end:
            return None
        return known.facts.get(topic)

    def fact_of_whole(self, topic: str, view: Tensor) -> Any:
        """Return the fact of a file about the tensor that a view takes its elements from."""
        known = self._storages.get(view.untyped_storage())
        return known.facts.get(topic) if known is not None else None

    def note(self, topic: str, tensor: Tensor, fact: Any) -> None:
        """Add a fact about a tensor that a kernel read."""
        self._storage(tensor).facts[topic] = fact

    def write(self, tensor: Tensor, facts: Mapping[str, Any]) -> None:
        """Replace the facts about a tensor that a kernel wrote."""
        known = self._storages.get(tensor.untyped_storage())
        if known is None and not facts:
            return
        known = self._storage(tensor)
        for kept in known.kept:
            kept.forget(CHANGED)
        known.number, known.order, known.facts = next(self._numbers), _order(tensor), dict(facts)

    def parameter(self, tensor: Tensor) -> Tensor | None:
        """Return the parameter or buffer that a tensor is, or a view of; None if it is neither."""
        if isinstance(tensor, torch.nn.Parameter):
            return tensor
        known = self._storages.get(tensor.untyped_storage())
        return known.parameter if known is not None else None

    def add_parameter(self, parameter: Tensor) -> None:
        """Keep a parameter or buffer, which views of it belong to."""
        self._storage(parameter).parameter = parameter


@dataclass(eq=False)
class Kernel:
    """One kernel of a forward pass, as the files of this package read it."""

    name: str
    """Name without namespace, overload, and the underscore of kernels that write in place."""
    arguments: Sequence[Any]
    """Arguments by position."""
    options: Mapping[str, Any]
    """Arguments by name."""
    results: Sequence[Tensor]
    """Tensors that the kernel wrote."""
    flow: Flow
    """Facts about the tensors."""
    span: Any
    """Innermost :class:`~npu_sim.torch.recorder.Span` in which the kernel ran."""
    step: Step
    """The kernel as it is counted."""

    @cached_property
    def operation(self) -> str:
        """What the kernel computes, one word for all of its forms.

        ``copy`` for casts and clones; ``square``, ``sqrt`` and ``rsqrt`` also as a power;
        ``reciprocal`` also as a division of 1; ``scale`` for a product with, or a division by, a
        number; otherwise the kernel's name.
        """
        if self.name in COPIES:
            return "copy"
        if self.name == "pow":
            return POWERS.get(self.number(1), self.name)
        if self.factor is not None:
            return "scale"
        return "reciprocal" if self.name == "div" and self.number(0) == 1 else self.name

    @cached_property
    def factor(self) -> float | None:
        """Number that a product or a division multiplies a tensor by; None for other kernels."""
        other = self.argument(1)
        if self.name not in ("mul", "div") or (isinstance(other, Tensor) and other.dim()):
            return None
        number = self.number(1)
        return 1 / number if self.name == "div" and number else number

    @cached_property
    def operands(self) -> list[Tensor]:
        """The first two floating-point tensors, without one that is used as a number."""
        floating = [tensor for tensor in self.tensors if tensor.is_floating_point()]
        return floating[-1:] if self.operation in ONE_OPERAND else floating[:2]

    @cached_property
    def tensors(self) -> list[Tensor]:
        """Tensors among the arguments, also those in lists."""
        found = []
        for value in (*self.arguments, *self.options.values()):
            values = value if isinstance(value, list | tuple) else (value,)
            found += [item for item in values if isinstance(item, Tensor)]
        return found

    def argument(self, position: int, name: str = "", default: Any = None) -> Any:
        """Return an argument, or its default if the call leaves it out."""
        if len(self.arguments) > position:
            return self.arguments[position]
        return self.options.get(name, default)

    def number(self, position: int) -> float | None:
        """Return an argument as a number; None for a tensor unless it is a constant on the CPU."""
        value = self.argument(position)
        if isinstance(value, Tensor):
            is_constant = value.device.type == "cpu" and not value.requires_grad
            return float(value) if value.numel() == 1 and is_constant else None
        return float(value) if isinstance(value, int | float) else None


@dataclass(frozen=True, eq=False)
class Term:
    """A tensor as a part of a formula; operators add what else they have to know."""

    kind: str
    """Part of the formula that the tensor is, such as ``mean_square``."""
    key: tuple[int, Order]
    """Identity of the tensor that the formula begins with."""
    shape: Shape
    """Shape of that tensor."""
    steps: frozenset[Step] = field(default=frozenset(), kw_only=True)
    """Kernels that computed the tensor from that one."""


AnyTerm = TypeVar("AnyTerm", bound=Term)
Rule = str | Callable[..., AnyTerm | None]
"""Kind of the result, or a function that returns the result's term, None if there is none.

Its arguments are the kernel and the terms; the first has the steps of all, and the kernel.
"""


class Formula(Generic[AnyTerm]):
    """A formula as rules, by :attr:`Kernel.operation` and the kinds of the operands' terms.

    A rule that has the operation alone applies to operands of all other kinds.

    - ``detachable``: kinds of terms that may be detached without another gradient of the formula.
    """

    def __init__(
        self,
        rules: Mapping[tuple[str, ...], Rule[AnyTerm]],
        detachable: frozenset[str] = frozenset(),
    ) -> None:
        self.rules, self.detachable = rules, detachable
        self.operations = frozenset(operation for operation, *_ in rules)

    def follow(
        self, kernel: Kernel, *readings: Callable[[Kernel, Tensor], AnyTerm]
    ) -> list[tuple[Tensor, AnyTerm]]:
        """Return a kernel's first result with its term; empty if no rule applies.

        - ``readings``: functions that return an operand's term; the first to which a rule applies
          counts.
        """
        if kernel.operation not in self.operations or not (kernel.operands and kernel.results):
            return []
        for reading in readings:
            found = self._result(kernel, [reading(kernel, tensor) for tensor in kernel.operands])
            if found is not None:
                return [(kernel.results[0], found)]
        return []

    def _result(self, kernel: Kernel, terms: list[AnyTerm]) -> AnyTerm | None:
        kinds = (term.kind for term in terms)
        rule = self.rules.get((kernel.operation, *kinds)) or self.rules.get((kernel.operation,))
        if rule is None:
            return None
        steps = frozenset({kernel.step}).union(*(term.steps for term in terms))
        if self._reads_detached(kernel, terms):
            steps |= {DETACH}
        first = replace(terms[0], steps=steps)
        if isinstance(rule, str):
            return replace(first, kind=rule)
        found = rule(kernel, first, *terms[1:])
        return None if found is None else replace(found, steps=steps)

    def _reads_detached(self, kernel: Kernel, terms: list[AnyTerm]) -> bool:
        """Return whether a kernel has a gradient, and reads a part of its formula without one."""
        is_one_formula = len({term.key for term in terms}) == 1
        return (kernel.step.node is not None and is_one_formula) and any(
            not tensor.requires_grad and term.kind not in self.detachable
            for tensor, term in zip(kernel.operands, terms, strict=True)
        )
