"""Trials with hostile names: texts of files and arguments reach no terminal, log or page raw."""

import os
import re
import sys
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from unittest.mock import patch

import numpy as np

from npu_sim.cli import main
from tests.hostile.campaign import draw
from tests.hostile.surfaces import SURFACES, Given

PIECES = (
    "a",
    " ",
    "\n",
    "\r",
    "\x1b[2J",
    "\x1b]0;t\x07",
    "\x9b1m",
    "\u202e",
    "\u2066",
    "\u2028",
    "\n::stop-commands::tok",
    "\n##[command]x",
    "<img src=x onerror=y>",
    "</script>",
    "{0}",
    "%0A",
    "[bold]",
    "`",
    "|",
    "\ud800",
)
CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
COMMAND = re.compile(r"^\s*(::(?!error )|##\[)", re.MULTILINE)


def hostile_name(rng: np.random.Generator) -> str:
    return "".join(draw(rng, PIECES) for _ in range(int(rng.integers(1, 6))))


def hostile_names(rng: np.random.Generator) -> bool:
    """Run a command on hostile names; its output holds no control characters and no commands."""
    name = hostile_name(rng)
    out, err = StringIO(), StringIO()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        summary = folder / "summary.md"
        variables = {
            "GITHUB_ACTIONS": "true",
            "GITHUB_STEP_SUMMARY": str(summary),
            "NPU_SIM_LANG": draw(rng, ("en", "zh")),
        }
        given = Given(rng, name, folder)
        arguments = ["npu-sim", *draw(rng, SURFACES)(given)]
        if rng.random() < 0.3:
            arguments += ["--report", str(folder / "report.html")]
        arguments += ["--json"] if rng.random() < 0.1 else []
        code = 0
        with (
            patch.dict(os.environ, variables),
            patch.object(sys, "argv", arguments),
            redirect_stdout(out),
            redirect_stderr(err),
        ):
            try:
                main()
            except SystemExit as end:
                code = end.code
        page = folder / "report.html"
        written = [path.read_text(encoding="utf-8") for path in (summary, page) if path.is_file()]
    printed = out.getvalue() + err.getvalue()
    assert code in (0, 1, 2, 64, None), (arguments, code)
    assert "Traceback" not in printed, (arguments, printed)
    assert not CONTROL.search(printed), (arguments, printed)
    assert not COMMAND.search(printed), (arguments, printed)
    assert not any("<img" in text for text in written), arguments
    return code in (0, 1, None)


NAMED = {"names": hostile_names}
