"""Run a sweep, in memory (``npu_sim.sweep``) or to disk (``npu_sim.sweep_to``).

On request, random rows are compared with the planner of a single call.

Engines compute the rows, on this machine or on a Dask cluster (extra ``dask``). An engine has a
method ``chunks(rows, first_chunk=0, out=None)`` that yields the records chunk by chunk, ``rows`` at
a time, from a chunk on. With ``out``, an array of all records, it fills that array and yields its
parts.
"""

import linecache
import random
import re
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from npu_sim.framework.checking import rules_on
from npu_sim.framework.checks import require_integer
from npu_sim.framework.inference import plan_arguments
from npu_sim.framework.row_planner import UNCOUNTABLE, row_planner
from npu_sim.language import Argument, Text
from npu_sim.numbers.arrays import Array
from npu_sim.operators import plan
from npu_sim.operators.loading import load_operator
from npu_sim.status import (
    AclnnError,
    UncountableError,
    UsageError,
    shown,
    tip,
    without_internal_frames,
)
from npu_sim.sweeps.space import (
    RecordColumn,
    Records,
    Space,
    make_space,
    may_be_uncountable,
    places_of,
    record_columns,
)
from npu_sim.sweeps.summary import SweepSummary
from npu_sim.sweeps.writers import Store
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
            "engine = {engine}: no such engine",
            "{tip}engines: {engines}",
            engine=shown(engine),
            engines=", ".join(ENGINES),
            tip=tip(engine, ENGINES),
        )
    if engine == "local":
        yield LocalEngine(space, columns, threads)
    else:
        with _cluster(scheduler, threads) as client:
            yield DaskEngine(space, columns, client)


def record_dtype(columns: tuple[RecordColumn, ...]) -> np.dtype[Any]:
    """Return the structured dtype of the records."""
    return np.dtype([(column.name, column.dtype) for column in columns])


def _place(planner: Callable[..., Any], message: str) -> str:
    """Return the line of the planner's file that a message of Numba names last, with its text.

    The first line of the message where it names none.
    """
    file = Path(planner.__code__.co_filename)
    found = re.findall(rf'File "(?:[^"]*[/\\])?{re.escape(file.name)}", line (\d+)', message)
    if not found:
        return next(filter(str.strip, message.split("\n")))
    source = linecache.getline(str(file), int(found[-1])).strip()
    return Text("{path}, line {line}: {source}", path=file, line=found[-1], source=source)


class LocalEngine:
    """Fills records on the threads of this process.

    - ``space``, ``columns``: the sweep.
    - ``threads``: number of threads; every core when None.
    """

    def __init__(
        self, space: Space, columns: tuple[RecordColumn, ...], threads: int | None = None
    ) -> None:
        from numba.core.errors import NumbaError

        from npu_sim.kernels.engine.compile import collection_paused  # loads Numba
        from npu_sim.sweeps.compile import fill_function

        self.rows = space.rows
        self.dtype = record_dtype(columns)
        sampled, counted = space.sample is not None, may_be_uncountable(space)
        self._fill = fill_function(space.operator, columns, sampled, counted)
        self._arrays = _arrays(space)
        self._threads = threads or usable_cores()
        try:
            with collection_paused():  # compile before threads start
                self._fill(np.empty(0, self.dtype), 0, *self._arrays)
        except NumbaError as error:
            raise UsageError(
                "tile",
                "{operator}: its planner cannot be compiled for sweeps: {error}",
                "integers, NamedTuples and functions of them, as in the file that npu-sim "
                "new-operator writes",
                operator=space.operator.name,
                error=_place(space.operator.tile, str(error)),
            ) from None

    def fill(self, out: Array, first: int) -> None:
        """Fill ``out`` with the records of the rows ``first, first + 1, ...``."""

        def fill_part(start: int) -> None:
            self._fill(out[start : start + TASK_ROWS], first + start, *self._arrays)

        with ThreadPoolExecutor(self._threads) as pool:
            # After an exception or interruption, ``map`` cancels the tasks that wait.
            deque(pool.map(fill_part, range(0, len(out), TASK_ROWS)), maxlen=0)

    def chunks(self, rows: int, first_chunk: int = 0, out: Array | None = None) -> Iterator[Array]:
        """Yield the records chunk by chunk; without ``out`` the next chunk reuses the array."""
        buffer = np.empty(min(rows, self.rows), self.dtype) if out is None else out
        for first in range(first_chunk * rows, self.rows, rows):
            count = min(rows, self.rows - first)
            chunk = buffer[:count] if out is None else out[first : first + count]
            self.fill(chunk, first)
            yield chunk


