"""Kernels: functions that compute one chunk of the work, compiled, and run on all host threads.

All kernels run in one compiled parallel loop, which calls them through their address. Numba's plain
``njit(parallel=True)`` for each kernel would replace `npu_sim.kernels.engine.codegen`, but
compiling takes three times as long: on two cores the first calls of five operators take 22 s
instead of 7 s.

Numba's threads do not survive a fork: GNU OpenMP ends a child process that uses them, and PyTorch's
data loaders fork. After parallel loops in the parent, a forked child computes on Python threads
instead. Results do not depend on which thread computes a chunk.

``fastmath`` is never on: the order of additions, signed zeros, inf and nan are part of the
simulation.
"""

import gc
import re
import threading
from array import array
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache, update_wrapper
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numba import config, get_num_threads, njit, prange, set_num_threads, threading_layer
from numba.core.errors import NumbaError
from numba.core.event import trigger_event
from numpy.typing import DTypeLike, NDArray

from npu_sim.kernels.engine import codegen
from npu_sim.kernels.engine.cache import KernelCache
from npu_sim.kernels.engine.codegen import call_entry, compile_entry, lay_out, type_of
from npu_sim.kernels.engine.numba_inside import (
    CHECKED,
    UNCOUNTED,
    holds,
    is_plain,
    load_openmp,
    require_numba,
)
from npu_sim.language import Text
from npu_sim.numbers.arrays import LINE_BYTES, aligned
from npu_sim.status import UsageError
from npu_sim.system import at_fork

ALONE_BYTES = 1 << 19
"""The calling thread alone processes arrays of fewer bytes: waking other threads gains little."""
ALONE_OPERATIONS = 1 << 20
"""The calling thread alone computes fewer multiplications than this."""


@cache
def thread_count() -> int:
    """Return the number of threads of parallel loops.

    Numba is queried once per process: the query takes an inter-process lock, and a child
    forked while another thread holds it would wait forever. A later ``numba.set_num_threads`` still
    limits how many threads compute, but not into how many chunks work is split. The query starts
    the threads.
    """
    use_numba_threads()
    return int(get_num_threads())


def threads_for(byte_count: int = 0, operations: int = 0) -> int:
    """Return the number of threads for work of a size.

    Parameters
    ----------
    byte_count
        Size of the arrays that are read and written once.
    operations
        Number of multiplications.
    """
    return 1 if byte_count < ALONE_BYTES and operations < ALONE_OPERATIONS else thread_count()


def limit_threads(threads: int | None) -> None:
    """Set the number of threads of all kernels.

    None keeps Numba's choice: ``NUMBA_NUM_THREADS``, or every core.

    Raises
    ------
    UsageError
        When there are not that many.
    """
    if threads is None:
        return
    most = config.NUMBA_NUM_THREADS
    if not 1 <= threads <= most:
        raise UsageError(
            "threads",
            "threads = {threads} is out of range",
            "1 <= threads <= {most}; raise NUMBA_NUM_THREADS for more",
            threads=threads,
            most=most,
        )
    use_numba_threads()  # the call starts them
    set_num_threads(threads)
    thread_count.cache_clear()


class _NumbaThreads:
    """State of Numba's threads: whether this process has used them, and lost them in a fork."""

    def __init__(self) -> None:
        self._used = self._lost = False
        at_fork(after_in_child=self._after_fork)

    def _after_fork(self) -> None:
        self._lost = self._used

    def use(self) -> bool:
        """Return whether Numba's threads work in this process; from now on they count as used."""
        self._used = True
        return not self._lost


use_numba_threads = _NumbaThreads().use

_one_loop_at_a_time = threading.Lock()


def parallel_loop() -> AbstractContextManager[Any]:
    """Return the context of a loop on Numba's threads.

    With the threading layer ``workqueue``, two loops at the same time end the process.
    """
    return _one_loop_at_a_time if _is_workqueue() else nullcontext()


@cache
def _is_workqueue() -> bool:
    thread_count()  # Numba chooses the layer here
    return bool(threading_layer() == "workqueue")


