"""Engines: compute the rows of a sweep on this machine, or on a Dask cluster (extra ``dask``).

An engine has a method ``chunks(rows, first_chunk=0, out=None)`` that yields the records chunk by
chunk, ``rows`` at a time, from a chunk on. With ``out``, an array of all records, it fills that
array and yields its parts.
"""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Literal, get_args

import numpy as np

from npu_sim.framework.checking import rules_on
from npu_sim.framework.checks import require_integer
from npu_sim.language import Argument, Text
from npu_sim.status import UsageError, closest, shown
from npu_sim.sweeps.space import RecordColumn, Space, may_be_uncountable, places_of
from npu_sim.system import usable_cores

Engine = Literal["local", "dask"]
ENGINES: tuple[Engine, ...] = get_args(Engine)
TASK_ROWS = 1 << 16
"""Rows of one task of a thread: a few milliseconds, so that all threads end at about the same time
and an interruption takes effect quickly."""
TASKS_AHEAD = 3
"""Tasks submitted per worker thread of a cluster: enough to keep all busy, few enough to bound the
memory of results."""
CONNECT_SECONDS = 30


@contextmanager
def open_engine(
    space: Space,
    columns: tuple[RecordColumn, ...],
    engine: str,
    scheduler: str | None,
    threads: int | None,
) -> Iterator["LocalEngine | DaskEngine"]:
    """Open the engine of a sweep, which its keywords select; see :func:`npu_sim.sweep`.

    Raises UsageError for an unknown engine, one that is not installed, or an invalid number of
    threads.
    """
    if threads is not None:
        require_integer("threads", threads, 1)
    if not isinstance(engine, str) or engine not in ENGINES:
        raise UsageError(
            "engine",
            Text("engine = {engine}: no such engine", engine=shown(engine)),
            Text(
                "engines: {engines}{hint}",
                engines=", ".join(ENGINES),
                hint=closest(engine, ENGINES),
            ),
        )
    if engine == "local":
        yield LocalEngine(space, columns, threads)
    else:
        with _cluster(scheduler, threads) as client:
            yield DaskEngine(space, columns, client)


def record_dtype(columns: tuple[RecordColumn, ...]) -> np.dtype[Any]:
    """Return the structured dtype of the records."""
    return np.dtype([(column.name, column.dtype) for column in columns])


class LocalEngine:
    """Fills records on the threads of this process.

    - ``space``, ``columns``: the sweep.
    - ``threads``: number of threads; every core when None.
    """

    def __init__(
        self, space: Space, columns: tuple[RecordColumn, ...], threads: int | None = None
    ) -> None:
        from numba.core.errors import NumbaError

        from npu_sim.sweeps.compile import fill_function  # loads Numba

        self.rows = space.rows
        self.dtype = record_dtype(columns)
        sampled, counted = space.sample is not None, may_be_uncountable(space)
        self._fill = fill_function(space.operator, columns, sampled, counted)
        self._arrays = _arrays(space)
        self._threads = threads or usable_cores()
        try:
            self._fill(np.empty(0, self.dtype), 0, *self._arrays)  # compile before threads start
        except NumbaError as error:
            raise UsageError(
                "tile",
                "{operator}: its planner cannot be compiled for sweeps: {error}",
                "integers, NamedTuples and functions of them, as in docs/add_an_operator.md",
                operator=space.operator.name,
                error=next(filter(str.strip, str(error).split("\n"))),
            ) from None

    def fill(self, out: np.ndarray, first: int) -> None:
        """Fill ``out`` with the records of the rows ``first, first + 1, ...``."""

        def fill_part(start: int) -> None:
            self._fill(out[start : start + TASK_ROWS], first + start, *self._arrays)

        with ThreadPoolExecutor(self._threads) as pool:
            # After an exception or interruption, ``map`` cancels the tasks that wait.
            deque(pool.map(fill_part, range(0, len(out), TASK_ROWS)), maxlen=0)

    def chunks(
        self, rows: int, first_chunk: int = 0, out: np.ndarray | None = None
    ) -> Iterator[np.ndarray]:
        """Yield the records chunk by chunk; without ``out`` the next chunk reuses the array."""
        buffer = np.empty(min(rows, self.rows), self.dtype) if out is None else out
        for first in range(first_chunk * rows, self.rows, rows):
            count = min(rows, self.rows - first)
            chunk = buffer[:count] if out is None else out[first : first + count]
            self.fill(chunk, first)
            yield chunk


