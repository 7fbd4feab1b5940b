"""Recording of a PyTorch program's calls, on the CPU or the meta device, for ``preflight``.

A function mode sees the functions that Python calls, module hooks see modules, and a dispatch mode
sees all kernels. What is computed by hand is found by the data flow from kernel to kernel.
"""

import sys
import threading
from bisect import bisect_right, insort
from collections import ChainMap, Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType, FunctionType, ModuleType
from typing import Any
from unittest.mock import patch

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.overrides import TorchFunctionMode
from torch.utils import checkpoint
from torch.utils._python_dispatch import TorchDispatchMode

from npu_sim.language import Text
from npu_sim.numbers.arrays import Shape
from npu_sim.numbers.formats import TensorSpec
from npu_sim.registry import find_operator
from npu_sim.status import UsageError
from npu_sim.torch.flow import Flow, Kernel, Step
from npu_sim.torch.fused import FusedCall, Inputs
from npu_sim.torch.library import NAMESPACE
from npu_sim.torch.operators import modules
from npu_sim.torch.recording import Forks, Names, Place, Recording, place_of, program_frame
from npu_sim.torch.stand_in import (
    ended_at_missing_name,
    has_torch_npu,
    on_cpu,
    torch_npu_importable,
)

Entry = tuple[str, str, Place]
"""Code that is not recognised: its name, the reason, and the place."""
WITHOUT_WORK = frozenset(
    (
        "aten::empty",
        "aten::empty_like",
        "aten::empty_strided",
        "aten::new_empty",
        "aten::detach",
        "aten::detach_",
        "profiler::_record_function_enter_new",
        "profiler::_record_function_exit",
    )
)
"""Kernels that are not counted: they neither compute nor move data."""


def spec_of(tensor: torch.Tensor, shape: Shape | None = None, *, copied: bool = False) -> str:
    """Return the spec of a tensor as text.

    - ``shape``: shape in the recorded call; the tensor's own if None.
    - ``copied``: whether the call takes a contiguous copy, as :mod:`npu_sim.torch` does.

    Raises ValueError for a dtype that no product supports.
    """
    sizes = tuple(tensor.shape) if shape is None else shape
    return str(TensorSpec(sizes, str(tensor.dtype), copied or tensor.is_contiguous()))


@dataclass(frozen=True, eq=False)
class Completed:
    """A formula whose last kernel has run, within a function that has not returned yet."""

    call: FusedCall
    span: "Span"
    result: torch.Tensor
    """Result of the last kernel."""


@dataclass(eq=False)
class Thread:
    """State of one thread of the program."""

    spans: list["Span"] = field(default_factory=list)
    """Spans that are open, outermost first; the first covers the whole thread."""
    modules: list[torch.nn.Module] = field(default_factory=list)
    """Modules that are running, outermost first."""
    backward_spans: list[tuple[int, int, "Span"]] = field(default_factory=list)
    """Ranges of autograd nodes whose gradients are recorded: first, last + 1. PyTorch numbers the
    nodes of every thread on their own."""
    repeated: list[tuple[int, int, int]] = field(default_factory=list)
    """Ranges of autograd nodes of modules that stand for several: first, last + 1, number."""
    completed: list[Completed] = field(default_factory=list)
    """Formulas, until the function that ran their last kernels has returned."""
    computing: list[tuple[str, Inputs]] | None = None
    """Calls of this package's operators that a replaced call makes; None outside of one."""
    observes: bool = True
    """Whether kernels are those of the program, not of this package."""
    creates_graph: bool = False
    """Whether the running backward pass creates a graph for second derivatives."""

    def add_backward(self, begin: int, end: int, span: "Span") -> None:
        """Add a range of autograd nodes."""
        insort(self.backward_spans, (begin, end, span), key=lambda entry: entry[0])

    def backward_span(self, node: int) -> "Span | None":
        """Return the span whose recorded gradient an autograd node belongs to."""
        position = bisect_right(self.backward_spans, node, key=lambda entry: entry[0])
        if position == 0 or node >= self.backward_spans[position - 1][1]:
            return None
        return self.backward_spans[position - 1][2]

    def times(self, node: int) -> int:
        """Return the number of modules that an autograd node stands for."""
        return next((number for begin, end, number in self.repeated if begin <= node < end), 1)


