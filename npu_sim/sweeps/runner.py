"""Run a sweep, in memory (``npu_sim.sweep``) or to disk (``npu_sim.sweep_to``).

On request, random rows are compared with the planner of a single call.
"""

import random
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from npu_sim.framework.checking import UNCOUNTABLE, row_planner, rules_on
from npu_sim.framework.checks import require_integer
from npu_sim.framework.inference import plan_arguments
from npu_sim.operators import plan
from npu_sim.registry import load_operator
from npu_sim.status import AclnnError, UsageError, shown, without_internal_frames
from npu_sim.sweeps.engine import DaskEngine, Engine, LocalEngine, open_engine, record_dtype
from npu_sim.sweeps.space import (
    RecordColumn,
    Records,
    Space,
    SweepSummary,
    make_space,
    places_of,
    record_columns,
)
from npu_sim.sweeps.writers import Store


class Mismatch(NamedTuple):
    """One field of one row that differs."""

    row: int
    field: str
    swept: Any
    planned: Any


def planned_record(space: Space, columns: tuple[RecordColumn, ...], row: int) -> dict[str, Any]:
    """Return the record of one row, computed without Numba."""
    position, *codes = space.codes_at(row)
    profile = space.profiles[position]
    planner, rules = row_planner(space.operator), rules_on(space.operator, profile)
    planned_row = planner.make_row(*codes)
    sources = SimpleNamespace(
        row=planned_row,
        record=planner.plan_counted(planned_row, profile.device, rules),
        **{name: positions[position] for name, (_, positions) in places_of(space.profiles).items()},
    )
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
    except UsageError as error:
        if error.argument not in space.operator.tensor_names:
            raise
        return {"status": UNCOUNTABLE}
    of_kernel = {
        "tiling_key": planned.tiling_key,
        "workspace_bytes": planned.workspace.kernel_bytes,
    }
    return {
        "status": 0,
        "block_dim": planned.block_dim,
        "total_workspace_bytes": planned.workspace.total_bytes,
        **({} if planned.tiling_key is None else of_kernel),
    }


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
        Whether an earlier sweep at ``out`` may be replaced.
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

    def _take(self, chunk: np.ndarray, first: int) -> None:
        """Count a chunk and compare its checked rows."""
        self.summary.add(chunk, first)
        begin, end = (bisect_left(self.checked, row) for row in (first, first + len(chunk)))
        for row in self.checked[begin:end]:
            self.different += compare_row(self.space, self.columns, row, chunk[row - first])

    def _report(self, done: int) -> None:
        if self.progress is not None:
            self.progress(done, self.space.rows)


def _memory_for(rows: int, dtype: np.dtype[Any]) -> np.ndarray:
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
