"""Data flow of a PyTorch program: what is known about the contents of its tensors.

A kernel's reader derives the facts of its results from those of its arguments. Facts belong to
storages, so that views of a tensor have the facts of the tensor.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

COPIES = frozenset({"_to_copy", "clone", "lift_fresh"})
"""Kernels whose result has the contents of their argument, apart from rounding."""
FIRST_CLEANING = 1024
"""Number of storages with facts from which on those of freed storages are removed."""


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


@dataclass(eq=False)
class _Storage:
    """Facts about a storage; the weak reference keeps its address from being used again."""

    reference: Any
    number: int
    parameter: torch.Tensor | None = None
    facts: dict[str, Any] = field(default_factory=dict)


class Flow:
    """Facts about the contents of tensors, by the file that derived them."""

    def __init__(self) -> None:
        self._storages: dict[int, _Storage] = {}
        self._numbers = count()
        self._cleaning = FIRST_CLEANING

    def _storage(self, tensor: torch.Tensor) -> _Storage:
        storage = tensor.untyped_storage()
        known = self._storages.get(storage._cdata)
        if known is None:
            if len(self._storages) >= self._cleaning:
                self._clean()
            known = _Storage(StorageWeakRef(storage), next(self._numbers))
            self._storages[storage._cdata] = known
        return known

    def _clean(self) -> None:
        """Remove the facts about freed storages."""
        self._storages = {
            key: known for key, known in self._storages.items() if not known.reference.expired()
        }
        self._cleaning = max(FIRST_CLEANING, 2 * len(self._storages))

    def identity(self, tensor: torch.Tensor) -> tuple[int, int, int]:
        """Return a key of a tensor's contents, equal for views that only change its shape."""
        return self._storage(tensor).number, int(tensor.storage_offset()), tensor.numel()

    def fact(self, topic: str, tensor: torch.Tensor) -> Any:
        """Return the fact of a file about a tensor; None if there is none."""
        known = self._storages.get(tensor.untyped_storage()._cdata)
        return known.facts.get(topic) if known is not None else None

    def note(self, topic: str, tensor: torch.Tensor, fact: Any) -> None:
        """Add a fact about a tensor that a kernel read."""
        self._storage(tensor).facts[topic] = fact

    def write(self, tensor: torch.Tensor, facts: Mapping[str, Any]) -> None:
        """Replace the facts about a tensor that a kernel wrote."""
        known = self._storages.get(tensor.untyped_storage()._cdata)
        if known is None and not facts:
            return
        known = self._storage(tensor)
        known.number, known.facts = next(self._numbers), dict(facts)

    def parameter(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """Return the parameter or buffer that a tensor is, or a view of; None if it is neither."""
        if isinstance(tensor, torch.nn.Parameter):
            return tensor
        known = self._storages.get(tensor.untyped_storage()._cdata)
        return known.parameter if known is not None else None

    def add_parameter(self, parameter: torch.Tensor) -> None:
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
    results: Sequence[torch.Tensor]
    """Tensors that the kernel wrote."""
    flow: Flow
    """Facts about the tensors."""
    span: Any
    """Innermost :class:`~npu_sim.torch.recorder.Span` in which the kernel ran."""
    step: Step
    """The kernel as it is counted."""

    @cached_property
    def tensors(self) -> list[torch.Tensor]:
        """Tensors among the arguments, also those in lists."""
        found = []
        for value in (*self.arguments, *self.options.values()):
            values = value if isinstance(value, list | tuple) else (value,)
            found += [item for item in values if isinstance(item, torch.Tensor)]
        return found

    def argument(self, position: int, name: str = "", default: Any = None) -> Any:
        """Return an argument, or its default if the call leaves it out."""
        if len(self.arguments) > position:
            return self.arguments[position]
        return self.options.get(name, default)

    def number(self, position: int) -> float | None:
        """Return an argument as a number; None for a tensor unless it is one number on the CPU."""
        value = self.argument(position)
        if isinstance(value, torch.Tensor):
            return float(value) if value.numel() == 1 and value.device.type == "cpu" else None
        return float(value) if isinstance(value, int | float) else None
