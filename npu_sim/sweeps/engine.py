"""Computing rows of a sweep on this machine: compiled planners on all cores."""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from npu_sim.sweeps.columns import RecordColumn
from npu_sim.sweeps.devices import places_of
from npu_sim.sweeps.space import Space

TASK_ROWS = 1 << 16
"""Rows of one task of a thread: a few milliseconds, so that threads end together and an
interruption is quick."""


def record_dtype(columns: tuple[RecordColumn, ...]) -> np.dtype[Any]:
    """Return the structured type of the records."""
    return np.dtype([(column.name, column.dtype) for column in columns])


def usable_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class LocalEngine:
    """Fills records on the threads of this process.

    Parameters
    ----------
    space
        The sweep.
    columns
        Fields of the records.
    threads
        Threads to use; every core when None.
    """

    def __init__(
        self, space: Space, columns: tuple[RecordColumn, ...], threads: int | None = None
    ) -> None:
        from npu_sim.sweeps.compile import fill_function

        self.rows = space.rows
        self.dtype = record_dtype(columns)
        self._fill = fill_function(space.operator, columns, space.sample is not None)
        self._facts = _facts(space)
        self._threads = threads or usable_cores()
        self._fill(
            np.empty(0, self.dtype), 0, *self._facts
        )  # compile before threads ask for it at the same time

    def fill(self, out: np.ndarray, first: int) -> None:
        """Fill ``out`` with the records of the rows ``first, first + 1, ...``."""
        with ThreadPoolExecutor(self._threads) as pool:
            starts = range(0, len(out), TASK_ROWS)
            tasks = [
                pool.submit(self._fill, out[start : start + TASK_ROWS], first + start, *self._facts)
                for start in starts
            ]
            try:
                for task in tasks:
                    task.result()
            except BaseException:
                for task in tasks:
                    task.cancel()
                raise

    def chunks(self, rows: int, first_chunk: int = 0) -> Iterator[np.ndarray]:
        """Yield the records chunk by chunk, ``rows`` at a time, from a chunk on; the array is used again for the next one."""
        buffer = np.empty(min(rows, self.rows), self.dtype)
        for first in range(first_chunk * rows, self.rows, rows):
            chunk = buffer[: min(rows, self.rows - first)]
            self.fill(chunk, first)
            yield chunk


def _facts(space: Space) -> tuple[Any, ...]:
    """Lay a space out as the arrays the compiled loop takes."""
    table: list[int] = []
    offsets, starts, steps, logs = [-1], [0], [1], [False]
    for values in space.axes:
        offsets.append(len(table) if values.table else -1)
        table.extend(values.table)
        starts.append(values.start)
        steps.append(values.step)
        logs.append(values.log)
    return (
        np.array(space.counts, np.int64),
        np.array(starts, np.int64),
        np.array(steps, np.int64),
        np.array(offsets, np.int64),
        np.array(table or [0], np.int64),
        np.array(logs, np.bool_),
        np.array(space.keys, np.uint64),
        np.array([profile.device for profile in space.profiles], np.int64),
        np.array([space.operator.rules(profile) for profile in space.profiles], np.int64),
        np.array([positions for _, positions in places_of(space.profiles).values()], np.int64),
    )
