"""Scratch memory of kernels, with a row for every thread."""

from math import prod
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from npu_sim.numbers.arrays import address_of

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
