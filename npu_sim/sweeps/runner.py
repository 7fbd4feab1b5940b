"""Running a sweep: ``npu_sim.sweep``."""

import time
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from npu_sim.framework.checks import require_whole
from npu_sim.registry import load_operator
from npu_sim.status import UsageError, shown, straight
from npu_sim.sweeps.engine import Engine, open_engine, record_dtype
from npu_sim.sweeps.records import RecordColumn, Records, record_columns
from npu_sim.sweeps.space import Space, make_space
from npu_sim.sweeps.store import Store
from npu_sim.sweeps.summary import SweepSummary
from npu_sim.sweeps.verify import Mismatch, compare_row, sampled_rows

CHUNK_ROWS = 1 << 19
"""Rows computed and written at a time: some 60 MB of records."""
Progress = Callable[[int, int], None]
"""Called with the rows complete and the rows of the sweep."""


@straight
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
    """Plan every call of a grid, or a random sample of it, and return one record a call.

    Parameters
    ----------
    operator
        Name of the operator.
    grid
        Values by name: sizes, dtypes and switches of the operator (see ``npu-sim sweep OPERATOR --help``), and ``product``, ``soc``,
        ``release``, ``deterministic``, ``limits``. A value, a list, a ``range`` or text such as ``"1..65536:*2"``; what is left out
        keeps one default value.
    sample, seed
        Draw this many random rows from the grid instead of every combination; ``1..N`` draws evenly, ``1..N:log`` sizes of every
        order of magnitude.
    columns
        Fields to keep; all when None.
    engine, scheduler
        ``local``, or ``dask`` with the address of a scheduler (None: a cluster of processes on this machine).
    threads
        Threads, or worker processes of a cluster started here; every core when None.
    progress
        Called now and then with the rows complete and the rows of the sweep.

    Returns
    -------
    Records
        A structured NumPy array of shape (rows,): ``product``, ``soc``, ``release`` where one is asked for, every axis, ``status``
        (0 where the call runs), and the tiling field by field, in the narrowest integer types that hold them. The last axis varies fastest.

    Raises
    ------
    UsageError
        For an unknown operator, axis, value, column or engine.
    """
    space, chosen = prepare(operator, grid or {}, sample, seed, columns)
    out = _memory_for(space.rows, record_dtype(chosen))
    done = 0
    with open_engine(engine, space, chosen, scheduler, threads) as running:
        if engine == "local":
            for first in range(0, space.rows, CHUNK_ROWS):
                running.fill(out[first : first + CHUNK_ROWS], first)
                if progress is not None:
                    progress(min(first + CHUNK_ROWS, space.rows), space.rows)
        else:
            for chunk in running.chunks(CHUNK_ROWS):
                out[done : done + len(chunk)] = chunk
                done += len(chunk)
                if progress is not None:
                    progress(done, space.rows)
    return Records.wrap(out, space, chosen)


@straight
def sweep_to(
    out: str | Path,
    operator: str,
    grid: Mapping[str, Any] | None = None,
    *,
    resume: bool = False,
    chunk_rows: int = CHUNK_ROWS,
    **options: Any,
) -> Path:
    """Sweep to disk, chunk by chunk, in memory that does not grow with the sweep.

    Parameters
    ----------
    out
        File or folder; the ending decides: none for a folder of ``.npy`` columns, ``.csv``, or ``.parquet`` (extra ``parquet``).
    resume
        Go on with a sweep that was interrupted; the result is the same as without interruption.
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
        As for :func:`sweep`, and when the output cannot be written or an interrupted sweep is in the way.
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
        Whether ``out`` may be there already, written by a sweep before.
    check
        Plan this many random rows again, one by one, and compare.
    operator, grid, sample, seed, columns, out, resume, engine, scheduler, threads, chunk_rows, progress
        As for :func:`sweep` and :func:`sweep_to`; without ``out`` nothing is kept.

    Returns
    -------
    tuple
        The summary, and the values that differ among the checked rows (of the chunks computed now).
    """
    require_whole("chunk_rows", chunk_rows, 1)
    require_whole("check", check, 0)
    if resume and out is None:
        raise UsageError(
            "resume",
            "resume: there is nothing to go on with",
            "name the output of the interrupted sweep",
        )
    space, chosen = prepare(operator, grid, sample, seed, columns)
    summary, chunks = SweepSummary(space, chosen), 0
    store = Store(out, space, chosen, chunk_rows, overwrite) if out is not None else None
    different: list[Mismatch] = []
    checked = sampled_rows(check, space.rows)
    try:
        if store is not None:
            chunks, saved = store.begin(resume)
            if saved:
                summary.restore(saved)
        if progress is not None:
            progress(min(chunks * chunk_rows, space.rows), space.rows)
        if chunks * chunk_rows < space.rows:
            with open_engine(engine, space, chosen, scheduler, threads) as running:
                started = time.perf_counter()
                for chunk in running.chunks(chunk_rows, chunks):
                    first = chunks * chunk_rows
                    summary.add(chunk, first)
                    for row in checked[
                        bisect_left(checked, first) : bisect_left(checked, first + len(chunk))
                    ]:
                        different += compare_row(space, chosen, row, chunk[row - first])
                    chunks += 1
                    if store is not None:
                        store.append(chunk, chunks, summary.state())
                    if progress is not None:
                        progress(first + len(chunk), space.rows)
                summary.seconds = time.perf_counter() - started
        if store is not None:
            store.finish()
    finally:
        if store is not None:
            store.close()
    return summary, different


def _memory_for(rows: int, dtype: np.dtype[Any]) -> np.ndarray:
    try:
        return np.empty(rows, dtype)
    except (MemoryError, ValueError):
        message = (
            f"{rows} rows take {rows * dtype.itemsize} bytes, which this machine does not have"
        )
        raise UsageError(
            "grid", message, "sweep to a file, keep fewer columns, or draw a sample"
        ) from None


def prepare(
    operator: str,
    grid: Mapping[str, Any],
    sample: int | None,
    seed: int,
    columns: Sequence[str] | None,
) -> tuple[Space, tuple[RecordColumn, ...]]:
    """Return space and record fields of a sweep."""
    if columns is not None and not (
        isinstance(columns, Sequence | np.ndarray)
        and all(isinstance(name, str) for name in columns)
    ):
        raise UsageError("columns", f"columns = {shown(columns)} are no names", "a list of names")
    space = make_space(load_operator(operator), grid, sample, seed)
    return space, record_columns(space, tuple(columns) if columns is not None else None)
