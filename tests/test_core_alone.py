"""Without the folder of the tools npu_sim has its other commands and functions.

``ci/core_alone.sh`` also runs tests of the core without the folder.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import npu_sim
from npu_sim.cli.app import COMMANDS as CORE
from npu_sim.cores import config_directory

CALL = ("rms_norm_grad", "--dy", "64x128:bf16", "--gamma", "128:bf16")
COMMANDS = {
    "products": ("products",),
    "plan": ("plan", *CALL),
    "explain": ("explain", *CALL),
    "run": ("run", *CALL),
    "diff": ("diff", *CALL, "--products", "A2,A3"),
    "limits": ("limits", *CALL, "--vary", "row"),
    "timeline": ("timeline", *CALL),
    "preflight": ("preflight", "calls.jsonl"),
    "sweep": ("sweep", "rms_norm_grad", "--grid", "row=1..4", "--grid", "col=64"),
    "study": ("study", "precision", *CALL),
    "caveats": ("caveats", "counters"),
    "new-operator": ("new-operator", "scale_rows"),
}
"""Commands of the core that need no file of an earlier one, and neither much time nor PyTorch."""
PROGRAM = """
import json, runpy, sys
from contextlib import redirect_stdout
from io import StringIO

import npu_sim

def outcome(arguments):
    sys.argv = ["npu-sim", *arguments]
    with redirect_stdout(StringIO()) as out:
        try:
            runpy.run_module("npu_sim", run_name="__main__")
            code = 0
        except SystemExit as end:
            code = end.code or 0
    return code, out.getvalue()

outcomes = {name: outcome(arguments) for name, arguments in json.loads(sys.argv[1]).items()}
everything = {}
exec("from npu_sim import *", everything)
print(json.dumps([npu_sim.__file__, outcomes, sorted(everything), hasattr(npu_sim, "diagnose")]))
"""


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The file of the package, outcomes of commands, public names, and whether it diagnoses."""
    folder = tmp_path_factory.mktemp("core")
    without = shutil.ignore_patterns("tools", "__pycache__")
    shutil.copytree(Path(npu_sim.__file__).parent, folder / "npu_sim", ignore=without)
    if not (folder / "npu_sim" / "configs").is_dir():
        shutil.copytree(config_directory(), folder / "configs")
    call = {"op": "rms_norm", "inputs": {"x": "4x128:fp32", "gamma": "128:fp32"}}
    (folder / "calls.jsonl").write_text(json.dumps(call), encoding="utf-8")
    asked = {**COMMANDS, "--help": ("--help",), "diagnose": ("diagnose", "error.txt")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(asked)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    file, outcomes, names, diagnoses = json.loads(done.stdout)
    assert Path(file).parent == folder / "npu_sim"
    return outcomes, {*names}, diagnoses


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_core_answers(alone, command):
    code, text = alone[0][command]
    assert code == 0
    assert text


def test_the_help_lists_the_commands_of_the_core_alone(alone):
    code, text = alone[0]["--help"]
    assert code == 0
    listed = {line.split()[0] for line in text.splitlines() if line.startswith("  ")}
    assert listed & {*CORE, "profile", "diagnose", "dump", "kit", "explore"} == {*CORE}


def test_the_command_of_a_tool_is_an_unknown_one(alone):
    assert alone[0]["diagnose"][0] == 64


def test_the_public_names_are_those_of_the_core(alone):
    _, names, diagnoses = alone
    assert {"plan", "run", "verify", "sweep"} <= names
    assert not {"diagnose", "read_profile", "read_dump", "kit"} & names
    assert not diagnoses
