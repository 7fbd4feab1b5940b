import json
from xml.etree import ElementTree

import pytest

CALL = {"op": "embedding_dense_backward", "inputs": {"grad": "64x8:fp32", "indices": "64:int32", "num_weights": 10}}
REFUSED = {**CALL, "product": "atlas_inference"}


@pytest.fixture
def calls(tmp_path):
    """A function that writes a file of calls."""

    def write(*lines):
        path = tmp_path / "calls.jsonl"
        path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines) + "\n", encoding="utf-8")
        return path

    return write


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")


def test_a_file_of_calls_that_run_exits_0(cli, calls):
    done = cli("preflight", calls(CALL, {**CALL, "soc": "Ascend910A"}))
    assert done.code == 0
    text = " ".join(done.out.split())
    assert "calls 2: 2 runs" in text
    assert "bytes of workspace, line 1" in text


def test_refused_and_malformed_lines_are_listed_and_exit_1(cli, calls):
    done = cli("preflight", calls(CALL, REFUSED, "{oops", CALL))
    assert done.code == 1
    text = " ".join(done.out.split())
    assert "calls 4: 2 runs, 1 refused, 1 malformed" in text
    assert "2 embedding_dense_backward Ascend310P3 refused 161002" in text
    assert "3 malformed not JSON" in text


def test_a_refusal_that_is_expected_exits_0(cli, calls):
    assert cli("preflight", calls({**REFUSED, "expect": {"status": 161002}})).code == 0
    assert cli("preflight", calls({**REFUSED, "expect": {"status": 0}})).code == 1


def test_results_have_a_line_each_with_the_whole_plan(cli, calls, tmp_path):
    cli("preflight", calls(CALL, REFUSED, "{oops"), "--out", tmp_path / "results.jsonl")
    results = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [(one["line"], one["outcome"], one["fine"]) for one in results] == [
        (1, "runs", True),
        (2, "refused", False),
        (3, "malformed", False),
    ]
    assert results[0]["plan"]["workspace"]["total_bytes"] == results[0]["workspace_bytes"]
    assert not list(tmp_path.glob("*.new"))


def test_junit_counts_and_names_every_line(cli, calls, tmp_path):
    bad = {**CALL, "op": 'no <"such"> & op\u0001'}
    cli("preflight", calls(CALL, REFUSED, bad, {**CALL, "expect": {"block_dim": -1}}), "--junit", tmp_path / "junit.xml")
    suite = ElementTree.parse(tmp_path / "junit.xml").getroot()
    assert suite.attrib == {"name": "calls.jsonl", "tests": "4", "failures": "2", "errors": "1"}
    cases = list(suite)
    assert [[child.tag for child in case] for case in cases] == [[], ["failure"], ["error"], ["failure"]]
    assert "not supported" in cases[1][0].text
    assert 'no <"such"> & op' in cases[2][0].text
    assert "block_dim: expected -1, found 48" in cases[3][0].text


def test_json_holds_summary_and_results(cli, calls):
    data = cli("preflight", calls(CALL, "[]"), "--json").data
    assert (data["summary"]["runs"], data["summary"]["malformed"], data["summary"]["not_fine"]) == (1, 1, 1)
    assert data["summary"]["peak_workspace_bytes"] == data["results"][0]["workspace_bytes"]
    assert "plan" not in data["results"][0]


def test_the_default_product_is_for_lines_that_name_none(cli, calls):
    done = cli("preflight", calls(CALL, {**CALL, "product": "atlas_a3"}), "--product", "atlas_train", "--json")
    assert [one["product"] for one in done.data["results"]] == ["atlas_train", "atlas_a3"]


def test_a_file_that_is_not_there_exits_2(cli, tmp_path):
    done = cli("preflight", tmp_path / "none.jsonl")
    assert done.code == 2
    assert "none.jsonl" in done.err


def test_bytes_that_are_no_text_are_a_malformed_line(cli, tmp_path):
    path = tmp_path / "calls.jsonl"
    path.write_bytes(b"\xff\xfe\x00garbage\n" + json.dumps(CALL).encode() + b"\n")
    done = cli("preflight", path, "--json")
    assert [one["outcome"] for one in done.data["results"]] == ["malformed", "runs"]
