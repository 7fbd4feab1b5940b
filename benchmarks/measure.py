"""Timing with warm memory and alternating rounds; limits of the machine; interruptible work."""

import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
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
PAUSE_SECONDS = WARM_SECONDS = 0.02
"""Before every measurement: a pause, as threads of OpenMP keep spinning for some milliseconds after
a call and take a core from the next one; then calls that are not measured, as the first ones after
a pause take up to four times as long on a virtual machine."""
MEASURED_SECONDS, LEAST_CALLS = 0.05, 3
"""A measurement is the median of the calls made in this time, at least of so many."""
FIRST_ROUNDS, MUCH_SLOWER = 1, 2.0
"""After these rounds, a rival that takes so many times as long as the fastest one is left out."""

TILE_REPEATS = 20_000
"""Tiles a thread computes in one measurement of the peak: some 20 ms."""

MOST_OTHERS = 0.1
"""Cores that other processes may keep busy before a warning says so."""
INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells have it."""

CORES = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
"""Cores that this process may use."""
AVX2 = {
    "NUMBA_CPU_NAME": "haswell",
    "NUMBA_CPU_FEATURES": "+avx,+avx2,+f16c,+fma",  # else Numba keeps those of this processor
    "ATEN_CPU_CAPABILITY": "avx2",
    "TORCHINDUCTOR_CPP_MARCH": "haswell",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "XLA_FLAGS": "--xla_cpu_max_isa=AVX2",
}
"""Restricts our kernels, PyTorch, its compiler, oneDNN, MKL and JAX to AVX2."""

Work = Callable[[], Any]
Item = TypeVar("Item")


def with_environment(variables: dict[str, str]) -> None:
    """Restart this process with variables that libraries read when they are loaded."""
    if any(os.environ.get(name) != value for name, value in variables.items()):
        os.environ.update(variables)
        sys.stdout.flush()
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def use_threads(count: int) -> None:
    """Let all libraries use as many cores: each has threads of its own, JAX a fixed number."""
    import numba

    numba.set_num_threads(count)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(count)
    if hasattr(os, "sched_setaffinity"):
        for thread in Path("/proc/self/task").iterdir():
            with suppress(ProcessLookupError):  # it has ended
                os.sched_setaffinity(int(thread.name), CORES[:count])


def seconds(work: Work) -> float:
    """Return the median time of calls, after a pause and calls that are not measured."""
    time.sleep(PAUSE_SECONDS)
    warm = time.perf_counter() + WARM_SECONDS
    while time.perf_counter() < warm:
        work()
    times: list[float] = []
    end = time.perf_counter() + MEASURED_SECONDS
    while len(times) < LEAST_CALLS or time.perf_counter() < end:
        times.append(timed(work)[0])
    return statistics.median(times)


def timed(work: Work) -> tuple[float, Any]:
    """Return the time of one call, and its results."""
    start = time.perf_counter()
    results = work()
    return time.perf_counter() - start, results


def alternate(
    works: dict[str, Work], repeats: int, rivals: Collection[str] = ()
) -> dict[str, list[float]]:
    """Time works in turns, after one call of each that compiles and touches all pages.

    Every round has an order of its own, the same whenever it is run: what runs before a work
    decides what it finds in the caches.

    Returns
    -------
    dict
        Seconds of every round by name; of the first rounds only for ``rivals`` that are much slower
        than the fastest of them.
    """
    for work in works.values():
        work()
    times: dict[str, list[float]] = {name: [] for name in works}
    order = np.random.default_rng(0)
    for number in range(repeats):
        if number == FIRST_ROUNDS and rivals:
            limit = MUCH_SLOWER * min(min(times[name]) for name in rivals)
            works = {
                name: work
                for name, work in works.items()
                if name not in rivals or min(times[name]) <= limit
            }
        for name in order.permutation(list(works)).tolist():
            times[name].append(seconds(works[name]))
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


class Limit(NamedTuple):
    """Work at the limit of the machine; a call at the limit takes ``scale`` times its time."""

    name: str
    work: Work
    scale: float


def threaded_copy(moved_bytes: int) -> Limit:
    """Return a copy that moves as many bytes on all threads: half are read and half written."""
    count = max(moved_bytes // 8, 1)
    source, target = np.ones(count, np.float32), np.zeros(count, np.float32)
    copy = _threaded_copy()
    return Limit("copy", lambda: copy(source, target), 1.0)


def matrix_peak(operations: int) -> Limit:
    """Return the register tile of the matrix kernel on operands in L1, on all threads."""
    from numba import get_num_threads

    from npu_sim.kernels.conv_tbc_backward import register_tile as tile

    multiply = _repeated_tile()
    a = np.ones(tile.TILE_ROWS * tile.PACKED_STEPS, np.float32)
    b = np.ones(tile.PACKED_STEPS * tile.TILE_COLUMNS, np.float32)
    sums = np.zeros((get_num_threads(), tile.TILE_SIZE), np.float32)
    done = 2 * tile.TILE_SIZE * tile.PACKED_STEPS * TILE_REPEATS * len(sums)
    return Limit("matrix peak", lambda: multiply(a, b, sums, TILE_REPEATS), operations / done)


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

    from npu_sim.kernels.conv_tbc_backward.register_tile import (
        PACKED_STEPS,
        Walk,
        multiply_channels,
    )

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
        "threads": numba.config.NUMBA_NUM_THREADS,
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
    restricted = os.environ.get("NUMBA_CPU_NAME", "")
    if restricted:
        vectors += f"; as if it were a {restricted}, by NUMBA_CPU_NAME, peers likewise"
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