def _arrays(space: Space) -> tuple[Array, ...]:
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

    def chunks(self, rows: int, first_chunk: int = 0, out: Array | None = None) -> Iterator[Array]:
        """Yield the records chunk by chunk.

        Raises UsageError when the cluster is gone, or several workers died at the same task.
        """
        done = first_chunk * rows
        for records in self._results(rows, first_chunk):
            if out is not None:
                out[done : done + len(records)] = records
            done += len(records)
            yield records

    def _results(self, rows: int, first_chunk: int) -> Iterator[Array]:
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


def _result(future: Any) -> Array:
    from distributed import KilledWorker

    try:
        records: Array = future.result()
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


def compute_range(sweep: tuple[Space, tuple[RecordColumn, ...]], first: int, count: int) -> Array:
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


class Mismatch(NamedTuple):
    """One field of one row that differs."""

    row: int
    field: str
    swept: Any
    planned: Any


class Sources(NamedTuple):
    """What the columns of a sweep read: a row, its record, and the codes of its device."""

    row: Any
    record: Any
    product: int
    soc: int
    release: int


def planned_record(space: Space, columns: tuple[RecordColumn, ...], row: int) -> dict[str, Any]:
    """Return the record of one row, computed without Numba."""
    position, *codes = space.codes_at(row)
    profile = space.profiles[position]
    planner, rules = row_planner(space.operator), rules_on(space.operator, profile)
    planned_row = planner.make_row(*codes)
    places = {
        name: positions[position] for name, (_, positions) in places_of(space.profiles).items()
    }
    record = planner.plan_counted(planned_row, profile.device, rules)
    sources = Sources(planned_row, record, **places)
    return {column.name: attrgetter(column.source)(sources) for column in columns}


def called_facts(space: Space, row: int) -> dict[str, Any]:
    """Return the fields that :func:`npu_sim.plan` reports about one row."""
    profile, values = space.call_at(row)
    try:
        planned = plan(
            space.operator.name, product=profile, **plan_arguments(space.operator, values)
        )
    except AclnnError as error:
        return {"status": int(error.status)}
    except UncountableError:
        return {"status": UNCOUNTABLE}
    record = {
        "status": 0,
        "block_dim": planned.block_dim,
        "total_workspace_bytes": planned.workspace.total_bytes,
    }
    if planned.tiling_key is not None:
        record["tiling_key"] = planned.tiling_key
        record["workspace_bytes"] = planned.workspace.kernel_bytes
    return record


def compare_row(
    space: Space, columns: tuple[RecordColumn, ...], row: int, record: Any
) -> list[Mismatch]:
    """Compare one record with the Python planner and with :func:`npu_sim.plan`."""
    expected = planned_record(space, columns, row)
    floats = [column for column in columns if column.dtype.kind == "f"]
    expected |= {column.name: column.dtype.type(expected[column.name]) for column in floats}
    swept = {column.name: record[column.name] for column in columns}
    expected |= {name: value for name, value in called_facts(space, row).items() if name in swept}
    return [
        Mismatch(row, name, swept[name].item(), np.asarray(expected[name]).item())
        for name in swept
        if swept[name] != expected[name]
    ]


def sampled_rows(count: int, total: int, seed: int = 0) -> list[int]:
    """Return random row numbers below ``total``, without repetition, in order."""
    return sorted(random.Random(seed).sample(range(total), min(count, total)))


