"""Emulation: a PyTorch program runs, and the calls that are recognised compute as a product does.

The calls to recognise are described once (:mod:`npu_sim.torch.fused`): :func:`record` lists a
call, and :func:`emulate` computes it. Of a formula that the program computes by itself, the result
of the last kernel is replaced by that of the fused call on the formula's own inputs. Autograd then
runs the fused gradient, and nothing refers to the formula's kernels any more. Where the product
refuses, the program's own result is there already.
"""

import json
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils.checkpoint import CheckpointFunction

from npu_sim.cores import Profile
from npu_sim.files.writing import schema, write_text
from npu_sim.framework.checking import checked_call
from npu_sim.framework.target import (
    CoreOrder,
    Limits,
    Target,
    chosen_target,
    current_device,
    device,
)
from npu_sim.language import Text, joined
from npu_sim.operators.loading import load_operator
from npu_sim.plans.answers import Printed
from npu_sim.status import NpuSimError, UsageError, shown, tip
from npu_sim.torch.experts import OF_EXPERTS, replaced_experts
from npu_sim.torch.flow import DETACHED, NotReplacedError, joined_axes
from npu_sim.torch.fused import HOOKED, FusedCall, Inputs
from npu_sim.torch.library import device_like
from npu_sim.torch.operators import modules
from npu_sim.torch.recorder import CHECKPOINT_FILE, Completed, Read, Recorder, Span
from npu_sim.torch.recording import Place, Recording, counted

Compare = bool | Literal["first"]
COMPARED: tuple[Compare, ...] = ("first", True, False)
INTEGERS = {torch.float32: torch.int32, torch.bfloat16: torch.int16, torch.float16: torch.int16}
"""Integers of the size of a floating-point dtype."""
SEE_GRADIENT = (Tensor.register_hook, Tensor.retain_grad)
"""Functions by which a program sees or changes the gradient of a tensor."""
NotDone = (NpuSimError, NotReplacedError, NotImplementedError, TypeError, ValueError)
"""Errors of a call that stays as PyTorch computes it."""


class NoCallWarning(UserWarning):
    """A block of :func:`emulate` in which no call was replaced."""


@dataclass
class Changes:
    """What replaced calls changed against what the program computes."""

    calls: int = 0
    elements: int = 0
    differing: int = 0
    """Elements that differ, in the narrower of the two dtypes."""
    largest_ulp: int = 0
    """Largest difference of finite values in units in the last place of that dtype."""
    squares: float = 0.0
    """Sum of squares of the program's values, where both are finite."""
    squared_differences: float = 0.0
    """Sum of squared differences of these values."""

    @property
    def differing_share(self) -> float:
        """Return the fraction of elements that differ."""
        return self.differing / self.elements if self.elements else 0.0

    @property
    def relative_rms(self) -> float:
        """Return the root of the mean squared difference over that of the program's values."""
        return (self.squared_differences / self.squares) ** 0.5 if self.squares else 0.0

    def add(self, before: Tensor, after: Tensor) -> None:
        """Count a call: the program's result and that of the product."""
        dtype = min(before.dtype, after.dtype, key=lambda kind: kind.itemsize)
        if dtype.is_complex:
            self.add(torch.view_as_real(before), torch.view_as_real(after))
            return
        first, other = (tensor.detach().to(dtype).reshape(-1) for tensor in (before, after))
        gap = differences(first, other)
        self.calls += 1
        self.elements += gap.numel()
        self.differing += int(gap.count_nonzero())
        finite = first.isfinite() & other.isfinite()
        first, other, gap = first[finite], other[finite], gap[finite]
        self.squares += float(first.double().square().sum())
        self.squared_differences += float(gap.square().sum())
        if gap.numel() and dtype in INTEGERS:
            self.largest_ulp = max(self.largest_ulp, int((_rank(first) - _rank(other)).abs().max()))

    def join(self, other: "Changes") -> None:
        """Add the calls of another place."""
        self.calls += other.calls
        self.elements += other.elements
        self.differing += other.differing
        self.largest_ulp = max(self.largest_ulp, other.largest_ulp)
        self.squares += other.squares
        self.squared_differences += other.squared_differences

    def as_dict(self) -> dict[str, Any]:
        """Return the counts as plain data."""
        return {
            "calls": self.calls,
            "elements": self.elements,
            "differing": self.differing,
            "largest_ulp": self.largest_ulp,
            "relative_rms": self.relative_rms,
        }