@dataclass(eq=False)
class Span:
    """One call of a module or of a recognised function, with the kernels that ran in it."""

    recorder: "Recorder"
    """Recorder that opened the span."""
    place: Place
    """Place that makes the call."""
    begin: int
    """Sequence number of the first autograd node that the span may create."""
    times: int = 1
    """Number of equal modules that the running one stands for."""
    followed: bool = True
    """Whether the data flow of the span's kernels is followed; not that of a function that is
    recognised as a whole."""
    kernels: Counter[str] = field(default_factory=Counter)
    """Kernels of PyTorch that ran in the span and in inner spans, except those of functions that
    recorded calls account for."""
    operators: set[str] = field(default_factory=set)
    """Operators recorded in the span."""
    routing: list[Any] = field(default_factory=list)
    """Choices and moves of rows that no recorded call accounts for yet."""
    forward_known: bool = False
    """Whether recorded calls account for the kernels of the forward pass."""
    backward_known: bool = False
    """Whether recorded calls account for the kernels of the backward pass."""
    is_left: bool = False
    """Whether an emulation leaves the call to PyTorch: its kernels are counted."""

    def forward(self, operator: str, inputs: Inputs) -> None:
        """Record the forward call that the span corresponds to."""
        self.operators.add(operator)
        self.forward_known = self.recorder.recording.add(operator, inputs, self.place, self.times)

    def backward(
        self, result: torch.Tensor, operator: str, inputs: Callable[[torch.Tensor], Inputs]
    ) -> None:
        """Record a backward call whenever the gradient of ``result`` arrives.

        ``inputs`` returns the arguments of the call for that gradient.
        """
        self.operators.add(operator)
        if result.requires_grad:
            self.recorder.add_hook(result, operator, inputs, self, self.place)
            self.backward_known = True

    def record(self, call: FusedCall, result: Any) -> None:
        """Record the call that the span corresponds to, a function with this result."""
        for operator, inputs, parameter in call.forward:
            place = self.place if parameter is None else self.place_with(parameter)
            self.operators.add(operator)
            self.recorder.recording.add(operator, inputs, place, self.times)
        self.forward_known = bool(call.forward)
        for remark in filter(None, (*call.remarks, call.when_recorded)):
            self.remark(call.operator, remark, None)
        for operator, gradient_inputs, _ in call.backward:
            self.backward(result, operator, gradient_inputs)

    def fuse(self, kernel: Kernel, call: FusedCall) -> None:
        """Take the call that kernels of the span correspond to; ``kernel`` is the last one."""
        self.operators.update(call.operators)
        self.recorder.complete(Completed(call, self, kernel.results[0]))

    def record_formula(self, call: FusedCall) -> None:
        """Record the forward call of a formula, with the kernels that it accounts for."""
        for operator, inputs, parameter in call.forward:
            self.recorder.recording.add(operator, inputs, self.place_with(parameter), self.times)
            for remark in call.remarks:
                self.remark(operator, remark, parameter)
        self.account(call.steps)
        if call.when_recorded:
            self.remark(call.operator, call.when_recorded, None)

    def place_now(self) -> Place:
        """Return the place of the span, or the running line outside of modules."""
        return self.place if self.place.file else place_of("", "", self.recorder.directory)

    def not_recognised(self, what: str, why: str, place: Place | None = None) -> Entry:
        """List code that resembles an operator but cannot be read as a call; return the entry."""
        entry = (what, why, place or self.place_now())
        self.recorder.recording.not_recognised[entry] += self.times
        return entry

    def join(self, inner: "Span") -> None:
        """Add the contents of an inner span that recorded calls do not account for."""
        self.operators |= inner.operators
        self.routing += inner.routing
        if not inner.forward_known:
            self.kernels += inner.kernels

    def account(self, steps: Iterable[Step]) -> None:
        """Mark kernels that a recorded call accounts for, and their kernels of the backward."""
        for step in steps:
            if not step.accounted:
                step.accounted = True
                self.recorder.accounted[step.name] += self.times
                if step.node is not None:
                    self.recorder.thread.add_backward(step.node, step.node + 1, self)

    def retract(self, entry: Entry | None) -> None:
        """Remove one entry of the list of code that is not recognised."""
        listed = self.recorder.recording.not_recognised
        if entry is not None:
            listed[entry] -= self.times
            if listed[entry] <= 0:
                del listed[entry]

    def remark(self, operator: str, why: str, parameter: Any) -> None:
        """Add a remark on a call."""
        self.recorder.recording.remarks[operator, why, self.place_with(parameter)] += self.times

    def left(self, operator: str, why: str) -> None:
        """List code that the operator could compute, in another form."""
        self.recorder.leave(operator, why, self)

    def fact(self, topic: str, tensor: torch.Tensor) -> Any:
        """Return what is known about the contents of a tensor; None if nothing is."""
        return self.recorder.flow.fact(topic, tensor)

    def place_with(self, parameter: Any) -> Place:
        """Return the place of the span, or of the running line, with the path of a parameter."""
        recorder = self.recorder
        return place_of(self.place.name, recorder.names.of(parameter), recorder.directory)


