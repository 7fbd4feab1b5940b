"""Ctrl-C ends a command with one line and exit code 130."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.processes import interruptible

ROOT = Path(__file__).parents[2]


def environment(**others):
    return {**os.environ, "PYTHONPATH": str(ROOT), **others}


COMMANDS = {
    "while a study compiles": [
        "study",
        "determinism",
        "rms_norm_grad",
        "--dy",
        "64x256:fp32",
        "--gamma",
        "256:fp32",
    ],
    "while a sweep compiles": [
        "sweep",
        "embedding_dense_backward",
        "--grid",
        "rows=1..100000000",
        "--out",
        "plans.csv",
    ],
}


@pytest.mark.long
@pytest.mark.parametrize("arguments", COMMANDS.values(), ids=list(COMMANDS))
def test_an_interruption_is_one_line_and_exit_130(tmp_path, arguments):
    command, variables = (
        [sys.executable, "-m", "npu_sim", *arguments],
        environment(NPU_SIM_CACHE_DIR=str(tmp_path / "cache")),
    )
    streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(
        command, cwd=tmp_path, env=variables, preexec_fn=interruptible, **streams
    ) as process:
        time.sleep(2)
        process.send_signal(signal.SIGINT)
        stderr = process.stderr.read()
    assert process.returncode == 130, stderr
    assert re.fullmatch(r"\s*interrupted(: .*)?\n", stderr)
    assert not (tmp_path / "plans.csv").exists()


def test_an_interruption_while_modules_load_is_one_line_and_exit_130():
    code = (
        "import os, signal, sys, npu_sim.__main__ as entry\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "class Interrupted:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'npu_sim.cli': os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupted())\n"
        "entry.main()"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=False
    )
    assert (process.returncode, process.stderr) == (130, "interrupted\n")


def test_an_interruption_that_a_library_converts_is_one_line_and_exit_130():
    code = (
        "import os, signal, npu_sim.__main__ as entry, npu_sim.cli\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "def command():\n"
        "    try: os.kill(os.getpid(), signal.SIGINT)\n"
        "    except KeyboardInterrupt: raise ValueError\n"
        "npu_sim.cli.main = command\n"
        "entry.main()"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=False
    )
    assert (process.returncode, process.stderr) == (130, "interrupted\n")


def test_a_signal_that_a_library_swallows_still_ends_the_process():
    """A compiler callback suppresses errors too: the watching thread ends the process."""
    code = (
        "import signal, sys, time; from npu_sim.cli.interruption import INTERRUPTION\n"
        "INTERRUPTION.watch(); signal.signal(signal.SIGINT, lambda *_: None)\n"
        "print('ready', flush=True); time.sleep(60)"
    )
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", code], env=environment(), **streams) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
        assert process.stderr.read() == "interrupted\n"


@pytest.mark.parametrize(
    ("x", "code"), [("64x64", 64), ("64x64:fp64", 2)], ids=["usage error", "refusal"]
)
def test_an_error_keeps_its_exit_code_when_nobody_reads_it(x, code):
    """The reading end is closed before the command prints."""
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "npu_sim", "plan", "rms_norm", "--json"]
    command += ["--x", x, "--gamma", "64:bf16"]
    with os.fdopen(write, "wb") as stdout:
        ended = subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, text=True)
    assert (ended.returncode, ended.stderr) == (code, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs the full device of Linux")
@pytest.mark.parametrize(
    "arguments", [["--x", "64x64:bf16"], ["--x", "64x64:fp64", "--json"], ["--help"]]
)
def test_a_full_disk_under_standard_output_is_one_sentence(arguments):
    command = [sys.executable, "-m", "npu_sim", "plan", "rms_norm", "--gamma", "64:bf16"]
    with open("/dev/full", "wb") as stdout:
        ended = subprocess.run(
            [*command, *arguments], stdout=stdout, stderr=subprocess.PIPE, text=True
        )
    assert ended.returncode == 1
    assert ended.stderr == (
        "npu-sim: standard output: cannot be written: No space left on device\n"
        "make room, or name a file on another disk\n"
    )
