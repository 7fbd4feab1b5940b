"""Threads of a process that was forked.

The threads that Numba computes on do not survive a fork: GNU OpenMP ends a child that asks for them, and PyTorch's data loaders fork.
A child of a process that has run kernels computes on threads of its own; results do not depend on who computes which share.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from typing import Any

from numba import get_num_threads


@cache
def _first_process() -> int:
    """Return the process in which a kernel was first run; its children inherit the answer."""
    return os.getpid()


def in_this_process() -> bool:
    """Whether Numba's threads belong to this process."""
    return _first_process() == os.getpid()


def on_own_threads(run: Callable[..., None], shares: int, *arguments: Any) -> None:
    """Compute the shares 0..shares-1 by ``run(first, stop, *arguments)``, which lets go of the interpreter, on threads of our own."""
    threads = min(get_num_threads(), shares)
    ends = [shares * part // threads for part in range(threads + 1)] if threads else [0]
    with ThreadPoolExecutor(max(threads, 1)) as pool:
        for done in [pool.submit(run, first, stop, *arguments) for first, stop in pairwise(ends)]:
            done.result()
