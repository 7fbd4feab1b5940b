import functools

import pytest

from tests.cli import runner


@pytest.fixture(autouse=True)
def in_a_pipe(monkeypatch):
    """The output has no width unless a test sets one."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture
def cli(capsys, monkeypatch):
    """The command line as a function: ``cli("plan", "rms_norm_grad", ...)``."""
    return functools.partial(runner.npu_sim, capsys, monkeypatch)
