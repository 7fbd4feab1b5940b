"""Every report shows the command that reproduces it, independently of later defaults."""

import re
import shlex
from html import unescape

import numpy as np
import pytest

from tests.cases import every

RMS = ("rms_norm_grad", "--dy", "64x512:bf16", "--gamma", "512:bf16")
EMBEDDING = (
    "embedding_dense_backward",
    "--grad",
    "g.npy",
    "--indices",
    "i.npy",
    "--num-weights",
    "50",
)
DEVICE = ("--soc Ascend910B1", "--release 9.1")
REPORTS = {
    "plan": (("plan", *RMS), DEVICE),
    "run": (
        ("run", *EMBEDDING, "--core-order", "random", "--rows"),
        (*DEVICE, "--core-order random", "--seed 0", "--grad g.npy"),
    ),
    "determinism": (
        ("study", "determinism", *EMBEDDING, "--random-orders", "3"),
        (*DEVICE, "--seed 0", "--grad g.npy"),
    ),
    "precision": (("study", "precision", *EMBEDDING), (*DEVICE, "--seed 0")),
    "certificate": (
        ("study", "certificate", *EMBEDDING, "--no-probe"),
        (*DEVICE, "--core-order sequential", "--seed 0"),
    ),
    "diff": (("diff", *RMS), ("--products all", "--release 9.1")),
    "limits": (("limits", *RMS, "--vary", "col"), ("--products all", "--release 9.1")),
    "timeline": (("timeline", *RMS), DEVICE),
    "timeline of SoCs": (
        ("timeline", *RMS, "--socs", "all"),
        ("--product atlas_a2", "--socs all", "--release 9.1"),
    ),
    "sweep": (
        ("sweep", "rms_norm", "--grid", "row=1..50"),
        ("--grid product=atlas_a2", "--grid release=9.1", "--seed 0"),
    ),
    "preflight": (
        ("preflight", "calls.jsonl"),
        ("--products atlas_a2", "--release 9.1", "calls.jsonl"),
    ),
}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A working directory with data and a file of calls."""
    random = np.random.default_rng(3)
    np.save(tmp_path / "g.npy", random.standard_normal((400, 16)).astype(np.float32))
    np.save(tmp_path / "i.npy", random.integers(0, 50, 400, dtype=np.int32))
    (tmp_path / "calls.jsonl").write_text(
        '{"op": "rms_norm_grad", "inputs": {"dy": "64x512:bf16", "gamma": "512:bf16"}}\n',
        encoding="utf-8",
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


def without_times(page):
    """Return a report without the time that a run took."""
    return re.sub(r"<details><summary>wall time.*?</details>", "", page, flags=re.DOTALL)


@pytest.mark.parametrize("name", every(3, REPORTS))
def test_the_command_in_a_report_reproduces_the_report(cli, folder, name):
    arguments, stated = REPORTS[name]
    report = folder / "report.html"
    assert cli(*arguments, "--report", "report.html").code == 0
    page = report.read_text(encoding="utf-8")
    command = unescape(re.search(r'<pre class="call">([^<]*)</pre>', page).group(1))
    assert [option for option in stated if f" {option}" not in command] == []
    report.unlink()
    again = shlex.split(command)
    assert again[0] == "npu-sim"
    assert "--report" not in again
    assert cli(*again[1:], "--report", "report.html").code == 0
    assert without_times(report.read_text(encoding="utf-8")) == without_times(page)


def test_explicit_arguments_are_not_repeated_in_the_command(cli, folder):
    arguments = ("--product=atlas_a3", "--soc", "Ascend910_9391", "--release", "8.5")
    assert cli("plan", *RMS, *arguments, "--report=report.html").code == 0
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert all(page.count(f"{flag}") == 1 for flag in ("--product", "--soc", "--release"))
    assert "--report" not in page
