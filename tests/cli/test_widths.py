"""Examples and help of every command fit 60, 80 and 120 columns; in a pipe a record is one line.

A command runs once; its output is laid out again at every width.
"""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from rich.cells import cell_len
from typer.main import get_command

from npu_sim.cli import printing
from npu_sim.cli.app import COMMANDS as CORE
from npu_sim.cli.app import app
from npu_sim.cli.commands import demo
from npu_sim.cores import config_directory
from npu_sim.operators.loading import load_operator
from npu_sim.questions.varied_calls import example_call
from npu_sim.registry import OPERATORS
from npu_sim.show.forms.layout import UNLIMITED, render, stack
from tests.cases import every

COMMANDS = Path(__file__).parents[2] / "docs/commands.md"
NAMES = [entry.name for entry in OPERATORS]
PLANNED = ("plan", "explain", "diff", "limits", "timeline")
BOUNDED = 4
"""The slowest command, with similar output for all operators: tested for every fourth operator."""
STUDIED = ("determinism", "precision", "invariance", "certificate")
QUANTITY = re.compile(r"[\d.]+(?:e[-+]\d+)? (?:us|ms|bytes|KiB|MiB|GiB|ulp|%|MHz)(?!\w)")
OTHERS = (
    "demo --product atlas_a3",
    "caveats",
    "caveats counters",
    "limits embedding_dense_backward --vary dim --vary num_weights=1000,32000 --scale-grad-by-freq",
    "timeline embedding_dense_backward --grad 4096x512:bf16 --indices 4096:int32 --num-weights "
    "32000 --vary dim=256,512,513",
    "diff embedding_dense_backward --grad 4096x1024:bf16 --indices 4096:int32 --num-weights "
    "32000 --releases",
    "run embedding_dense_backward --grad g.npy --indices same.npy --num-weights 4 --rows",
    "study determinism embedding_dense_backward --grad g.npy --indices same.npy --num-weights 4 "
    "--rows --random-orders 2",
    "plan rms_norm_grad --dy 4096x7168:bf16 --gamma 7168:bf16 --product small.yaml",
    "plan cross_entropy_loss_grad --log-prob 262144x1000:fp32 --target 262144:int64",
    "sweep rms_norm_grad --grid row=1..100 --check 3",
    "preflight calls.jsonl --products all",
)


def examples_of_the_page():
    """Return the examples of the page of the commands, those of tools included."""
    return re.findall(r"^npu-sim (.*?)(?:  +#.*)?$", COMMANDS.read_text(encoding="utf-8"), re.M)


def examples():
    """Yield the examples of the help of every operator, of a page, and further ones."""
    for number, name in enumerate(NAMES):
        for command in PLANNED:
            if command == "limits" and number % BOUNDED:
                continue
            socs = " --socs all" if command == "timeline" else ""
            yield f"{command} {name} {example_call(load_operator(name)).options}{socs}"
        yield f"run {name} {example_call(load_operator(name), small=True).options}"
    for number, name in enumerate(NAMES):
        small = example_call(load_operator(name), small=True).options
        yield f"study {STUDIED[number % len(STUDIED)]} {name} {small}"
    yield from OTHERS
    yield from (
        line
        for line in examples_of_the_page()
        if line.split()[0] in CORE and not line.startswith(("record", "emulate", "preflight"))
    )


def helps(command, arguments=()):
    """Yield the help of a command and its subcommands."""
    yield " ".join([*arguments, "--help"])
    for name in command.list_commands(None) if hasattr(command, "list_commands") else ():
        yield from helps(command.get_command(None, name), (*arguments, name))


EXAMPLES = [*dict.fromkeys(examples())]
HELPS = [*helps(get_command(app))]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the files that the examples read."""
    np.save(tmp_path / "g.npy", np.ones((64, 8), np.float32))
    np.save(tmp_path / "i.npy", np.arange(64, dtype=np.int32))
    np.save(tmp_path / "same.npy", np.zeros(64, np.int32))
    product = (
        (config_directory() / "atlas_a2.yaml")
        .read_text(encoding="utf-8")
        .replace("ub_bytes: 196608", "ub_bytes: 98304")
    )
    (tmp_path / "small.yaml").write_text(product, encoding="utf-8")
    calls = [
        '{"op": "rms_norm_grad", "name": "layer.0.norm", "inputs": {"dy": "4096x7168:bf16", '
        '"gamma": "7168:bf16"}}',
        '{"op": "moe_token_permute", "inputs": {"tokens": "4096x2048:bf16", "indices": '
        '"4096x8:int32"}}',
        "{oops",
    ]
    (tmp_path / "calls.jsonl").write_text("\n".join([*calls, *calls]), encoding="utf-8")
    monkeypatch.setattr(demo, "ROWS", 2048)
    monkeypatch.setattr(demo, "NUM_WEIGHTS", 500)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def words_of(text):
    """Return the words of a text without punctuation; Chinese text is split at every character."""
    return {
        word for word in (word.strip("|,;:") for word in text.split()) if word and word.isascii()
    }


def test_every_command_has_an_example():
    shown = {line.split()[0] for line in EXAMPLES}
    assert CORE.keys() - shown == {
        "emulate",
        "model",
        "new-operator",
        "record",
        "verify",
    }  # libraries that may be missing; files that exist afterwards; arrays; scripts


def require_fit(cli, monkeypatch, example):
    """Fail unless what a command prints fits every width."""
    shown = []
    monkeypatch.setattr(
        printing, "print_to", lambda screen, view: shown.append((screen.width, view))
    )
    assert cli(*shlex.split(example)).code in (0, 1, 2)
    assert {width for width, _ in shown} == {UNLIMITED}, (
        "everything is shown through the one place, and not wrapped in a pipe"
    )
    view = stack(*(view for _, view in shown))
    unlimited = render(view, UNLIMITED)
    for width in (60, 80, 120):
        printed = render(view, width)
        assert words_of(printed) <= words_of(unlimited), f"at {width} columns"
        assert not re.search(r"[ \t]$", printed, re.M)
        assert not [
            quantity for quantity in QUANTITY.findall(unlimited) if quantity not in printed
        ], f"at {width} columns"
        assert not [
            line
            for line in printed.splitlines()
            if cell_len(line) > width and len(line.split()) > 1
        ], f"at {width} columns"
    assert not re.search(r"[ \t]$", unlimited, re.M)


@pytest.mark.parametrize("example", every(8, [*EXAMPLES, *HELPS]))
def test_an_example_fits_every_width(cli, folder, monkeypatch, example):
    require_fit(cli, monkeypatch, example)