def differences(first: Tensor, second: Tensor) -> Tensor:
    """Return ``first - second`` in fp64.

    0 where both are NaN, or the same infinity; infinity where one is NaN.
    """
    same = (first == second) | (first.isnan() & second.isnan())
    gap: Tensor = first.double() - second.double()
    return gap.nan_to_num(torch.inf, torch.inf, -torch.inf).masked_fill(same, 0.0)


def _rank(tensor: Tensor) -> Tensor:
    """Return integers that count the representable numbers from zero."""
    kind = INTEGERS[tensor.dtype]
    bits = tensor.contiguous().view(kind).to(torch.int64)
    return torch.where(bits < 0, torch.iinfo(kind).min - bits, bits)


@dataclass(repr=False)
class Emulation(Printed):
    """Report of :func:`emulate`, complete when the block has ended."""

    target: Target
    """Product, SoC, release and switches."""
    recording: Recording
    """The calls that were computed with the product's arithmetic, and what else ran."""
    changes: dict[tuple[str, Place], Changes] = field(default_factory=dict)
    """What the compared calls changed, by operator and place."""
    left: Counter[tuple[str, str, Place]] = field(default_factory=Counter)
    """Number of calls that PyTorch computed, by operator, reason and place."""
    widened: Counter[tuple[str, str, Place]] = field(default_factory=Counter)
    """Number of results that were cast to a wider dtype of the program, by operator, dtypes and
    place."""
    compilation: str = ""
    """What became of compiled code; empty without ``torch.compile``."""

    def changes_of(self, operator: str) -> Changes | None:
        """Return what the compared calls of an operator changed; None if none were compared."""
        found = [changes for (name, _), changes in self.changes.items() if name == operator]
        total = Changes()
        for changes in found:
            total.join(changes)
        return total if found else None

    def counts(self) -> dict[str, int]:
        """Return the number of calls that were computed with the product's arithmetic."""
        names = dict.fromkeys(call.operator for call in self.recording.calls)
        return {name: self.recording.count(name) for name in names}

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain data, the form ``--json`` prints."""
        target = self.target
        replaced = []
        for name, count in self.counts().items():
            changes = self.changes_of(name)
            compared = {} if changes is None else {"compared": changes.as_dict()}
            replaced.append({"operator": name, "count": count, **compared})
        return {
            "product": target.profile.name,
            "soc": target.profile.soc,
            "release": target.profile.release,
            "deterministic": target.deterministic,
            "core_order": target.order.core_order,
            "seed": target.order.seed,
            "replaced": replaced,
            "left": counted(self.left),
            "widened": counted(self.widened),
            **self.recording.not_covered(),
            **({"compilation": self.compilation} if self.compilation else {}),
        }

    def write(self, path: str | Path) -> None:
        """Write one JSON object per line: what was left first, then the calls, as ``record``."""
        not_covered = {**self.recording.not_covered(), "left": counted(self.left)}
        head = {"schema": schema("calls"), "recorded": not_covered}
        texts = (json.dumps(line, ensure_ascii=False) + "\n" for line in (head, *self.recording))
        write_text(Path(path), "".join(texts))


class Emulator(Recorder):
    """Recorder that computes what it recognises as the product does."""

    replaces = True

    def __init__(
        self, target: Target, operators: Iterable[ModuleType], strict: bool, compare: Compare
    ) -> None:
        super().__init__(operators=operators)
        self.target, self.strict, self.compare = target, strict, compare
        self.report = Emulation(target, self.recording)
        self.recording.deterministic = target.deterministic
        self._refusals: dict[tuple[str, str, Target], NpuSimError | None] = {}

    def function(self, function: Any, /, *arguments: Any, **options: Any) -> Any:
        """Call a PyTorch function; note tensors whose gradient the program is to see."""
        if function in SEE_GRADIENT and arguments[0].grad_fn is not None:
            arguments[0].grad_fn.metadata[HOOKED] = True
        return super().function(function, *arguments, **options)

    def recognised(self, read: Read) -> Any:
        """Compute a function that corresponds to an operator."""
        try:
            call = read.call()
        except Exception:
            read.run()  # raises what the function raises for these arguments
            raise
        if call is None:
            return read.run()
        place = read.span.place
        try:
            _require_replaceable((*read.arguments, *read.options.values()))
            if call.passed is not None and not call.has_whole_gradient(call.passed):
                raise NotReplacedError(DETACHED)
            result = self._computed(call, place)
        except NotDone as error:
            self._left_to_pytorch(call.operator, error, place)
            read.span.backward_known = read.span.is_left = True
            return read.run()
        read.span.forward_known = True
        for remark in call.remarks:
            read.span.remark(call.operator, remark, None)
        if call.forward and isinstance(result, Tensor):
            program = partial(read.function, *read.arguments, **read.options)
            self._compare(call.operator, place, program, result)
        return result

    def complete(self, formula: Completed) -> None:
        """Keep a formula until the function that ran its last kernel has returned."""
        self.thread.completed.append(formula)

    def returned(self, formula: Completed, result: Any, arguments: tuple[Any, ...]) -> Any:
        """Return the result of the fused call, in the dtype of the program's result."""
        call = formula.call
        place = formula.span.place_with(call.forward[0].parameter if call.forward else None)
        try:
            _require_replaceable((result,))
            if any(result is argument for argument in arguments):
                raise NotReplacedError(Text("its last kernel writes in place"))
            if result is not formula.result:
                raise NotReplacedError(Text("another function or compiled code computes it"))
            if not call.has_whole_gradient(result):
                raise NotReplacedError(DETACHED)
            compute = partial(_laid_out_as, result, call.compute)
            fused = self._computed(replace(call, compute=compute), place)
        except NotDone as error:
            self._left_to_pytorch(call.operator, error, place)
            return result
        formula.span.account(call.steps)
        for remark in call.remarks:
            formula.span.remark(call.operator, remark, None)
        if call.forward:
            self._compare(call.operator, place, lambda: result, fused)
        if fused.dtype != result.dtype:
            dtypes = Text("{narrow} to {wide}", narrow=str(fused.dtype), wide=str(result.dtype))
            self.report.widened[call.operator, dtypes, place] += 1
        return fused.to(result.dtype)

    def add_operator(self, operator: str, inputs: Inputs, place: Place, times: int) -> None:
        """Record a call, or keep it until the call that it is a part of is known to be accepted.

        A call of the program's own for another target is a remark: the report has one target.
        """
        target = chosen_target()
        if self.thread.computing is not None:
            self.thread.computing.append((operator, inputs))
        elif target is None or target == self.target:
            super().add_operator(operator, inputs, place, times)
        else:
            remark = Text(
                "not counted: the program computes it for a target of its own, {product} with "
                "deterministic = {deterministic} and core_order = {core_order}",
                product=target.profile.name,
                deterministic=target.deterministic,
                core_order=target.order.core_order,
            )
            self.recording.remarks[operator, remark, place] += times

    def leave(self, operator: str, why: str, span: Span) -> None:
        """List code that the operator could compute, in another form."""
        self.report.left[operator, why, span.place_now()] += 1

    def replaced(
        self,
        operator: str,
        calls: Mapping[str, Inputs],
        compute: Callable[[], Tensor],
        program: Callable[[], Tensor],
    ) -> Tensor:
        """Return ``compute()`` if the product accepts the calls, else ``program()``."""
        place = self.thread.spans[-1].place_with(None)
        try:
            _require_replaceable(())
            with self._on_target():
                for name, inputs in calls.items():
                    self._require_accepted(name, inputs)
                result = compute()
        except NotDone as error:
            self._left_to_pytorch(operator, error, place)
            return program()
        self._compare(operator, place, program, result)
        return result

    def _computed(self, call: FusedCall, place: Place) -> Any:
        """Return the result of a call whose gradient the product accepts as well."""
        thread = self.thread
        span = self._begin(place)
        span.followed, span.forward_known, span.backward_known = False, True, True
        calls = thread.computing = []
        try:
            with self._on_target():
                result = call.compute()
                if isinstance(result, Tensor) and result.requires_grad:
                    for backward in call.backward:
                        self._require_accepted(backward.operator, backward.inputs(result))
            if not calls:  # it calls no operator of PyTorch, as AdamW
                for forward in call.forward:
                    where = span.place_with(forward.parameter)
                    self.recording.add(forward.operator, forward.inputs, where)
        finally:
            thread.computing = None
            self._end(span)
        for operator, inputs in calls:
            self.recording.add(operator, inputs, place)
        self._note_compilation()
        return result

    @contextmanager
    def _watching_thread(self) -> Iterator[None]:
        with self._on_target(), super()._watching_thread():
            yield

    def _on_target(self) -> Any:
        """Return the block of the target: threads of the program have none, or one of their own."""
        return nullcontext() if chosen_target() == self.target else device_like(self.target)

    def _require_accepted(self, operator: str, inputs: Mapping[str, Any]) -> None:
        """Raise what the product raises for a call, which is checked once."""
        key = (operator, json.dumps(inputs), current_device())
        if key not in self._refusals:
            try:
                checked_call(load_operator(operator), inputs, current_device(), infer=True)
                self._refusals[key] = None
            except NpuSimError as error:
                self._refusals[key] = error
        refusal = self._refusals[key]
        if refusal is not None:
            raise refusal

    def _left_to_pytorch(self, operator: str, error: Exception, place: Place) -> None:
        """List a call that PyTorch computes, or raise the product's refusal if that is wanted."""
        if self.strict and isinstance(error, NpuSimError):
            raise error
        why = error.args[0]
        if isinstance(error, NpuSimError):
            why = joined(filter(None, (error.message, error.hint)), ": ")
        self.report.left[operator, why, place] += 1

    def _compare(
        self, operator: str, place: Place, program: Callable[[], Tensor], result: Tensor
    ) -> None:
        """Compare the result of a call with what the program computes, where that is wanted."""
        is_first = (operator, place) not in self.report.changes
        if self.compare is True or (self.compare == "first" and is_first):
            changes = self.report.changes.setdefault((operator, place), Changes())
            self.thread.observes = False
            try:
                with torch.no_grad():
                    changes.add(program(), result)
            finally:
                self.thread.observes = True

    def _note_compilation(self) -> None:
        if not self.report.compilation and _is_compiled(_frames()):
            self.report.compilation = COMPILATION_OFF


