"""Trials in which another thread, another call or another library interferes with a call."""

import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from types import FrameType
from typing import Any
from unittest.mock import patch

import numpy as np

import npu_sim
from benchmarks.hostile.campaign import draw
from npu_sim import NpuSimError
from npu_sim.kernels.engine import compile as engine
from tests.small_calls import NAMES, same_bits, small_call

Random = np.random.Generator
Tensors = dict[str, np.ndarray]
CALLS_IN_A_FORK = 50
FORK_SECONDS = 20
"""A child that runs longer than this is ended, which is a failure."""


def tensors_of(call: dict[str, Any]) -> Tensors:
    return {name: value for name, value in call.items() if isinstance(value, np.ndarray)}


def outputs(operator: str, call: dict[str, Any], **options: Any) -> Tensors:
    return npu_sim.run(operator, **call, **options).outputs


def assert_same(operator: str, given: Tensors, expected: Tensors) -> None:
    assert all(same_bits(expected[name], given[name]) for name in expected), operator


@contextmanager
def frequent_switches() -> Iterator[None]:
    """Switch between Python threads as often as possible."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def changed_arrays(rng: Random) -> bool:
    """Change shape and dtype of every array, outputs included, from another thread."""
    operator = draw(rng, NAMES)
    call = small_call(operator, int(rng.integers(1 << 30)))
    expected = outputs(operator, call)
    results = [np.zeros_like(array) for array in expected.values()]
    arrays = [array for array in (*tensors_of(call).values(), *results) if array.size]
    forms = [(array.shape, array.dtype) for array in arrays]
    stop = threading.Event()

    def change() -> None:
        with warnings.catch_warnings(), suppress(ValueError, AttributeError):
            warnings.simplefilter("ignore")
            while not stop.is_set():
                for array in arrays:
                    array.shape = array.shape[::-1] if array.ndim > 1 else (1, -1)
                    array.dtype = f"u{array.itemsize}"
                for array, (shape, dtype) in zip(arrays, forms, strict=True):
                    array.dtype, array.shape = dtype, shape

    with frequent_switches():
        thread = threading.Thread(target=change)
        thread.start()
        try:
            outputs(operator, call, out=tuple(results))
        finally:
            stop.set()
            thread.join()
    return True


def forks_under_threads(rng: Random) -> bool:
    """Fork while two threads compute; the child computes calls with the same bits and ends."""
    names = [draw(rng, NAMES) for _ in range(3)]
    cases = [(name, small_call(name, int(rng.integers(1 << 30)))) for name in names]
    shared = bool(rng.integers(2))
    loops = {"ALONE_BYTES": 0, "ALONE_OPERATIONS": 0} if shared else {}
    stop = threading.Event()

    def compute() -> None:
        while not stop.is_set():
            for name, call in cases:
                outputs(name, call)

    with frequent_switches(), patch.multiple(engine, **loops) if loops else nullcontext():
        expected = [outputs(*case) for case in cases]
        working = [threading.Thread(target=compute) for _ in range(2)]
        for thread in working:
            thread.start()
        time.sleep(float(rng.uniform(0, 1e-3)))
        child = os.fork()
        if not child:
            _compute_and_exit(cases, expected)
        _, status = os.waitpid(child, 0)
        stop.set()
        for thread in working:
            thread.join()
    assert status == 0, (names, shared, status)
    return True


def _compute_and_exit(cases: list[tuple[str, dict[str, Any]]], expected: list[Tensors]) -> None:
    """Compute the calls in turn in a forked child and end it; the exit code is 1 for a failure."""
    code = 1
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(FORK_SECONDS)
        for number in range(CALLS_IN_A_FORK):
            (name, call), wanted = cases[number % len(cases)], expected[number % len(cases)]
            assert_same(name, outputs(name, call), wanted)
        code = 0
    finally:
        os._exit(code)


class Finalized:
    """Runs a function when it is deleted."""

    def __init__(self, function: Callable[[], object]) -> None:
        self._function = function

    def __del__(self) -> None:
        self._function()


@contextmanager
def signalled(function: Callable[[], object], seconds: float) -> Iterator[None]:
    """Call a function from the handler of a signal that arrives after these seconds."""
    before = signal.signal(signal.SIGALRM, lambda *_: function())
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def calling_at(function: Callable[[], object], event: int, way: str) -> Iterator[None]:
    """Call a function at the event with this number, from a trace function or a finalizer."""
    seen, traced = 0, way == "trace"

    def observe(frame: FrameType, *_: object) -> Callable[..., object] | None:
        nonlocal seen
        seen += 1
        if seen == event:
            if way == "finalizer":
                del_me = Finalized(function)
                del del_me
            else:
                function()
        return observe if traced else None

    (sys.settrace if traced else sys.setprofile)(observe)
    try:
        yield
    finally:
        sys.settrace(None)
        sys.setprofile(None)


def reentrant(rng: Random) -> bool:
    """Run a call inside another one: in a trace function, a finalizer or a signal handler."""
    operator, inner = draw(rng, NAMES), draw(rng, NAMES)
    if rng.random() < 0.5:
        inner = operator
    call, other = (small_call(name, int(rng.integers(1 << 30))) for name in (operator, inner))
    expected, expected_inside, inside = outputs(operator, call), outputs(inner, other), []

    def interrupt() -> None:
        inside.append(outputs(inner, other))

    way = draw(rng, ("trace", "profile", "finalizer", "signal"))
    if way == "signal":
        interrupted = signalled(interrupt, float(rng.uniform(1e-6, 1e-3)))
    else:
        interrupted = calling_at(interrupt, int(rng.integers(1, 400)), way)
    with interrupted:
        given = outputs(operator, call)
    assert_same(operator, given, expected)
    for one in inside:
        assert_same(inner, one, expected_inside)
    return True


def shared_memory(rng: Random) -> bool:
    """Give an input, a part of one, or another output as an output: it is refused."""
    operator = draw(rng, NAMES)
    call = small_call(operator, int(rng.integers(1 << 30)))
    expected = outputs(operator, call)
    names = [name for name, array in expected.items() if array.size]
    tensors = {name: array for name, array in tensors_of(call).items() if array.size}
    written = draw(rng, names)
    result = expected[written]
    source = draw(rng, list(tensors))
    space = np.zeros(result.nbytes + tensors[source].nbytes, np.uint8)
    shift = int(rng.integers(0, tensors[source].nbytes + 1))
    out = space[shift : shift + result.nbytes].view(result.dtype).reshape(result.shape)
    moved = space[: tensors[source].nbytes].view(tensors[source].dtype)
    moved = moved.reshape(tensors[source].shape)
    moved[...] = tensors[source]
    outs = [np.zeros_like(expected[name]) for name in expected]
    outs[list(expected).index(written)] = out
    try:
        outputs(operator, {**call, source: moved}, out=tuple(outs))
    except NpuSimError:
        assert same_bits(moved, tensors[source]), f"{operator} {source} changed"
        raise
    assert same_bits(moved, tensors[source]), f"{operator} {source} changed"
    assert_same(operator, dict(zip(expected, outs, strict=True)), expected)
    return True


def _tensor_kinds() -> dict[str, Callable[[Any], Any]]:
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    class Subclass(torch.Tensor):
        pass

    def fake(tensor: Any) -> Any:
        with FakeTensorMode() as mode:
            return mode.from_tensor(tensor)

    def freed(tensor: Any) -> Any:
        tensor = tensor.clone()
        tensor.untyped_storage().resize_(0)
        return tensor

    def negated(tensor: Any) -> Any:
        return torch.complex(torch.zeros_like(tensor), -tensor).conj().imag

    def conjugated(tensor: Any) -> Any:
        return torch.complex(tensor, tensor).conj().real

    def spread(tensor: Any) -> Any:
        return torch.repeat_interleave(tensor.unsqueeze(-1), 2, -1)[..., 1]

    return {
        "plain": lambda tensor: tensor,
        "fake": fake,
        "functional": torch._to_functional_tensor,
        "negative": negated,
        "conjugate": conjugated,
        "freed": freed,
        "subclass": lambda tensor: tensor.as_subclass(Subclass),
        "strided": spread,
        "transposed": lambda tensor: tensor.T.contiguous().T if tensor.ndim == 2 else tensor,
        "parameter": lambda tensor: torch.nn.Parameter(tensor.clone()),
        "requires grad": lambda tensor: tensor.clone().requires_grad_(),
        "not a leaf": lambda tensor: tensor.clone().requires_grad_() * 1,
        "sparse": lambda tensor: tensor.to_sparse(),
        "sparse rows": lambda tensor: tensor.to_sparse_csr(),
        "quantised": lambda tensor: torch.quantize_per_tensor(tensor, 0.1, 0, torch.qint8),
        "meta": lambda tensor: tensor.to("meta"),
        "zeros": lambda tensor: torch._efficientzerotensor(tensor.shape),
        "nested": lambda tensor: torch.nested.nested_tensor([tensor]),
        "inference": lambda tensor: _in_inference(torch, tensor),
    }


def _in_inference(torch: Any, tensor: Any) -> Any:
    with torch.inference_mode():
        return tensor.clone()


REFUSED_KINDS = frozenset(
    ("fake", "functional", "freed", "sparse", "sparse rows", "quantised", "meta", "zeros", "nested")
)


def torch_tensors(rng: Random) -> bool:
    """Give a tensor of any kind of PyTorch as an input, and sometimes as an output."""
    import torch

    operator, kinds = draw(rng, NAMES), _tensor_kinds()
    call = small_call(operator, int(rng.integers(1 << 30)))
    expected = outputs(operator, call)
    tensors = tensors_of(call)
    name, kind = draw(rng, list(tensors)), draw(rng, list(kinds))
    as_output = rng.random() < 0.3
    array = draw(rng, list(expected.values())) if as_output else tensors[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            tensor = kinds[kind](torch.from_numpy(np.ascontiguousarray(array).copy()))
        except (RuntimeError, TypeError, IndexError):
            return False  # this kind has no such tensors
        if not as_output:
            given = outputs(operator, {**call, name: tensor})
            assert kind not in REFUSED_KINDS or array.size == 0, f"{operator} {name} {kind}"
            assert_same(operator, given, expected)
            return True
        outs = [tensor if one is array else np.zeros_like(one) for one in expected.values()]
        outputs(operator, call, out=tuple(outs))
        assert kind not in REFUSED_KINDS or array.size == 0, f"{operator} out {kind}"
        written = tensor.detach().resolve_conj().resolve_neg().numpy()
        assert same_bits(array, written), f"{operator} out {kind}"
    return True


INTERFERENCE: dict[str, Callable[[Random], bool]] = {
    "changed": changed_arrays,
    "forks": forks_under_threads,
    "reentrant": reentrant,
    "shared": shared_memory,
    "torch": torch_tensors,
}
