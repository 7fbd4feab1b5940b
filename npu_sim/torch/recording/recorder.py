"""Watching a program: functions by a function mode, modules by hooks, and kernels by a dispatch mode that sees what the others miss."""

import re
from bisect import bisect_right, insort
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from npu_sim.language import Text
from npu_sim.registry import OPERATORS, find_operator
from npu_sim.torch.library import NAMESPACE
from npu_sim.torch.recording.calls import Place, Recording
from npu_sim.torch.recording.places import Names, place_of
from npu_sim.torch.recording.stretch import Stretch, spec_of

LATEST = 6
"""Kernels that a stretch remembers: what computes something by hand takes fewer."""
MOVES_NOTHING = frozenset(
    {
        "aten::empty",
        "aten::empty_like",
        "aten::empty_strided",
        "aten::new_empty",
        "aten::detach",
        "aten::detach_",
    }
)


class Watched:
    """What the operators' files of this room watch for.

    A file may have ``FUNCTIONS`` (a PyTorch function to what reads its call), ``KERNELS`` (kernels of PyTorch that only its calls should
    lead to), ``WRITTEN_OUT`` (names of kernels in a row that compute an operator by hand), ``ROUTING`` (kernels whose arguments and
    results are kept for ``left``) and ``left``, which is shown every module that ends.
    """

    def __init__(self) -> None:
        homes = (f"{__package__}.{entry.name}" for entry in OPERATORS)
        rooms = [import_module(home) for home in homes if find_spec(home) is not None]
        self.functions: dict[Any, Callable[..., None]] = {}
        self.kernels: dict[str, str] = {}
        self.written_out: dict[str, re.Pattern[str]] = {}
        self.routing: dict[str, Callable[..., Any]] = {}
        for room in rooms:
            self.functions.update(getattr(room, "FUNCTIONS", {}))
            self.kernels.update(getattr(room, "KERNELS", {}))
            self.written_out.update(getattr(room, "WRITTEN_OUT", {}))
            self.routing.update(getattr(room, "ROUTING", {}))
        self.left: list[Callable[..., None]] = [
            room.left for room in rooms if hasattr(room, "left")
        ]


