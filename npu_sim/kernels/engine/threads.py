"""Host threads of kernels, and their scratch memory.

Numba's threads do not survive a fork: GNU OpenMP ends a child process that uses them, and PyTorch's
data loaders fork. After parallel loops in the parent, a forked child computes on Python threads
instead. Results do not depend on which thread computes a chunk.
"""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from npu_sim.language import Text
from npu_sim.numbers.arrays import address_of
from npu_sim.status import UsageError
from npu_sim.system import at_fork

ALONE_BYTES = 1 << 19
"""The calling thread alone processes arrays of fewer bytes: waking other threads gains little."""
ALONE_OPERATIONS = 1 << 20
"""The calling thread alone computes fewer multiplications than this."""


@cache
def thread_count() -> int:
    """Return the number of threads of parallel loops.

    Numba is queried once per process: the query takes a lock that processes share, and a child
    forked while another thread holds it would wait forever. A later ``numba.set_num_threads`` still
    limits how many threads compute, but not into how many chunks work is split. The query starts
    the threads.
    """
    from numba import get_num_threads

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
    if byte_count < ALONE_BYTES and operations < ALONE_OPERATIONS:
        return 1
    return thread_count()


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
    import numba

    most = numba.config.NUMBA_NUM_THREADS
    if not 1 <= threads <= most:
        raise UsageError(
            "threads",
            Text("threads = {threads} is out of range", threads=threads),
            Text("1 <= threads <= {most}; raise NUMBA_NUM_THREADS for more", most=most),
        )
    use_numba_threads()  # the call starts them
    numba.set_num_threads(threads)
    thread_count.cache_clear()


class _NumbaThreads:
    """State of Numba's threads: whether this process has used them, and lost them in a fork."""

    def __init__(self) -> None:
        self._used = False
        self._lost = False
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
    from numba import threading_layer

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


LINE_BYTES = 64
"""Size of a cache line. A vector store that crosses the end of a line takes twice as long."""
APART_BYTES = 2 * LINE_BYTES
"""Least distance of data that two threads write: processors prefetch pairs of cache lines."""


def aligned(*shape: int, dtype: DTypeLike = np.float32) -> NDArray[Any]:
    """Return an uninitialised array that starts on a cache line."""
    kind = np.dtype(dtype)
    memory = np.empty(prod(shape) * kind.itemsize + LINE_BYTES, np.uint8)
    start = -address_of(memory) % LINE_BYTES
    return np.ndarray(shape, kind, memory, start)


def thread_scratch(threads: int, *sizes: int, dtype: DTypeLike = np.float32) -> NDArray[Any]:
    """Return an uninitialised array (threads, *sizes) whose rows share no cache line.

    The last axis is longer than requested, and rows start on a cache line: threads that write to
    the same line wait for each other.
    """
    size = np.dtype(dtype).itemsize
    last = -(-(sizes[-1] * size + APART_BYTES) // LINE_BYTES) * LINE_BYTES // size
    return aligned(threads, *sizes[:-1], last, dtype=dtype)
