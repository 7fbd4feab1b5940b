"""Every JSON document names its schema."""

import csv
import json
import re
from pathlib import Path

import pytest

from npu_sim.files.writing import VERSIONS

EMBEDDING = [
    "embedding_dense_backward",
    "--grad",
    "64x8:fp32",
    "--indices",
    "64:int32",
    "--num-weights",
    "10",
]
DOCUMENT = Path(__file__).parents[2] / "docs" / "json.md"
COMMANDS = {
    "plan": ["plan", *EMBEDDING],
    "run": ["run", *EMBEDDING],
    "timeline": ["timeline", *EMBEDDING],
    "explain": ["explain", *EMBEDDING],
    "diff": ["diff", *EMBEDDING],
    "limits": ["limits", *EMBEDDING[:1], "--vary", "num_weights", "--products", "atlas_a2"],
    "study": ["study", "invariance", *EMBEDDING],
    "caveats": ["caveats"],
    "products": ["products"],
    "error": ["plan", *EMBEDDING, "--product", "atlas_inference"],
    "usage": ["plan", *EMBEDDING, "--product", "atlas_9"],
}


@pytest.mark.parametrize("form", COMMANDS)
def test_the_json_of_a_command_names_its_schema(cli, form):
    assert cli(*COMMANDS[form], "--json").data["schema"] == f"npu_sim.{form}/{VERSIONS[form]}"


def test_a_sweep_and_its_folder_name_their_schemas(cli, tmp_path):
    outcome = cli("sweep", "rms_norm", "--grid", "row=1..4", "--out", tmp_path / "plans", "--json")
    assert outcome.data["schema"] == "npu_sim.sweep/1"
    assert (
        json.loads((tmp_path / "plans" / "sweep.json").read_text(encoding="utf-8"))["schema"]
        == "npu_sim.columns/1"
    )


def test_every_schema_is_documented():
    rows = [
        line for line in DOCUMENT.read_text(encoding="utf-8").splitlines() if line.startswith("| `")
    ]
    documented = {name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert VERSIONS.keys() <= documented


NORM = ("rms_norm", "--x", "64x64:bf16", "--gamma", "64:bf16")


@pytest.mark.parametrize("command", ["plan", "diff", "limits"])
def test_csv_has_the_numbers_of_json(cli, command):
    options = ("--products", "atlas_a2,atlas_a3") if command != "plan" else ()
    data = cli(command, *NORM, *options, "--json").data
    records = [data["plan"]] if command == "plan" else data["rows"]
    rows = list(csv.DictReader(cli(command, *NORM, *options, "--csv").out.splitlines()))
    assert len(rows) == len(records)
    for row, record in zip(rows, records, strict=True):
        assert row["product"] == record["product"]
        if command == "plan":
            assert row["tiling.num_col"] == str(record["tiling"]["num_col"])
        if command == "diff":
            assert row["buffer.used_bytes"] == str(record["buffer"]["used_bytes"])
            assert row["socs"] == " ".join(record["socs"])