@dataclass(frozen=True)
class Read:
    """A call of a function of PyTorch that corresponds to an operator."""

    reader: Callable[..., FusedCall | None]
    """Function of the operator that describes the call."""
    span: Span
    function: Any
    arguments: tuple[Any, ...]
    options: Mapping[str, Any]

    def run(self) -> Any:
        """Call the function."""
        return _call_for_program(self.function, self.arguments, self.options)

    def call(self) -> FusedCall | None:
        """Return the call of the product; None for a call that is listed as not recognised."""
        try:
            return self.reader(self.span, *self.arguments, **self.options)
        except ValueError as error:
            self.span.not_recognised(self.function.__name__, str(error))
            return None

    def record(self, call: FusedCall | None, result: Any) -> None:
        """Record a call with the function's result."""
        if call is not None:
            self.span.record(call, result)


class Recorder:
    """Recorder of the code that runs in :meth:`watching`, in this thread and those it starts.

    - ``repeats``: the modules that stand for several equal ones, whose calls count as often.
    - ``operators``: modules of :mod:`npu_sim.torch.operators` that recognise calls; all when None.
    - ``is_engine``: whether calls are those that an inference engine makes of the code.
    """

    replaces = False
    """Whether calls that are recognised are replaced, whose kernels another recorder would see."""

    def __init__(
        self,
        repeats: Mapping[torch.nn.Module, int] | None = None,
        operators: Iterable[ModuleType] | None = None,
        is_engine: bool = False,
    ) -> None:
        offers = partial(_offered, modules() if operators is None else tuple(operators))
        self.repeats = repeats or {}
        self.is_engine = is_engine
        self.recording = Recording()
        self.observed = self.function if has_torch_npu() else on_cpu(self.function)
        self.directory = Path.cwd()
        self.names = Names()
        self.flow = Flow()
        self.accounted: Counter[str] = Counter()
        self._functions: Mapping[Any, Callable[..., FusedCall | None]] = dict(
            ChainMap(*offers("FUNCTIONS"))
        )
        self._kernels: Mapping[str, str] = dict(ChainMap(*offers("KERNELS")))
        self._followers = list(zip(offers("TOPIC"), offers("follow"), strict=True))
        self._on_module_exit, self._on_optimizer_step = map(
            offers, ("on_module_exit", "on_optimizer_step")
        )
        self._local = threading.local()
        self._threads: list[Thread] = []

    @property
    def thread(self) -> Thread:
        """State of the running thread."""
        known: Thread | None = getattr(self._local, "thread", None)
        if known is None:
            known = self._local.thread = Thread()
            known.spans.append(Span(self, Place("", "", "", 0), 0))
            self._threads.append(known)
        return known

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Record the code that runs in the block.

        Raises UsageError in a block of another recorder, where one of the two replaces calls.
        """
        if any(self.replaces or recorder.replaces for recorder in _running()):
            raise UsageError(
                "emulate",
                "a block of record or emulate runs already: calls would be counted twice",
                "one block; the report of emulate has the calls, report.recording",
            )
        hooks = [
            register_optimizer_step_post_hook(self._after_optimizer),
            register_module_forward_pre_hook(self._enter),
            register_module_forward_hook(self._leave, with_kwargs=True, always_call=True),
        ]
        self.recording.running = True
        self.recording.forks = forks = Forks()
        try:
            with (
                torch_npu_importable(self.recording.not_modelled),
                # Otherwise checkpointing ends within a formula, of which the product runs all.
                checkpoint.set_checkpoint_early_stop(False),
                self._watching_backward(),
                self._watching_spawns(),
                self._watching_new_threads(),
                self._watching_thread(),
            ):
                yield
        finally:
            for hook in hooks:
                hook.remove()
            self.recording.running = False
            names = forks.close()
            if not forks.here:
                self.recording.processes = names
                self._finish()

    def _after_optimizer(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        """Let operators read a step of an optimizer."""
        for on_step in self._on_optimizer_step:
            on_step(self.thread.spans[-1], optimizer)

    @contextmanager
    def _watching_thread(self) -> Iterator[None]:
        with _Functions(self), _Kernels(self):
            yield

    def _watching_backward(self) -> AbstractContextManager[Any]:
        """Record what checkpointing recomputes in a backward pass, where PyTorch ends the mode."""
        run = torch.autograd._engine_run_backward

        def observed_run(
            tensors: Any,
            gradients: Any,
            keep_graph: bool,
            create_graph: bool,
            *rest: Any,
            **options: Any,
        ) -> Any:
            is_on = bool(_running())
            thread = self.thread
            outer, thread.creates_graph = thread.creates_graph, create_graph
            try:
                with nullcontext() if is_on else _Functions(self):
                    return run(tensors, gradients, keep_graph, create_graph, *rest, **options)
            finally:
                thread.creates_graph = outer

        return patch.object(torch.autograd, "_engine_run_backward", observed_run)

    def _watching_spawns(self) -> AbstractContextManager[Any]:
        """Note the processes that multiprocessing starts in the block otherwise than by a fork."""
        start = BaseProcess.start

        def observed_start(process: BaseProcess) -> None:
            start(process)
            if getattr(process, "_start_method", None) in ("spawn", "forkserver"):
                self.recording.spawned.append(f"{process.name} (pid {process.pid})")

        return patch.object(BaseProcess, "start", observed_start)

    def _watching_new_threads(self) -> AbstractContextManager[Any]:
        """Record threads that start in the block: PyTorch's modes belong to one thread."""
        start = threading.Thread.start

        def observed_start(thread: threading.Thread) -> None:
            run = thread.run

            def observed() -> None:
                with self._watching_thread() if self.recording.running else nullcontext():
                    run()

            thread.run = observed  # type: ignore[method-assign]
            start(thread)

        return patch.object(threading.Thread, "start", observed_start)

    def _finish(self) -> None:
        for thread in self._threads:
            outermost = thread.spans[0]
            for on_module_exit in self._on_module_exit:
                on_module_exit(outermost, None, (), None)
            self.recording.not_modelled.update(outermost.kernels)
        self.recording.not_modelled = +(self.recording.not_modelled - self.accounted)

    def add_hook(
        self,
        result: torch.Tensor,
        operator: str,
        inputs: Callable[[torch.Tensor], Inputs],
        span: Span,
        place: Place,
    ) -> None:
        """Record a backward call of a span whenever a gradient arrives while the block runs."""
        recording = self.recording

        def hook(gradient: torch.Tensor) -> None:
            if recording.running:
                try:
                    recording.add(operator, inputs(gradient), place, span.times)
                except ValueError as error:
                    recording.not_recognised[operator, str(error), place] += span.times

        result.register_hook(hook)

    def function(self, function: Any, /, *arguments: Any, **options: Any) -> Any:
        """Call a PyTorch function, and read the call if it corresponds to an operator."""
        read = self._functions.get(function)
        thread = self.thread
        if read is None:
            result = _call_for_program(function, arguments, options)
            if thread.completed:
                result = self._returned(thread, result, arguments)
            return result
        module = self.names.of(thread.modules[-1]) if thread.modules else ""
        tensors = (*arguments, *options.values())
        names = (self.names.of(value) for value in tensors if isinstance(value, torch.nn.Parameter))
        span = self._begin(place_of(module, next(filter(None, names), ""), self.directory))
        span.followed = False
        try:
            return self.recognised(Read(read, span, function, arguments, options))
        finally:
            self._end(span)

    def recognised(self, read: "Read") -> Any:
        """Call a function that corresponds to an operator, and record the call."""
        result = read.run()
        read.record(read.call(), result)
        return result

    def complete(self, formula: Completed) -> None:
        """Record a formula whose last kernel has run."""
        formula.span.record_formula(formula.call)
        self.thread.completed.append(formula)

    def _returned(self, thread: Thread, result: Any, arguments: tuple[Any, ...]) -> Any:
        """Return the result of a function that completed formulas."""
        completed, thread.completed = thread.completed, []
        for formula in completed:
            result = self.returned(formula, result, arguments)
        return result

    def returned(self, formula: Completed, result: Any, arguments: tuple[Any, ...]) -> Any:
        """Add hooks for the backward calls of a formula; return the function's result."""
        if isinstance(result, torch.Tensor) and result.requires_grad:
            for operator, inputs, parameter in formula.call.backward:
                place = formula.span.place_with(parameter)
                self.add_hook(result, operator, inputs, formula.span, place)
        return result

    def leave(self, operator: str, why: str, span: Span) -> None:
        """Remark on code that the operator could compute, in another form."""
        span.remark(operator, why, None)

    def kernel(
        self, kernel: Any, arguments: tuple[Any, ...], options: Mapping[str, Any], result: Any
    ) -> None:
        """Count a kernel of PyTorch, unless recorded calls account for it."""
        if not self.thread.observes:
            return
        name = kernel._schema.name
        if (kernel.is_view and not _is_copy(name, arguments, result)) or name in WITHOUT_WORK:
            for tensor in arguments:
                if isinstance(tensor, torch.nn.Parameter) and kernel.is_view:
                    self.flow.add_parameter(tensor)
            return
        if kernel.namespace == NAMESPACE and find_operator(_operator_name(kernel)) is not None:
            self._operator(kernel, arguments, options)
            return
        node = self._backward_node()
        if node is not None:
            owner, times = self._backward_span(node), self.thread.times(node)
            if owner is None:
                self._unaccounted(name, times)
            elif owner.is_left:
                self.recording.not_modelled[name] += times
            return
        span = self.thread.spans[-1]
        span.kernels[name] += span.times
        results = _tensors(result)
        short = name.partition("::")[2].removesuffix("_")
        kernel = Kernel(short, arguments, options, results, self.flow, span, Step(name, None))
        facts = self._facts(kernel) if span.followed else [{} for _ in results]
        for tensor, known in zip(results, facts, strict=True):
            self.flow.write(tensor, known)

    def _facts(self, kernel: Kernel) -> list[dict[str, Any]]:
        """Return the facts of a kernel's results, by topic."""
        is_recorded = torch.is_grad_enabled()
        if is_recorded and any(tensor.requires_grad for tensor in kernel.tensors):
            kernel.step.node = torch.autograd._get_sequence_nr() - 1
        facts: list[dict[str, Any]] = [{} for _ in kernel.results]
        if not all(tensor.layout == torch.strided for tensor in kernel.tensors):
            return facts
        for tensor in kernel.tensors:
            if isinstance(tensor, torch.nn.Parameter):
                self.flow.add_parameter(tensor)
        for topic, follow in self._followers:
            try:
                found = follow(kernel)
            except ValueError:  # a dtype that no product supports
                continue
            for tensor, fact in found:
                position = next(i for i, result in enumerate(kernel.results) if result is tensor)
                facts[position][topic] = fact
        return facts

    def _unaccounted(self, name: str, times: int) -> None:
        """Count a kernel of a backward pass that no recorded call accounts for."""
        self.recording.not_modelled[name] += times
        if name in self._kernels:
            why = Text(
                "{name} ran, and no function or module that was seen accounts for it", name=name
            )
            self.recording.not_recognised[
                self._kernels[name], why, place_of("", "", self.directory)
            ] += times

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
            place = span.place if span is not None else place_of("", "", self.directory)
            times = self.thread.times(node)
        else:
            outer = self.thread.spans[-1]
            outer.operators.add(operator)
            place = place_of(outer.place.name, outer.place.parameter, self.directory)
            if not outer.backward_known:
                created = torch.autograd._get_sequence_nr() - 1
                self.thread.add_backward(created, created + 1, Span(self, place, created))
            times = outer.times
        self.add_operator(operator, inputs, place, times)

    def add_operator(self, operator: str, inputs: Inputs, place: Place, times: int) -> None:
        """Record a call of one of this package's own operators, which has just been computed."""
        self.recording.add(operator, inputs, place, times)

    def _backward_span(self, node: int) -> Span | None:
        """Return the span whose recorded gradient an autograd node belongs to.

        Another thread may have created the node, whose number is not unique then.
        """
        spans = (thread.backward_span(node) for thread in (self.thread, *self._threads))
        return next((span for span in spans if span is not None), None)

    def _backward_node(self) -> int | None:
        """Return the number of the running autograd node; None in a forward pass.

        What runs with gradients inside a backward pass recomputes a part of the forward pass, and
        all that checkpointing runs there does.
        """
        node = torch._C._current_autograd_node()
        if node is None or self.thread.modules:
            return None
        recomputes = torch.is_grad_enabled() and not self.thread.creates_graph
        return None if recomputes or _is_recomputing() else node._sequence_nr()

    def _begin(self, place: Place, repeated: int = 1) -> Span:
        times = self.thread.spans[-1].times * repeated
        span = Span(self, place, torch.autograd._get_sequence_nr(), times)
        self.thread.spans.append(span)
        return span

    def _end(self, span: Span) -> None:
        """Close a span and join it to the enclosing one."""
        thread = self.thread
        thread.spans.remove(span)
        thread.spans[-1].join(span)
        if span.backward_known:
            thread.add_backward(span.begin, torch.autograd._get_sequence_nr(), span)

    def _enter(self, module: torch.nn.Module, _: Any) -> None:
        """Open the span of a module."""
        modules = self.thread.modules
        if not modules or not self.names.of(module):
            self.names.add(module)
            for buffer in module.buffers():
                self.flow.add_parameter(buffer)
        parameter = next(iter(module._parameters.values()), None)
        modules.append(module)
        self._begin(
            place_of(self.names.of(module), self.names.of(parameter), self.directory),
            self.repeats.get(module, 1),
        )

    def _leave(self, module: torch.nn.Module, arguments: tuple[Any, ...], *rest: Any) -> None:
        """Close the span of a module, and inner spans that an exception left open.

        PyTorch passes no keyword arguments after an exception.
        """
        thread = self.thread
        options, result = rest if len(rest) > 1 else ({}, *rest)
        if thread.completed:
            self._returned(thread, result, ())
        while thread.modules.pop() is not module:
            self._end(thread.spans[-1])
        span = thread.spans[-1]
        for on_module_exit in self._on_module_exit:
            try:
                on_module_exit(span, module, (*arguments, *options.values()), result)
            except ValueError as error:
                span.not_recognised(type(module).__name__, str(error))
        if module in self.repeats:
            thread.repeated.append((span.begin, torch.autograd._get_sequence_nr(), span.times))
        self._end(span)


