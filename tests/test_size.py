"""The size in tokens, and when it may rise."""

import importlib.util
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def size(tmp_path, monkeypatch):
    """The tool, for a repository with one commit: npu_sim/numbers/a.py of six tokens."""
    spec = importlib.util.spec_from_file_location("size_tool", ROOT / "ci/size.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr("sys.argv", ["size.py", "--base", "HEAD"])
    write(tmp_path, "npu_sim/numbers/a.py", '"""A."""\nX = 1\nY = 2\n')
    write(tmp_path, "CHANGELOG.md", "# Changes\n")
    for command in (
        ["init", "-q"],
        ["add", "-A"],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "first"],
    ):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    return module


def write(root, name, text):
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ('"""Doc."""\ndef f():\n    """Doc."""\n    return 1  # a comment\n', 7),
        ('X = 1\n"""Doc of X."""\n', 3),
        ("f(1, 2)\n", 6),
        ("f(\n    1,\n    2\n)\n", 6),
        ("x = 'a' 'b'\n", 4),
    ],
)
def test_tokens_are_counted_without_comments_docstrings_and_layout(size, source, count):
    assert size.tokens(source) == count


def test_the_change_is_shown_by_package(size, tmp_path, capsys):
    write(tmp_path, "npu_sim/numbers/a.py", "X = 1\n")
    assert size.main() == 0
    assert capsys.readouterr().out.splitlines() == [
        "3 tokens in 1 files",
        "-3 tokens, +0 files since HEAD",
        "      3  numbers  -3",
    ]


def test_the_size_may_rise_only_with_a_line_in_the_changelog(size, tmp_path):
    write(tmp_path, "npu_sim/status.py", "Z = 3\n")
    assert size.main() == 1
    write(tmp_path, "CHANGELOG.md", "# Changes\n- Z.\n")
    assert size.main() == 0
