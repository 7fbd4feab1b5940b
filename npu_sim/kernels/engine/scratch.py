"""Scratch memory that kernels work in, a row for every thread."""

import threading
from collections.abc import Callable
from math import prod
from typing import Any, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from npu_sim.numbers.arrays import address_of

LINE_BYTES = 64
"""A cache line: vectors that are stored across the end of one take twice as long."""
APART_BYTES = 2 * LINE_BYTES
"""Least distance of what two threads write to: a cache line, and the one the processor fetches
beside it."""
SMALL_BYTES = 1 << 19
"""Scratch up to this size may be kept from call to call."""
MOST_KEPT = 8
"""So many pieces of scratch of a kind are kept for a thread."""

Made = TypeVar("Made")


def kept(make: Callable[..., Made]) -> Callable[..., Made]:
    """Make a function that gives a Python thread the same scratch for the same arguments every time: for small ones.

    A call that uses it must not ask twice. The first of more than :data:`MOST_KEPT` is given up.
    """
    by_thread = threading.local()

    def scratch(*arguments: Any) -> Made:
        made: dict[tuple[Any, ...], Made] = by_thread.__dict__
        found = made.get(arguments)
        if found is None:
            if len(made) == MOST_KEPT:
                made.pop(next(iter(made)))
            found = made[arguments] = make(*arguments)
        return found

    return scratch


def aligned(*shape: int, dtype: DTypeLike = np.float32) -> NDArray[Any]:
    """Return an array that starts with a cache line; not set to anything."""
    kind = np.dtype(dtype)
    memory = np.empty(prod(shape) * kind.itemsize + LINE_BYTES, np.uint8)
    start = -address_of(memory) % LINE_BYTES
    return np.ndarray(shape, kind, memory, start)


def thread_scratch(threads: int, *sizes: int, dtype: DTypeLike = np.float32) -> NDArray[Any]:
    """Return an array (threads, *sizes), its last axis longer, such that no two threads share a cache line; not set to anything.

    Threads that write to the same line wait for each other, although they never use the same
    elements. Rows start with a line.
    """
    size = np.dtype(dtype).itemsize
    last = -(-(sizes[-1] * size + APART_BYTES) // LINE_BYTES) * LINE_BYTES // size
    return aligned(threads, *sizes[:-1], last, dtype=dtype)