OWN_ROWS = 16
"""Calls of an operator from outside npu_sim that are planned one by one before a sweep."""
CHUNK_ROWS = 1 << 19
"""Rows computed and written at a time: about 60 MB of records."""
Progress = Callable[[int, int], None]
"""Called with the number of complete rows and of all rows."""


@without_internal_frames
def sweep(
    operator: str,
    grid: Mapping[str, Any] | None = None,
    *,
    sample: int | None = None,
    seed: int = 0,
    columns: Sequence[str] | None = None,
    engine: Engine = "local",
    scheduler: str | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Records:
    """Plan every call of a grid, or a random sample of it; return one record per call.

    Parameters
    ----------
    operator
        Name of the operator.
    grid
        Values by name: sizes, dtypes and switches of the operator (see ``npu-sim sweep OPERATOR
        --help``), and ``product``, ``soc``, ``release``, ``deterministic``, ``limits``. A value, a
        list, a ``range`` or text such as ``"1..65536:*2"``. Missing names keep one default value.
    sample, seed
        Number of random rows to draw from the grid instead of every combination, and the seed.
        ``1..N`` draws evenly, ``1..N:log`` draws sizes of every order of magnitude.
    columns
        Fields to compute; all when None.
    engine, scheduler
        ``local``, or ``dask`` with the address of a scheduler (None: start a cluster of processes
        on this machine).
    threads
        Threads, or worker processes of a cluster started here; every core when None.
    progress
        Called after every chunk with the number of complete rows and of all rows.

    Returns
    -------
    Records
        A structured NumPy array of shape (rows,) with the fields ``product``, ``soc``, ``release``
        (where the grid names one), every axis, ``status`` (0 where the call runs, -1 where a tensor
        has more bytes than an int64 counts), and every field of the tiling, in the narrowest
        integer types that hold them. The last axis varies fastest.

    Raises
    ------
    UsageError
        For an unknown operator, axis, value, column or engine.
    """
    space, chosen = space_and_columns(operator, grid or {}, sample, seed, columns)
    out = _memory_for(space.rows, record_dtype(chosen))
    done = 0
    with open_engine(space, chosen, engine, scheduler, threads) as running:
        for chunk in running.chunks(CHUNK_ROWS, out=out):
            done += len(chunk)
            if progress is not None:
                progress(done, space.rows)
    return Records.wrap(out, space, chosen)


@without_internal_frames
def sweep_to(
    out: str | Path,
    operator: str,
    grid: Mapping[str, Any] | None = None,
    *,
    resume: bool = False,
    chunk_rows: int = CHUNK_ROWS,
    **options: Any,
) -> Path:
    """Sweep to disk, chunk by chunk, in constant memory.

    Parameters
    ----------
    out
        File or folder. The ending selects the format: none for a folder of ``.npy`` columns,
        ``.csv``, or ``.parquet`` (extra ``parquet``).
    resume
        Continue an interrupted sweep; the result is the same as without interruption.
    chunk_rows
        Rows computed and written at a time.
    operator, grid, **options
        As for :func:`sweep`.

    Returns
    -------
    Path
        The output.

    Raises
    ------
    UsageError
        As for :func:`sweep`, and when the output cannot be written or belongs to an interrupted
        sweep.
    """
    run_sweep(operator, grid or {}, out=Path(out), resume=resume, chunk_rows=chunk_rows, **options)
    return Path(out)


def run_sweep(
    operator: str,
    grid: Mapping[str, Any],
    *,
    sample: int | None = None,
    seed: int = 0,
    columns: Sequence[str] | None = None,
    out: Path | None = None,
    resume: bool = False,
    overwrite: bool = True,
    engine: str = "local",
    scheduler: str | None = None,
    threads: int | None = None,
    chunk_rows: int = CHUNK_ROWS,
    check: int = 0,
    progress: Progress | None = None,
) -> tuple[SweepSummary, list[Mismatch]]:
    """Sweep chunk by chunk, to disk or for its summary alone.

    Parameters
    ----------
    overwrite
        Whether a file at ``out``, or the folder of an earlier sweep, may be replaced.
    check
        Number of random rows to compare with the planner of a single call.
    operator, grid, sample, seed, columns, out, resume, engine, scheduler, threads
        As for :func:`sweep` and :func:`sweep_to`; without ``out`` no records are stored.
    chunk_rows, progress
        As for :func:`sweep_to` and :func:`sweep`.

    Returns
    -------
    tuple
        The summary, and the differences among the checked rows of the chunks computed now.
    """
    require_integer("chunk_rows", chunk_rows, 1)
    require_integer("check", check, 0)
    if resume and out is None:
        raise UsageError(
            "resume",
            "resume: there is nothing to go on with",
            "name the output of the interrupted sweep",
        )
    space, chosen = space_and_columns(operator, grid, sample, seed, columns)
    checked = sampled_rows(check, space.rows)
    run = _Run(space, chosen, chunk_rows, checked, progress, SweepSummary(space, chosen))
    opened = partial(open_engine, space, chosen, engine, scheduler, threads)
    if out is None:
        run.compute(opened)
    else:
        with closing(Store(out, space, chosen, chunk_rows, overwrite)) as store:
            run.compute(opened, store, resume)
            store.finish()
    return run.summary, run.different


@dataclass
class _Run:
    """One run of a sweep, chunk by chunk."""

    space: Space
    columns: tuple[RecordColumn, ...]
    chunk_rows: int
    checked: list[int]
    """Rows to compare with the planner of a single call, in ascending order."""
    progress: Progress | None
    summary: SweepSummary
    different: list[Mismatch] = field(default_factory=list)
    """Differences found in these rows."""

    def compute(
        self,
        opened: Callable[[], AbstractContextManager[LocalEngine | DaskEngine]],
        store: Store | None = None,
        resume: bool = False,
    ) -> None:
        """Compute every chunk that an interrupted run has not stored."""
        chunks, saved = store.begin(resume) if store is not None else (0, {})
        if saved:
            self.summary.restore(saved)
        done = min(chunks * self.chunk_rows, self.space.rows)
        self._report(done)
        if done == self.space.rows:
            return
        with opened() as engine:
            started = time.perf_counter()
            for chunk in engine.chunks(self.chunk_rows, chunks):
                self._take(chunk, done)
                done, chunks = done + len(chunk), chunks + 1
                if store is not None:
                    store.append(chunk, chunks, self.summary.state())
                self._report(done)
            self.summary.seconds = time.perf_counter() - started

    def _take(self, chunk: Array, first: int) -> None:
        """Count a chunk and compare its checked rows."""
        self.summary.add(chunk, first)
        begin, end = (bisect_left(self.checked, row) for row in (first, first + len(chunk)))
        for row in self.checked[begin:end]:
            self.different += compare_row(self.space, self.columns, row, chunk[row - first])

    def _report(self, done: int) -> None:
        if self.progress is not None:
            self.progress(done, self.space.rows)


def _memory_for(rows: int, dtype: np.dtype[Any]) -> Array:
    try:
        return np.empty(rows, dtype)
    except (MemoryError, ValueError):
        raise UsageError(
            "grid",
            "{rows} rows take {bytes} bytes, which this machine does not have",
            "sweep to a file, keep fewer columns, or draw a sample",
            rows=rows,
            bytes=rows * dtype.itemsize,
        ) from None


def space_and_columns(
    operator: str,
    grid: Mapping[str, Any],
    sample: int | None,
    seed: int,
    columns: Sequence[str] | None,
) -> tuple[Space, tuple[RecordColumn, ...]]:
    """Return the calls of a sweep and the columns of its records."""
    if columns is not None and not (
        isinstance(columns, Sequence | np.ndarray)
        and all(isinstance(name, str) for name in columns)
    ):
        raise UsageError(
            "columns",
            "columns = {columns} are not names",
            "a list of names",
            columns=shown(columns),
        )
    space = make_space(load_operator(operator), grid, sample, seed)
    if space.operator.is_foreign:  # a planner from outside may return anything
        for row in sampled_rows(OWN_ROWS, space.rows):
            called_facts(space, row)
    return space, record_columns(space, tuple(columns) if columns is not None else None)
