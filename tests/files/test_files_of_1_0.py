"""Files that npu_sim 1.0 wrote are read, and mean the same.

`tests/data/files_1_0` was written by version 1.0.0 and is not written anew. A later version of a
form gets a folder of its own beside it; both are read (`docs/stability.md`).
"""

import json
from pathlib import Path

import numpy as np

from npu_sim.sweeps.reader import read_sweep
from npu_sim.timelines.model import load_calibration
from tests.cli.runner import npu_sim as command

FILES = Path(__file__).parents[1] / "data" / "files_1_0"
SCHEMAS = {
    "calls.jsonl": "npu_sim.calls/1",
    "baseline.jsonl": "npu_sim.baseline/1",
    "sweep/sweep.json": "npu_sim.columns/1",
}
CALLS = [
    ("rms_norm", "runs", "merge N", 4, 2, 16_777_472),
    ("rms_norm_grad", "runs", "split N", 4, 1, 16_777_344),
]


def test_the_files_have_the_versions_of_1_0():
    for name, schema in SCHEMAS.items():
        text = (FILES / name).read_text(encoding="utf-8")
        first = text if name.endswith(".json") else text.splitlines()[0]
        assert json.loads(first)["schema"] == schema


def test_calls(capsys, monkeypatch, tmp_path):
    out = tmp_path / "results.jsonl"
    calls = FILES / "calls.jsonl"
    answer = command(capsys, monkeypatch, "preflight", calls, "--release", "9.1", "--out", out)
    assert answer.code == 0
    lines = out.read_text(encoding="utf-8").splitlines()
    results = [json.loads(line) for line in lines]
    facts = ("op", "outcome", "path", "block_dim", "tiling_key", "workspace_bytes")
    assert [tuple(result[fact] for fact in facts) for result in results] == CALLS


def test_a_baseline(capsys, monkeypatch):
    """It accepts the findings that it was written from, and none is stale."""
    options = ("--products", "atlas_a2", "--max-workspace", "1")
    files = (FILES / "calls.jsonl", "--baseline", FILES / "baseline.jsonl")
    assert command(capsys, monkeypatch, "preflight", FILES / "calls.jsonl", *options).code == 1
    answer = command(capsys, monkeypatch, "preflight", *files, *options)
    assert answer.code == 0
    assert "stale" not in answer.out


def test_columns_of_a_sweep():
    columns = read_sweep(FILES / "sweep")
    names = {"row", "col", "dtype", "status", "block_dim", "workspace_bytes"}
    assert set(columns) == names
    np.testing.assert_array_equal(columns["row"], [1, 2, 3, 4])
    np.testing.assert_array_equal(columns["block_dim"], [1, 2, 3, 4])


def test_a_calibration():
    calibration = load_calibration(FILES / "calibration.yaml")
    text = (FILES / "calibration.yaml").read_text(encoding="utf-8")
    assert f"soc: {calibration.soc}" in text
