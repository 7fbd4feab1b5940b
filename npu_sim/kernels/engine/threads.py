"""How many threads the kernels use."""

from functools import cache

from npu_sim.status import UsageError

ALONE_BYTES = 1 << 19
"""Smaller arrays are read and written by the calling thread: that takes little longer than waking
others."""
ALONE_OPERATIONS = 1 << 20
"""Fewer multiplications are done by the calling thread."""


@cache
def thread_count() -> int:
    """Return the number of threads of parallel loops.

    Numba is asked once per process: its answer takes a lock that processes share, and a child
    forked while another thread holds it would wait for ever. A later ``numba.set_num_threads``
    still limits how many threads compute, but not into how many parts work is split.
    """
    from numba import get_num_threads

    return int(get_num_threads())


def threads_for(byte_count: int = 0, operations: int = 0) -> int:
    """Return how many threads work is worth, by the size of the arrays it reads and writes once, or by its multiplications."""
    if byte_count < ALONE_BYTES and operations < ALONE_OPERATIONS:
        return 1
    return thread_count()


def limit_threads(threads: int | None) -> None:
    """Set the number of threads of all kernels; None leaves Numba's choice (``NUMBA_NUM_THREADS`` or every core).

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
            f"threads = {threads} is out of range",
            f"1 <= threads <= {most}; raise NUMBA_NUM_THREADS for more",
        )
    numba.set_num_threads(threads)
    thread_count.cache_clear()
