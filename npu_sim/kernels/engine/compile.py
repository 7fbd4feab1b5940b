"""How kernels are compiled and run: one place for the options every kernel shares, and the one parallel loop.

A kernel is written as what is done for one *share* of the work; running it over a number of shares spreads them over Numba's threads. All
kernels share the same compiled loop, which calls them through their address: a parallel loop of its own would take Numba longer to
compile than the kernel, most of it four times.

``fastmath`` is never on: the order of additions, signed zeros, inf and nan are part of what is simulated.
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, update_wrapper
from typing import Any

import numpy as np
from numba import config, njit, prange
from numba.core.event import trigger_event

from npu_sim.kernels.engine import device, plain
from npu_sim.kernels.engine.cache import KernelCache
from npu_sim.kernels.engine.entry import Layout, bytes_of, compile_entry, type_of
from npu_sim.kernels.engine.guards import (
    MOST_GUARDS,
    OFTEN,
    Guard,
    call_entry,
    guard_of,
    run_guarded,
)
from npu_sim.kernels.engine.launch import in_this_process, on_own_threads, parallel_loop
from npu_sim.kernels.engine.numba_inside import holds, is_plain, require_numba
from npu_sim.kernels.engine.threads import ALONE_BYTES


class Kernel:
    """A function ``function(share, *arguments)`` that computes one share of the work and returns nothing.

    It is compiled when it first meets arguments of some types. It allocates no memory, raises nothing, and no two shares write to
    the same element.
    """

    def __init__(self, function: Callable[..., None], alone_bytes: int = ALONE_BYTES) -> None:
        update_wrapper(self, function)
        self.function = function
        self.alone_bytes = alone_bytes
        self.worker = device_function(function)
        self.entries: dict[tuple[Any, ...], Any] = {}
        """Compiled code by argument types."""
        self._entries_by_kinds: dict[tuple[Any, ...], int] = {}
        self._guards: tuple[Guard, ...] = ()
        self._calls_by_kinds: dict[tuple[Any, ...], int] = {}

    def over(self, shares: int, *arguments: Any) -> None:
        """Compute the shares 0..shares-1, on all threads; on the calling one when that is not worth waking others."""
        if self._guards and self._is_alone(shares, arguments):
            for guard in self._guards:
                if run_guarded(guard.address, id(arguments), shares, 0):
                    return
        if config.DISABLE_JIT:
            for share in range(shares):
                self.function(share, *arguments)
        elif PLAIN:
            _run_plainly(self.worker, shares, arguments)
        else:
            self._run(shares, arguments)

    def _is_alone(self, shares: int, arguments: tuple[Any, ...]) -> bool:
        return shares == 1 or bytes_of(arguments) < self.alone_bytes

    def _run(self, shares: int, arguments: tuple[Any, ...]) -> None:
        layout = Layout(arguments)
        entry = self._entries_by_kinds.get(layout.kinds)
        if entry is None:
            entry = self._entries_by_kinds[layout.kinds] = self._entry(
                tuple(type_of(argument) for argument in arguments)
            ).address
        # ``arguments`` keeps the arrays alive, ``layout`` what says where they are.
        first, _ = layout.words.buffer_info()
        if self._is_alone(shares, arguments):
            self._remember(entry, arguments, layout)
            _run_some(0, shares, entry, first)
        elif in_this_process():
            with parallel_loop():
                _run_shares(entry, first, shares)
        else:
            on_own_threads(_run_some, shares, entry, first)

    def _remember(self, entry: int, arguments: tuple[Any, ...], layout: Layout) -> None:
        """Let small calls do without a layout when such arguments come often."""
        self._calls_by_kinds[layout.kinds] = calls = self._calls_by_kinds.get(layout.kinds, 0) + 1
        if calls == OFTEN and len(self._guards) < MOST_GUARDS:
            guard = guard_of(entry, arguments, layout)
            self._guards += () if guard is None else (guard,)

    def _entry(self, argument_types: tuple[Any, ...]) -> Any:
        entry = self.entries.get(argument_types)
        if entry is None:
            with (
                trigger_event("numba:compile", data={"dispatcher": self.worker}),
                _collection_paused(),
            ):
                entry = self.entries[argument_types] = compile_entry(
                    self.function, self.worker, argument_types
                )
        return entry


@contextmanager
def _collection_paused() -> Iterator[None]:
    """Keep Python from looking for garbage, of which compiling leaves none: it takes a fifteenth of the time."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def kernel(function: Callable[..., None]) -> Kernel:
    """Make a kernel of a function of a share and arguments; see :class:`Kernel`."""
    return Kernel(function)


def long_kernel(function: Callable[..., None]) -> Kernel:
    """Make a kernel that may compute long on small arrays: it runs on as many threads as it is given shares."""
    return Kernel(function, 0)


@njit(parallel=True, nogil=True, no_cfunc_wrapper=True)
def _run_shares(entry, first, shares):
    for share in prange(shares):
        call_entry(entry, first, np.int64(share))


@njit(nogil=True, no_cfunc_wrapper=True)
def _run_some(begin, stop, entry, first):
    for share in range(begin, stop):
        call_entry(entry, first, np.int64(share))


def _run_plainly(worker: Any, shares: int, arguments: tuple[Any, ...]) -> None:
    if in_this_process():
        with parallel_loop():
            _plain_loop(worker, len(arguments), True)(0, shares, *arguments)
    else:
        on_own_threads(_plain_loop(worker, len(arguments), False), shares, *arguments)


@cache
def _plain_loop(worker: Any, arguments: int, parallel: bool) -> Any:
    """Return :func:`npu_sim.kernels.engine.plain.loop_of`; checked kernels are kept on disk, where Numba's inside is the known one."""
    loop = plain.loop_of(worker, arguments, parallel)
    if plain.CHECKED and not is_plain():
        loop._cache = KernelCache(worker.py_func, ("checked",))
    return loop


def _probe() -> bool:
    """Try the whole way with a kernel of two shares."""
    numbers = np.zeros(2, np.int64)

    def count(share, values):
        values[share] = share + 1

    entry = compile_entry(count, device.device_function(count), (type_of(numbers),))
    first, _ = Layout((numbers,)).words.buffer_info()
    _run_shares(entry.address, first, 2)
    return numbers.tolist() == [1, 2]


require_numba()
if not config.DISABLE_JIT and not is_plain() and not plain.CHECKED:
    for _loop in (_run_shares, _run_some, run_guarded):
        _loop._cache = KernelCache(_loop.py_func)

PLAIN = not config.DISABLE_JIT and (plain.CHECKED or is_plain() or not holds(_probe))
"""Whether kernels run through Numba's public interface alone."""
device_function = plain.device_function if PLAIN else device.device_function

__all__ = ["Kernel", "device_function", "kernel", "long_kernel"]