class Recorder:
    """Records what runs in :meth:`watching`."""

    def __init__(self) -> None:
        self.recording = Recording()
        self._watched = Watched()
        self._names = Names()
        self._stretches = [Stretch(self.recording, Place("", "", "", 0), 0)]
        self._modules: list[torch.nn.Module] = []
        self._known: list[tuple[int, int, Stretch]] = []

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch what runs in the block."""
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
        base = self._stretches[0]
        for left in self._watched.left:
            left(base, None, (), None)
        self.recording.not_modelled.update(base.kernels)

    def function(
        self, function: Any, arguments: tuple[Any, ...], options: Mapping[str, Any]
    ) -> Any:
        """Call a PyTorch function, and read the call when it is watched for."""
        read = self._watched.functions.get(function)
        if read is None:
            return function(*arguments, **options)
        within = self._modules[-1] if self._modules else None
        tensors = (
            one for one in (*arguments, *options.values()) if isinstance(one, torch.nn.Parameter)
        )
        parameter = next((name for name in map(self._names.of, tensors) if name), "")
        with self._stretch(place_of(self._names.of(within), parameter)) as stretch:
            result = function(*arguments, **options)
            try:
                read(stretch, result, *arguments, **options)
            except ValueError as error:
                stretch.not_recognised(function.__name__, str(error))
        return result

    def kernel(
        self, kernel: Any, arguments: tuple[Any, ...], options: Mapping[str, Any], result: Any
    ) -> None:
        """Count a kernel of PyTorch, unless recorded calls account for it."""
        name = kernel._schema.name
        if kernel.is_view or name in MOVES_NOTHING:
            return
        if (
            kernel.namespace == NAMESPACE
            and find_operator(kernel.name().removeprefix(f"{NAMESPACE}::")) is not None
        ):
            self._operator(kernel, arguments, options)
            return
        node = torch._C._current_autograd_node()
        if node is not None and not self._modules:
            if self._stretch_of(node._sequence_nr()) is None:
                self._unaccounted(name)
                self.recording.not_modelled[name] += 1
            return
        stretch = self._stretches[-1]
        stretch.kernels[name] += 1
        stretch.latest = [*stretch.latest[1 - LATEST :], name]
        for operator, pattern in self._watched.written_out.items():
            if pattern.search(" ".join(stretch.latest)):
                stretch.written_out[operator] = place_of(stretch.place.name)
        keep = self._watched.routing.get(name)
        kept = keep(arguments, result) if keep is not None else None
        if kept is not None:
            stretch.routing.append(kept)

    def _unaccounted(self, name: str) -> None:
        if name in self._watched.kernels:
            why = Text(
                "{name} ran, and no function or module that was seen accounts for it", name=name
            )
            self.recording.not_recognised[self._watched.kernels[name], why, place_of("")] += 1

    def _operator(
        self, kernel: Any, arguments: tuple[Any, ...], options: Mapping[str, Any]
    ) -> None:
        """Record a call of one of this package's own operators."""
        operator = kernel.name().removeprefix(f"{NAMESPACE}::")
        names = [one.name for one in kernel._schema.arguments]
        given = {**dict(zip(names, arguments, strict=False)), **options}
        inputs = {
            name: spec_of(one) if isinstance(one, torch.Tensor) else one
            for name, one in given.items()
            if one is not None
        }
        node = torch._C._current_autograd_node()
        if node is not None and not self._modules:
            stretch = self._stretch_of(node._sequence_nr())
            place = stretch.place if stretch is not None else place_of("")
        else:
            around = self._stretches[-1]
            place = place_of(around.place.name, around.place.parameter)
            node_made = torch.autograd._get_sequence_nr() - 1
            self._know(node_made, node_made + 1, Stretch(self.recording, place, node_made))
            around.operators.add(operator)
        self.recording.add(operator, inputs, torch.are_deterministic_algorithms_enabled(), place)

    def _know(self, begin: int, end: int, stretch: Stretch) -> None:
        insort(self._known, (begin, end, stretch), key=lambda one: one[0])

    def _stretch_of(self, node: int) -> Stretch | None:
        """Return the stretch whose recorded gradient an autograd node belongs to."""
        position = bisect_right(self._known, node, key=lambda one: one[0])
        if position == 0 or node >= self._known[position - 1][1]:
            return None
        return self._known[position - 1][2]

    @contextmanager
    def _stretch(self, place: Place) -> Iterator[Stretch]:
        stretch = self._begin(place)
        try:
            yield stretch
        finally:
            self._end(stretch)

    def _begin(self, place: Place) -> Stretch:
        self._stretches.append(Stretch(self.recording, place, torch.autograd._get_sequence_nr()))
        return self._stretches[-1]

    def _end(self, stretch: Stretch) -> None:
        """Join a stretch to the one around it."""
        self._stretches.remove(stretch)
        self._stretches[-1].join(stretch)
        if stretch.backward_known:
            self._know(stretch.begin, torch.autograd._get_sequence_nr(), stretch)

    def _enter(self, module: torch.nn.Module, _: Any) -> None:
        if not self._modules or not self._names.of(module):
            self._names.add(module)
        own = next(iter(module._parameters.values()), None)
        self._modules.append(module)
        self._begin(
            place_of(self._names.of(module), self._names.of(own) if own is not None else "")
        )

    def _leave(self, module: torch.nn.Module, arguments: tuple[Any, ...], *rest: Any) -> None:
        """End a module: also the ones in it that an exception left open. PyTorch leaves options out after an exception."""
        options, result = rest if len(rest) > 1 else ({}, *rest)
        while self._modules.pop() is not module:
            self._end(self._stretches[-1])
        stretch = self._stretches[-1]
        for left in self._watched.left:
            try:
                left(stretch, module, (*arguments, *options.values()), result)
            except ValueError as error:
                stretch.not_recognised(type(module).__name__, str(error))
        self._end(stretch)


class _Functions(TorchFunctionMode):  # type: ignore[misc]
    """Shows a recorder every PyTorch function that Python calls."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self.recorder = recorder

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.backward:
            with self:  # what is computed once more on the way back is seen too
                return _backward(*args, **(kwargs or {}))
        return self.recorder.function(func, args, kwargs or {})


def _backward(
    tensor: torch.Tensor,
    gradient: Any = None,
    retain_graph: Any = None,
    create_graph: bool = False,
    inputs: Any = None,
) -> None:
    torch.autograd.backward(tensor, gradient, retain_graph, create_graph, inputs=inputs)


class _Kernels(TorchDispatchMode):  # type: ignore[misc]
    """Shows a recorder every kernel, whoever calls it."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self.recorder = recorder

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.recorder.kernel(func, args, kwargs or {}, result)
        return result
