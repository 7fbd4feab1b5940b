"""A stretch of a forward pass: one call of a module or of a watched function, and what was seen while it ran."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from npu_sim.numbers.formats import TensorSpec
from npu_sim.torch.recording.calls import Place, Recording

Inputs = Mapping[str, Any]


def spec_of(
    tensor: torch.Tensor, shape: tuple[int, ...] | None = None, *, copied: bool = False
) -> str:
    """Return a tensor as the text of its spec.

    Parameters
    ----------
    shape
        Shape that the call gives it; its own when None.
    copied
        Whether the call takes a contiguous copy of it, as :mod:`npu_sim.torch` does.

    Raises
    ------
    ValueError
        For a dtype that no product has.
    """
    return str(
        TensorSpec(
            tuple(tensor.shape) if shape is None else shape,
            str(tensor.dtype),
            copied or tensor.is_contiguous(),
        )
    )


@dataclass(eq=False)
class Stretch:
    """What was seen between the begin and the end of a module or function.

    Attributes
    ----------
    recording
        Takes the calls.
    place
        Where it is called.
    begin
        Number of the first autograd node it may make.
    kernels
        Kernels of PyTorch that ran in it and in what it called, besides those that recorded calls account for.
    latest
        The last kernels that ran in itself, oldest first.
    written_out
        Operators that kernels in a row computed by hand, and where.
    operators
        Operators recorded in it.
    routing
        Top-k choices and moves of rows in it that no call accounts for yet.
    forward_known, backward_known
        Whether recorded calls account for what it runs.
    """

    recording: Recording
    place: Place
    begin: int
    kernels: Counter[str] = field(default_factory=Counter)
    latest: list[str] = field(default_factory=list)
    written_out: dict[str, Place] = field(default_factory=dict)
    operators: set[str] = field(default_factory=set)
    routing: list[Any] = field(default_factory=list)
    forward_known: bool = False
    backward_known: bool = False

    def forward(self, operator: str, inputs: Inputs) -> None:
        """Record the forward call that it stands for."""
        self.operators.add(operator)
        self.forward_known = self.recording.add(
            operator, inputs, torch.are_deterministic_algorithms_enabled(), self.place
        )

    def backward(
        self, result: torch.Tensor, operator: str, inputs: Callable[[torch.Tensor], Inputs]
    ) -> None:
        """Record a gradient's call whenever the gradient of ``result`` arrives; ``inputs`` gives its arguments from that gradient."""
        self.operators.add(operator)
        if not result.requires_grad:
            return
        recording, place = self.recording, self.place

        def arrived(gradient: torch.Tensor) -> None:
            if recording.running:
                try:
                    recording.add(
                        operator,
                        inputs(gradient),
                        torch.are_deterministic_algorithms_enabled(),
                        place,
                    )
                except ValueError as error:
                    recording.not_recognised[operator, str(error), place] += 1

        result.register_hook(arrived)
        self.backward_known = True

    def not_recognised(self, what: str, why: str) -> None:
        """Say that it looks like an operator and cannot be read as a call."""
        self.recording.not_recognised[what, why, self.written_out.get(what, self.place)] += 1

    def join(self, inner: "Stretch") -> None:
        """Take over what a stretch within this one did not account for."""
        self.operators |= inner.operators
        self.routing += inner.routing
        if not inner.forward_known:
            self.kernels += inner.kernels
