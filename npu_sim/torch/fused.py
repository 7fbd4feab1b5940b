"""A call of the product in place of PyTorch's functions and kernels, as one description.

The modules of :mod:`npu_sim.torch.operators` recognise what a program computes, and describe the
call that adapters of models make of it. A recording lists the call; an emulation computes it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import get_gradient_edge

from npu_sim.torch.flow import DETACH, Kept, Step

Inputs = Mapping[str, Any]
HOOKED = "npu_sim.hooked"
"""Key in the metadata of the autograd node of a tensor that the program sees the gradient of."""


class Forward(NamedTuple):
    """A call in the forward pass."""

    operator: str
    inputs: Inputs
    parameter: Tensor | None = None
    """Parameter that names the place of the call; None: the place of the code."""


class Backward(NamedTuple):
    """A call in the backward pass, made whenever the gradient of the result arrives."""

    operator: str
    inputs: Callable[[Tensor], Inputs]
    """Function that returns the arguments of the call for that gradient."""
    parameter: Tensor | None = None


class Source(NamedTuple):
    """A tensor that a formula begins with, and the kernels that compute from it alone."""

    tensor: Kept
    steps: frozenset[Step] = frozenset()


@dataclass(frozen=True, eq=False, kw_only=True)
class FusedCall:
    """A call of the product that computes what the program computes otherwise."""

    compute: Callable[[], Any]
    """Compute the program's result with the product's arithmetic, with its gradient.

    Raises NotReplacedError where the values that the formula began with are gone.
    """
    forward: Sequence[Forward] = ()
    backward: Sequence[Backward] = ()
    remarks: Sequence[str] = ()
    """What a reader should know about the call."""
    when_recorded: str = ""
    """What the call would change, which a reader of a recording should know."""
    steps: frozenset[Step] = frozenset()
    """Kernels that the call accounts for; none for a function that is recognised as a whole."""
    sources: Sequence[Source] = ()
    """All tensors that a formula begins with, and may have a gradient."""
    passed: Tensor | None = None
    """Tensor that has the gradient of all steps; None for the program's result."""

    @property
    def operator(self) -> str:
        """Operator that names the call; the gradient's where the product has no forward."""
        return self.operators[0]

    @property
    def operators(self) -> list[str]:
        """Operators of the call, in the order in which they run."""
        calls: list[Forward | Backward] = [*self.forward, *self.backward]
        return [call.operator for call in calls]

    def has_whole_gradient(self, result: Tensor) -> bool:
        """Return whether the gradient of the program's result is that of the whole formula.

        It is not where the program detaches a part, computes it without gradients, or has a
        function with a gradient of its own, or a hook, between the kernels.
        """
        if not torch.is_grad_enabled():
            return True
        if self.passed is not None:
            result = self.passed
        if not result.requires_grad:
            return not any(source.tensor.requires_grad for source in self.sources)
        followed = frozenset().union(*(source.steps for source in self.sources))
        if DETACH in followed:
            return False
        for source in self.sources:
            if source.tensor.requires_grad and any(step.node is None for step in source.steps):
                return False
        passed = self._nodes_of_gradient(result, self.steps | followed)
        return {step.node for step in followed if step.node is not None} <= passed

    def _nodes_of_gradient(self, result: Tensor, steps: frozenset[Step]) -> set[int]:
        """Return the numbers of the autograd nodes that the gradient of a result passes.

        Empty where it passes others than those of the steps before it arrives at the sources: an
        ``autograd.Function``, a tensor with a hook, or another leaf with the contents of a source.
        """
        numbers = {step.node for step in steps}
        ends = {gradient_node(source.tensor.value()) for source in self.sources}
        found: set[Any] = set()  # not by number: every thread has its own
        waiting = [result.grad_fn]
        while waiting:
            node = waiting.pop()
            if node is None or node in found:
                continue
            found.add(node)
            if node in ends:
                continue
            if HOOKED in node.metadata or not (_is_view(node) or node._sequence_nr() in numbers):
                return set()
            waiting += [following for following, _ in node.next_functions]
        return {node._sequence_nr() for node in found}


def gradient_node(tensor: Tensor) -> Any:
    """Return the autograd node that the gradients of a tensor and of its views have in common.

    None for a tensor without a gradient, and where none are computed.
    """
    if not (tensor.requires_grad and torch.is_grad_enabled()):
        return None
    node = get_gradient_edge(tensor).node
    while _is_view(node) and HOOKED not in node.metadata:
        node = node.next_functions[0][0]
    return node


VIEWS = frozenset(
    (
        "Alias",
        "AsStrided",
        "Clone",
        "Expand",
        "LiftFresh",
        "Permute",
        "ReshapeAlias",
        "Select",
        "Slice",
        "Split",
        "SplitWithSizes",
        "Squeeze",
        "T",
        "ToCopy",
        "Transpose",
        "Unbind",
        "UnsafeView",
        "Unsqueeze",
        "View",
        "ViewAsComplex",
        "ViewAsReal",
    )
)
"""Names of the autograd nodes of views and copies."""


def _is_view(node: Any) -> bool:
    """Return whether an autograd node is that of a view or a copy, such as ``ViewBackward0``."""
    return str(node.name()).rstrip("0123456789").removesuffix("Backward") in VIEWS