def _arrays(space: Space) -> tuple[np.ndarray, ...]:
    """Return a space as the arrays that the compiled loop takes; index 0 is the device."""
    table: list[int] = []
    offsets = [-1]
    for values in space.axes:
        is_listed = isinstance(values.codes, tuple)
        offsets.append(len(table) if is_listed else -1)
        table += values.codes if is_listed else ()
    return (
        np.array(space.counts, np.int64),
        np.array([0, *(values.codes[0] for values in space.axes)], np.int64),
        np.array([1, *(getattr(values.codes, "step", 1) for values in space.axes)], np.int64),
        np.array(offsets, np.int64),
        np.array(table or [0], np.int64),
        np.array([False, *(values.log for values in space.axes)], np.bool_),
        np.array(space.keys, np.uint64),
        np.array([profile.device for profile in space.profiles], np.int64),
        np.array([rules_on(space.operator, profile) for profile in space.profiles], np.int64),
        np.array([positions for _, positions in places_of(space.profiles).values()], np.int64),
    )


class DaskEngine:
    """Submits ranges of rows to the workers of a cluster; results arrive in order.

    Every task carries the sweep, so no task depends on data in the memory of a worker. When workers
    die, others compute their tasks.

    - ``space``, ``columns``: the sweep.
    - ``client``: a connected ``distributed.Client``.
    """

    def __init__(self, space: Space, columns: tuple[RecordColumn, ...], client: Any) -> None:
        self.rows = space.rows
        self._client = client
        self._sweep = space, columns

    def chunks(
        self, rows: int, first_chunk: int = 0, out: np.ndarray | None = None
    ) -> Iterator[np.ndarray]:
        """Yield the records chunk by chunk.

        Raises UsageError when the cluster is gone, or several workers died at the same task.
        """
        done = first_chunk * rows
        for records in self._results(rows, first_chunk):
            if out is not None:
                out[done : done + len(records)] = records
            done += len(records)
            yield records

    def _results(self, rows: int, first_chunk: int) -> Iterator[np.ndarray]:
        window = TASKS_AHEAD * max(sum(self._client.nthreads().values()), 1)
        pending: deque[Any] = deque()
        for first in range(first_chunk * rows, self.rows, rows):
            count = min(rows, self.rows - first)
            pending.append(
                self._client.submit(compute_range, self._sweep, first, count, pure=False)
            )
            if len(pending) >= window:
                yield _result(pending.popleft())
        while pending:
            yield _result(pending.popleft())


def _result(future: Any) -> np.ndarray:
    from distributed import KilledWorker

    try:
        records: np.ndarray = future.result()
    except (KilledWorker, CancelledError, OSError) as error:
        raise UsageError(
            "engine",
            "the cluster cannot compute the sweep: {error_type}: {error}",
            "what is written stays: go on with {resume}",
            resume=Argument("resume", True),
            error_type=type(error).__name__,
            error=error,
        ) from None
    return records


def compute_range(
    sweep: tuple[Space, tuple[RecordColumn, ...]], first: int, count: int
) -> np.ndarray:
    """Compute a range of rows on one thread of a worker; the cluster runs a task per thread."""
    engine = LocalEngine(*sweep, threads=1)
    out = np.empty(count, engine.dtype)
    engine.fill(out, first)
    return out


@contextmanager
def _cluster(scheduler: str | None, workers: int | None) -> Iterator[Any]:
    """Connect to a cluster, or start one of processes on this machine for the time of the sweep.

    Raises UsageError when Dask is not installed or the scheduler does not answer.
    """
    try:
        from distributed import Client, LocalCluster
    except ImportError:
        raise UsageError(
            "engine",
            "engine = dask: dask.distributed is not installed",
            "pip install 'npu_sim[dask]'",
        ) from None
    if scheduler is None:
        options = {"threads_per_worker": 1, "processes": True, "dashboard_address": None}
        with (
            LocalCluster(n_workers=workers or usable_cores(), **options) as cluster,
            Client(cluster) as client,
        ):
            yield client
        return
    try:
        client = Client(scheduler, timeout=CONNECT_SECONDS)
    except (OSError, ValueError) as error:
        raise UsageError(
            "scheduler",
            "scheduler = {scheduler} does not answer: {error}",
            "the address of a running dask scheduler, such as tcp://host:8786",
            scheduler=repr(scheduler),
            error=error,
        ) from None
    with client:
        yield client
