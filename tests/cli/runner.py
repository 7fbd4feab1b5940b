"""Run the command line inside the process of the test."""

import json
from dataclasses import dataclass
from typing import Any

import pytest

from npu_sim import registry
from npu_sim.cli import main


@dataclass(frozen=True)
class Outcome:
    """Output of a command and its exit code."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        return json.loads(self.out)


def npu_sim(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: object
) -> Outcome:
    """Run ``npu-sim`` with these arguments; what ``--operators`` registers ends with the test."""
    monkeypatch.setattr(registry, "_registered", dict(registry._registered))
    monkeypatch.setattr("sys.argv", ["npu-sim", *map(str, arguments)])
    code = 0
    try:
        main()
    except SystemExit as stop:
        code = int(stop.code or 0)
    captured = capsys.readouterr()
    return Outcome(code, captured.out, captured.err)
