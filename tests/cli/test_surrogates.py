"""Names that are no valid Unicode."""

import json
from xml.etree import ElementTree

from tests.cli.runner import npu_sim as run_here

CALLS = '{"op": "rms_norm", "inputs": {"x": "4x128:fp32", "gamma": "128:fp32"}}\n'


def test_an_unpaired_surrogate_is_written_to_every_output_of_preflight(
    tmp_path, monkeypatch, capsys
):
    (tmp_path / "calls.jsonl").write_text(
        '{"op": "\\ud800", "inputs": {}}\n' + CALLS, encoding="utf-8"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "step.md")
    files = ("--out", "checked.jsonl", "--junit", "checked.xml", "--report", "checked.html")
    assert run_here(capsys, monkeypatch, "preflight", "calls.jsonl", *files).code == 1
    checked = [
        json.loads(line)
        for line in (tmp_path / "checked.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    assert [line["outcome"] for line in checked] == ["malformed", "runs"]
    assert checked[0]["op"] == "\ud800"
    assert len(list(ElementTree.parse(tmp_path / "checked.xml").iter("testcase"))) == 2