def on_python_threads(run: Callable[..., None], chunks: int, *arguments: Any) -> None:
    """Compute the chunks 0..chunks-1 on Python threads.

    ``run(first, stop, *arguments)`` computes a range of chunks and releases the interpreter lock.
    """
    threads = min(thread_count(), chunks)
    if threads <= 1:
        run(0, chunks, *arguments)
        return
    ends = [chunks * part // threads for part in range(threads + 1)]
    with ThreadPoolExecutor(threads) as pool:
        for future in [pool.submit(run, *ends_of, *arguments) for ends_of in pairwise(ends)]:
            future.result()


APART_BYTES = 2 * LINE_BYTES
"""Least distance of data that two threads write: processors prefetch pairs of cache lines."""


def thread_scratch(threads: int, *sizes: int, dtype: DTypeLike = np.float32) -> NDArray[Any]:
    """Return an uninitialised array (threads, *sizes) whose rows lie in different cache lines.

    The last axis is longer than requested, and rows start on a cache line: threads that write to
    the same line wait for each other.
    """
    kind = np.dtype(dtype)
    lines = -(-(sizes[-1] * kind.itemsize + APART_BYTES) // LINE_BYTES)
    return aligned((threads, *sizes[:-1], lines * LINE_BYTES // kind.itemsize), kind)


PLAIN_OPTIONS: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",
    "boundscheck": CHECKED,
    "no_cfunc_wrapper": True,
}
"""Options of kernels in Numba's public interface."""


class Kernel:
    """A function ``function(chunk, *arguments)`` that computes one chunk of the work.

    It is compiled at its first call with arguments of some types. It returns nothing, allocates no
    memory, raises nothing, and no two chunks write the same element.
    """

    def __init__(self, function: Callable[..., None], alone_bytes: int = ALONE_BYTES) -> None:
        update_wrapper(self, function)
        self.function = function
        self.alone_bytes = alone_bytes
        self.worker = device_function(function)
        self.entries: dict[Any, Any] = {}
        """Compiled code by form of the arguments."""

    def over(self, chunks: int, *arguments: Any) -> None:
        """Compute the chunks 0..chunks-1 on all threads; small work on the calling thread alone."""
        if config.DISABLE_JIT:
            for chunk in range(chunks):
                self.function(chunk, *arguments)
        elif PLAIN:
            run = _plain_loop(self.worker)
            try:
                if self._is_alone(chunks, arguments) or CHECKED:  # an IndexError reaches the caller
                    run(0, chunks, *arguments)
                else:
                    on_python_threads(run, chunks, *arguments)
            except COMPILE_ERRORS as error:
                raise _compile_error(self.function, error) from error
            except IndexError as error:
                raise IndexError(_placed(self.function, str(error))) from None
        else:
            self._run(chunks, arguments)

    def _is_alone(self, chunks: int, arguments: tuple[Any, ...]) -> bool:
        return chunks == 1 or _bytes_of(arguments) < self.alone_bytes

    def _run(self, chunks: int, arguments: tuple[Any, ...]) -> None:
        form, words = lay_out(arguments)
        entry = self.entries.get(form) or self._compile(form)
        memory = array("q", words)  # alive until the loops return, like ``arguments``
        first, _ = memory.buffer_info()
        if self._is_alone(chunks, arguments):
            _run_range(0, chunks, entry.address, first)
        elif use_numba_threads():
            with parallel_loop():
                _run_parallel(entry.address, first, chunks)
        else:
            on_python_threads(_run_range, chunks, entry.address, first)

    def _compile(self, form: Any) -> Any:
        event = trigger_event("numba:compile", data={"dispatcher": self.worker})
        with event, collection_paused():
            try:
                entry = compile_entry(self.function, self.worker, type_of(form))
            except COMPILE_ERRORS as error:
                raise _compile_error(self.function, error) from error
        self.entries[form] = entry
        return entry


def _compile_error(function: Callable[..., None], error: Exception) -> UsageError:
    """Return the error of a kernel that cannot be compiled."""
    lines = [line for line in _STYLE.sub("", str(error)).splitlines() if line.strip()]
    reason = next((line for line in lines if not line.startswith("Failed in nopython")), lines[0])
    return UsageError(
        "kernel",
        _placed(function, reason, "\n".join(lines)),
        "a kernel is compiled by Numba; NUMBA_DISABLE_JIT=1 runs it as Python",
    )


def _placed(function: Callable[..., None], reason: str, message: str = "") -> Text:
    """Return why a kernel failed, with its file and the last of its lines in a message of Numba."""
    code = function.__code__
    file_name = Path(code.co_filename).name
    found = re.findall(r'File "([^"]*)", line (\d+)', message)
    lines = [line for path, line in found if Path(path).name == file_name]
    return Text(
        "{path}, line {line}: kernel {name}: {reason}",
        path=code.co_filename,
        line=lines[-1] if lines else str(code.co_firstlineno),
        name=function.__name__,
        reason=reason,
    )


COMPILE_ERRORS = (NumbaError, AttributeError)
"""What Numba raises for a kernel; AttributeError for a name that a module does not have."""
_STYLE = re.compile(r"\x1b\[\d*m")
"""Colours of Numba's messages."""


def _bytes_of(values: tuple[Any, ...]) -> int:
    """Return the size of the arrays in a tuple of arguments."""
    total = 0
    for value in values:
        if isinstance(value, np.ndarray):
            total += value.nbytes
        elif isinstance(value, tuple):
            total += _bytes_of(value)
    return total


@contextmanager
def collection_paused() -> Iterator[None]:
    """Pause garbage collection: it takes a fifteenth of the time of compiling and frees nothing."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def kernel(function: Callable[..., None]) -> Kernel:
    """Return the kernel of a function of a chunk and arguments; see :class:`Kernel`."""
    return Kernel(function, ALONE_BYTES)


def long_kernel(function: Callable[..., None]) -> Kernel:
    """Return a kernel that may compute long on small arrays: every chunk may take a thread."""
    return Kernel(function, 0)


@njit(parallel=True, nogil=True, no_cfunc_wrapper=True)
def _run_parallel(entry, first, chunks):
    for chunk in prange(chunks):
        call_entry(entry, first, np.int64(chunk))


@njit(nogil=True, no_cfunc_wrapper=True)
def _run_range(begin, stop, entry, first):
    for chunk in range(begin, stop):
        call_entry(entry, first, np.int64(chunk))


@cache
def _plain_loop(worker: Any) -> Any:
    """Return ``run(first, stop, *arguments)``, the loop of a kernel in Numba's public interface.

    Checked loops are cached on disk where this Numba has the private interface of the cache.
    """

    @njit(**PLAIN_OPTIONS)
    def run(first, stop, *arguments):
        for chunk in range(first, stop):
            worker(chunk, *arguments)

    if CHECKED and not is_plain():
        run._cache = KernelCache(worker.py_func, ("checked",))
    return run


def _plain_device_function(function: Callable[..., Any], **options: bool) -> Any:
    """Compile a helper of kernels through Numba's public interface, with further options."""
    return njit(**PLAIN_OPTIONS, **options)(function)


def inlined_function(function: Callable[..., Any]) -> Any:
    """Return a device function for a short piece of work that is called very often.

    All device functions are inlined anyway, except in Numba's public interface, where compiling
    would take twice as long.
    """
    return device_function(function, forceinline=True)


def _probe() -> bool:
    """Run a kernel of two chunks the usual way; return whether it computes what it should."""
    numbers = np.zeros(2, np.int64)

    def count(chunk, values):
        values[chunk] = chunk + 1

    form, words = lay_out((numbers,))
    entry = compile_entry(count, codegen.device_function(count), type_of(form))
    memory = array("q", words)
    use_numba_threads()
    _run_parallel(entry.address, memory.buffer_info()[0], 2)
    return numbers.tolist() == [1, 2]


def _probe_uncounted() -> bool:
    """Return whether functions can be compiled without reference counts."""
    return bool(njit(**UNCOUNTED)(lambda: True)())


require_numba()
load_openmp()
if not config.DISABLE_JIT and not is_plain() and not CHECKED:
    for _loop in (_run_parallel, _run_range):
        _loop._cache = KernelCache(_loop.py_func)

PLAIN = not config.DISABLE_JIT and (CHECKED or is_plain() or not holds(_probe))
"""Whether kernels run through Numba's public interface alone."""
if PLAIN and holds(_probe_uncounted):
    # Otherwise every call of a function that takes arrays increments and decrements their reference
    # counts: MoeTokenUnpermuteGrad took 4 to 6 times as long.
    PLAIN_OPTIONS |= UNCOUNTED
device_function = _plain_device_function if PLAIN else codegen.device_function
