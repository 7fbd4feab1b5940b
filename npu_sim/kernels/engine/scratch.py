"""Scratch memory that kernels work in, a row for every thread."""

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

APART_BYTES = 128
"""Least distance of what two threads write to: a cache line, and the one the processor fetches beside it."""


def thread_scratch(threads: int, *sizes: int, dtype: DTypeLike = np.float32) -> NDArray[Any]:
    """Return an array (threads, *sizes), its last axis longer, such that no two threads share a cache line; not set to anything.

    Threads that write to the same line wait for each other, although they never use the same elements.
    """
    return np.empty((threads, *sizes[:-1], sizes[-1] + APART_BYTES // np.dtype(dtype).itemsize), dtype)
