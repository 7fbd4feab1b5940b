"""Hostile names: commands that read them, and trials that nothing prints them raw."""

import json
import os
import re
import sys
import tempfile
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import yaml

from benchmarks.hostile.campaign import PROFILE, draw
from npu_sim.cli import main
from tests.measured import Row, write_database

HEADER = "Step Id,Name,Type,Start Time(us),Duration(us),Wait Time(us),Block Dim,Input Shapes"
RMS_NORM = ("rms_norm", "--x", "4x128:fp32", "--gamma", "128:fp32")
ONE_CALL = ("plan", "explain", "timeline", "diff")
LAUNCH = Row("RmsNorm", 5.0, 4, "4,128;128", "FLOAT;FLOAT", "4,128;4,1", "FLOAT;FLOAT")
TEXTS = ("kernel", "inputs", "input_dtypes", "outputs", "output_dtypes", "core")
ERRORS = (
    "Parameters {0} and {0} of aclnnRmsNorm must be equal",
    "[rank0]: RuntimeError: call aclnn{0} failed, error code is 161002",
    "fault kernel_name={0}, program id=0",
    "EZ9999: [FUNC:{0}][FILE:{0}] {0}",
)
SCRIPT = """
import torch
name = {name!r}.replace(".", "")
module = type(name, (torch.nn.RMSNorm,), {{}})(4)
model = torch.nn.Module()
model.add_module(name or "a", module)
model._modules[name or "a"](torch.ones(2, 4)).sum().backward()
words = torch.topk(torch.rand(6, 4), 2).indices
torch.zeros(6, 4).index_add(0, words[:, 0], torch.ones(6, 4))
"""


@dataclass(frozen=True)
class Given:
    """What a trial gives to a surface: random numbers, a name and a folder for files."""

    rng: np.random.Generator
    name: str
    folder: Path

    def drawn(self, *options: Any) -> Any:
        return draw(self.rng, options)

    def file(self, ending: str) -> Path:
        """Return the path of a file with the name."""
        return self.folder / ((re.sub(r"[/\0\ud800]", "", self.name)[:60] or "a") + ending)

    def written(self, text: str, ending: str) -> str:
        """Write a file with the name; return its path."""
        path = self.file(ending)
        path.write_text(text, encoding="utf-8", errors="replace")
        return str(path)


def calls(given: Given) -> list[str]:
    name, drawn = given.name, given.drawn
    head = {
        "schema": drawn("npu_sim.calls/1", name),
        "recorded": {
            "not_recognised": [{"what": name, "why": name, "name": name, "count": 3}],
            "not_modelled": {name: 7},
        },
    }
    lines = [head] if drawn(True, False) else []
    text = "".join(json.dumps(line) + "\n" for line in (*lines, _call(given)))
    return ["preflight", given.written(text, ".jsonl")]


def _call(given: Given) -> dict[str, object]:
    name, drawn = given.name, given.drawn
    return {
        "op": drawn("rms_norm", name),
        "name": name,
        "inputs": {"x": drawn("4x128:fp32", name), "gamma": drawn("128:fp32", name)},
        drawn("expect", "product", "soc", "where", name): drawn(name, {name: name}, 3),
    }


def profiles(given: Given) -> list[str]:
    quoted, random = given.name.replace('"', '""'), given.rng.random
    cells = [quoted if random() < 0.6 else text for text in ("add", "RmsNorm", "4,128")]
    row = f'1,"{cells[0]}","{cells[1]}",10,5.0,0,20,"{cells[2]}"'
    head = HEADER if random() < 0.8 else f'{HEADER},"{quoted}"'
    return ["profile", given.written(f"{head}\n{row}\n", ".csv")]


def databases(given: Given) -> list[str]:
    name = given.name.replace("\ud800", "")
    changed = {text: name for text in TEXTS if given.rng.random() < 0.4}
    column = "blockDim" if given.rng.random() < 0.8 else '"' + name.replace('"', '""') + '"'
    path = write_database(given.file(".db"), [LAUNCH, LAUNCH._replace(**changed)], column)
    return ["profile", str(path)]


def products(given: Given) -> list[str]:
    content = yaml.safe_load(PROFILE)
    node, key = content, given.drawn(*content)
    while isinstance(node[key], dict) and node[key] and given.rng.random() < 0.8:
        node = node[key]
        key = given.drawn(*node)
    if given.rng.random() < 0.5:
        node[key] = given.name
    else:
        node[given.name] = node.pop(key)
    path = given.written(yaml.safe_dump(content), ".yaml")
    return [given.drawn(*ONE_CALL[:-1]), *RMS_NORM, "--product", path]


def calibrations(given: Given) -> list[str]:
    content = {given.drawn("schema", "soc", given.name): given.name, "rates": {given.name: 1}}
    return ["timeline", *RMS_NORM, "--calibration", given.written(yaml.safe_dump(content), ".yaml")]


def options(given: Given) -> list[str]:
    name = given.name
    option = given.drawn("--product", "--soc", "--release", "--limits", "--x", f"--{name}")
    return [given.drawn(*ONE_CALL, "run", "sweep", "limits", name), *RMS_NORM, option, name]


def grids(given: Given) -> list[str]:
    key = given.drawn("row", "dtype", "soc", "product", "release", given.name)
    grid = f"{key}={given.drawn('1..4', given.name, f'1,{given.name}')}"
    columns = ["--columns", given.name] if given.rng.random() < 0.3 else []
    return ["sweep", "rms_norm", "--grid", grid, *columns]


def tensors(given: Given) -> list[str]:
    return ["run", "rms_norm", "--x", given.written(given.name, ".npy"), "--gamma", given.name]


def errors(given: Given) -> list[str]:
    text = given.drawn(*ERRORS).replace("{0}", given.name)
    call = ["--call", json.dumps(_call(given))] if given.rng.random() < 0.5 else []
    return ["diagnose", given.written(text, ".txt"), *call]


def dumps(given: Given) -> list[str]:
    name, drawn = given.name, given.drawn
    tensor = {
        "type": drawn("torch.Tensor", name),
        "dtype": drawn("torch.float32", name),
        "shape": drawn([4, 128], [name]),
        **dict.fromkeys(("Max", "Min", "Mean", "Norm"), drawn(1.0, name)),
        "data_name": name,
    }
    entry = {"input_args": [tensor, drawn(tensor, name)], "input_kwargs": {}, "output": [tensor]}
    key = drawn("NPU.npu_rms_norm.0.forward", f"NPU.npu_rms_norm.{name}.forward", name)
    content = {"task": drawn("statistics", "tensor", name), "level": "L1", "data": {key: entry}}
    folder = given.folder / "step0" / "rank0"
    folder.mkdir(parents=True)
    (folder / "dump.json").write_text(json.dumps(content), encoding="utf-8")
    return ["dump", str(given.folder)]


def scripts(given: Given) -> list[str]:
    text = SCRIPT.format(name=given.name.replace("\ud800", ""))
    return ["record", "--out", str(given.folder / "calls.jsonl"), given.written(text, ".py")]


def missing_files(given: Given) -> list[str]:
    command = given.drawn("preflight", "profile", "record", "study", "diagnose", "dump")
    study = ["determinism"] if command == "study" else []
    return [command, *study, str(given.file("")), given.name]


Surface = Callable[[Given], list[str]]
CHEAP: tuple[Surface, ...] = (calls, profiles, databases, calibrations, options, grids, tensors)
CHEAP += (errors, dumps, missing_files)
SURFACES: tuple[Surface, ...] = (*4 * CHEAP, products, scripts)
"""Products and recorded scripts take ten times as long as the others, so they are rarer."""


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
