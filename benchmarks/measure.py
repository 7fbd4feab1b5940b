"""Timing with warm memory and alternating rounds; limits of the machine; interruptible work."""

import mmap
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

WARM_MALLOC = {"MALLOC_MMAP_THRESHOLD_": str(16 * 2**30), "MALLOC_TRIM_THRESHOLD_": str(16 * 2**30)}
"""glibc keeps freed memory instead of giving it back: no call pays page faults for its results,
neither PyTorch's nor ours."""
STINGY_MALLOC = {"MALLOC_MMAP_THRESHOLD_": str(2**16), "MALLOC_TRIM_THRESHOLD_": str(2**16)}
"""glibc gives freed memory back at once: the resident size of a process is then what is in use."""
PAUSE_SECONDS = 0.03
"""Before every measurement: threads of OpenMP keep spinning for some milliseconds after a call and
take a core from the next one."""
BLAS_PAUSE_SECONDS = 0.2
"""The same where a BLAS was called, which spins longer."""
SLOW_SECONDS = 2.0
SLOW_ROUNDS = 2
"""What takes longer in that many rounds is not measured again."""

TILE_REPEATS = 20_000
"""Tiles a thread computes in one measurement of the peak: some 20 ms."""

MOST_OTHERS = 0.1
"""Cores that other processes may keep busy before a warning says so."""
INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells have it."""

Work = Callable[[], Any]
Item = TypeVar("Item")


def with_warm_malloc() -> None:
    """Restart this process so that freed memory stays warm: malloc reads its variables at start."""
    if sys.platform == "linux" and any(
        os.environ.get(name) != value for name, value in WARM_MALLOC.items()
    ):
        os.environ.update(WARM_MALLOC)
        sys.stdout.flush()
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def seconds(work: Work, pause: float = 0.0) -> float:
    """Time one call after a pause."""
    time.sleep(pause)
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def alternate(
    works: dict[str, Work], repeats: int, pause: float = PAUSE_SECONDS
) -> dict[str, list[float]]:
    """Time works in turns, after one call of each that compiles and touches all pages.

    Every round has an order of its own, the same whenever it is run: what runs before a work
    decides what it finds in the caches.

    Returns
    -------
    dict
        Seconds of every round by name; two rounds only for works that are slow in both.
    """
    for work in works.values():
        work()
    times: dict[str, list[float]] = {name: [] for name in works}
    order = np.random.default_rng(0)
    for _ in range(repeats):
        for name in order.permutation(list(works)).tolist():
            if len(times[name]) < SLOW_ROUNDS or min(times[name]) < SLOW_SECONDS:
                times[name].append(seconds(works[name], pause))
    return times


def medians(times: dict[str, list[float]]) -> dict[str, float]:
    """Return the median of every work."""
    return {name: statistics.median(values) for name, values in times.items()}


def spread(values: list[float]) -> float:
    """Return how far the slowest round is from the fastest, as a share of the median."""
    return (max(values) - min(values)) / statistics.median(values)


class Others:
    """Context manager whose ``cores`` is the number of cores that other processes kept busy.

    It is 0 where that is unknown.

    A single one that takes a core makes every call on all threads two to three times as slow.
    """

    cores = 0.0

    def __enter__(self) -> "Others":
        self._start, self._busy = time.perf_counter(), self._busy_seconds()
        return self

    def __exit__(self, *error: object) -> None:
        elapsed = time.perf_counter() - self._start
        self.cores = max(self._busy_seconds() - self._busy, 0.0) / elapsed
        if self.cores > MOST_OTHERS:
            print(
                f"  other processes kept {self.cores:.1f} cores busy: these times are too long",
                file=sys.stderr,
                flush=True,
            )

    @staticmethod
    def _busy_seconds() -> float:
        """Return seconds that cores worked for others or were stolen from this machine."""
        try:
            fields = Path("/proc/stat").read_text(encoding="ascii").splitlines()[0].split()
        except OSError:
            return 0.0
        user, nice, system, _, _, interrupts, soft_interrupts, stolen = map(int, fields[1:9])
        return (user + nice + system + interrupts + soft_interrupts + stolen) / os.sysconf(
            "SC_CLK_TCK"
        ) - time.process_time()


def fresh_array(like: np.ndarray) -> np.ndarray:
    """Return an array without physical pages yet, as a large ``numpy.empty`` in a new process."""
    memory = mmap.mmap(-1, max(like.nbytes, 1))
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)  # as NumPy does
    return np.frombuffer(memory, np.uint8, like.nbytes).view(like.dtype).reshape(like.shape)


class Limit(NamedTuple):
    """Work at the limit of the machine; a call at the limit takes ``scale`` times its time."""

    work: Work
    scale: float


def copies(moved_bytes: int) -> dict[str, Limit]:
    """Return copies that move as many bytes: half of them read, half written."""
    count = max(moved_bytes // 8, 1)
    source, target = np.ones(count, np.float32), np.zeros(count, np.float32)
    threaded = _threaded_copy()
    return {
        "numpy copy": Limit(lambda: np.copyto(target, source), 1.0),
        "threaded copy": Limit(lambda: threaded(source, target), 1.0),
    }


def matrix_peak(operations: int) -> dict[str, Limit]:
    """Return the register tile of the matrix kernel on operands in L1, on all threads."""
    from numba import get_num_threads

    from npu_sim.kernels.conv_tbc_backward import tile

    multiply = _repeated_tile()
    a = np.ones(tile.TILE_ROWS * tile.PACKED_STEPS, np.float32)
    b = np.ones(tile.PACKED_STEPS * tile.TILE_COLUMNS, np.float32)
    sums = np.zeros((get_num_threads(), tile.TILE_SIZE), np.float32)
    done = 2 * tile.TILE_SIZE * tile.PACKED_STEPS * TILE_REPEATS * len(sums)
    return {"matrix peak": Limit(lambda: multiply(a, b, sums, TILE_REPEATS), operations / done)}


@lru_cache(maxsize=1)
def _threaded_copy() -> Any:
    from numba import njit, prange

    @njit(parallel=True)
    def copy(source: Any, target: Any) -> None:
        for index in prange(source.size):
            target[index] = source[index]

    return copy


@lru_cache(maxsize=1)
def _repeated_tile() -> Any:
    from numba import njit, prange

    from npu_sim.kernels.conv_tbc_backward.tile import PACKED_STEPS, Walk, multiply_channels

    @njit(parallel=True, error_model="numpy")
    def multiply(a: Any, b: Any, sums: Any, repeats: int) -> None:
        for thread in prange(sums.shape[0]):
            for _ in range(repeats):
                multiply_channels(a, 0, b, 0, sums[thread], 0, Walk(1, 0, 0, 1, 0, PACKED_STEPS))

    return multiply


def machine() -> dict[str, Any]:
    """Return processor, threads, versions and malloc settings; None for packages not installed."""
    import numba

    return {
        "processor": _processor(),
        "threads": numba.get_num_threads(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "numba": numba.__version__,
        "torch": _version("torch"),
        "jax": _version("jax"),
        "malloc": {name: os.environ.get(name) for name in WARM_MALLOC},
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _processor() -> str:
    """Return the processor's name with family and model, as virtual machines may hide the name."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    found = {
        name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)
    }
    vectors = next(
        (
            name
            for flag, name in (("avx512f", "AVX-512"), ("avx2", "AVX2"))
            if flag in found.get("flags", "").split()
        ),
        "no AVX2",
    )
    name, family, model = (found.get(key, "?") for key in ("model name", "cpu family", "model"))
    return (
        f"{name if name != '?' else platform.machine()} (family {family}, model {model}, {vectors})"
    )


def each(items: Iterable[Item], name: Callable[[Item], str]) -> Iterator[Item]:
    """Walk over items and tell on stderr how far it is."""
    listed = list(items)
    for number, item in enumerate(listed, 1):
        print(f"[{number}/{len(listed)}] {name(item)}", file=sys.stderr, flush=True)
        yield item


class Stoppable:
    """Context manager that Ctrl-C leaves; ``stopped`` is then True, and results so far remain."""

    stopped = False

    def __enter__(self) -> "Stoppable":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> bool:
        self.stopped = kind is KeyboardInterrupt
        return self.stopped
