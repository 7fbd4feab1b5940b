import os
import signal
import warnings

import numpy as np
import pytest

import npu_sim
from npu_sim import UsageError
from npu_sim.sweeps.runner import run_sweep, sweep_to
from tests.sweeps.test_store import content

distributed = pytest.importorskip("distributed", reason="the extra 'dask' is not installed")


@pytest.fixture(scope="module")
def address():
    """A cluster of two processes, shared by the tests of this module."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster:
            yield cluster.scheduler_address


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_cluster_of_processes_gives_the_same_records(address, small, monkeypatch):
    operator, grid, options = small
    monkeypatch.setattr("npu_sim.sweeps.runner.CHUNK_ROWS", 1700)
    records = npu_sim.sweep(operator, grid, engine="dask", scheduler=address, **options)
    assert np.array_equal(records, npu_sim.sweep(operator, grid, **options))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.long
def test_a_cluster_writes_the_same_bytes(address, small, tmp_path):
    operator, grid, options = small
    local = sweep_to(tmp_path / "local.csv", operator, grid, chunk_rows=1000, **options)
    spread = sweep_to(
        tmp_path / "spread.csv",
        operator,
        grid,
        chunk_rows=1000,
        engine="dask",
        scheduler=address,
        **options,
    )
    assert content(local) == content(spread)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_no_records_are_lost_when_workers_die_one_after_another(address):
    """Kill both initial workers; the cluster replaces them."""
    operator, grid, options = (
        "rms_norm",
        {"rows": "1..4000"},
        {"columns": ("row", "status", "block_dim")},
    )
    with distributed.Client(address) as client:
        victims = list(client.run(os.getpid).values())

        def kill_at_times(completed, total):
            if victims and completed >= total // (len(victims) + 1):
                os.kill(victims.pop(), signal.SIGKILL)

        how = {
            "engine": "dask",
            "scheduler": address,
            "chunk_rows": 200,
            "progress": kill_at_times,
            "check": 20,
        }
        summary, different = run_sweep(operator, grid, **options, **how)
    assert not victims
    assert not different
    alone, _ = run_sweep(operator, grid, **options, chunk_rows=200)
    assert summary.as_dict() == alone.as_dict()


@pytest.mark.parametrize("scheduler", ["tcp://127.0.0.1:1", "file:///tmp/scheduler.json"])
def test_a_scheduler_that_does_not_answer_is_named(small, monkeypatch, scheduler):
    operator, grid, options = small
    monkeypatch.setattr("npu_sim.sweeps.runner.CONNECT_SECONDS", 0.2)
    with pytest.raises(UsageError, match="does not answer"):
        npu_sim.sweep(operator, grid, engine="dask", scheduler=scheduler, **options)
