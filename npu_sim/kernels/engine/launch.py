"""Numba's threads: how long they wait for more work, who may use them, and what becomes of them in a fork.

The threads that Numba computes on do not survive a fork: GNU OpenMP ends a child that asks for
them, and PyTorch's data loaders fork. A child of a process that has run kernels computes on threads
of its own; results do not depend on who computes which share.
"""

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from itertools import pairwise
from typing import Any

from numba import threading_layer

from npu_sim.kernels.engine.numba_inside import load_openmp
from npu_sim.kernels.engine.threads import thread_count

load_openmp()


class _Threads:
    """Whether Numba's threads have been asked for, and lost in a fork since."""

    def __init__(self) -> None:
        self.asked_for = False
        self.lost = False
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forked)

    def _forked(self) -> None:
        self.lost = self.asked_for

    def are_here(self) -> bool:
        """Whether they belong to this process; from now on they are asked for."""
        self.asked_for = True
        return not self.lost


in_this_process = _Threads().are_here
"""Whether Numba's threads belong to this process. The system is not asked who we are for every
kernel: that may take longer than one."""

_one_at_a_time = threading.Lock()


def parallel_loop() -> AbstractContextManager[Any]:
    """Return what a loop on Numba's threads runs in: those of the layer ``workqueue`` end the process when two loops use them at once."""
    return _one_at_a_time if _is_workqueue() else nullcontext()


@cache
def _is_workqueue() -> bool:
    thread_count()  # chooses the layer
    return threading_layer() == "workqueue"


def on_own_threads(run: Callable[..., None], shares: int, *arguments: Any) -> None:
    """Compute the shares 0..shares-1 by ``run(first, stop, *arguments)``, which lets go of the interpreter, on threads of our own."""
    threads = min(thread_count(), shares)
    ends = [shares * part // threads for part in range(threads + 1)] if threads else [0]
    with ThreadPoolExecutor(max(threads, 1)) as pool:
        for done in [pool.submit(run, first, stop, *arguments) for first, stop in pairwise(ends)]:
            done.result()
