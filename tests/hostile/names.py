"""Trials with hostile names: texts of files and arguments reach no terminal, log or page raw."""

import json
import os
import re
import sys
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from unittest.mock import patch

import numpy as np
import yaml

from npu_sim.cli import main
from tests.hostile.campaign import PROFILE, draw

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
HEADER = "Step Id,Name,Type,Start Time(us),Duration(us),Wait Time(us),Block Dim,Input Shapes"
RMS_NORM = ("rms_norm", "--x", "4x128:fp32", "--gamma", "128:fp32")


def hostile_name(rng: np.random.Generator) -> str:
    return "".join(draw(rng, PIECES) for _ in range(int(rng.integers(1, 6))))


def _calls(rng: np.random.Generator, name: str) -> list[dict[str, object]]:
    inputs = {"x": draw(rng, ("4x128:fp32", name)), "gamma": draw(rng, ("128:fp32", name))}
    head = {
        "schema": draw(rng, ("npu_sim.calls/1", name)),
        "recorded": {
            "not_recognised": [{"what": name, "why": name, "name": name, "count": 3}],
            "not_modelled": {name: 7},
        },
    }
    call = {
        "op": draw(rng, ("rms_norm", name)),
        "name": name,
        "inputs": inputs,
        draw(rng, ("expect", "product", "soc", "where", name)): draw(rng, (name, {name: name}, 3)),
    }
    return [head, call] if rng.random() < 0.5 else [call]


def _product(rng: np.random.Generator, name: str) -> str:
    content = yaml.safe_load(PROFILE)
    node = content
    while True:
        key = draw(rng, list(node))
        if isinstance(node[key], dict) and node[key] and rng.random() < 0.8:
            node = node[key]
            continue
        if rng.random() < 0.5:
            node[key] = name
        else:
            node[name] = node.pop(key)
        return yaml.safe_dump(content)


def _command(rng: np.random.Generator, folder: Path, name: str) -> list[str]:
    """Return a command that reads hostile text, with its files written into ``folder``."""
    file = folder / (re.sub(r"[/\0\ud800]", "", name)[:60] or "a")

    def written(text: str, ending: str) -> str:
        path = file.with_name(file.name + ending)
        path.write_text(text, encoding="utf-8", errors="replace")
        return str(path)

    report = ["--report", str(folder / "report.html")] if rng.random() < 0.3 else []
    one_call = draw(rng, ("plan", "explain", "workspace", "timeline", "diff"))
    match draw(rng, ("preflight", "profile", "product", "calibration", "option", "tensor", "file")):
        case "preflight":
            lines = "".join(json.dumps(line) + "\n" for line in _calls(rng, name))
            return ["preflight", written(lines, ".jsonl"), *report]
        case "profile":
            quoted = name.replace('"', '""')
            cells = [quoted if rng.random() < 0.6 else text for text in ("add", "RmsNorm", "4,128")]
            row = f'1,"{cells[0]}","{cells[1]}",10,5.0,0,20,"{cells[2]}"'
            head = HEADER if rng.random() < 0.8 else f'{HEADER},"{quoted}"'
            return ["profile", written(f"{head}\n{row}\n", ".csv"), *report]
        case "product":
            product = ["--product", written(_product(rng, name), ".yaml")]
            return [one_call, *RMS_NORM, *(() if one_call == "diff" else product), *report]
        case "calibration":
            content = {draw(rng, ("schema", "soc", name)): name, "rates": {name: name}}
            given = written(yaml.safe_dump(content), ".yaml")
            return ["timeline", *RMS_NORM, "--calibration", given]
        case "option":
            option = draw(rng, ("--product", "--soc", "--release", "--limits", "--x", f"--{name}"))
            command = draw(rng, (one_call, "run", "sweep", "limits", name))
            return [command, *RMS_NORM, option, name]
        case "tensor":
            return ["run", "rms_norm", "--x", written(name, ".npy"), "--gamma", name]
        case _:
            command = draw(rng, ("preflight", "profile", "record", "study"))
            return [command, *(("determinism",) if command == "study" else ()), str(file), name]


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
        arguments = ["npu-sim", *_command(rng, folder, name)]
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


SURFACES = {"names": hostile_names}
