"""Examples of every tool fit 60, 80 and 120 columns; in a pipe a record is one line."""

import json
from pathlib import Path

import pytest

from npu_sim.tool_packages import tools
from tests.cli.test_widths import examples_of_the_page, require_fit
from tests.measured import GRAD, OTHER, Row, write_csv
from tests.tools.dumps.msprobe import write_model

FAILURES = Path(__file__).parents[1] / "data/failures/texts.jsonl"
STREAM = Row(
    "Add", 2000.0, 40, "200000000", "FLOAT", "200000000", "FLOAT", cycles=1650 * 2000.0 * 40
)
CALL = '{"op": "rms_norm_grad", "inputs": {"dy": "64x128:bf16", "gamma": "128:bf16"}}'
EXAMPLES = (
    "profile stream.csv --calibrate --soc Ascend910B3",
    "diagnose failure.log",
    "dump dumped --against other",
    *(line for line in examples_of_the_page() if line.split()[0] in tools()),
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the files that the examples read."""
    (tmp_path / "calls.jsonl").write_text(CALL, encoding="utf-8")
    text = json.loads(FAILURES.read_text(encoding="utf-8").splitlines()[0])["text"]
    (tmp_path / "failure.log").write_text(text, encoding="utf-8")
    write_model(tmp_path / "dumped", "statistics", seed=1)
    write_model(tmp_path / "other", "statistics", seed=2)
    write_csv(tmp_path / "op_summary.csv", [OTHER, GRAD])
    write_csv(tmp_path / "stream.csv", [STREAM])
    monkeypatch.chdir(tmp_path)


def test_every_tool_has_an_example():
    shown = {line.split()[0] for line in EXAMPLES}
    assert tools().keys() - shown == {"explore"}  # a server


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_fits_every_width(cli, folder, monkeypatch, example):
    require_fit(cli, monkeypatch, example)
