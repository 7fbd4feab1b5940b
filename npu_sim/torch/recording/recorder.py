"""Observation of a PyTorch program.

A function mode sees the functions that Python calls, module hooks see modules, and a dispatch mode
sees all kernels, including those that neither of the other two accounts for.
"""

import re
from bisect import bisect_right, insort
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from npu_sim.language import Text
from npu_sim.numbers.formats import TensorSpec
from npu_sim.registry import OPERATORS, find_operator
from npu_sim.torch.library import NAMESPACE
from npu_sim.torch.recording.calls import Names, Place, Recording, place_of

Inputs = Mapping[str, Any]
RECENT_KERNELS = 6
"""Number of kernels that a span keeps to detect operators computed by hand, which take fewer."""
WITHOUT_WORK = frozenset(
    f"aten::{name}"
    for name in ("empty", "empty_like", "empty_strided", "new_empty", "detach", "detach_")
)
"""Kernels that are not counted: they neither compute nor move data."""


def spec_of(
    tensor: torch.Tensor, shape: tuple[int, ...] | None = None, *, copied: bool = False
) -> str:
    """Return the spec of a tensor as text.

    Parameters
    ----------
    shape
        Shape in the recorded call; the tensor's own if None.
    copied
        Whether the call takes a contiguous copy, as :mod:`npu_sim.torch` does.

    Raises
    ------
    ValueError
        For a dtype that no product supports.
    """
    sizes = tuple(tensor.shape) if shape is None else shape
    return str(TensorSpec(sizes, str(tensor.dtype), copied or tensor.is_contiguous()))


@dataclass(eq=False)
class Span:
    """One call of a module or of a recognised function, with the kernels that ran in it.

    Attributes
    ----------
    recording
        Receives the calls.
    place
        Place that makes the call.
    begin
        Sequence number of the first autograd node that the span may create.
    kernels
        Kernels of PyTorch that ran in the span and in inner spans, except those that recorded calls
        account for.
    recent
        Last kernels that ran in the span itself, oldest first.
    by_hand
        Operators that consecutive kernels computed by hand, with their places.
    operators
        Operators recorded in the span.
    routing
        Top-k choices and moves of rows that no recorded call accounts for yet.
    forward_known, backward_known
        Whether recorded calls account for the kernels of the forward or backward pass.
    """

    recording: Recording
    place: Place
    begin: int
    kernels: Counter[str] = field(default_factory=Counter)
    recent: deque[str] = field(default_factory=lambda: deque(maxlen=RECENT_KERNELS))
    by_hand: dict[str, Place] = field(default_factory=dict)
    operators: set[str] = field(default_factory=set)
    routing: list[Any] = field(default_factory=list)
    forward_known: bool = False
    backward_known: bool = False

    def forward(self, operator: str, inputs: Inputs) -> None:
        """Record the forward call that the span corresponds to."""
        self.operators.add(operator)
        self.forward_known = self.recording.add(operator, inputs, self.place)

    def backward(
        self, result: torch.Tensor, operator: str, inputs: Callable[[torch.Tensor], Inputs]
    ) -> None:
        """Record a backward call whenever the gradient of ``result`` arrives.

        ``inputs`` returns the arguments of the call for that gradient.
        """
        self.operators.add(operator)
        if not result.requires_grad:
            return
        recording, place = self.recording, self.place

        def hook(gradient: torch.Tensor) -> None:
            if recording.running:
                try:
                    recording.add(operator, inputs(gradient), place)
                except ValueError as error:
                    recording.not_recognised[operator, str(error), place] += 1

        result.register_hook(hook)
        self.backward_known = True

    def not_recognised(self, what: str, why: str) -> None:
        """Count code that resembles an operator but cannot be read as a call."""
        self.recording.not_recognised[what, why, self.by_hand.get(what, self.place)] += 1

    def join(self, inner: "Span") -> None:
        """Add the contents of an inner span that recorded calls do not account for."""
        self.operators |= inner.operators
        self.routing += inner.routing
        if not inner.forward_known:
            self.kernels += inner.kernels


