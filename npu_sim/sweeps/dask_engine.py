"""Computing rows of a sweep on a Dask cluster (extra ``dask``): ranges of rows are tasks, results come back in order."""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from typing import Any

import numpy as np

from npu_sim.status import UsageError
from npu_sim.sweeps.columns import RecordColumn
from npu_sim.sweeps.engine import LocalEngine, record_dtype, usable_cores
from npu_sim.sweeps.space import Space

TASKS_AHEAD = 3
"""Tasks handed out per worker thread beyond the one being waited for: enough to keep all busy, few
enough to bound memory."""
CONNECT_SECONDS = 30


class DaskEngine:
    """Hands ranges of rows to the workers of a cluster.

    Every task carries the sweep, so that none depends on data in the memory of workers: whichever
    of them die, others do their tasks.

    Parameters
    ----------
    space, columns
        The sweep.
    client
        A connected ``distributed.Client``.
    """

    def __init__(self, space: Space, columns: tuple[RecordColumn, ...], client: Any) -> None:
        self.rows = space.rows
        self.dtype = record_dtype(columns)
        self._client = client
        self._sweep = space, columns

    def chunks(self, rows: int, first_chunk: int = 0) -> Iterator[np.ndarray]:
        """Yield the records chunk by chunk, ``rows`` at a time, from a chunk on.

        Raises
        ------
        UsageError
            When the cluster is gone, or several workers died at the same task.
        """
        window = TASKS_AHEAD * max(sum(self._client.nthreads().values()), 1)
        waiting: deque[Any] = deque()
        for first in range(first_chunk * rows, self.rows, rows):
            count = min(rows, self.rows - first)
            waiting.append(
                self._client.submit(compute_range, self._sweep, first, count, pure=False)
            )
            if len(waiting) >= window:
                yield _result(waiting.popleft())
        while waiting:
            yield _result(waiting.popleft())


def _result(future: Any) -> np.ndarray:
    from distributed import KilledWorker

    try:
        records: np.ndarray = future.result()
    except (KilledWorker, CancelledError, OSError) as error:
        message = f"the cluster cannot compute the sweep: {type(error).__name__}: {error}"
        raise UsageError(
            "engine", message, "what is written stays: go on with resume=True"
        ) from None
    return records


def compute_range(
    sweep: tuple[Space, tuple[RecordColumn, ...]], first: int, count: int
) -> np.ndarray:
    """Compute a range of rows on a worker, on one thread: the cluster runs as many tasks as it has threads."""
    engine = LocalEngine(*sweep, threads=1)
    out = np.empty(count, engine.dtype)
    engine.fill(out, first)
    return out


@contextmanager
def dask_engine(
    space: Space, columns: tuple[RecordColumn, ...], scheduler: str | None, workers: int | None
) -> Iterator[DaskEngine]:
    """Connect to a cluster, or start one of processes on this machine for the time of the sweep.

    Raises
    ------
    UsageError
        When Dask is not installed or the scheduler does not answer.
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
        count = workers or usable_cores()
        with (
            LocalCluster(
                n_workers=count, threads_per_worker=1, processes=True, dashboard_address=None
            ) as cluster,
            Client(cluster) as client,
        ):
            yield DaskEngine(space, columns, client)
        return
    try:
        client = Client(scheduler, timeout=CONNECT_SECONDS)
    except (OSError, ValueError) as error:
        message = f"scheduler = {scheduler!r} does not answer: {error}"
        raise UsageError(
            "scheduler", message, "the address of a running dask scheduler, such as tcp://host:8786"
        ) from None
    with client:
        yield DaskEngine(space, columns, client)
