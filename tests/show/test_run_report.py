"""``run --report --trace``: the order strip of a real run."""

import json

import numpy as np
import pytest

from tests.cli import runner
from tests.show.test_reports import numbers_missing_from, read


@pytest.fixture
def ran(tmp_path, capsys, monkeypatch):
    rng = np.random.default_rng(5)
    np.save(tmp_path / "grad.npy", rng.standard_normal((500, 16)).astype(np.float32))
    np.save(tmp_path / "indices.npy", rng.integers(0, 40, 500, dtype=np.int32))
    arguments = (
        "run",
        "embedding_dense_backward",
        "--grad",
        tmp_path / "grad.npy",
        "--indices",
        tmp_path / "indices.npy",
        "--num-weights",
        90,
    )
    outcome = runner.npu_sim(
        capsys,
        monkeypatch,
        *arguments,
        "--report",
        tmp_path / "run.html",
        "--trace",
        tmp_path / "trace.json",
        "--json",
    )
    assert outcome.code == 0, outcome.err
    return tmp_path, outcome.data


def test_the_report_of_a_run_has_the_numbers_of_its_json(ran):
    folder, data = ran
    page = read((folder / "run.html").read_text(encoding="utf-8"))
    assert numbers_missing_from(data, page) == set()
    assert any("depend on timing" in title for title in page.titles)


def test_the_strip_has_the_counts_of_the_run(ran):
    _, data = ran
    strip = data["order_strips"][0]
    assert (
        sum(interval["order_dependent"] for interval in strip["bins"])
        == data["order_dependent"]["grad_weight"]["order_dependent"]
        > 0
    )
    assert strip["bins"][-1]["order_dependent"] == 0  # indices stay below 40 of 90 weights


def test_the_trace_of_a_run_equals_that_of_its_plan(ran):
    folder, data = ran
    trace = json.loads((folder / "trace.json").read_text(encoding="utf-8"))
    assert trace["otherData"]["timelines"][0]["bound_us"] == data["timeline"]["bound_us"] > 0
