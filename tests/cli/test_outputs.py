"""No command writes to a file that it reads, nor two outputs to one file."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from npu_sim.cores import config_directory

CALL = '{"op": "rms_norm", "inputs": {"x": "4x128:fp32", "gamma": "128:fp32"}}\n'
SHAPES = ("--x", "4x128:fp32", "--gamma", "128:fp32")
FILES = ("rms_norm", "--x", "x.npy", "--gamma", "g.npy:fp32")
SWEEP = ("sweep", "rms_norm", "--grid", "rows=1..4")
INPUTS = {
    "record": ("record", "--out", "train.py", "train.py"),
    "record, an argument of the script": ("record", "--out", "x.npy", "train.py", "x.npy"),
    "preflight --out": ("preflight", "calls.jsonl", "--out", "calls.jsonl"),
    "preflight --junit": ("preflight", "calls.jsonl", "--junit", "calls.jsonl"),
    "preflight --report": ("preflight", "./calls.jsonl", "--report", "calls.jsonl"),
    "a link to it": ("preflight", "calls.jsonl", "--out", "link.jsonl"),
    "a hard link to it": ("preflight", "calls.jsonl", "--out", "hard.jsonl"),
    "a product": ("preflight", "calls.jsonl", "--products", "all,own.yaml", "--out", "own.yaml"),
    "run --out": ("run", *FILES, "--out", "x.npy"),
    "run, bits of a dtype": ("run", *FILES, "--out", "g.npy"),
    "run --report": ("run", *FILES, "--report", "x.npy"),
    "run --rows-out": ("run", *FILES, "--rows-out", "x.npy"),
    "plan --trace": ("plan", *FILES, "--trace", "x.npy"),
    "plan --report": ("plan", *FILES, "--report", "x.npy"),
    "diff --report": ("diff", *FILES, "--report", "g.npy"),
    "limits --report": ("limits", *FILES, "--report", "g.npy"),
    "study --report": ("study", "invariance", *FILES, "--report", "x.npy"),
    "timeline --calibration": (
        *("timeline", "rms_norm", *SHAPES),
        *("--calibration", "own.yaml", "--report", "own.yaml"),
    ),
    "sweep": (*SWEEP, "--grid", "product=own.yaml", "--report", "own.yaml"),
    "own operators": (
        *("--operators", "train.py", "plan", "rms_norm", *SHAPES),
        *("--report", "train.py"),
    ),
}
TWICE = {
    "preflight": ("preflight", "calls.jsonl", "--out", "same", "--junit", "./same"),
    "plan": ("plan", "rms_norm", *SHAPES, "--report", "same", "--trace", "same"),
    "run": ("run", "rms_norm", *SHAPES, "--out", "same.npz", "--report", "same.npz"),
    "sweep": (*SWEEP, "--out", "same.csv", "--report", "same.csv"),
    "a link to come": (
        *("run", "rms_norm", *SHAPES),
        *("--out", "dangling.npz", "--trace", "to_come.npz"),
    ),
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with files that commands read, into which the process changes."""
    monkeypatch.chdir(tmp_path)
    Path("calls.jsonl").write_text(CALL, encoding="utf-8")
    Path("link.jsonl").symlink_to("calls.jsonl")
    os.link("calls.jsonl", "hard.jsonl")
    Path("dangling.npz").symlink_to("to_come.npz")
    Path("train.py").write_text("raise RuntimeError('work began')", encoding="utf-8")
    profile = (config_directory() / "atlas_a2.yaml").read_bytes()
    Path("own.yaml").write_bytes(profile)
    np.save("x.npy", np.ones((4, 128), np.float32))
    np.save("g.npy", np.ones(128, np.uint32))
    return tmp_path


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.mark.parametrize(
    ("command", "words"),
    [
        *(
            pytest.param(arguments, "is an input of this command", id=name)
            for name, arguments in INPUTS.items()
        ),
        *(
            pytest.param(arguments, "is also given as ", id=f"{name} twice")
            for name, arguments in TWICE.items()
        ),
    ],
)
def test_an_output_that_is_another_file_of_the_command_is_refused(
    cli, folder, monkeypatch, command, words
):
    monkeypatch.setattr(
        "npu_sim.framework.checking.check_uncached", lambda *_: pytest.fail("work began")
    )
    monkeypatch.setattr("npu_sim.framework.registration.register_file", lambda path: None)
    before = contents(folder)
    outcome = cli(*command)
    assert (outcome.code, outcome.out) == (64, "")
    assert words in outcome.err
    assert contents(folder) == before


def test_an_older_output_is_replaced(cli, folder):
    for _ in range(2):
        assert cli("preflight", "calls.jsonl", "--out", "out", "--junit", "unit").code == 0


def test_an_output_that_is_standard_input_is_refused(cli, folder):
    before, terminal = contents(folder), os.dup(0)
    with Path("calls.jsonl").open("rb") as file:
        os.dup2(file.fileno(), 0)
    try:
        done = cli("preflight", "-", "--out", "calls.jsonl")
    finally:
        os.dup2(terminal, 0)
        os.close(terminal)
    assert done.code == 64
    assert "is an input of this command" in done.err
    assert contents(folder) == before


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_an_open_stream_is_not_replaced(tmp_path, name):
    log = tmp_path / "log.txt"
    with log.open("w") as file:
        file.write("earlier\n")
        file.flush()
        command = [sys.executable, "-m", "npu_sim", "plan", "rms_norm", "--x", "4x8:fp32"]
        ended = subprocess.run(
            [*command, "--gamma", "8:fp32", "--report", name], stdout=file, check=False
        )
    assert ended.returncode == 64
    assert log.read_text() == "earlier\n"