CHECKPOINT_FILE = checkpoint.__file__


def _is_recomputing() -> bool:
    """Return whether checkpointing runs a part of the forward pass in the innermost backward."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_name != "_engine_run_backward":
        code = frame.f_code
        if code.co_filename == CHECKPOINT_FILE and code.co_name in ("unpack_hook", "backward"):
            return True
        frame = frame.f_back
    return False


def _offered(operators: Iterable[ModuleType], name: str) -> list[Any]:
    """Return what modules of :mod:`npu_sim.torch.operators` define under a name."""
    return [getattr(module, name) for module in operators if hasattr(module, name)]


def _is_copy(name: str, arguments: tuple[Any, ...], result: Any) -> bool:
    """Return whether a view by its schema copies: ``to``, which inference mode does not resolve."""
    return name == "aten::to" and result.untyped_storage() is not arguments[0].untyped_storage()


def _tensors(result: Any) -> list[torch.Tensor]:
    """Return the dense tensors of a kernel's result."""
    values = result if isinstance(result, list | tuple) else (result,)
    return [
        value
        for value in values
        if isinstance(value, torch.Tensor) and value.layout == torch.strided
    ]


def _operator_name(kernel: Any) -> str:
    return str(kernel.name()).removeprefix(f"{NAMESPACE}::")


