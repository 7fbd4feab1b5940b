"""``npu-sim profile``."""

import json
from pathlib import Path

from tests.measured import EMBEDDING, GRAD, OTHER, write_csv

ROWS = (OTHER, *EMBEDDING, GRAD)


def test_a_profile_without_our_kernels_has_nothing_to_model(cli, tmp_path: Path):
    found = cli("profile", str(write_csv(tmp_path / "other.csv", [OTHER])))
    assert (found.code, "0 of 1 kernels modelled" in found.out) == (0, True)


def test_the_command_prints_json_and_writes_report_and_trace(cli, tmp_path: Path):
    path, report, trace = (tmp_path / name for name in ("kernel_details.csv", "profile.html", "profile.json"))
    found = cli("profile", str(write_csv(path, ROWS)), "--json", "--report", str(report), "--trace", str(trace))
    assert json.loads(found.out)["modelled"] == len(ROWS) - 1
    assert "Measured beside bound" in report.read_text(encoding="utf-8")
    assert json.loads(trace.read_text(encoding="utf-8"))["otherData"]["file"] == str(path)
