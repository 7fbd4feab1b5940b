"""Names in files control neither the terminal, nor the log of a workflow, nor its summary."""

import json
import re
from pathlib import Path

import pytest

NAME = "a\n::stop-commands::tok\x1b[2J\x07\x9b1m\u202e\u2066<img src=x onerror=y>|`[b](c)*&\r\t\x85"
CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e\u2066]")
CALLS = (
    {"op": "rms_norm", "name": NAME, "inputs": {"x": "4x128:fp32", "gamma": "128:fp32"}},
    {"op": "rms_norm", "name": NAME, "inputs": {"x": "4x128:fp32", "gamma": f"128:{NAME}"}},
    {"op": NAME, "inputs": {"x": NAME}},
)
HEAD = {
    "schema": "npu_sim.calls/1",
    "recorded": {
        "not_recognised": [{"what": NAME, "why": NAME, "name": NAME, "count": 3}],
        "not_modelled": {NAME: 7},
    },
}


@pytest.fixture
def calls(tmp_path, monkeypatch):
    """A file of calls with these names, checked in a workflow of GitHub."""
    path = tmp_path / "calls.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in (HEAD, *CALLS)), encoding="utf-8")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    return path


def commands(text):
    """Return the commands in a log, as the runner of a workflow finds them."""
    return [line.split()[0] for line in text.splitlines() if line.strip().startswith("::")]


@pytest.mark.parametrize("width", [None, "40"])
@pytest.mark.parametrize("language", ["en", "zh"])
def test_preflight_escapes_names(cli, monkeypatch, calls, width, language):
    monkeypatch.setenv("NPU_SIM_LANG", language)
    if width:
        monkeypatch.setenv("COLUMNS", width)
    done = cli("preflight", calls)
    assert done.code == 1
    assert "a\\n::stop-commands::tok\\u001b[2J\\u0007\\u009b1m\\u202e\\u2066<img" in done.out
    assert CONTROL.findall(done.out + done.err) == []
    assert commands(done.out) == ["::error"] * 2


def test_json_escapes_control_characters_and_keeps_the_data(cli, calls):
    done = cli("preflight", calls, "--json")
    assert CONTROL.findall(done.out) == []
    assert done.data["results"][0]["name"] == NAME


def test_the_step_summary_escapes_names(cli, calls, tmp_path):
    cli("preflight", calls)
    text = (tmp_path / "summary.md").read_text(encoding="utf-8")
    table, faults = text.split("\n\n")
    assert [line.count("|") for line in table.splitlines()] == [5] * 5
    assert len(faults.splitlines()) == 2
    assert CONTROL.findall(text) == []
    assert re.findall(r"[<>`\[\]*]|&(?!#\d+;)", text) == []


FILE_NAME = "a\n::stop-commands::tok"
SHOWN = "a\\n::stop-commands::tok"
PLANNED = ("rms_norm", "--x", "4x128:fp32", "--gamma", "128:fp32", "--product")


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize(
    "arguments",
    [
        ("preflight", f"{FILE_NAME}.jsonl"),
        ("plan", *PLANNED, f"{FILE_NAME}.yaml"),
        ("explain", *PLANNED, f"{FILE_NAME}.yaml"),
        ("plan", "rms_norm", "--x", f"{FILE_NAME}.npy", "--gamma", "128:fp32"),
    ],
)
def test_errors_show_a_newline_in_a_file_name_escaped(
    cli, monkeypatch, tmp_path, arguments, language
):
    monkeypatch.setenv("NPU_SIM_LANG", language)
    monkeypatch.chdir(tmp_path)
    done = cli(*arguments)
    assert done.code != 0
    assert SHOWN in done.err
    assert commands(done.out + "\n" + done.err) == []


@pytest.mark.parametrize("command", ["plan", "explain"])
def test_headlines_show_a_newline_in_a_title_escaped(cli, tmp_path, command):
    text = (Path(__file__).parents[2] / "configs/atlas_a2.yaml").read_text(encoding="utf-8")
    title = json.dumps(f"{FILE_NAME} product")
    changed, count = re.subn("(?m)^title: .*$", lambda match: f"title: {title}", text)
    assert count == 1
    path = tmp_path / "own.yaml"
    path.write_text(changed, encoding="utf-8")
    done = cli(command, *PLANNED, path)
    assert done.code == 0, done.err
    assert SHOWN in done.out.splitlines()[0]
    assert commands(done.out) == []


def test_an_unpaired_surrogate_in_a_product_file_is_refused(cli, tmp_path):
    text = (Path(__file__).parents[2] / "configs/atlas_a2.yaml").read_text(encoding="utf-8")
    path = tmp_path / "own.yaml"
    path.write_text(re.sub("(?m)^title: .*$", r'title: "\\ud800"', text), encoding="utf-8")
    done = cli("plan", *PLANNED, path)
    assert done.code == 64
    assert "an unpaired surrogate" in done.err