class Patterns:
    """Code that corresponds to operators, collected from the operators' files of this package.

    A file may define

    - ``FUNCTIONS``: PyTorch functions, with a reader ``(span, result, *arguments)`` of their calls;
    - ``KERNELS``: kernels of PyTorch that should result from such calls only;
    - ``BY_HAND``: regular expressions of consecutive kernels that compute an operator by hand;
    - ``ROUTING``: kernels whose calls are read for ``on_module_exit``;
    - ``on_module_exit(span, module, inputs, result)``, called at the end of every module, and with
      ``module=None`` at the end of the recording.
    """

    def __init__(self) -> None:
        names = (f"{__package__}.{entry.name}" for entry in OPERATORS)
        modules = [import_module(name) for name in names if find_spec(name) is not None]
        self.functions: dict[Any, Callable[..., None]] = {}
        self.kernels: dict[str, str] = {}
        self.by_hand: dict[str, re.Pattern[str]] = {}
        self.routing: dict[str, Callable[..., Any]] = {}
        for module in modules:
            self.functions.update(getattr(module, "FUNCTIONS", {}))
            self.kernels.update(getattr(module, "KERNELS", {}))
            self.by_hand.update(getattr(module, "BY_HAND", {}))
            self.routing.update(getattr(module, "ROUTING", {}))
        self.on_module_exit: list[Callable[..., None]] = [
            module.on_module_exit for module in modules if hasattr(module, "on_module_exit")
        ]