def _laid_out_as(result: Tensor, compute: Callable[[], Tensor]) -> Tensor:
    """Return what is computed with the shape and strides of a result: programs take views of it."""
    fused = compute().reshape(result.shape)
    shape, strides = result.shape, result.stride()
    if joined_axes(shape, fused.stride()) == joined_axes(shape, strides):
        return fused
    return torch.empty_strided(shape, strides, dtype=fused.dtype).copy_(fused)


COMPILATION_OFF = Text(
    "torch.compile does not compile in this block: the code ran as it is written"
)


def _frames() -> Iterator[FrameType]:
    """Yield the frames of the running code, innermost first."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back


def _is_compiled(frames: Iterable[FrameType]) -> bool:
    """Return whether a frame belongs to a function that ``torch.compile`` returned.

    The same module has the frames of functions that are never compiled, as checkpointing is.
    """
    return any(
        type(frame.f_locals.get("self")).__name__ == "OptimizeContext"
        for frame in frames
        if frame.f_globals.get("__name__") == "torch._dynamo.eval_frame"
    )


def _require_replaceable(tensors: Iterable[Any]) -> None:
    """Raise NotReplacedError where a replaced result would have another gradient, or none."""
    if torch._C._functorch.peek_interpreter_stack() is not None:
        raise NotReplacedError(Text("a transform of torch.func computes it"))
    if forward_ad._current_level >= 0:
        raise NotReplacedError(Text("it is in a block of forward-mode differentiation"))
    if any(torch._C._get_dispatch_mode(mode) is not None for mode in WITHOUT_VALUES):
        raise NotReplacedError(Text("it is traced, or runs on fake tensors: there are no values"))
    for tensor in tensors:
        if isinstance(tensor, Tensor) and tensor.device.type != "cpu":
            raise NotReplacedError(
                Text("its tensors are on the device {device}", device=tensor.device.type)
            )
    name = _running_function()
    if name:
        raise NotReplacedError(
            Text("the autograd.Function {name} computes it, whose gradient is its own", name=name)
        )


def _running_function() -> str:
    """Return the name of the autograd.Function that runs, forward or backward; empty if none does.

    Those of checkpointing have no gradient of their own.
    """
    if torch.is_grad_enabled() and torch._C._current_autograd_node() is None:
        return ""  # in the forward of such a function gradients are off
    for frame in _frames():
        file, name = frame.f_code.co_filename, frame.f_code.co_name
        if file == CHECKPOINT_FILE and name == "unpack_hook":
            break  # recomputed for whatever backward runs
        if file == FUNCTION_FILE and name in ("apply", "apply_boxed"):
            called = frame.f_locals
            owner = called["cls"] if "cls" in called else called["self"]._forward_cls
            if not issubclass(owner, CheckpointFunction):
                return str(owner.__name__)
    return ""


WITHOUT_VALUES = (torch._C._TorchDispatchModeKey.PROXY, torch._C._TorchDispatchModeKey.FAKE)
"""Modes of PyTorch in which tensors have no values."""
FUNCTION_FILE = torch.autograd.function.__file__


def operators_of_models() -> dict[str, ModuleType]:
    """Return the modules that recognise calls of a model, by the operator that names them."""
    return {
        getattr(module, "FORWARD", module.OPERATOR): module
        for module in modules()
        if hasattr(module, "OPERATOR")
    }


def _chosen(fused: Iterable[str] | None) -> tuple[list[ModuleType], bool]:
    """Return the modules that recognise calls, and whether experts are replaced.

    Raises UsageError for a name that is no operator which calls are replaced by.
    """
    offered, experts = operators_of_models(), set(OF_EXPERTS)
    known = sorted({*offered, *experts})
    names = set(offered) - experts if fused is None else set(fused)
    for name in sorted(names.difference(known)):
        raise UsageError(
            "fused",
            "{name} is not an operator that replaces code of a model",
            "{tip}one of: {known}",
            name=name,
            known=", ".join(known),
            tip=tip(name, known),
        )
    recognising = [offered[name] for name in sorted(names - experts)]
    return recognising, bool(names & experts)


@contextmanager
def emulate(
    product: str | Path | Profile | None = None,
    *,
    soc: str | None = None,
    release: str | None = None,
    deterministic: bool | None = None,
    core_order: CoreOrder | None = None,
    seed: int | None = None,
    limits: Limits | None = None,
    fused: Iterable[str] | None = None,
    strict: bool = False,
    compare: Compare = "first",
    path: str | Path | None = None,
) -> Iterator[Emulation]:
    """Compute a model's operators with the product's arithmetic in a block, forward and backward.

    The model is not changed: what it computes of the operators, as functions of PyTorch or by
    itself, is recognised as :func:`record` does. Matrix products, attention and everything else are
    this CPU's: differences between two emulated runs are caused by the operators alone, and the
    absolute loss is not that of a device.

    Parameters
    ----------
    product, soc, release, deterministic, core_order, seed, limits
        As for :func:`npu_sim.torch.use`.
    fused
        Operators to replace, such as rms_norm; all but those of experts (moe_token_permute), which
        common adapters do not call, when left out. A gradient goes with its forward.
    strict
        Raise where the product refuses a call, instead of leaving the call to PyTorch.
    compare
        Calls that are compared with what the program computes: first, for the first call of each
        place; True for all; False for none.
    path
        JSON Lines file for the calls, as :func:`record` writes it.

    Yields
    ------
    Emulation
        The report, complete when the block has ended.

    Warns
    -----
    NoCallWarning
        At the end of a block in which no call was replaced.

    Raises
    ------
    UsageError
        For an unknown operator in ``fused``, and in a block of :func:`record` or another
        :func:`emulate`.
    """
    if compare not in COMPARED:
        raise UsageError(
            "compare",
            "compare = {compare} is not known",
            "first, True or False",
            compare=shown(compare),
        )
    operators, with_experts = _chosen(fused)
    file = None if path is None else Path(path).absolute()  # the block may change the directory
    block = device(
        product,
        soc=soc,
        release=release,
        deterministic=deterministic,
        core_order=core_order,
        seed=seed,
        limits=limits,
    )
    with block as target:
        emulator = Emulator(target, operators, strict, compare)
        with replaced_experts(emulator) if with_experts else nullcontext(), emulator.watching():
            yield emulator.report
    if not emulator.recording.calls and not emulator.recording.forked:
        warnings.warn(
            Text(
                "no call was replaced in this block: print the report to see what was not "
                "recognised, and what the product refuses"
            ),
            NoCallWarning,
            stacklevel=3,
        )
    if file is not None and not emulator.recording.forked:
        emulator.report.write(file)
