"""Wheel and source distribution: complete, with one version."""

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import npu_sim
from tests.cli.runner import npu_sim as command

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The wheel and the source distribution."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", folder],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, sdist


@pytest.mark.long
def test_the_wheel_has_package_types_profiles_and_licence(built):
    with zipfile.ZipFile(built[0]) as wheel:
        names = set(wheel.namelist())
    assert {
        "npu_sim/py.typed",
        "npu_sim/__main__.py",
        "npu_sim/configs/atlas_a2.yaml",
        "npu_sim/tools/explorer/page/main.js",
    } <= names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not [name for name in names if name.startswith(("tests/", "benchmarks/"))]


@pytest.mark.long
def test_the_source_distribution_can_be_tested(built):
    """The distribution contains every file that its tests and its CI read."""
    with tarfile.open(built[1]) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    tracked = [
        "constraints.txt",
        "README.md",
        "README.zh.md",
        "LICENSE",
        "pyproject.toml",
        "benchmarks/cases.py",
        ".ci/run",
        "docs/gallery.py",
    ]
    assert set(tracked) <= names
    assert {str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("*.py")} <= names
    assert "benchmarks/README.md" in names


def test_there_is_one_version(capsys, monkeypatch):
    assert "version" not in PROJECT
    assert command(capsys, monkeypatch, "--version").out == f"npu_sim {npu_sim.__version__}\n"
    citation, changes = (
        (ROOT / name).read_text(encoding="utf-8") for name in ("CITATION.cff", "CHANGELOG.md")
    )
    assert re.search(r"^version: (.*)$", citation, re.M).group(1) == npu_sim.__version__
    assert re.search(r"^## (\S+)", changes, re.M).group(1) == npu_sim.__version__


def test_constraints_satisfy_the_declared_requirements():
    """CI runs with the versions of the constraints and with the lowest declared versions."""
    pinned = dict(
        line.split("==") for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").split()
    )
    pinned = {name.lower().replace("_", "-"): version for name, version in pinned.items()}
    declared = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["dev"]]
    floors = {
        match[1].lower().replace("_", "-"): match[2]
        for requirement in declared
        if (match := re.match(r"([\w-]+)>=([\d.]+)$", requirement))
    }
    assert len(floors) > 15
    assert not [name for name, floor in floors.items() if _numbers(pinned[name]) < _numbers(floor)]


def _numbers(version):
    return [int(part) for part in re.findall(r"\d+", version)]