class Recorder:
    """Recorder of the code that runs in :meth:`watching`."""

    def __init__(self) -> None:
        self.recording = Recording()
        self._patterns = Patterns()
        self._names = Names()
        self._spans = [Span(self.recording, Place("", "", "", 0), 0)]
        """Spans that are open, outermost first; the first covers the whole block."""
        self._modules: list[torch.nn.Module] = []
        """Modules that are running, outermost first."""
        self._backward_spans: list[tuple[int, int, Span]] = []
        """Ranges of autograd nodes whose gradients are recorded: first, last + 1, span."""

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Record the code that runs in the block."""
        hooks = [
            register_module_forward_pre_hook(self._enter),
            register_module_forward_hook(self._leave, with_kwargs=True, always_call=True),
        ]
        self.recording.running = True
        try:
            with _Functions(self), _Kernels(self):
                yield
        finally:
            self.recording.running = False
            for hook in hooks:
                hook.remove()
        outermost = self._spans[0]
        for on_module_exit in self._patterns.on_module_exit:
            on_module_exit(outermost, None, (), None)
        self.recording.not_modelled.update(outermost.kernels)

    def function(
        self, function: Any, arguments: tuple[Any, ...], options: Mapping[str, Any]
    ) -> Any:
        """Call a PyTorch function, and read the call if it corresponds to an operator."""
        read = self._patterns.functions.get(function)
        if read is None:
            return function(*arguments, **options)
        module = self._names.of(self._modules[-1]) if self._modules else ""
        tensors = (*arguments, *options.values())
        names = (
            self._names.of(value) for value in tensors if isinstance(value, torch.nn.Parameter)
        )
        span = self._begin(place_of(module, next(filter(None, names), "")))
        try:
            result = function(*arguments, **options)
            try:
                read(span, result, *arguments, **options)
            except ValueError as error:
                span.not_recognised(function.__name__, str(error))
        finally:
            self._end(span)
        return result

    def kernel(
        self, kernel: Any, arguments: tuple[Any, ...], options: Mapping[str, Any], result: Any
    ) -> None:
        """Count a kernel of PyTorch, unless recorded calls account for it."""
        name = kernel._schema.name
        if kernel.is_view or name in WITHOUT_WORK:
            return
        if kernel.namespace == NAMESPACE and find_operator(_operator_name(kernel)) is not None:
            self._operator(kernel, arguments, options)
            return
        node = self._backward_node()
        if node is not None:
            if self._backward_span(node) is None:
                self._unaccounted(name)
            return
        span = self._spans[-1]
        span.kernels[name] += 1
        span.recent.append(name)
        for operator, pattern in self._patterns.by_hand.items():
            if pattern.search(" ".join(span.recent)):
                span.by_hand[operator] = place_of(span.place.name)
        read = self._patterns.routing.get(name)
        move = read(arguments, result) if read is not None else None
        if move is not None:
            span.routing.append(move)

    def _unaccounted(self, name: str) -> None:
        """Count a kernel of a backward pass that no recorded call accounts for."""
        self.recording.not_modelled[name] += 1
        if name in self._patterns.kernels:
            why = Text(
                "{name} ran, and no function or module that was seen accounts for it", name=name
            )
            self.recording.not_recognised[self._patterns.kernels[name], why, place_of("")] += 1

    def _operator(
        self, kernel: Any, arguments: tuple[Any, ...], options: Mapping[str, Any]
    ) -> None:
        """Record a call of one of this package's own operators."""
        operator = _operator_name(kernel)
        names = [argument.name for argument in kernel._schema.arguments]
        values = {**dict(zip(names, arguments, strict=False)), **options}
        inputs = {
            name: spec_of(value) if isinstance(value, torch.Tensor) else value
            for name, value in values.items()
            if value is not None
        }
        node = self._backward_node()
        if node is not None:
            span = self._backward_span(node)
            place = span.place if span is not None else place_of("")
        else:
            outer = self._spans[-1]
            outer.operators.add(operator)
            place = place_of(outer.place.name, outer.place.parameter)
            created = torch.autograd._get_sequence_nr() - 1
            self._add_backward(created, created + 1, Span(self.recording, place, created))
        self.recording.add(operator, inputs, place)

    def _backward_node(self) -> int | None:
        """Return the number of the running autograd node; None in a forward pass.

        Modules that run inside a backward pass recompute a part of the forward pass.
        """
        node = torch._C._current_autograd_node()
        return None if node is None or self._modules else node._sequence_nr()

    def _add_backward(self, begin: int, end: int, span: Span) -> None:
        insort(self._backward_spans, (begin, end, span), key=lambda entry: entry[0])

    def _backward_span(self, node: int) -> Span | None:
        """Return the span whose recorded gradient an autograd node belongs to."""
        position = bisect_right(self._backward_spans, node, key=lambda entry: entry[0])
        if position == 0 or node >= self._backward_spans[position - 1][1]:
            return None
        return self._backward_spans[position - 1][2]

    def _begin(self, place: Place) -> Span:
        self._spans.append(Span(self.recording, place, torch.autograd._get_sequence_nr()))
        return self._spans[-1]

    def _end(self, span: Span) -> None:
        """Close a span and join it to the enclosing one."""
        self._spans.remove(span)
        self._spans[-1].join(span)
        if span.backward_known:
            self._add_backward(span.begin, torch.autograd._get_sequence_nr(), span)

    def _enter(self, module: torch.nn.Module, _: Any) -> None:
        """Open the span of a module."""
        if not self._modules or not self._names.of(module):
            self._names.add(module)
        parameter = next(iter(module._parameters.values()), None)
        self._modules.append(module)
        self._begin(place_of(self._names.of(module), self._names.of(parameter)))

    def _leave(self, module: torch.nn.Module, arguments: tuple[Any, ...], *rest: Any) -> None:
        """Close the span of a module, and inner spans that an exception left open.

        PyTorch passes no keyword arguments after an exception.
        """
        options, result = rest if len(rest) > 1 else ({}, *rest)
        while self._modules.pop() is not module:
            self._end(self._spans[-1])
        span = self._spans[-1]
        for on_module_exit in self._patterns.on_module_exit:
            try:
                on_module_exit(span, module, (*arguments, *options.values()), result)
            except ValueError as error:
                span.not_recognised(type(module).__name__, str(error))
        self._end(span)


def _operator_name(kernel: Any) -> str:
    name: str = kernel.name().removeprefix(f"{NAMESPACE}::")
    return name


class _Functions(TorchFunctionMode):  # type: ignore[misc]
    """Function mode that passes every PyTorch function called from Python to a recorder."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self.recorder = recorder

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.backward:
            with self:  # observes functions that checkpointing recomputes in the backward pass
                return _backward(*args, **(kwargs or {}))
        return self.recorder.function(func, args, kwargs or {})


def _backward(
    tensor: torch.Tensor,
    gradient: Any = None,
    retain_graph: Any = None,
    create_graph: bool = False,
    inputs: Any = None,
) -> None:
    """``torch.Tensor.backward`` without its dispatch to function modes."""
    torch.autograd.backward(tensor, gradient, retain_graph, create_graph, inputs=inputs)


class _Kernels(TorchDispatchMode):  # type: ignore[misc]
    """Dispatch mode that passes every kernel to a recorder, including kernels called from C++."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self.recorder = recorder

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.recorder.kernel(func, args, kwargs or {}, result)
        return result