_CALL = (lambda function, arguments, options: function(*arguments, **options)).__code__


def _call_for_program(function: Any, arguments: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
    """Call a function from a frame that has file, line and globals of the program's call.

    Python attributes a warning of the function to the frame that calls it, and decides by it
    whether to show the warning.
    """
    caller = program_frame()
    if caller is None:
        return function(*arguments, **options)
    code = caller.f_code
    call = _CALL.replace(
        co_filename=code.co_filename, co_firstlineno=caller.f_lineno, co_name=code.co_name
    )
    return FunctionType(call, caller.f_globals)(function, arguments, options)


class _Mode:
    """Base of modes that pass what they see to a recorder."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self.recorder = recorder

    @property
    def is_on(self) -> bool:
        """Whether the block runs; threads that it started may run longer."""
        return self.recorder.recording.running


class _Functions(_Mode, TorchFunctionMode):  # type: ignore[misc]
    """Function mode that passes every PyTorch function called from Python to a recorder."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not self.is_on:
            return func(*args, **(kwargs or {}))
        return self.recorder.observed(func, *args, **(kwargs or {}))


def _running() -> list[Recorder]:
    """Return the recorders whose blocks run in this thread."""
    modes = torch.overrides._get_current_function_mode_stack()
    return [mode.recorder for mode in modes if isinstance(mode, _Functions) and mode.is_on]


class _Kernels(_Mode, TorchDispatchMode):  # type: ignore[misc]
    """Dispatch mode that passes every kernel to a recorder, including kernels called from C++."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if self.is_on:
            self.recorder.kernel(func, args, kwargs or {}, result)
        return result


@contextmanager
def record(path: str | Path | None = None) -> Iterator[Recording]:
    """Record the forward and backward calls of this package's operators in a block of code.

    No device is needed: models compute as usual, on the CPU or the meta device. The recorder
    recognises PyTorch functions (``F.embedding``, ``F.cross_entropy``, ``F.rms_norm``,
    ``torch.conv_tbc`` ...), code that computes RMS norms, cross entropies or the routing of tokens
    to experts by hand, and functions of ``torch_npu``, which the block can import. Threads that
    the block starts are recorded; forked processes that make calls and spawned ones are named.
    Other kernels are counted by name.

    Parameters
    ----------
    path
        JSON Lines file for the calls, written if the block ends without an exception, and with the
        calls up to there if it ends at a name of ``torch_npu`` that is not available; None writes
        no file.

    Yields
    ------
    Recording
        The calls, complete when the block has ended.
    """
    file = None if path is None else Path(path).absolute()  # the block may change the directory
    recorder = Recorder()
    try:
        with recorder.watching():
            yield recorder.recording
    except BaseException as error:
        if ended_at_missing_name(error) and file is not None and not recorder.recording.forked:
            recorder.recording.write(file)
        raise
    if file is not None and not recorder.recording.forked:
        recorder.recording.write(file)
