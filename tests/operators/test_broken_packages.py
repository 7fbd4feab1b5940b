"""An operator of another package that cannot be loaded affects no other operator."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import npu_sim
import npu_sim.aclnn
from npu_sim import registry
from tests.cli.runner import npu_sim as run_here

MODULES = {
    "crash_op": ("raise RuntimeError('no device')", "RuntimeError: no device"),
    "exit_op": ("import sys; sys.exit(3)", "SystemExit: 3"),
    "empty_op": ("", "AttributeError"),
    "no_op": ("OPERATOR = 5", "AttributeError"),
    "wrong_op": (
        "from dataclasses import replace; from npu_sim.operators.rms_norm import declaration\n"
        "OPERATOR = replace(declaration.OPERATOR, name='Wrong')",
        "is not a name",
    ),
}


@pytest.fixture(params=MODULES)
def broken(request, tmp_path, monkeypatch):
    """The name of an operator whose installed package is broken."""
    name = request.param
    (tmp_path / f"{name}_package.py").write_text(MODULES[name][0], encoding="utf-8")
    information = tmp_path / "broken-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Name: broken\nVersion: 1.0\n", encoding="utf-8")
    (information / "entry_points.txt").write_text(
        f"[npu_sim.operators]\n{name} = {name}_package:OPERATOR\n", encoding="utf-8"
    )
    monkeypatch.syspath_prepend(tmp_path)
    registry.offered_operators.cache_clear()
    yield name
    shutil.rmtree(information)
    registry.offered_operators.cache_clear()
    sys.modules.pop(f"{name}_package", None)


def test_a_broken_package_is_an_error_where_its_operator_is_used(broken):
    with pytest.raises(npu_sim.UsageError, match=MODULES[broken][1]):
        npu_sim.plan(broken, x="4x8:fp32")


@pytest.mark.parametrize("command", ["plan", "run", "sweep", "study precision"])
def test_help_lists_a_broken_package_and_the_other_operators(capsys, monkeypatch, broken, command):
    monkeypatch.delenv("COLUMNS", raising=False)
    done = run_here(capsys, monkeypatch, *command.split(), "--help")
    assert done.code == 0
    (line,) = (line for line in done.out.splitlines() if line.split()[:1] == [broken])
    assert "not available: " in line
    assert MODULES[broken][1] in line
    assert "RmsNormGrad" in done.out
    done = run_here(capsys, monkeypatch, *command.split(), broken, "--help")
    assert done.code == 64
    assert MODULES[broken][1] in done.err


def test_packages_have_no_attribute_for_a_broken_package(broken):
    assert not hasattr(npu_sim, broken)
    title = "".join(word.capitalize() for word in broken.split("_"))
    assert not hasattr(npu_sim.aclnn, f"aclnn{title}")
    with pytest.raises(npu_sim.UsageError, match=MODULES[broken][1]):
        getattr(npu_sim, broken)


PROGRAM = """
import contextlib, sys
import npu_sim
from npu_sim.cli import main
for command in ("plan", "run", "sweep"):
    sys.argv = ["npu-sim", command, "--help"]
    with contextlib.suppress(SystemExit):
        main()
assert not hasattr(npu_sim, "no_such_name")
"""


@pytest.mark.parametrize("broken", ["exit_op"], indirect=True)
def test_a_broken_package_does_not_end_a_new_process(broken, tmp_path):
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("not available: ") == 3
    assert done.stdout.count(f"{broken} ") >= 3
